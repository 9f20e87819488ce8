import itertools
import json
import math
import random
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from bertpre.config.load import config_to_dict, parse_config
from bertpre.config.schema import Config, MakeData
from bertpre.data.dataset import PretrainingData
from bertpre.data.make_data import make_data
from bertpre.errors import CheckpointError, ConfigError, DataFormatError, TrainingError
from bertpre.training.metrics import read_metrics
from bertpre.training.pretrain import PretrainResult, Progress, pretrain

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def changed(config: Config, **pretrain: Any) -> Config:
    return replace(config, pretrain=replace(config.pretrain, **pretrain))


def run_to(step: int, data: Path, output: Path, config: Config) -> PretrainResult:
    """Train until that step, stop as a signal would, and return."""
    seen: list[int] = []
    return pretrain(
        data,
        output=output,
        config=config,
        should_stop=lambda: bool(seen) and seen[-1] >= step,
        on_event=lambda event: seen.append(getattr(event, "step", 0)),
    )


@pytest.fixture(scope="module")
def unbroken(
    tmp_path_factory: pytest.TempPathFactory, tiny_data: Path, tiny_config: Config
) -> Path:
    torch.set_num_threads(2)
    output = tmp_path_factory.mktemp("runs") / "unbroken"
    pretrain(tiny_data, output=output, config=tiny_config)
    return output


def weights(run: Path) -> bytes:
    return (run / "final" / "model.safetensors").read_bytes()


def untimed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    times = {"seconds", "tokens_per_second", "data_wait_share", "matmul_peak_share"}
    return [{k: v for k, v in row.items() if k not in times} for row in rows]


def scores_of_checkpoints(run: Path) -> dict[str, Any]:
    """What each manifest says was measured at its step."""
    manifests = (run / "checkpoints").glob("*/manifest.json")
    return {p.parent.name: json.loads(p.read_text()).get("held_out") for p in manifests}


@pytest.mark.parametrize("step", [4, 12])
def test_a_stop_in_an_evaluation_leaves_it_to_the_next_call(
    tmp_path: Path, unbroken: Path, tiny_data: Path, tiny_config: Config, step: int
) -> None:
    run, asked = tmp_path / "run", []

    def note(event: object) -> None:
        if isinstance(event, Progress):
            asked[:] = [event.step]  # its update is asked about next, then each held-out batch

    def should_stop() -> bool:
        asked.append(0)
        return asked[0] == step and len(asked) > 2

    first = pretrain(
        tiny_data, output=run, config=tiny_config, should_stop=should_stop, on_event=note
    )
    rows = read_metrics(run)
    second = pretrain(tiny_data, output=run, config=tiny_config)

    assert (first.step, first.is_finished) == (step, False)
    assert [row["split"] for row in rows if row["step"] == step] == ["train"]
    assert second.is_finished
    assert weights(run) == weights(unbroken)
    assert untimed(read_metrics(run)) == untimed(read_metrics(unbroken))
    assert scores_of_checkpoints(run) == scores_of_checkpoints(unbroken)


def test_a_run_folder_holds_what_was_promised(unbroken: Path) -> None:
    names = {p.relative_to(unbroken).as_posix() for p in unbroken.rglob("*") if p.is_file()}

    checkpoint = {
        "config.json",
        "manifest.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.txt",
    }
    assert {n for n in names if not n.startswith("checkpoints/")} == {
        ".lock",
        "config.yaml",
        "curves.png",
        "metrics.jsonl",
        *(f"final/{name}" for name in checkpoint),
    }
    for step in (4, 8, 12):
        folder = f"checkpoints/step-{step:08d}"
        inside = {n.removeprefix(f"{folder}/") for n in names if n.startswith(folder)}
        assert inside == checkpoint | {"trainer/optimizer.safetensors", "trainer/state.json"}
    assert (unbroken / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_metrics_have_their_lines_and_names(unbroken: Path) -> None:
    rows = read_metrics(unbroken)

    train = [row["step"] for row in rows if row["split"] == "train"]
    held_out = [row["step"] for row in rows if row["split"] == "eval"]
    assert train == [1, 2, 4, 6, 8, 10, 12]
    assert held_out == [4, 8, 12]
    losses = {"mlm_loss", "mlm_accuracy", "nsp_loss", "nsp_accuracy"}
    always = {"step", "split", "epoch", "tokens_seen", "seconds"} | losses
    rates = {"learning_rate", "grad_norm", "tokens_per_second", "data_wait_share"}
    assert set(rows[0]) == always | rates | {"matmul_peak_share"}
    assert set(rows[-1]) == always | {"unigram_loss", "mlm_perplexity"}
    assert math.log(rows[-1]["mlm_perplexity"]) == pytest.approx(rows[-1]["mlm_loss"])
    # 12 updates, warm-up 0.06 * 12 rounds to 1: the peak on the first, an eleventh on the last.
    assert rows[0]["learning_rate"] == pytest.approx(1e-3)
    assert [row for row in rows if row["split"] == "train"][-1]["learning_rate"] == pytest.approx(
        1e-3 / 11
    )


def test_the_first_loss_is_that_of_guessing(
    tmp_path: Path, tiny_data: Path, tiny_config: Config
) -> None:
    pretrain(tiny_data, output=tmp_path / "run", config=changed(tiny_config, max_steps=1))

    first = read_metrics(tmp_path / "run")[0]
    vocab_size = len((tmp_path / "run/final/vocab.txt").read_text().splitlines())
    assert first["mlm_loss"] == pytest.approx(torch.log(torch.tensor(vocab_size)).item(), rel=0.05)
    assert first["nsp_loss"] == pytest.approx(0.693, rel=0.05)


def test_equal_runs_give_equal_bytes(
    tmp_path: Path, tiny_data: Path, tiny_config: Config, unbroken: Path
) -> None:
    pretrain(tiny_data, output=tmp_path / "run", config=tiny_config)

    assert weights(tmp_path / "run") == weights(unbroken)
    for step in (4, 12):
        name = f"checkpoints/step-{step:08d}/trainer/optimizer.safetensors"
        assert (tmp_path / "run" / name).read_bytes() == (unbroken / name).read_bytes()


@pytest.mark.parametrize("stop", [1, 3, 4, 7])
def test_a_stopped_run_goes_on_to_the_same_bits(
    tmp_path: Path, tiny_data: Path, tiny_config: Config, unbroken: Path, stop: int
) -> None:
    stopped = run_to(stop, tiny_data, tmp_path / "run", tiny_config)
    assert stopped.step == stop
    assert stopped.model == tmp_path / f"run/checkpoints/step-{stop:08d}"

    result = pretrain(tiny_data, output=tmp_path / "run", config=tiny_config)

    assert (result.step, result.is_finished) == (12, True)
    assert weights(tmp_path / "run") == weights(unbroken)
    assert untimed(read_metrics(tmp_path / "run")) == untimed(read_metrics(unbroken))


KILLED_AT_STEP = """
import os, sys, signal
from pathlib import Path
import torch
import bertpre.training.checkpoint as checkpoint
from bertpre.config.load import load_config
from bertpre.training.pretrain import pretrain

data, output, config, step, where = sys.argv[1:]
torch.set_num_threads(2)

def die(*args):
    os.kill(os.getpid(), signal.SIGKILL)

def watch(event):
    if getattr(event, "step", 0) == int(step):
        if where == "update":
            die()
        checkpoint.write_manifest = die  # in the middle of the next save

pretrain(data, output=output, config=load_config(config), on_event=watch)
"""


def test_kill_9_at_any_moment_leads_to_the_same_bits(
    tmp_path: Path, tiny_data: Path, tiny_config: Config, unbroken: Path
) -> None:
    output, config = tmp_path / "run", tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(config_to_dict(tiny_config)))
    # Before the first checkpoint, in the first save, between checkpoints, in a later save.
    for step, where in ((2, "update"), (4, "save"), (6, "update"), (8, "save")):
        command = [sys.executable, "-c", KILLED_AT_STEP, tiny_data, output, config, step, where]
        killed = subprocess.run([str(part) for part in command], check=False)
        assert killed.returncode == -9
    assert [p.name for p in (output / "checkpoints").glob("step-*")] == ["step-00000004"]

    pretrain(tiny_data, output=output, config=tiny_config)

    assert weights(output) == weights(unbroken)
    assert untimed(read_metrics(output)) == untimed(read_metrics(unbroken))
    assert not list((output / "checkpoints").glob(".*"))


def test_a_damaged_newest_checkpoint_is_passed_over(
    tmp_path: Path,
    tiny_data: Path,
    tiny_config: Config,
    unbroken: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    run_to(9, tiny_data, tmp_path / "run", tiny_config)
    damaged = tmp_path / "run/checkpoints/step-00000009/model.safetensors"
    damaged.write_bytes(damaged.read_bytes()[: damaged.stat().st_size // 2])

    pretrain(tiny_data, output=tmp_path / "run", config=tiny_config)

    assert "step-00000009/model.safetensors: expected" in caplog.text
    assert "this checkpoint is skipped" in caplog.text
    assert weights(tmp_path / "run") == weights(unbroken)


def test_a_finished_run_is_left_alone(
    tmp_path: Path, tiny_data: Path, tiny_config: Config, unbroken: Path
) -> None:
    before = {p: p.stat().st_mtime_ns for p in unbroken.rglob("*")}

    result = pretrain(tiny_data, output=unbroken, config=tiny_config)

    assert result.was_finished
    assert result.model == unbroken / "final"
    assert {p: p.stat().st_mtime_ns for p in unbroken.rglob("*")} == before


def test_a_finished_run_without_its_metrics_is_still_finished(
    tmp_path: Path, tiny_data: Path, tiny_config: Config, unbroken: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(unbroken, run)
    (run / "metrics.jsonl").unlink()

    result = pretrain(tiny_data, output=run, config=tiny_config)

    assert (result.step, result.was_finished) == (12, True)


def test_other_options_do_not_mix_into_a_run(tiny_data: Path, tiny_config: Config, unbroken: Path):
    other = replace(changed(tiny_config, max_steps=20), seed=5)
    other = replace(other, model=replace(other.model, num_hidden_layers=3))

    with pytest.raises(ConfigError) as error:
        pretrain(tiny_data, output=unbroken, config=other)

    for line in (
        "seed: was 1, now 5",
        "model.num_hidden_layers: was 2, now 3",
        "pretrain.max_steps: was 12, now 20",
        "start again with --overwrite",
    ):
        assert line in str(error.value)


def test_how_often_things_are_saved_may_change(
    tmp_path: Path, tiny_data: Path, tiny_config: Config, unbroken: Path
) -> None:
    run_to(5, tiny_data, tmp_path / "run", tiny_config)

    often = changed(tiny_config, save_every_steps=1, keep_checkpoints=2, eval_every_steps=1)
    pretrain(tiny_data, output=tmp_path / "run", config=often)

    assert weights(tmp_path / "run") == weights(unbroken)
    evals = {
        r["step"]: r["mlm_loss"] for r in read_metrics(tmp_path / "run") if r["split"] == "eval"
    }
    best = min((step for step in evals if step > 5), key=lambda step: evals[step])
    kept = {p.name for p in (tmp_path / "run/checkpoints").iterdir()}
    assert kept == {f"step-{step:08d}" for step in (best, 11, 12)}


def test_gradient_checkpointing_may_be_turned_on_later_and_changes_no_bit(
    tmp_path: Path, tiny_data: Path, tiny_config: Config, unbroken: Path
) -> None:
    assert tiny_config.model.hidden_dropout_prob > 0  # whose masks are drawn a second time
    run_to(5, tiny_data, tmp_path / "run", tiny_config)

    pretrain(
        tiny_data, output=tmp_path / "run", config=changed(tiny_config, gradient_checkpointing=True)
    )

    assert weights(tmp_path / "run") == weights(unbroken)


def test_another_micro_batch_size_is_allowed_and_said(
    tmp_path: Path, tiny_data: Path, tiny_config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    run_to(5, tiny_data, tmp_path / "run", tiny_config)

    run_to(6, tiny_data, tmp_path / "run", changed(tiny_config, micro_batch_size=8))

    assert "micro_batch_size was 4 before and is 8 now: the result may differ" in caplog.text


def test_the_number_of_threads_is_taken_from_the_checkpoint(
    tmp_path: Path, tiny_data: Path, tiny_config: Config, unbroken: Path
) -> None:
    run_to(5, tiny_data, tmp_path / "run", tiny_config)
    torch.set_num_threads(1)

    pretrain(tiny_data, output=tmp_path / "run", config=tiny_config)

    assert torch.get_num_threads() == 2
    assert weights(tmp_path / "run") == weights(unbroken)


def test_overwrite_starts_a_run_again(
    tmp_path: Path, tiny_data: Path, tiny_config: Config, unbroken: Path
) -> None:
    run_to(3, tiny_data, tmp_path / "run", replace(tiny_config, seed=9))

    pretrain(tiny_data, output=tmp_path / "run", config=tiny_config, overwrite=True)

    assert weights(tmp_path / "run") == weights(unbroken)


def test_a_dry_run_sends_the_summary_and_writes_nothing(
    tmp_path: Path, tiny_data: Path, tiny_config: Config
) -> None:
    events: list[Any] = []

    pretrain(
        tiny_data, output=tmp_path / "run", config=tiny_config, dry_run=True, on_event=events.append
    )

    assert not (tmp_path / "run").exists()
    (summary,) = events
    assert summary["updates"] == "12 of 8 examples (2 forward passes each)"
    assert summary["device"] == "cpu, fp32, 2 threads"
    # Too few for millions: 96 examples of some thousand tokens.
    data = PretrainingData(tiny_data)
    epochs, a_pass = 96 / len(data.records), data.manifest["report"]["tokens_per_epoch"]
    assert summary["epochs"] == f"{epochs:.2g}, {round(epochs * a_pass):,} tokens"


def test_a_corpus_smaller_than_a_batch_trains(
    tmp_path: Path, tiny_tokenizer: Path, tiny_config: Config
) -> None:
    text = tmp_path / "three.txt"
    text.write_text(
        "the cat sees.\na dog.\n\nthe moon.\nmy sister likes it.\n\none boat.\nan end.\n"
    )
    config = MakeData(max_seq_length=32, dupe_factor=1, workers=1)
    make_data([text], tokenizer=tiny_tokenizer, output=tmp_path / "data", config=config)

    big = changed(tiny_config, global_batch_size=64, micro_batch_size=None, max_steps=3)
    pretrain(tmp_path / "data", output=tmp_path / "run", config=big)

    rows = read_metrics(tmp_path / "run")
    assert rows[-1]["step"] == 3
    assert rows[-1]["epoch"] > 10


def test_text_without_sentence_pairs_trains_without_nsp(
    tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path, tiny_config: Config
) -> None:
    config = MakeData(max_seq_length=32, objective="mlm", workers=1)
    make_data([tiny_corpus], tokenizer=tiny_tokenizer, output=tmp_path / "data", config=config)

    pretrain(tmp_path / "data", output=tmp_path / "run", config=tiny_config)

    assert "nsp_loss" not in read_metrics(tmp_path / "run")[0]
    config_json = json.loads((tmp_path / "run/final/config.json").read_text())
    assert config_json["architectures"] == ["BertForMaskedLM"]


def test_a_diverging_run_keeps_its_last_checkpoint(
    tmp_path: Path, tiny_data: Path, tiny_config: Config
) -> None:
    absurd = replace(tiny_config.pretrain.optimizer, learning_rate=1e30)
    config = changed(tiny_config, optimizer=absurd, save_every_steps=1)

    with pytest.raises(TrainingError, match="expected finite numbers"):
        pretrain(tiny_data, output=tmp_path / "run", config=config)

    assert list((tmp_path / "run/checkpoints").glob("step-*"))
    assert not (tmp_path / "run/final").exists()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"vocab_size": 999}, "model.vocab_size: 999, but .* has "),
        ({"num_attention_heads": 3}, "num_attention_heads: 3 does not divide .*hidden_size: 32"),
        ({"max_position_embeddings": 16}, "max_position_embeddings: 16, but .* up to 48 tokens"),
        (
            {"position_embeddings": "sinusoidal", "hidden_size": 33, "num_attention_heads": 3},
            "hidden_size: 33, but sinusoidal",
        ),
    ],
)
def test_a_model_that_does_not_fit_the_data_is_refused(
    tmp_path: Path, tiny_data: Path, tiny_config: Config, model: dict[str, Any], message: str
) -> None:
    config = replace(tiny_config, model=replace(tiny_config.model, **model))

    with pytest.raises(ConfigError, match=message):
        pretrain(tiny_data, output=tmp_path / "run", config=config)

    assert not (tmp_path / "run").exists()


def test_tensorboard_without_its_package_is_refused(
    tmp_path: Path, tiny_data: Path, tiny_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    config = changed(tiny_config, tensorboard=True)

    with pytest.raises(ConfigError, match="the package tensorboard is not installed") as caught:
        pretrain(tiny_data, output=tmp_path / "run", config=config)

    assert caught.value.hint == "pip install 'bertpre[tensorboard]'"
    assert not (tmp_path / "run").exists()


def test_a_rate_for_static_masks_is_refused(
    tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path, tiny_config: Config
) -> None:
    config = MakeData(max_seq_length=48, masking="static", workers=1)
    make_data([tiny_corpus], tokenizer=tiny_tokenizer, output=tmp_path / "data", config=config)

    with pytest.raises(
        ConfigError, match=r"mlm_probability: 0\.3, but the masks .* drawn at 0\.15"
    ):
        pretrain(
            tmp_path / "data",
            output=tmp_path / "run",
            config=changed(tiny_config, mlm_probability=0.3),
        )


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path, tiny_data: Path, tiny_config: Config):
    (tmp_path / "notes.txt").write_text("mine")

    with pytest.raises(ConfigError, match=r"exists and is not a run folder \(it has no config"):
        pretrain(tiny_data, output=tmp_path, config=tiny_config)


@pytest.mark.parametrize(
    "text", ["model: 1", "seed: [", "", "{seed: 1, data: x, model: 5, pretrain: {}}"]
)
def test_a_run_config_that_cannot_be_read_is_an_error(
    tmp_path: Path, tiny_data: Path, tiny_config: Config, text: str
) -> None:
    (tmp_path / "config.yaml").write_text(text)

    with pytest.raises(CheckpointError, match=r"config\.yaml: (is not the config|cannot be read)"):
        pretrain(tiny_data, output=tmp_path, config=tiny_config)


def test_data_of_another_folder_is_refused_on_resume(
    tmp_path: Path, tiny_data: Path, tiny_corpus: Path, tiny_tokenizer: Path, tiny_config: Config
) -> None:
    run_to(2, tiny_data, tmp_path / "run", tiny_config)
    config = MakeData(max_seq_length=48, dupe_factor=3, workers=1)
    make_data([tiny_corpus], tokenizer=tiny_tokenizer, output=tmp_path / "other", config=config)

    with pytest.raises(ConfigError, match="data: was '"):
        pretrain(tmp_path / "other", output=tmp_path / "run", config=tiny_config)


def test_damaged_data_is_refused(tmp_path: Path, tiny_data: Path, tiny_config: Config) -> None:
    shutil.copytree(tiny_data, tmp_path / "data")
    (tmp_path / "data/tokens/00000.ids.bin").write_bytes(b"short")

    with pytest.raises(DataFormatError, match=r"00000\.ids\.bin: expected [\d,]+ bytes, found 5"):
        pretrain(tmp_path / "data", output=tmp_path / "run", config=tiny_config)


@pytest.mark.slow
def test_a_tiny_language_is_learnt_beyond_its_word_frequencies(
    tmp_path: Path, tiny_data: Path
) -> None:
    config = parse_config(
        {
            "model": {
                "hidden_size": 64,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "intermediate_size": 128,
                "hidden_dropout_prob": 0.0,
                "attention_probs_dropout_prob": 0.0,
            },
            "pretrain": {
                "optimizer": {"learning_rate": 3e-3},
                "max_steps": 400,
                "global_batch_size": 32,
                "eval_every_steps": 400,
                "save_every_steps": 400,
                "device": "cpu",
            },
        }
    )

    result = pretrain(tiny_data, output=tmp_path / "run", config=config)

    assert result.held_out is not None
    assert result.held_out.unigram_loss is not None
    assert result.held_out.mlm_loss < 0.75 * result.held_out.unigram_loss


@pytest.mark.parity
def test_the_transformers_library_loads_what_training_wrote(
    unbroken: Path, tiny_data: Path, tiny_config: Config
) -> None:
    transformers = pytest.importorskip("transformers")
    from bertpre.data.dataset import PretrainingData
    from bertpre.data.loader import held_out_batches
    from bertpre.model.heads import BertForPreTraining
    from bertpre.model.weights import load_hugging_face, read_weights

    data = PretrainingData(tiny_data)
    ours = BertForPreTraining(
        tiny_config.model, vocab_size=data.tokenizer.vocab_size, with_nsp=True
    ).eval()
    load_hugging_face(ours, read_weights(unbroken / "final"))
    theirs = transformers.BertForPreTraining.from_pretrained(unbroken / "final").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(unbroken / "final")
    batch = next(held_out_batches(data, batch_size=4))

    with torch.no_grad():
        logits = ours(batch.tokens, batch.predicted)
        starts = batch.tokens.cu_seqlens.tolist()
        for row, (start, end) in enumerate(itertools.pairwise(starts)):
            output = theirs(
                input_ids=batch.tokens.input_ids[start:end][None],
                token_type_ids=batch.tokens.token_type_ids[start:end][None],
            )
            here = (batch.predicted >= start) & (batch.predicted < end)
            expected = output.prediction_logits[0, batch.predicted[here] - start]
            torch.testing.assert_close(logits.mlm[here], expected, atol=1e-5, rtol=1e-5)
            assert logits.nsp is not None
            torch.testing.assert_close(
                logits.nsp[row], output.seq_relationship_logits[0], atol=1e-5, rtol=1e-5
            )
    text = "the old sailor follows a small boat."
    assert tokenizer(text)["input_ids"][1:-1] == data.tokenizer.encode(text).ids.tolist()
    assert len(tokenizer(text * 20, truncation=True)["input_ids"]) == 48  # as in training


@pytest.mark.parametrize("text", [None, "a: 1\n"], ids=["no config.yaml", "another's config.yaml"])
def test_overwrite_leaves_a_folder_alone_that_is_no_run(
    tmp_path: Path, tiny_data: Path, tiny_config: Config, text: str | None
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "thesis.txt").write_text("mine")
    if text is not None:
        (project / "config.yaml").write_text(text)
    before = sorted(path.name for path in project.iterdir())

    with pytest.raises((ConfigError, CheckpointError), match=r"not a run folder|not the config of"):
        pretrain(tiny_data, output=project, config=tiny_config, overwrite=True)

    assert sorted(path.name for path in project.iterdir()) == before


def test_a_run_is_not_written_into_its_data(tiny_data: Path, tiny_config: Config) -> None:
    with pytest.raises(ConfigError, match="exists and is not a run folder"):
        pretrain(tiny_data, output=tiny_data, config=tiny_config, overwrite=True)


def test_a_run_folder_that_is_a_file_is_refused(
    tmp_path: Path, tiny_data: Path, tiny_config: Config
) -> None:
    (tmp_path / "run").write_text("mine")

    with pytest.raises(ConfigError, match="run: is a file; expected a run folder"):
        pretrain(tiny_data, output=tmp_path / "run", config=tiny_config, overwrite=True)


def test_damage_that_keeps_the_size_of_the_data_is_found(
    tmp_path: Path, tiny_data: Path, tiny_config: Config
) -> None:
    shutil.copytree(tiny_data, tmp_path / "data")
    path = tmp_path / "data/tokens/00000.ids.bin"
    content = bytearray(path.read_bytes())
    content[10] ^= 1
    path.write_bytes(bytes(content))

    with pytest.raises(DataFormatError, match=r"00000\.ids\.bin: damaged: its sha256 is"):
        pretrain(tmp_path / "data", output=tmp_path / "run", config=tiny_config)

    assert not (tmp_path / "run").exists()


def test_a_run_without_a_whole_checkpoint_says_that_it_starts_again(
    tmp_path: Path,
    tiny_data: Path,
    tiny_config: Config,
    unbroken: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    run_to(3, tiny_data, tmp_path / "run", tiny_config)
    (tmp_path / "run/checkpoints/step-00000003/model.safetensors").write_bytes(b"")

    pretrain(tiny_data, output=tmp_path / "run", config=tiny_config)

    assert "none of 1 checkpoints is complete" in caplog.text
    assert "the run starts again at step 0" in caplog.text
    assert weights(tmp_path / "run") == weights(unbroken)


@pytest.mark.slow
def test_twenty_kills_at_random_moments_lead_to_the_same_bits(
    tmp_path: Path, tiny_data: Path, tiny_config: Config
) -> None:
    config = tmp_path / "config.yaml"
    long = changed(tiny_config, max_steps=1500, save_every_steps=20, eval_every_steps=400)
    config.write_text(yaml.safe_dump(config_to_dict(long)))

    def start(name: str) -> subprocess.Popen[bytes]:
        command = [
            sys.executable, "-m", "bertpre", "pretrain", "--data", tiny_data, "--config", config,
            "--output", tmp_path / name,
        ]  # fmt: skip
        return subprocess.Popen(list(map(str, command)), stderr=subprocess.DEVNULL)

    assert start("unbroken").wait() == 0
    moments, metrics = random.Random(0), tmp_path / "run" / "metrics.jsonl"
    kills = 0
    while kills < 20:
        process, size = start("run"), -1
        # A resumed run first cuts its metrics back, then adds lines.
        while process.poll() is None and size == (
            size := metrics.stat().st_size if metrics.exists() else -1
        ):
            time.sleep(0.01)
        time.sleep(moments.uniform(0, 0.5))
        if process.poll() is not None:  # faster than thought: the kills so far have to do
            break
        process.kill()
        process.wait()
        kills += 1
    assert kills >= 10
    assert start("run").wait() == 0

    assert weights(tmp_path / "run") == weights(tmp_path / "unbroken")
    assert untimed(read_metrics(tmp_path / "run")) == untimed(read_metrics(tmp_path / "unbroken"))
