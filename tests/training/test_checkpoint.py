from pathlib import Path

import pytest
import torch

from bertpre.artefacts import read_manifest, write_manifest
from bertpre.config.schema import Config
from bertpre.data.dataset import PretrainingData
from bertpre.errors import CheckpointError
from bertpre.training.checkpoint import load_checkpoint, restore, save_checkpoint, save_final
from bertpre.training.checks import check_pretraining
from bertpre.training.run_folder import find_checkpoint, remove_old_checkpoints
from bertpre.training.setup import Setup, set_up


@pytest.fixture
def setup(tmp_path: Path, tiny_data: Path, tiny_config: Config) -> Setup:
    plan = check_pretraining(tiny_data, output=tmp_path / "new", config=tiny_config)
    return set_up(PretrainingData(tiny_data), tiny_config, plan, max_steps=12)


def save(run: Path, setup: Setup) -> Path:
    # One update, so that the optimizer has moments to save.
    for parameter in setup.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    setup.optimizer.step()
    return save_checkpoint(run, setup, restore(run, setup))


def test_weights_and_moments_come_back_bit_by_bit(tmp_path: Path, setup: Setup) -> None:
    folder = save(tmp_path, setup)
    weights = {name: value.clone() for name, value in setup.model.state_dict().items()}
    moments = {name: value.clone() for name, value in setup.optimizer.state().items()}
    setup.optimizer.step()

    load_checkpoint(folder, setup)

    for name, value in setup.model.state_dict().items():
        assert torch.equal(value, weights[name]), name
    assert setup.optimizer.state().keys() == moments.keys()
    assert {name.rpartition("/")[2] for name in moments} == {"step", "exp_avg", "exp_avg_sq"}
    for name, value in setup.optimizer.state().items():
        assert torch.equal(value, moments[name]), name


def test_a_manifest_says_what_the_checkpoint_was_made_from(tmp_path: Path, setup: Setup) -> None:
    manifest = read_manifest(save(tmp_path, setup), "checkpoint")

    assert manifest["data"] == setup.data.manifest["fingerprint"]
    assert manifest["max_seq_length"] == 48
    assert manifest["objective"] == "mlm-nsp"
    assert manifest["step"] == 0


def test_nothing_is_pickled(tmp_path: Path, setup: Setup) -> None:
    folder = save(tmp_path, setup)

    suffixes = {path.suffix for path in folder.rglob("*") if path.is_file()}
    assert suffixes == {".safetensors", ".json", ".txt"}


def test_find_checkpoint_takes_final_then_the_newest(tmp_path: Path, setup: Setup) -> None:
    folder = save(tmp_path, setup)
    assert find_checkpoint(folder) == folder
    assert find_checkpoint(tmp_path) == folder

    final = save_final(tmp_path, setup, step=1)

    assert find_checkpoint(tmp_path) == final


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing", "missing: there is no such folder; expected a checkpoint or a run folder"),
        ("empty", r"empty: is not a model folder; expected config\.json, final/ or checkpoints/"),
        ("run", "run: is a run without a complete checkpoint; expected"),
    ],
)
def test_a_folder_without_a_model_is_named(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run/config.yaml").write_text("seed: 0\n")

    with pytest.raises(CheckpointError, match=message):
        find_checkpoint(tmp_path / name)


def test_of_several_models_one_has_to_be_named(tmp_path: Path) -> None:
    folder = tmp_path / "folds"
    folder.mkdir()
    write_manifest(folder, "model", {"members": ["fold-1", "fold-2"]})

    with pytest.raises(CheckpointError) as caught:
        find_checkpoint(folder)

    assert str(caught.value) == (
        f"{folder}: holds 2 models; only `bertpre predict` can use several at once — name one of "
        f"them, such as {folder / 'fold-1'}"
    )


def test_a_checkpoint_without_trainer_state_cannot_be_resumed(tmp_path: Path, setup: Setup) -> None:
    final = save_final(tmp_path, setup, step=1)

    with pytest.raises(CheckpointError, match="final: has no trainer state to resume from"):
        load_checkpoint(final, setup)


def test_old_checkpoints_go_but_for_the_best(tmp_path: Path) -> None:
    for step in range(1, 7):
        (tmp_path / f"checkpoints/step-{step:08d}").mkdir(parents=True)

    remove_old_checkpoints(tmp_path, keep=2, kept_steps=(3, None))

    kept = sorted(path.name[-1] for path in (tmp_path / "checkpoints").iterdir())
    assert kept == ["3", "5", "6"]
