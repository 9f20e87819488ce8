"""What one sees of a pretraining run, drawn on a terminal of 80 columns and without one."""

import io

import pytest
from rich.console import Console

from bertpre.cli import render
from bertpre.cli.render_training import training
from bertpre.training.metrics import Metrics
from bertpre.training.pretrain import Progress

TRAIN = Metrics(
    step=40,
    split="train",
    mlm_loss=6.25,
    mlm_accuracy=0.125,
    nsp_loss=0.5,
    nsp_accuracy=0.75,
    learning_rate=1e-3,
    grad_norm=1.0,
    tokens_per_second=12_345.0,
    data_wait_share=0.015,
    matmul_peak_share=0.42,
    epoch=0.5,
    tokens_seen=1000,
    seconds=3.0,
)
HELD_OUT = Metrics(
    step=40,
    split="eval",
    mlm_loss=6.5,
    mlm_accuracy=0.1,
    mlm_perplexity=665.14,
    unigram_loss=6.75,
    epoch=0.5,
    tokens_seen=1000,
    seconds=3.0,
)


def shown(monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool) -> str:
    file = io.StringIO()
    console = Console(
        file=file, force_terminal=is_terminal, width=80, color_system=None, soft_wrap=True
    )
    monkeypatch.setattr(render, "err", console)
    with training() as show:
        show(Progress(40, 100, 6.25))
        show(TRAIN)
        show(HELD_OUT)
    return file.getvalue()


def test_lines_of_metrics_are_printed_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, is_terminal=False).splitlines() == [
        "step     40  training  MLM loss 6.250 accuracy 0.125  NSP loss 0.500 accuracy 0.750  "
        "rate 1.0e-03  12,345 tokens/s",
        "step     40  held out  MLM loss 6.500 accuracy 0.100  perplexity 665.1  "
        "(word frequencies alone: 6.750)",
    ]


def test_a_terminal_shows_the_newest_metrics_and_keeps_the_evaluations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = shown(monkeypatch, is_terminal=True)

    for name, value in {
        "step": "40",
        "epoch": "0.50",
        "MLM loss": "6.250",
        "MLM accuracy": "0.125",
        "NSP loss": "0.500",
        "NSP accuracy": "0.750",
        "rate": "1.0e-03",
        "tokens/s": "12,345",
        "waiting for data": "1.5%",
        "matmul peak": "42%",
        "gradient": "1.00",
    }.items():
        assert name in text
        assert value in text
    assert "40/100 updates" in text
    assert "held out  MLM loss 6.500" in text
    # What stays when the live part is gone.
    assert text.rstrip().rpartition("\x1b[")[2].endswith("tokens/s")
