"""Pretraining on the order of sentences, with the head of next-sentence prediction."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from bertpre.config.schema import Config, MakeData
from bertpre.data.make_data import index_tokens
from bertpre.training.metrics import read_metrics
from bertpre.training.pretrain import pretrain


def test_its_loss_and_accuracy_have_their_own_names(
    tmp_path: Path, tiny_data: Path, tiny_config: Config
) -> None:
    config = MakeData(objective="mlm-sop", max_seq_length=48, eval_fraction=0.1)
    index_tokens(tiny_data, output=tmp_path / "data", config=config)
    short = replace(
        tiny_config,
        pretrain=replace(tiny_config.pretrain, max_steps=2, eval_every_steps=2, save_every_steps=2),
    )

    pretrain(tmp_path / "data", output=tmp_path / "run", config=short)

    rows = read_metrics(tmp_path / "run")
    assert {row["split"] for row in rows} == {"train", "eval"}
    for row in rows:
        # Untrained, it tells order from disorder no better than a coin.
        assert row["sop_loss"] == pytest.approx(math.log(2), rel=0.05)
        assert 0 <= row["sop_accuracy"] <= 1
        assert not any(name.startswith("nsp_") for name in row)
