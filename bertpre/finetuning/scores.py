"""How good predictions are, and what can be had without a network: majority class, bag of words.

scikit-learn takes a second to import, so its functions are imported where they are called: the
tables are checked before that.
"""

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bertpre.finetuning.tasks import LabelledTable

# Past these the baseline would take minutes: it is a yardstick, not the job.
MOST_BASELINE_ROWS = 50_000
MOST_BASELINE_CHARACTERS = 20_000_000


class HardScores(NamedTuple):
    """Scores of predicted classes.

    Attributes:
        accuracy: share of rows that are right.
        macro_f1: mean of F1 over all classes of the training file; a class that is neither there
            nor predicted counts as 0.
    """

    accuracy: float
    macro_f1: float


class Scores(NamedTuple):
    """`HardScores` and the loss.

    Attributes:
        accuracy: see `HardScores`.
        macro_f1: see `HardScores`.
        loss: mean cross-entropy, nats a row.
    """

    accuracy: float
    macro_f1: float
    loss: float


class EpochReport(NamedTuple):
    """What one epoch of training came to.

    Attributes:
        epoch: from 1.
        train_loss: mean cross-entropy over the epoch's rows, with dropout, nats.
        dev: scores on the dev rows after the epoch.
    """

    epoch: int
    train_loss: float
    dev: Scores


def score_classes(predicted: npt.NDArray[Any], targets: npt.NDArray[Any], num: int) -> HardScores:
    """Compare predicted with true classes.

    Args:
        predicted: (rows,) integers below ``num``.
        targets: (rows,) integers below ``num``.
        num: classes of the training file.
    """
    from sklearn.metrics import f1_score

    macro = f1_score(targets, predicted, labels=range(num), average="macro", zero_division=0)
    return HardScores(float(np.mean(predicted == targets)), float(macro))


def score(log_probabilities: npt.NDArray[Any], targets: npt.NDArray[np.int64]) -> Scores:
    """Score a classifier's output.

    Args:
        log_probabilities: (rows, classes) floats.
        targets: (rows,) integers below the number of classes.
    """
    rows, num = log_probabilities.shape
    hard = score_classes(log_probabilities.argmax(axis=1), targets, num)
    loss = -log_probabilities[np.arange(rows), targets].mean(dtype=np.float64)
    return Scores(hard.accuracy, hard.macro_f1, float(loss))


def majority_baseline(
    train: LabelledTable, classes: Sequence[str], scored: Mapping[str, LabelledTable]
) -> dict[str, HardScores]:
    """Score what always answers the commonest class of the training rows.

    Args:
        train: the rows to learn from.
        classes: the labels; the first of equally common ones is taken.
        scored: tables to score, by a name for each.

    Returns:
        The scores under the same names.
    """
    counts = Counter(train.labels)
    commonest = max(range(len(classes)), key=lambda number: counts[classes[number]])
    return {
        name: score_classes(np.full(len(table), commonest), table.targets(classes), len(classes))
        for name, table in scored.items()
    }


def is_small_enough(train: LabelledTable) -> bool:
    """Tell whether `bag_of_words_baseline` on these rows is a matter of seconds."""
    characters = sum(len(text) for text in train.texts)
    return len(train) <= MOST_BASELINE_ROWS and characters <= MOST_BASELINE_CHARACTERS


def bag_of_words_baseline(
    train: LabelledTable, classes: Sequence[str], scored: Mapping[str, LabelledTable]
) -> dict[str, HardScores]:
    """Score TF-IDF of white-space tokens and their pairs under a linear support-vector machine.

    Args:
        train: the rows to learn from.
        classes: the labels.
        scored: tables to score, by a name for each.

    Returns:
        The scores under the same names.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.svm import LinearSVC

    # The default pattern drops tokens of one character, so half of the words of many languages.
    words = TfidfVectorizer(token_pattern=r"\S+", ngram_range=(1, 2), sublinear_tf=True)
    machine = LinearSVC(random_state=0)
    features = words.fit_transform(train.texts)
    with warnings.catch_warnings():
        # After a thousand rounds it is as good a yardstick as it gets.
        warnings.simplefilter("ignore", ConvergenceWarning)
        machine.fit(features, train.targets(classes))
    return {
        name: score_classes(
            machine.predict(words.transform(table.texts)), table.targets(classes), len(classes)
        )
        for name, table in scored.items()
    }


def count_confusions(
    predicted: npt.NDArray[Any], targets: npt.NDArray[Any], num: int
) -> npt.NDArray[np.int64]:
    """Count rows by true class (down) and predicted class (across), (num, num) int64."""
    cells = np.bincount(targets * num + predicted, minlength=num * num)
    return cells.reshape(num, num).astype(np.int64)
