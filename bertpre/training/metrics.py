"""What training measures: lines of ``metrics.jsonl``, ``curves.png``, and warnings about them."""

import contextlib
import json
import logging
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from bertpre.data.dataset import PretrainingData
from bertpre.errors import CheckpointError

if TYPE_CHECKING:  # so that a run can be inspected without PyTorch
    from bertpre.model.flat import Batch

log = logging.getLogger(__name__)

METRICS = "metrics.jsonl"
CURVES = "curves.png"
TENSORBOARD = "tensorboard"

_STUCK_AFTER = 0.2  # of the run
_SPIKE = 1.0  # nats above the recent losses
_MEMORY = 0.8  # of the recent losses at each line


@dataclass(frozen=True, kw_only=True, slots=True)
class Metrics:
    """One line of ``metrics.jsonl``. Losses are in nats per prediction.

    Attributes:
        step: updates done.
        split: "train" for the update's examples, "eval" for all held-out examples.
        mlm_loss, mlm_accuracy: over predicted tokens.
        mlm_perplexity: e to the power of the MLM loss; None for train.
        nsp_loss, nsp_accuracy: over pairs; None without NSP.
        sop_loss, sop_accuracy: over pairs; None without sentence order.
        unigram_loss: the held-out loss of guessing by word frequency; None for train.
        learning_rate, grad_norm: of the update, before clipping; None for eval.
        tokens_per_second: real tokens since the last line; None for eval.
        data_wait_share: share of the time since then spent waiting for examples.
        matmul_peak_share: matrix products of real tokens since then, as a share of the device's
            peak; None for eval.
        epoch: passes over the examples, as a fraction.
        tokens_seen: real tokens so far.
        seconds: spent training so far.
    """

    step: int
    split: Literal["train", "eval"]
    mlm_loss: float
    mlm_accuracy: float
    mlm_perplexity: float | None = None
    nsp_loss: float | None = None
    nsp_accuracy: float | None = None
    sop_loss: float | None = None
    sop_accuracy: float | None = None
    unigram_loss: float | None = None
    learning_rate: float | None = None
    grad_norm: float | None = None
    tokens_per_second: float | None = None
    data_wait_share: float | None = None
    matmul_peak_share: float | None = None
    epoch: float
    tokens_seen: int
    seconds: float


class MetricsLog:
    """Appends to a run's ``metrics.jsonl``.

    Args:
        run: the run folder.
        step: lines of later steps, left by an interrupted run, are removed.
        tensorboard: also write events for TensorBoard.
    """

    def __init__(self, run: Path, *, step: int, tensorboard: bool = False) -> None:
        self._events = _event_writer(run / TENSORBOARD, step) if tensorboard else None
        self._path = run / METRICS
        kept = [row for row in read_metrics(run) if row["step"] <= step]
        unfinished = run / f".{METRICS}.partial"
        unfinished.write_text("".join(f"{json.dumps(row)}\n" for row in kept), encoding="utf-8")
        unfinished.replace(self._path)

    def write(self, metrics: Metrics) -> None:
        """Append a line, without the values that are None."""
        row = {key: value for key, value in asdict(metrics).items() if value is not None}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        if self._events is not None:
            for name in row.keys() - {"step", "split"}:
                self._events.add_scalar(f"{metrics.split}/{name}", row[name], metrics.step)
            self._events.flush()


def _event_writer(folder: Path, step: int) -> Any:
    from torch.utils.tensorboard import SummaryWriter  # the package may be missing

    # Hides points of later steps, left by an interrupted run.
    return SummaryWriter(folder, purge_step=step + 1)


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """Read a run's metrics; a damaged last line, as after a crash, is skipped.

    Raises:
        CheckpointError: any other line is damaged.
    """
    path = run / METRICS
    if not path.is_file():
        return []
    *lines, unfinished = path.read_bytes().split(b"\n")
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
            if not (isinstance(row, dict) and {"step", "split"} <= row.keys()):
                raise ValueError("no step and split")
        except ValueError as error:
            fault = f"{path}: line {number}: not a line of metrics ({error})"
            if number < len(lines) or unfinished:
                raise CheckpointError(fault, "remove this line") from error
            log.warning("%s; this last line is skipped", fault)
            break
        rows.append(row)
    return rows


def unigram_loss(data: PretrainingData) -> float | None:
    """Return the held-out loss of guessing by word frequency; None if nothing is held out.

    It is the cross-entropy in nats under the token frequencies of the training text, with one added
    to each count. A model that does not beat it has learnt nothing from context.
    """
    log_probabilities = np.log((data.unigrams + 1) / (data.unigrams + 1).sum())
    total, count = 0.0, 0
    for start in range(0, len(data.held_out), 1024):
        labels = data.held_out_examples(start, 1024).mlm_labels
        total -= float(log_probabilities[labels].sum())
        count += len(labels)
    return total / count if count else None


def draw_curves(run: Path) -> None:
    """Plot losses, accuracies and the learning rate of a run so far in its ``curves.png``."""
    # Imported here as it takes half a second, and without pyplot, which has global state.
    from matplotlib.figure import Figure

    rows = read_metrics(run)
    figure = Figure(figsize=(10, 6.5), layout="constrained")
    panels = figure.subplots(2, 2)
    pairs = "sop" if any("sop_loss" in row for row in rows) else "nsp"
    plots = [
        (panels[0, 0], "mlm_loss", "MLM loss (nats)"),
        (panels[0, 1], "mlm_accuracy", "MLM accuracy"),
        (panels[1, 0], f"{pairs}_accuracy", f"{pairs.upper()} accuracy"),
        (panels[1, 1], "learning_rate", "learning rate"),
    ]
    for panel, name, title in plots:
        for split, style in (
            ("train", {"alpha": 0.6, "lw": 1}),
            ("eval", {"marker": "o", "ms": 3}),
        ):
            points = [(r["step"], r[name]) for r in rows if r["split"] == split and name in r]
            if points:
                label = {"train": "training", "eval": "held out"}[split]
                panel.plot(*zip(*points, strict=True), label=label, **style)
        if name == "mlm_loss":
            unigram = [row["unigram_loss"] for row in rows if "unigram_loss" in row]
            if unigram:
                panel.axhline(unigram[-1], ls="--", c="gray", lw=1, label="word frequencies alone")
        if not panel.lines:
            panel.text(0.5, 0.5, "none in this run", ha="center", transform=panel.transAxes)
        elif name != "learning_rate":
            panel.legend()
        panel.set_title(title)
        panel.set_xlabel("step")
        panel.grid(alpha=0.3)
    unfinished = run / f".{CURVES}.partial"
    figure.savefig(unfinished, format="png", dpi=110)
    unfinished.replace(run / CURVES)


class Alarms:
    """Watches the lines of metrics of one call, and warns of trouble.

    Args:
        warmup_steps, max_steps: of the run.
    """

    def __init__(self, *, warmup_steps: int, max_steps: int) -> None:
        self._warmup_steps = warmup_steps
        self._stuck_from = _STUCK_AFTER * max_steps
        self._recent: float | None = None
        self._said_stuck = False

    def look(self, line: Metrics) -> None:
        """Warn if the loss has jumped, or if the model does not beat word frequency."""
        if line.split == "train":
            self._look_for_spike(line)
        elif (
            line.unigram_loss is not None
            and line.step >= self._stuck_from
            and line.mlm_loss >= line.unigram_loss
            and not self._said_stuck
        ):
            self._said_stuck = True
            log.warning(
                "step %d: the held-out MLM loss is %.3f, no better than %.3f for guessing by word "
                "frequency; a lower or higher learning_rate, a smaller batch (more updates) or "
                "another initializer_range may help",
                line.step,
                line.mlm_loss,
                line.unigram_loss,
            )

    def _look_for_spike(self, line: Metrics) -> None:
        recent = self._recent
        if recent is not None and line.mlm_loss > recent + _SPIKE:
            log.warning(
                "step %d: the MLM loss jumped from %.3f to %.3f; a lower learning_rate or "
                "max_grad_norm makes training steadier",
                line.step,
                recent,
                line.mlm_loss,
            )
        # During the warm-up, losses fall too fast for a comparison.
        if line.step > self._warmup_steps:
            start = line.mlm_loss if recent is None else recent
            self._recent = _MEMORY * start + (1 - _MEMORY) * line.mlm_loss


class Rates(NamedTuple):
    """See `Metrics`."""

    tokens_per_second: float
    data_wait_share: float
    matmul_peak_share: float


class Meter:
    """Measures seconds of training over all calls of a run, and rates between lines of metrics.

    Args:
        seconds_before: spent in earlier calls.
        matmul_peak: operations per second that this device can do.
    """

    def __init__(self, seconds_before: float, *, matmul_peak: float) -> None:
        self._before, self._peak = seconds_before, matmul_peak
        self._start = self._line_start = time.monotonic()
        self._waited, self._tokens, self._operations = 0.0, 0, 0.0

    @property
    def seconds(self) -> float:
        """Seconds of training so far."""
        return self._before + self.seconds_of_call

    @property
    def seconds_of_call(self) -> float:
        """Seconds since this call began."""
        return time.monotonic() - self._start

    def wait_for(self, batches: Iterator[list["Batch"]]) -> list["Batch"]:
        """Take the next batches, and count how long that took."""
        start = time.monotonic()
        taken = next(batches)
        self._waited += time.monotonic() - start
        return taken

    def add(self, num_tokens: int, operations: float) -> None:
        """Count an update: real tokens of all processes, operations of this one."""
        self._tokens += num_tokens
        self._operations += operations

    @contextlib.contextmanager
    def rates_paused(self) -> Iterator[None]:
        """Exclude the time of a block, such as an evaluation or a save, from the rates."""
        start = time.monotonic()
        yield
        self._line_start += time.monotonic() - start

    def rates(self) -> Rates:
        """Return the rates since the last call."""
        now = time.monotonic()
        elapsed = max(now - self._line_start, 1e-9)
        share = self._operations / (elapsed * self._peak)
        rates = Rates(self._tokens / elapsed, self._waited / elapsed, share)
        self._line_start, self._waited, self._tokens, self._operations = now, 0.0, 0, 0.0
        return rates
