from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bertpre.config.schema import Config
from bertpre.data.dataset import PretrainingData
from bertpre.training import trial
from bertpre.training.checks import check_pretraining
from bertpre.training.setup import Setup, set_up


@pytest.fixture
def setup(tmp_path: Path, tiny_data: Path, tiny_config: Config) -> Setup:
    config = replace(tiny_config, pretrain=replace(tiny_config.pretrain, global_batch_size=24))
    plan = check_pretraining(tiny_data, output=tmp_path / "new", config=config)
    return set_up(PretrainingData(tiny_data), config, plan, max_steps=12)


def with_room_for(examples: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let a device run out of memory beyond so many examples; returns the sizes that are tried."""
    tried: list[int] = []

    def accumulate(model, batches, **kwargs):
        (batch,) = batches
        tried.append(len(batch.tokens.cu_seqlens) - 1)
        assert batch.tokens.max_length == 48  # the longest that there are
        if tried[-1] > examples:
            raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(trial, "accumulate_gradients", accumulate)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    return tried


@pytest.mark.parametrize(("room", "found"), [(1, 1), (5, 4), (16, 16), (23, 16), (24, 24)])
def test_the_largest_micro_batch_that_fits_is_found(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, room: int, found: int
) -> None:
    tried = with_room_for(room, monkeypatch)

    assert trial.largest_micro_batch(setup) == found
    assert max(tried) <= 24


def with_slow_updates(seconds: list[float], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let the updates take so long, by a clock of their own; returns the steps that are tried."""
    now, tried = [0.0], []

    def update(setup, batch, *, step, loss_scale):
        tried.append(step)
        now[0] += seconds[min(len(tried), len(seconds)) - 1]

    monkeypatch.setattr(trial.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(Setup, "update", update)
    monkeypatch.setattr(trial, "_evaluation_seconds", lambda setup: 0.0)
    monkeypatch.setattr(trial, "_save_seconds", lambda setup: 0.0)
    return tried


@pytest.mark.parametrize(
    ("seconds", "num_tried", "steps"),
    [
        ([9.0, 2.0, 2.0, 1.0], 23, 3600 - 33),  # what is slow at the start is not counted on
        ([30.0, 20.0, 20.0, 40.0], 6, (3600 - 190) // 40),  # 5 % of an hour: 180 seconds
        ([90.0, 100.0], 2, (3600 - 190) // 100),
        ([1000.0], 2, (3600 - 2000) // 1000),
    ],
)
def test_a_trial_takes_a_small_part_of_the_hours(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, seconds: list[float], num_tried: int, steps: int
) -> None:
    tried = with_slow_updates(seconds, monkeypatch)

    assert trial.steps_within(1.0, setup, lambda: False) == steps
    assert tried == list(range(num_tried))


def test_a_trial_ends_when_told_to_stop(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = with_slow_updates([1.0], monkeypatch)

    assert trial.steps_within(1.0, setup, lambda: len(tried) == 4) is None
    assert tried == [0, 1, 2, 3]
