"""Plots of a fine-tuning: curves over the epochs, predicted numbers, confusion matrix."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.ticker import MaxNLocator

from bertpre.finetuning.results import EpochReport

_MOST_POINTS = 5000  # in a plot; more would only overlap
_MOST_COUNTED_CLASSES = 30  # with more, the cells are too small for numbers
_LONGEST_NAME = 24


def draw_curves(path: Path, histories: Mapping[str, Sequence[EpochReport]], *, metric: str) -> None:
    """Plot loss and dev score by epoch.

    Args:
        path: PNG file to write.
        histories: the epochs of each training run, by its name.
        metric: the dev score that chose the epoch.
    """
    figure = Figure(figsize=(10, 4), layout="constrained")
    losses, scores = figure.subplots(1, 2)
    alpha = max(0.3, 1 / len(histories) ** 0.5)
    for history in histories.values():
        epochs = [report.epoch for report in history]
        style: dict[str, Any] = {"marker": "o" if len(epochs) <= 20 else "", "alpha": alpha}
        losses.plot(epochs, [report.train_loss for report in history], "C0", **style)
        losses.plot(epochs, [report.dev["loss"] for report in history], "C1", **style)
        scores.plot(epochs, [report.dev[metric] for report in history], "C1", **style)
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
    """Plot predicted against true numbers, with the diagonal.

    Args:
        path: PNG file to write.
        found: predicted numbers, (rows,).
        true: true numbers, (rows,).
        title: of the plot; "$" does not start a formula.
    """
    figure = Figure(figsize=(5, 5), layout="constrained")
    axes = figure.add_subplot()
    step = -(-len(true) // _MOST_POINTS)
    axes.scatter(true[::step], found[::step], s=8, alpha=0.4)
    ends = [min(true.min(), found.min()), max(true.max(), found.max())]
    axes.plot(ends, ends, "k", linewidth=0.8)
    axes.set(xlabel="true", ylabel="predicted")
    axes.set_title(title, parse_math=False)
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=100)


def draw_confusions(
    path: Path, counts: npt.NDArray[np.int64], classes: Sequence[str], *, title: str
) -> None:
    """Plot a confusion matrix, each row in shares of its true class.

    Args:
        path: PNG file to write.
        counts: (C, C), by true class (down) and predicted class (across).
        classes: the labels; numbered if the font lacks one of their characters.
        title: of the plot.
    """
    num = len(classes)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    size = min(4 + 0.45 * num, 24)
    figure = Figure(figsize=(size + 1, size), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    figure.colorbar(image, ax=axes, label="share of the true class", shrink=0.8)
    names = [_shorten(name) for name in axis_names(classes)]
    # A "$" in a label must not start a formula.
    style: dict[str, Any] = {"parse_math": False, "fontsize": 9 if num <= 40 else 5}
    axes.set_xticks(range(num), names, rotation=0 if num <= 4 else 90, **style)
    axes.set_yticks(range(num), names, **style)
    axes.set(xlabel="predicted", ylabel="true", title=title)
    if num <= _MOST_COUNTED_CLASSES:
        for (true, predicted), count in np.ndenumerate(counts):
            color = "white" if shares[true, predicted] > 0.5 else "black"
            axes.text(
                predicted, true, str(count), ha="center", va="center", color=color, fontsize=8
            )
    figure.savefig(path, dpi=120)


def axis_names(classes: Sequence[str]) -> list[str]:
    """Return the labels, or their numbers from 0 if the font lacks one of their characters."""
    font = get_font(findfont(FontProperties()))
    is_writable = all(font.get_char_index(ord(character)) for name in classes for character in name)
    return list(classes) if is_writable else [str(number) for number in range(len(classes))]


def _shorten(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"
