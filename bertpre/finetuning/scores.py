"""Scores of classes and names, from scikit-learn.

It takes a second to import, so its functions are imported where they are called: bad tables are
reported before that.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bertpre.finetuning.outputs import ClassRow, Targets

SMALLEST_PROBABILITY = 1e-12  # stands for a probability of 0 in a loss


def f1_scores(decided: npt.NDArray[Any], targets: Targets, num_classes: int) -> dict[str, float]:
    """Return macro-F1 and micro-F1; an absent class counts as 0.

    Args:
        decided: predicted class numbers, (rows,), or 0 and 1 for each name, (rows, C).
        targets: likewise.
        num_classes: C.
    """
    from sklearn.metrics import f1_score

    return {
        f"{average}_f1": float(
            f1_score(targets, decided, labels=range(num_classes), average=average, zero_division=0)
        )
        for average in ("macro", "micro")
    }


def score_each_class(
    names: Sequence[str], decided: npt.NDArray[Any], targets: Targets
) -> list[ClassRow]:
    """Score each class or name separately; ``decided`` and ``targets`` as in `f1_scores`."""
    from sklearn.metrics import precision_recall_fscore_support

    columns = precision_recall_fscore_support(
        targets, decided, labels=range(len(names)), average=None, zero_division=0
    )
    return [
        ClassRow(name, float(precision), float(recall), float(f1), int(rows))
        for name, precision, recall, f1, rows in zip(names, *columns, strict=True)
    ]


def matthews(decided: npt.NDArray[Any], targets: Targets) -> float:
    """Return Matthews' correlation of classes, (rows,) each; 0 if either is constant.

    Source: Gorodkin 2004, "Comparing two K-category assignments by a K-category correlation
        coefficient"; for two classes, Matthews 1975.
    """
    from sklearn.metrics import matthews_corrcoef

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="A single label was found")
        return float(matthews_corrcoef(targets, decided))


def count_confusions(
    decided: npt.NDArray[Any], targets: Targets, num_classes: int
) -> npt.NDArray[np.int64]:
    """Count rows by true class (down) and predicted class (across), (C, C) int64."""
    from sklearn.metrics import confusion_matrix

    counts = confusion_matrix(targets, decided, labels=range(num_classes))
    return np.asarray(counts, dtype=np.int64)
