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
        tried.append(len(batch.cu_seqlens) - 1)
        assert batch.max_length == 48  # the longest that there are
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
