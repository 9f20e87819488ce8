"""Runs that end by something else than a number of steps, or go on after it."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from bertpre.config.load import parse_config
from bertpre.config.schema import Config, MakeData, Schedule
from bertpre.data.dataset import PretrainingData
from bertpre.data.make_data import make_data
from bertpre.errors import CheckpointError, ConfigError
from bertpre.model.heads import BertForPreTraining
from bertpre.training import checkpoint, trial
from bertpre.training.metrics import read_metrics
from bertpre.training.pretrain import PretrainResult, pretrain
from bertpre.training.setup import Setup
from bertpre.training.step import Losses

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def changed(config: Config, **options: Any) -> Config:
    return replace(config, pretrain=replace(config.pretrain, **options))


def weights(run: Path) -> bytes:
    return (run / "final" / "model.safetensors").read_bytes()


def steps_saved(run: Path) -> list[int]:
    return sorted(int(path.name[5:]) for path in (run / "checkpoints").glob("step-*"))


def test_epochs_decide_the_steps(tmp_path: Path, tiny_data: Path, tiny_config: Config) -> None:
    config = changed(tiny_config, max_steps=None, max_epochs=0.05)

    result = pretrain(tiny_data, output=tmp_path / "run", config=config)

    last = read_metrics(tmp_path / "run")[-1]
    assert result.step == last["step"]
    assert 0.05 <= last["epoch"] < 0.05 + last["epoch"] / last["step"]


def test_hours_decide_the_steps_once_and_change_no_bit(
    tmp_path: Path, tiny_data: Path, tiny_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "_TIMED_UPDATES", 2)
    timed = changed(tiny_config, max_steps=None, max_hours=1.0)
    run, twin = tmp_path / "run", tmp_path / "twin"
    real = trial.steps_within
    tried = []

    def ten_steps(hours: float, setup: Any, should_stop: Any) -> int:
        tried.append(real(hours, setup, lambda: False))
        return 10

    monkeypatch.setattr(trial, "steps_within", ten_steps)
    seen: list[int] = []
    pretrain(
        tiny_data, output=run, config=timed,
        should_stop=lambda: len(seen) > 4, on_event=lambda event: seen.append(1),
    )  # fmt: skip
    result = pretrain(tiny_data, output=run, config=timed)
    pretrain(tiny_data, output=twin, config=changed(tiny_config, max_steps=10))

    assert result.step == 10
    assert len(tried) == 1
    assert tried[0] > 1000  # an update takes milliseconds
    assert weights(run) == weights(twin)


def test_a_run_that_is_stopped_while_its_speed_is_measured_leaves_nothing(
    tmp_path: Path, tiny_data: Path, tiny_config: Config
) -> None:
    config = changed(tiny_config, max_steps=None, max_hours=1.0)

    result = pretrain(tiny_data, output=tmp_path / "run", config=config, should_stop=lambda: True)

    assert result == PretrainResult(None, 0, False)
    assert not (tmp_path / "run").exists()


def test_too_little_time_for_one_update_is_refused(
    tmp_path: Path, tiny_data: Path, tiny_config: Config
) -> None:
    config = changed(tiny_config, max_steps=None, max_hours=1e-9)

    with pytest.raises(ConfigError, match=r"max_hours: 1e-09, but one update takes [\d.]+ seconds"):
        pretrain(tiny_data, output=tmp_path / "run", config=config)

    assert not (tmp_path / "run").exists()


def test_a_call_stops_after_its_hours_and_the_next_goes_on_to_the_same_bits(
    tmp_path: Path, tiny_data: Path, tiny_config: Config
) -> None:
    run, twin = tmp_path / "run", tmp_path / "twin"
    pretrain(tiny_data, output=twin, config=tiny_config)

    first = pretrain(tiny_data, output=run, config=changed(tiny_config, stop_after_hours=1e-9))
    second = pretrain(tiny_data, output=run, config=tiny_config)

    assert (first.step, first.is_finished) == (1, False)
    assert second.is_finished
    assert weights(run) == weights(twin)


def with_losses(monkeypatch: pytest.MonkeyPatch, losses: list[float]) -> None:
    """Let the evaluations find these losses, one after another."""
    left = iter(losses)
    monkeypatch.setattr(Setup, "evaluate", lambda *_: Losses(next(left), 0.5, 0.7, 0.5))


def test_early_stopping_ends_with_the_best_weights(
    tmp_path: Path, tiny_data: Path, tiny_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_losses(monkeypatch, [5.0, 4.0, 4.5, 4.0, 3.0, 3.0])
    options = {"eval_every_steps": 2, "save_every_steps": 100, "early_stopping_evals": 2}

    result = pretrain(tiny_data, output=tmp_path / "run", config=changed(tiny_config, **options))

    assert (result.step, result.is_finished) == (8, True)
    best = tmp_path / "run" / "checkpoints" / "step-00000004" / "model.safetensors"
    assert weights(tmp_path / "run") == best.read_bytes()


@pytest.mark.parametrize(
    ("every", "patience", "advice"),
    # Of 12 steps: evaluations at 4, 8 and 12, of which the second without a gain is the last; at
    # 3, 6, 9 and 12, where it is 9.
    [
        (
            4,
            2,
            "has 3 in all; set pretrain.eval_every_steps, now 4 of 12 steps, to at most 3",
        ),
        (3, 2, None),
        (
            50,
            1,
            "has 1 in all; set pretrain.eval_every_steps, now 50 of 12 steps, to at most 5",
        ),
    ],
)
def test_early_stopping_that_cannot_act_is_a_warning(
    tmp_path: Path, tiny_data: Path, tiny_config: Config, caplog: pytest.LogCaptureFixture,
    every: int, patience: int, advice: str | None,
) -> None:  # fmt: skip
    config = changed(tiny_config, eval_every_steps=every, early_stopping_evals=patience)

    pretrain(tiny_data, output=tmp_path / "run", config=config, dry_run=True)

    said = [record.getMessage() for record in caplog.records if "early" in record.getMessage()]
    assert len(said) == (advice is not None)
    assert advice is None or said[0].endswith(advice)


@pytest.mark.parametrize("damage", ["a bit", "all"])
def test_early_stopping_does_not_end_with_damaged_weights(
    tmp_path: Path, tiny_data: Path, tiny_config: Config, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture, damage: str,
) -> None:  # fmt: skip
    with_losses(monkeypatch, [5.0, 4.0, 4.5, 4.0])
    options = {"eval_every_steps": 2, "save_every_steps": 100, "early_stopping_evals": 2}
    run, config = tmp_path / "run", changed(tiny_config, **options)
    pretrain(tiny_data, output=run, config=config)
    shutil.rmtree(run / "final")  # as if killed before it was written
    best, last = (run / "checkpoints" / f"step-0000000{step}" for step in (4, 8))
    if damage == "all":
        shutil.rmtree(best)
    else:
        content = bytearray((best / "model.safetensors").read_bytes())
        content[-100] ^= 64
        (best / "model.safetensors").write_bytes(content)

    result = pretrain(tiny_data, output=run, config=config)

    assert result.is_finished
    assert weights(run) == (last / "model.safetensors").read_bytes()
    assert "step-00000004" in caplog.text
    assert "using the weights of step 8, the last one, instead" in caplog.text


def test_early_stopping_remembers_the_evaluations_of_earlier_calls(
    tmp_path: Path, tiny_data: Path, tiny_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_losses(monkeypatch, [4.0, 5.0, 5.0, 5.0])
    config = changed(tiny_config, eval_every_steps=2, early_stopping_evals=2)
    seen: list[Any] = []

    stopped = pretrain(
        tiny_data, output=tmp_path / "run", config=config,
        should_stop=lambda: seen[-1] == 5, on_event=lambda event: seen.append(
            getattr(event, "step", 0)),
    )  # fmt: skip
    result = pretrain(tiny_data, output=tmp_path / "run", config=config)

    assert stopped.step == 5
    assert result.step == 6


def test_a_run_of_an_older_version_goes_on_with_what_follows_from_its_options(
    tmp_path: Path, tiny_data: Path, tiny_config: Config
) -> None:
    config = changed(
        tiny_config, schedule=Schedule(warmup_ratio=0.25), micro_batch_size="auto",
        initial_global_batch_size=2, batch_ramp_ratio=0.5,
    )  # fmt: skip
    pretrain(tiny_data, output=tmp_path / "twin", config=config)
    seen: list[int] = []
    pretrain(
        tiny_data, output=tmp_path / "run", config=config,
        should_stop=lambda: 5 in seen, on_event=lambda event: seen.append(
            getattr(event, "step", 0)),
    )  # fmt: skip
    path = tmp_path / "run" / "config.yaml"
    stored = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({**stored, "decided": {"max_steps": 12}}))

    pretrain(tiny_data, output=tmp_path / "run", config=config)

    # A quarter and half of 12 updates, and a whole batch of short examples in one pass.
    sizes = {"warmup_steps": 3, "batch_ramp_steps": 6, "micro_batch_size": 8}
    assert yaml.safe_load(path.read_text())["decided"] == {"max_steps": 12, **sizes}
    assert weights(tmp_path / "run") == weights(tmp_path / "twin")


@pytest.mark.parametrize("name", ["constant", "wsd"])
def test_a_longer_run_is_the_one_that_was_long_from_the_start(
    tmp_path: Path, tiny_data: Path, tiny_config: Config, name: Any
) -> None:
    schedule = Schedule(name=name, warmup_ratio=0.0, decay_ratio=0.25)
    config = changed(tiny_config, schedule=schedule, save_every_steps=5, keep_checkpoints=1)
    run, twin = tmp_path / "run", tmp_path / "twin"
    pretrain(tiny_data, output=run, config=config)
    pretrain(tiny_data, output=twin, config=changed(config, max_steps=16))

    result = pretrain(tiny_data, output=run, config=config, extend_to=16)
    again = pretrain(tiny_data, output=run, config=config)

    assert (result.step, again.step, again.was_finished) == (16, 16, True)
    assert weights(run) == weights(twin)
    stored = yaml.safe_load((run / "config.yaml").read_text())
    assert stored["decided"]["max_steps"] == 16


def test_a_batch_grows_no_slower_when_the_run_is_made_longer(
    tmp_path: Path, tiny_data: Path, tiny_config: Config
) -> None:
    config = changed(
        tiny_config, schedule=Schedule(name="constant"),
        initial_global_batch_size=2, batch_ramp_ratio=0.75,
    )  # fmt: skip
    pretrain(tiny_data, output=tmp_path / "run", config=config)

    pretrain(tiny_data, output=tmp_path / "run", config=config, extend_to=20)

    # 2, 3, 3, 4, 5, 5, 6, 7, 7 while it grows, over 0.75 of 12 updates, then 11 of 8.
    examples = len(read_examples(tiny_data))
    assert read_metrics(tmp_path / "run")[-1]["epoch"] == round((42 + 11 * 8) / examples, 4)


def test_wsd_keeps_the_checkpoint_before_its_fall(
    tmp_path: Path, tiny_data: Path, tiny_config: Config
) -> None:
    schedule = Schedule(name="wsd", decay_ratio=0.5)
    config = changed(tiny_config, schedule=schedule, save_every_steps=2, keep_checkpoints=1)

    pretrain(tiny_data, output=tmp_path / "run", config=config)

    assert 6 in steps_saved(tmp_path / "run")


def test_what_cannot_be_extended_is_refused(
    tmp_path: Path, tiny_data: Path, tiny_config: Config
) -> None:
    run = tmp_path / "run"
    with pytest.raises(ConfigError, match="run: there is no run to extend"):
        pretrain(tiny_data, output=run, config=tiny_config, extend_to=20)
    pretrain(tiny_data, output=run, config=tiny_config)
    with pytest.raises(ConfigError, match="--extend-to 20: the linear schedule decays over"):
        pretrain(tiny_data, output=run, config=tiny_config, extend_to=20)
    constant = changed(tiny_config, schedule=Schedule(name="constant"))
    pretrain(tiny_data, output=tmp_path / "constant", config=constant)
    moving = changed(constant, final_mlm_probability=0.3)
    pretrain(tiny_data, output=tmp_path / "moving", config=moving)
    with pytest.raises(
        ConfigError, match="--extend-to 20: the mask rate changes over the whole run"
    ):
        pretrain(tiny_data, output=tmp_path / "moving", config=moving, extend_to=20)
    with pytest.raises(ConfigError, match="--extend-to 11: the run has 12 steps"):
        pretrain(tiny_data, output=tmp_path / "constant", config=constant, extend_to=11)
    shutil.rmtree(tmp_path / "constant" / "checkpoints")
    with pytest.raises(ConfigError, match=r"has no checkpoint up to step 12.*found steps no"):
        pretrain(tiny_data, output=tmp_path / "constant", config=constant, extend_to=20)


def test_batch_and_mask_rate_may_grow_and_resume_is_exact(
    tmp_path: Path, tiny_data: Path, tiny_config: Config
) -> None:
    config = changed(
        tiny_config, initial_global_batch_size=2, batch_ramp_ratio=0.5, final_mlm_probability=0.4
    )
    run, twin = tmp_path / "run", tmp_path / "twin"
    seen: list[Any] = []

    pretrain(tiny_data, output=twin, config=config, on_event=seen.append)
    stopped = stop_at(3, tiny_data, run, config)
    pretrain(tiny_data, output=run, config=config)

    assert stopped.step == 3
    assert weights(run) == weights(twin)
    assert seen[0]["updates"] == "12 of 2 to 8 examples (2 forward passes each)"
    assert seen[0]["objective"].startswith("mlm-nsp, 15% to 40% predicted")
    epochs, tokens = seen[0]["epochs"].removesuffix(" tokens").split(", ")
    assert float(epochs) == pytest.approx(75 / len(read_examples(tiny_data)), abs=0.005)
    seen_tokens = read_metrics(twin)[-1]["tokens_seen"]
    assert float(tokens.replace(",", "")) == pytest.approx(seen_tokens, rel=0.1)
    # 2, 3, 4, 5, 6, 7 while it grows, then 8: 75 examples.
    examples = len(read_examples(tiny_data))
    assert read_metrics(twin)[-1]["epoch"] == round(75 / examples, 4)


def read_examples(data: Path) -> Any:
    return PretrainingData(data).records


def stop_at(step: int, data: Path, run: Path, config: Config) -> PretrainResult:
    seen = [0]
    return pretrain(
        data,
        output=run,
        config=config,
        should_stop=lambda: seen[-1] >= step,
        on_event=lambda event: seen.append(getattr(event, "step", 0)),
    )


def test_a_save_that_would_fill_the_disk_is_refused_and_older_ones_stay(
    tmp_path: Path, tiny_data: Path, tiny_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_at(4, tiny_data, tmp_path / "run", tiny_config)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(checkpoint.shutil, "disk_usage", lambda path: usage._replace(free=1000))

    with pytest.raises(CheckpointError, match=r"a checkpoint takes \d MB, and 0 MB are free"):
        pretrain(tiny_data, output=tmp_path / "run", config=tiny_config)

    assert steps_saved(tmp_path / "run") == [4]


def test_a_disk_that_will_be_full_is_warned_of_before_the_first_update(
    tmp_path: Path, tiny_data: Path, tiny_config: Config, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(checkpoint.shutil, "disk_usage", lambda path: usage._replace(free=1000))

    with pytest.raises(CheckpointError):
        stop_at(1, tiny_data, tmp_path / "run", tiny_config)

    warnings = [record for record in caplog.records if "MB are free, but" in record.message]
    weights_bytes = 4 * sum(p.numel() for p in built(tiny_data, tiny_config).parameters())
    # Weights and two moments; three that stay, the best, and one that is being written.
    megabytes = f"{5 * 3 * weights_bytes / 1e6:,.0f}"
    assert [record.message.split(": ", 1)[1] for record in warnings] == [
        f"0 MB are free, but the checkpoints may take another {megabytes} MB; make room, or "
        "lower pretrain.keep_checkpoints"
    ]


def built(data: Path, config: Config) -> BertForPreTraining:
    vocab_size = PretrainingData(data).tokenizer.vocab_size
    return BertForPreTraining(config.model, vocab_size=vocab_size, with_nsp=True)


def test_the_same_extension_again_goes_on_or_is_finished(
    tmp_path: Path, tiny_data: Path, tiny_config: Config
) -> None:
    config = changed(tiny_config, schedule=Schedule(name="constant"))
    run = tmp_path / "run"
    pretrain(tiny_data, output=run, config=config)
    seen: list[Any] = []

    pretrain(
        tiny_data, output=run, config=config, extend_to=16, should_stop=lambda: len(seen) > 2,
        on_event=seen.append,
    )  # fmt: skip
    again = pretrain(tiny_data, output=run, config=config, extend_to=16)
    finished = pretrain(tiny_data, output=run, config=config, extend_to=16)

    assert (again.step, again.was_finished) == (16, False)
    assert (finished.step, finished.was_finished) == (16, True)


def test_early_stopping_without_anything_held_out_is_refused(
    tmp_path: Path, tiny_corpus: Path, tiny_tokenizer: Path, tiny_config: Config
) -> None:
    options = MakeData(max_seq_length=32, objective="mlm", eval_fraction=0, workers=1)
    make_data([tiny_corpus], tokenizer=tiny_tokenizer, output=tmp_path / "data", config=options)

    with pytest.raises(
        ConfigError, match=r"early_stopping_evals: 2, but .*data has no held-out examples"
    ):
        pretrain(
            tmp_path / "data", output=tmp_path / "run",
            config=changed(tiny_config, early_stopping_evals=2),
        )  # fmt: skip


def test_a_run_that_ended_early_says_where(
    tmp_path: Path, tiny_data: Path, tiny_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_losses(monkeypatch, [4.0, 5.0, 5.0])
    config = changed(tiny_config, eval_every_steps=2, early_stopping_evals=2)
    pretrain(tiny_data, output=tmp_path / "run", config=config)

    again = pretrain(tiny_data, output=tmp_path / "run", config=config)

    assert (again.step, again.was_finished) == (6, True)


def test_a_batch_that_would_shrink_is_refused(
    tmp_path: Path, tiny_data: Path, tiny_config: Config
) -> None:
    config = changed(tiny_config, initial_global_batch_size=16)

    with pytest.raises(ConfigError, match=r"initial_global_batch_size: 16 is larger than pret"):
        pretrain(tiny_data, output=tmp_path / "run", config=config)


def test_the_micro_batch_may_be_left_to_the_device(
    tmp_path: Path, tiny_data: Path, tiny_config: Config
) -> None:
    config = parse_config({"pretrain": {"micro_batch_size": "auto"}})
    assert config.pretrain.micro_batch_size == "auto"

    result = pretrain(
        tiny_data, output=tmp_path / "run", config=changed(tiny_config, micro_batch_size="auto")
    )

    assert result.is_finished
    with pytest.raises(ConfigError, match=r"pretrain\.micro_batch_size"):
        parse_config({"pretrain": {"micro_batch_size": 0}})
