import logging

import pytest

from bertpre.training.metrics import Alarms, Metrics


def line(step: int, loss: float, *, unigram_loss: float | None = None) -> Metrics:
    split = "train" if unigram_loss is None else "eval"
    return Metrics(
        step=step, split=split, mlm_loss=loss, mlm_accuracy=0.1, unigram_loss=unigram_loss,
        epoch=0.0, tokens_seen=0, seconds=0.0,
    )  # fmt: skip


def test_a_jump_of_the_loss_is_said(caplog: pytest.LogCaptureFixture) -> None:
    alarms = Alarms(warmup_steps=10, max_steps=1000)

    for step, loss in [(1, 9.0), (11, 5.0), (12, 5.2), (13, 4.9), (14, 6.5), (15, 5.0)]:
        alarms.look(line(step, loss))

    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    # 0.8 of the recent losses and 0.2 of each new one: 5, 5.04, 5.012.
    assert "step 14: the MLM loss jumped from 5.012 to 6.500" in record.getMessage()


def test_no_better_than_word_frequency_is_said_once_after_a_fifth_of_the_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    alarms = Alarms(warmup_steps=0, max_steps=100)

    alarms.look(line(10, 7.0, unigram_loss=6.5))
    assert not caplog.records
    alarms.look(line(20, 6.6, unigram_loss=6.5))
    alarms.look(line(30, 6.6, unigram_loss=6.5))

    (record,) = caplog.records
    assert "step 20: the held-out MLM loss is 6.600, no better than 6.500" in record.getMessage()


def test_a_run_that_learns_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    alarms = Alarms(warmup_steps=0, max_steps=100)

    for step in range(1, 100, 10):
        alarms.look(line(step, 8.0 - step / 50))
        alarms.look(line(step, 6.4 - step / 100, unigram_loss=6.5))

    assert not caplog.records
