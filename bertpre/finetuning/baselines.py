"""What can be had without a network: the commonest answer, and a bag of words with a linear model.

scikit-learn is imported where it is used: the tables are checked before that.
"""

import re
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bertpre.config.schema import Finetune
from bertpre.finetuning.labelled import LabelledTable
from bertpre.finetuning.labels import Kind, Labels
from bertpre.finetuning.scores import Scores, choose_thresholds, decide, score_decided
from bertpre.finetuning.tasks import Task

# Past these the bag of words would take minutes: it is a yardstick, not the job.
MOST_BASELINE_ROWS = 50_000
MOST_BASELINE_CHARACTERS = 20_000_000

_SAMPLE_ROWS = 1000
# Han, kana, Thai, Lao, Tibetan, Myanmar, Khmer: scripts that put no spaces between words.
_UNSPACED = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]"
)
_LONGEST_MEAN_WORD = 20  # characters; beyond, spaces do not part words

Outputs = npt.NDArray[Any]


def score_baselines(task: Task, config: Finetune) -> dict[str, dict[str, Scores]]:
    """Score what needs no network on the rows that the network is scored on.

    Args:
        task: with folds, the dev scores are of all rows, each by a baseline that did not see it.
        config: whether the bag of words is wanted whatever the size.

    Returns:
        By the baseline's name, its scores by "dev" and "test".
    """
    makers = {"majority": commonest}
    wanted = is_small_enough(task.train) if config.baseline is None else config.baseline
    if wanted:
        makers["tfidf_linear"] = bag_of_words
    return {name: _score(task, maker) for name, maker in makers.items()}


def baseline_name(name: str, kind: Kind) -> str:
    """Say in words what a baseline of `score_baselines` is."""
    if name == "majority":
        return "always the mean" if kind == "regression" else "always the commonest"
    return {"tfidf_linear": "TF-IDF + linear"}.get(name, name)


def _score(task: Task, maker: Any) -> dict[str, Scores]:
    labels = task.labels
    parts: dict[str, tuple[Outputs, LabelledTable]] = {}
    if task.with_folds:
        folds = [member for member in task.members if member.seed == task.members[0].seed]
        found: dict[int, Outputs] = {}
        for fold in folds:
            assert fold.dev_rows is not None
            (outputs,) = maker(
                labels, task.train.take(fold.train_rows), [task.train.take(fold.dev_rows)]
            )
            found |= dict(zip(fold.dev_rows.tolist(), outputs, strict=True))
        parts["dev"] = np.array([found[row] for row in range(len(task.train))]), task.train
        if task.test is not None:
            parts["test"] = maker(labels, task.train, [task.test])[0], task.test
    else:
        dev = task.scored_rows()
        tables = {"dev": dev} if task.test is None else {"dev": dev, "test": task.test}
        kept = task.train.take(task.members[0].train_rows)
        outputs_of = maker(labels, kept, list(tables.values()))
        parts |= zip(tables, zip(outputs_of, tables.values(), strict=True), strict=True)
    thresholds = None
    if labels.kind == "multi-label":
        outputs, dev = parts["dev"]
        thresholds = choose_thresholds(outputs, labels.targets(dev.labels))
    return {
        part: score_decided(
            labels, decide(labels.kind, outputs, thresholds), labels.targets(table.labels)
        )
        for part, (outputs, table) in parts.items()
    }


def commonest(
    labels: Labels, train: LabelledTable, scored: Sequence[LabelledTable]
) -> list[Outputs]:
    """Always answer the commonest label of the training rows; of numbers, their mean.

    Returns:
        For each table scores (rows, C), the highest for the answer; or numbers (rows, 1).
    """
    targets = labels.targets(train.labels)
    if labels.kind == "regression":
        answer = targets.mean(axis=0, dtype=np.float64)
    else:
        counts = Counter(train.labels)
        # Of equally common ones, the first in the order of the labels.
        cells = labels.names if labels.kind == "classification" else sorted(counts)
        cell = max(cells, key=lambda cell: counts[cell])
        answer = np.zeros(len(labels.names))
        answer[[labels.names.index(name) for name in labels.split(cell)]] = 1.0
    return [np.tile(answer, (len(table), 1)) for table in scored]


def is_small_enough(train: LabelledTable) -> bool:
    """Tell whether `bag_of_words` on these rows is a matter of seconds."""
    characters = sum(len(text) for text in (*train.texts, *(train.pairs or ())))
    return len(train) <= MOST_BASELINE_ROWS and characters <= MOST_BASELINE_CHARACTERS


def bag_of_words(
    labels: Labels, train: LabelledTable, scored: Sequence[LabelledTable]
) -> list[Outputs]:
    """Answer by TF-IDF and a linear model: a support-vector machine, or ridge regression.

    The terms are white-space tokens and pairs of them; in scripts without spaces, one to three
    characters in a row. Of a pair of texts: the terms of each, of both, and of one alone.

    Returns:
        For each table scores (rows, C), or numbers (rows, 1).
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import Ridge
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.svm import LinearSVC

    texts = (*train.texts, *(train.pairs or ()))
    if has_no_spaces(texts):
        terms = TfidfVectorizer(analyzer="char", ngram_range=(1, 3), sublinear_tf=True)
    else:
        # The default pattern drops tokens of one character, so half the words of many languages.
        terms = TfidfVectorizer(token_pattern=r"\S+", ngram_range=(1, 2), sublinear_tf=True)
    terms.fit(texts)
    targets = labels.targets(train.labels)
    if labels.kind == "classification" and len(np.unique(targets)) == 1:
        return commonest(labels, train, scored)  # a fold of a rare class
    model: Any = LinearSVC(random_state=0)
    if labels.kind == "regression":
        model, targets = Ridge(random_state=0), targets[:, 0]
    elif labels.kind == "multi-label":
        model = OneVsRestClassifier(model)
    with warnings.catch_warnings():
        # After a thousand rounds it is as good a yardstick as it gets; and a name that each or no
        # row has needs no model.
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", message="Label .* is present in all|Label not")
        model.fit(_features(terms, train), targets)
    return [_outputs(labels, model, _features(terms, table)) for table in scored]


def has_no_spaces(texts: Sequence[str]) -> bool:
    """Tell whether white space parts words here, by the script and the length of the words."""
    sample = " ".join(texts[:_SAMPLE_ROWS])
    words = sample.split()
    characters = sum(map(len, words))
    if characters == 0:
        return False
    share = len(_UNSPACED.findall(sample)) / characters
    return share > 0.3 or characters / len(words) > _LONGEST_MEAN_WORD


def _features(terms: Any, table: LabelledTable) -> Any:
    from scipy.sparse import csr_matrix, hstack  # scikit-learn stands on it

    first = terms.transform(table.texts)
    if table.pairs is None:
        return first
    second = terms.transform(table.pairs)
    both = first.multiply(second)
    overlap = csr_matrix(both.sum(axis=1))
    return hstack([first, second, abs(first - second), both, overlap]).tocsr()


def _outputs(labels: Labels, model: Any, features: Any) -> Outputs:
    if labels.kind == "regression":
        return np.asarray(model.predict(features))[:, None]
    scores = np.asarray(model.decision_function(features))
    if labels.kind == "multi-label":
        return scores.reshape(len(scores), -1)  # a single name has one dimension
    if scores.ndim == 1:  # two classes
        scores = np.stack([-scores, scores], axis=1)
    # A fold may lack a class, which is never the answer then.
    full = np.full((len(scores), len(labels.names)), scores.min() - 1)
    full[:, model.classes_] = scores
    return full
