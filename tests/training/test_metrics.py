import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from bertpre.data.dataset import PretrainingData
from bertpre.data.loader import held_out_batches
from bertpre.errors import CheckpointError
from bertpre.model.flat import Batch
from bertpre.training.metrics import (
    Meter,
    Metrics,
    MetricsLog,
    draw_curves,
    read_metrics,
    unigram_loss,
)


def line(step: int, split: str = "train") -> Metrics:
    return Metrics(
        step=step,
        split=split,  # type: ignore[arg-type]
        mlm_loss=5.0 / step,
        mlm_accuracy=0.1,
        epoch=0.5,
        tokens_seen=100,
        seconds=1.0,
    )


def test_lines_are_json_without_what_does_not_apply(tmp_path: Path) -> None:
    MetricsLog(tmp_path, step=0).write(line(1))

    text = (tmp_path / "metrics.jsonl").read_text()
    assert json.loads(text) == {
        "step": 1,
        "split": "train",
        "mlm_loss": 5.0,
        "mlm_accuracy": 0.1,
        "epoch": 0.5,
        "tokens_seen": 100,
        "seconds": 1.0,
    }


def test_lines_after_the_checkpoint_are_cut_off(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path, step=0)
    for step in range(1, 6):
        log.write(line(step))
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 6, "spl')  # a process was killed here

    MetricsLog(tmp_path, step=3)

    assert [row["step"] for row in read_metrics(tmp_path)] == [1, 2, 3]


def test_tensorboard_shows_what_was_written_and_hides_what_was_cut_off(tmp_path: Path) -> None:
    package = "tensorboard.backend.event_processing.event_accumulator"
    accumulator = pytest.importorskip(package, reason="needs the extra tensorboard")
    log = MetricsLog(tmp_path, step=0, tensorboard=True)
    for step in range(1, 6):
        log.write(line(step))
    log.write(line(5, "eval"))

    log = MetricsLog(tmp_path, step=3, tensorboard=True)
    log.write(line(4))

    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [event.step for event in events.Scalars("train/mlm_loss")] == [1, 2, 3, 4]
    assert events.Scalars("train/mlm_loss")[1].value == 2.5
    assert events.Scalars("eval/mlm_loss") == []


def test_curves_are_drawn_with_and_without_lines(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path, step=0)
    draw_curves(tmp_path)
    empty = (tmp_path / "curves.png").read_bytes()
    for step in range(1, 6):
        log.write(line(step))
        log.write(line(step, "eval"))

    draw_curves(tmp_path)

    assert (tmp_path / "curves.png").read_bytes() != empty


def test_unigram_loss_is_the_cross_entropy_of_word_frequencies(tiny_data: Path) -> None:
    data = PretrainingData(tiny_data)
    labels = data.held_out_examples(0, len(data.held_out)).mlm_labels.tolist()
    counts = data.unigrams.tolist()
    total = sum(counts) + len(counts)

    expected = -sum(math.log((counts[label] + 1) / total) for label in labels) / len(labels)

    assert unigram_loss(data) == pytest.approx(expected)
    assert 2 < expected < math.log(len(counts))


def test_rates_count_real_tokens_and_leave_out_what_is_no_training(
    tiny_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr("bertpre.training.metrics.time.monotonic", lambda: clock[0])
    (batch,) = held_out_batches(PretrainingData(tiny_data), batch_size=10**6)

    def slow_batches() -> Iterator[list[Batch]]:
        while True:
            clock[0] += 1.0
            yield [batch]

    meter, batches = Meter(seconds_before=50.0, matmul_peak=1e9), slow_batches()
    meter.wait_for(batches)
    clock[0] += 3.0  # an update
    meter.add(len(batch.tokens.input_ids), operations=2e9)
    with meter.rates_paused():
        clock[0] += 16.0  # an evaluation

    rates = meter.rates()

    assert rates.tokens_per_second == pytest.approx(len(batch.tokens.input_ids) / 4)
    assert rates.data_wait_share == pytest.approx(1 / 4)
    assert rates.matmul_peak_share == pytest.approx(2 / 4)
    assert meter.seconds == 70.0


GOOD = '{"step": 1, "split": "train"}\n'


@pytest.mark.parametrize("damage", [b"nonsense", b"\0\xff\0", b"3", b'{"step": 2}', b'{"st'])
def test_a_damaged_last_line_is_passed_over_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: bytes
) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(GOOD.encode() + damage + b"\n")

    assert [row["step"] for row in read_metrics(tmp_path)] == [1]
    assert f"{tmp_path}/metrics.jsonl: line 2: not a line of metrics (" in caplog.text
    assert caplog.text.endswith("); this last line is skipped\n")


@pytest.mark.parametrize("after", [GOOD, '{"step": 3'])
def test_a_damaged_line_before_others_is_an_error(tmp_path: Path, after: str) -> None:
    (tmp_path / "metrics.jsonl").write_text(f"{GOOD}nonsense\n{after}")

    with pytest.raises(CheckpointError, match=r"line 2: not a line .* — remove this line"):
        read_metrics(tmp_path)
