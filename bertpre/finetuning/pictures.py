"""Pictures of a fine-tuning: how it went over the epochs, and how near predicted numbers are."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from bertpre.finetuning.scores import EpochReport

_MOST_POINTS = 5000  # in a picture; more only make a larger file of the same black


def draw_curves(path: Path, histories: Mapping[str, Sequence[EpochReport]], *, metric: str) -> None:
    """Draw loss and dev score by epoch; training on while the dev loss rises shows over-fitting.

    Args:
        path: PNG file to write.
        histories: of each training, by its name.
        metric: the dev score that chose the epoch.
    """
    figure = Figure(figsize=(10, 4), layout="constrained")
    FigureCanvasAgg(figure)
    losses, scores = figure.subplots(1, 2)
    alpha = max(0.3, 1 / len(histories) ** 0.5)
    for history in histories.values():
        epochs = [report.epoch for report in history]
        marker = "o" if len(epochs) <= 20 else ""
        losses.plot(
            epochs, [report.train_loss for report in history], "C0", marker=marker, alpha=alpha
        )
        losses.plot(
            epochs, [report.dev["loss"] for report in history], "C1", marker=marker, alpha=alpha
        )
        scores.plot(
            epochs, [report.dev[metric] for report in history], "C1", marker=marker, alpha=alpha
        )
    losses.legend(["training, with dropout", "dev"])
    losses.set(xlabel="epoch", title="loss")
    scores.set(xlabel="epoch", title=f"dev {metric}")
    for axes in (losses, scores):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=100)


def draw_numbers(
    path: Path, found: npt.NDArray[np.float64], true: npt.NDArray[np.float64], *, title: str
) -> None:
    """Draw predicted against true numbers, with the line on which both are equal.

    Args:
        path: PNG file to write.
        found: (rows,).
        true: (rows,).
        title: what was predicted; a "$" is a dollar and starts no formula.
    """
    figure = Figure(figsize=(5, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    step = -(-len(true) // _MOST_POINTS)
    axes.scatter(true[::step], found[::step], s=8, alpha=0.4)
    ends = [min(true.min(), found.min()), max(true.max(), found.max())]
    axes.plot(ends, ends, "k", linewidth=0.8)
    axes.set(xlabel="true", ylabel="predicted")
    axes.set_title(title, parse_math=False)
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=100)
