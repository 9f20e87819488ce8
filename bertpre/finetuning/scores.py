"""How good predictions are, by the kind of the labels.

scikit-learn takes a second to import, so its functions are imported where they are called: the
tables are checked before that.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bertpre.finetuning.labels import Kind, Labels

Scores = dict[str, float]
"""Score by name. Of classes: ``accuracy``, ``macro_f1`` (mean over all classes of the training
file; one that is neither there nor predicted counts as 0), ``micro_f1`` (which is the accuracy),
``matthews``. Of several names: ``accuracy`` (rows right in every name), ``macro_f1``, ``micro_f1``.
Of numbers: ``spearman``, ``pearson``, ``rmse``. Beside these ``loss``: mean cross-entropy in nats,
or mean squared error."""

Readings = npt.NDArray[np.float64]  # (rows, C) probabilities, or (rows, 1) numbers
Targets = npt.NDArray[np.int64] | npt.NDArray[np.float32]

_FEWEST_FOR_OWN_THRESHOLD = 20  # rows with a name; by fewer, its own threshold would be chance
_SMALLEST = 1e-12  # what a probability of 0 counts as in a loss


class EpochReport(NamedTuple):
    """What one epoch of training came to.

    Attributes:
        epoch: from 1.
        train_loss: mean loss over the epoch's rows, with dropout.
        dev: scores on the dev rows after the epoch.
    """

    epoch: int
    train_loss: float
    dev: Scores


class ClassRow(NamedTuple):
    """How well one class is found.

    Attributes:
        name: the class.
        precision: of rows given it, the share that are right.
        recall: of rows that have it, the share found.
        f1: the harmonic mean of both.
        rows: how many have it.
    """

    name: str
    precision: float
    recall: float
    f1: float
    rows: int


def score(
    labels: Labels,
    readings: Readings,
    targets: Targets,
    thresholds: npt.NDArray[np.float64] | None = None,
) -> Scores:
    """Score what a model gives.

    Args:
        labels: what the outputs stand for.
        readings: probabilities or numbers.
        targets: what is true.
        thresholds: of each name, (C,), for several names; default: chosen by these very rows.
    """
    if labels.kind == "multi-label" and thresholds is None:
        thresholds = choose_thresholds(readings, targets)
    decided = decide(labels.kind, readings, thresholds)
    return score_decided(labels, decided, targets) | {"loss": _loss(labels, readings, targets)}


def decide(
    kind: Kind, readings: Readings, thresholds: npt.NDArray[np.float64] | None
) -> npt.NDArray[Any]:
    """Turn probabilities into the likeliest class (rows,), or names into 0 and 1 (rows, C)."""
    if kind == "classification":
        return np.asarray(readings.argmax(axis=1))
    if kind == "multi-label":
        assert thresholds is not None
        return (readings >= thresholds).astype(np.int64)
    return readings


def score_decided(labels: Labels, decided: npt.NDArray[Any], targets: Targets) -> Scores:
    """Compare classes, names or numbers with what is true; all scores but the loss."""
    if labels.kind == "regression":
        found, true = decided[:, 0], targets[:, 0].astype(np.float64)
        return {
            "spearman": correlation(ranks(found), ranks(true)),
            "pearson": correlation(found, true),
            "rmse": float(np.sqrt(np.mean((found - true) ** 2))),
        }
    from sklearn.metrics import f1_score

    f1: dict[str, float] = {}
    for average in ("macro", "micro"):
        f1[f"{average}_f1"] = float(
            f1_score(
                targets,
                decided,
                labels=range(len(labels.names)),
                average=average,
                zero_division=0,
            )
        )
    if labels.kind == "multi-label":
        return {"accuracy": float((decided == targets).all(axis=1).mean()), **f1}
    return {
        "accuracy": float((decided == targets).mean()),
        **f1,
        "matthews": matthews(count_confusions(decided, targets, len(labels.names))),
    }


def _loss(labels: Labels, readings: Readings, targets: Targets) -> float:
    if labels.kind == "regression":
        return float(np.mean((readings - targets) ** 2))
    if labels.kind == "classification":
        share = readings[np.arange(len(readings)), targets.astype(np.int64)]
    else:
        share = np.where(targets > 0, readings, 1 - readings)
    return float(-np.log(np.maximum(share, _SMALLEST)).mean())


def choose_thresholds(readings: Readings, targets: Targets) -> npt.NDArray[np.float64]:
    """Choose above which probability each name is given, (C,), for the best F1 on these rows.

    Names with few rows share the threshold that is best for all names together.
    """
    shared = _best_threshold(readings.ravel(), targets.ravel())
    thresholds = np.full(readings.shape[1], shared)
    for column in np.flatnonzero(targets.sum(axis=0) >= _FEWEST_FOR_OWN_THRESHOLD):
        thresholds[column] = _best_threshold(readings[:, column], targets[:, column])
    return thresholds


def _best_threshold(found: npt.NDArray[np.float64], true: npt.NDArray[Any]) -> float:
    """Cut where F1 = 2 hits / (given + true) is highest, halfway to the next value below."""
    order = np.argsort(-found, kind="stable")
    values = found[order]
    hits = np.cumsum(true[order])
    f1 = 2 * hits / (np.arange(1, len(values) + 1) + true.sum())
    # Equal values are given a name together or not at all.
    f1[:-1][values[:-1] == values[1:]] = -1
    if true.sum() == 0:
        return 0.5
    best = int(f1.argmax())
    below = values[best + 1] if best + 1 < len(values) else 0.0
    return float((values[best] + below) / 2)


def class_rows(labels: Labels, decided: npt.NDArray[Any], targets: Targets) -> list[ClassRow]:
    """Score each class or name by itself; numbers have none."""
    if labels.kind == "regression":
        return []
    from sklearn.metrics import precision_recall_fscore_support

    columns = precision_recall_fscore_support(
        targets, decided, labels=range(len(labels.names)), average=None, zero_division=0
    )
    return [
        ClassRow(name, float(precision), float(recall), float(f1), int(rows))
        for name, precision, recall, f1, rows in zip(labels.names, *columns, strict=True)
    ]


def correlation(first: npt.NDArray[np.float64], second: npt.NDArray[np.float64]) -> float:
    """Give Pearson's correlation of two series; 0 where one does not vary."""
    first, second = first - first.mean(), second - second.mean()
    size = float(np.sqrt((first**2).sum() * (second**2).sum()))
    return float((first * second).sum()) / size if size > 0 else 0.0


def matthews(confusions: npt.NDArray[np.int64]) -> float:
    """Give the correlation of true and predicted classes; 0 where one does not vary.

    Source: Gorodkin 2004, "Comparing two K-category assignments by a K-category correlation
        coefficient"; of two classes it is that of Matthews 1975.
    """
    table = confusions.astype(np.float64)
    true, found, total = table.sum(axis=1), table.sum(axis=0), table.sum()
    size = float(np.sqrt((total**2 - (found**2).sum()) * (total**2 - (true**2).sum())))
    return float(total * np.trace(table) - found @ true) / size if size > 0 else 0.0


def ranks(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Give each value's rank from 1; equal ones share the mean of theirs."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    means = np.cumsum(counts) - (counts - 1) / 2
    return np.asarray(means[places])


def count_confusions(
    predicted: npt.NDArray[Any], targets: npt.NDArray[Any], num: int
) -> npt.NDArray[np.int64]:
    """Count rows by true class (down) and predicted class (across), (num, num) int64."""
    cells = np.bincount(targets * num + predicted, minlength=num * num)
    return cells.reshape(num, num).astype(np.int64)
