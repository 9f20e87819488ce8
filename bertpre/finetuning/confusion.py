"""The picture of a confusion matrix, readable whatever the number of classes and their script."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font

_MOST_COUNTED_CLASSES = 30  # with more, the cells are too small for figures
_LONGEST_NAME = 24


def draw_confusions(
    path: Path, counts: npt.NDArray[np.int64], classes: Sequence[str], *, title: str
) -> None:
    """Draw where a classifier errs, each row of the matrix in shares of its true class.

    Args:
        path: PNG file to write.
        counts: (C, C) rows by true class (down) and predicted class (across).
        classes: the labels; where the font lacks one of their characters, their numbers stand
            in their places.
        title: what was classified.
    """
    num = len(classes)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    size = min(4 + 0.45 * num, 24)
    figure = Figure(figsize=(size + 1, size), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    figure.colorbar(image, ax=axes, label="share of the true class", shrink=0.8)
    names = [_shorten(name) for name in axis_names(classes)]
    # A "$" in a label is a dollar and starts no formula.
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
    """Give the labels, or their numbers from 0 if the font cannot write them all."""
    font = get_font(findfont(FontProperties()))
    is_writable = all(font.get_char_index(ord(character)) for name in classes for character in name)
    return list(classes) if is_writable else [str(number) for number in range(len(classes))]


def _shorten(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"
