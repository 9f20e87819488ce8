"""The lines of a table of predictions."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from bertpre.finetuning.labels import Labels
from bertpre.finetuning.scores import Readings, decide

# Of the tables of predictions that fine-tuning leaves; `predict` has the first.
OWN_COLUMNS = ("prediction", "label", "line")


def prediction_header(labels: Labels) -> str:
    """Give the first line of a table of predictions: each column has a name of its own."""
    return "\t".join(["prediction", *_probability_names(labels)])


def prediction_lines(
    labels: Labels, readings: Readings, thresholds: npt.NDArray[np.float64] | None
) -> Iterator[str]:
    """Give a line for each row: what is predicted, then the probability of each label.

    Args:
        labels: what the outputs stand for.
        readings: (rows, C) probabilities, or (rows, 1) numbers, which have no probability.
        thresholds: for several names, (C,).
    """
    if labels.kind == "regression":
        yield from (f"{value:.6g}" for value in readings[:, 0])
        return
    decided = decide(labels.kind, readings, thresholds)
    for row, found in zip(decided, readings, strict=True):
        if labels.kind == "classification":
            prediction = labels.names[int(row)]
        else:
            names = [labels.names[place] for place in np.flatnonzero(row)]
            prediction = labels.separator.join(names)
        yield "\t".join([prediction, *(f"{probability:.6f}" for probability in found)])


def empty_line(labels: Labels) -> str:
    """Give the line of a row that could not be read: it has its place, and nothing in it."""
    return "\t" * len(_probability_names(labels))


def _probability_names(labels: Labels) -> tuple[str, ...]:
    if labels.kind == "regression":
        return ()
    return tuple(f"probability of {name}" if name in OWN_COLUMNS else name for name in labels.names)
