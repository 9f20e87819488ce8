"""Baselines without a network, and those for texts: the most common label, and TF-IDF.

scikit-learn is imported where it is used, after the tables are checked.
"""

import re
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from bertpre.config.schema import Finetune
from bertpre.finetuning.outputs import Baseline, Outputs, Scores
from bertpre.finetuning.plan import Plan
from bertpre.finetuning.tables import LabelledTable
from bertpre.finetuning.text_task import TextTask

# Beyond these, TF-IDF would take minutes: too long for a mere yardstick.
MOST_BASELINE_ROWS = 50_000
MOST_BASELINE_CHARACTERS = 20_000_000

_SAMPLE_ROWS = 1000
# Han, kana, Thai, Lao, Tibetan, Myanmar, Khmer: scripts without spaces between words.
_UNSPACED = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]"
)
_LONGEST_MEAN_WORD = 20  # characters; beyond, spaces do not separate words


def score_baselines(plan: Plan, config: Finetune) -> dict[str, dict[str, Scores]]:
    """Score the baselines on the same rows as the model.

    Args:
        plan: with folds, each dev row is predicted by a baseline not trained on it.
        config: whether to score TF-IDF whatever the size.

    Returns:
        By the baseline's name, its scores by "dev" and "test".
    """
    baselines = plan.task.baselines(plan.train, config)
    return {name: _score(plan, baseline) for name, baseline in baselines.items()}


def _score(plan: Plan, baseline: Baseline) -> dict[str, Scores]:
    task, tables = plan.task, plan.scored_tables()
    if plan.with_folds:
        outputs = {"dev": _answer_by_folds(plan, baseline)}
        if plan.test is not None:
            outputs["test"] = baseline(plan.train, [plan.test])[0]
    else:
        kept = plan.train.take(plan.members[0].train_rows)
        answers = baseline(kept, list(tables.values()))
        outputs = dict(zip(tables, answers, strict=True))
    targets = {part: task.targets(table.labels) for part, table in tables.items()}
    task = task.calibrated(outputs["dev"], targets["dev"])
    return {part: task.scores(outputs[part], targets[part]) for part in tables}


def _answer_by_folds(plan: Plan, baseline: Baseline) -> Outputs:
    rows, found = [], []
    for fold, *_ in plan.folds():
        assert fold.dev_rows is not None
        held_out = plan.train.take(fold.dev_rows)
        rows.append(fold.dev_rows)
        found += baseline(plan.train.take(fold.train_rows), [held_out])
    return np.asarray(np.concatenate(found)[np.argsort(np.concatenate(rows))])


def text_baselines(task: TextTask, train: LabelledTable, config: Finetune) -> dict[str, Baseline]:
    """Return the baselines of a task with a label per text; large tables have no TF-IDF."""
    baselines: dict[str, Baseline] = {"majority": partial(commonest, task)}
    wanted = is_small_enough(train) if config.baseline is None else config.baseline
    if wanted:
        baselines["tfidf_linear"] = partial(bag_of_words, task)
    return baselines


def commonest(
    task: TextTask, train: LabelledTable, scored: Sequence[LabelledTable]
) -> list[Outputs]:
    """Always predict the most common training label; for numbers, their mean."""
    answer = task.commonest(train.labels)
    return [np.tile(answer, (len(table), 1)) for table in scored]


def is_small_enough(train: LabelledTable) -> bool:
    """Return whether `bag_of_words` takes only seconds on these rows."""
    characters = sum(len(text) for text in (*train.texts, *(train.pairs or ())))
    return len(train) <= MOST_BASELINE_ROWS and characters <= MOST_BASELINE_CHARACTERS


def bag_of_words(
    task: TextTask, train: LabelledTable, scored: Sequence[LabelledTable]
) -> list[Outputs]:
    """Predict by TF-IDF and a linear model: a support vector machine, or ridge regression.

    The terms are words and pairs of them; in scripts without spaces, one to three characters in a
    row. For a pair of texts: the terms of each, of both, and of only one.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = (*train.texts, *(train.pairs or ()))
    if has_no_spaces(texts):
        terms = TfidfVectorizer(analyzer="char", ngram_range=(1, 3), sublinear_tf=True)
    else:
        # The default pattern drops tokens of one character, so half the words of many languages.
        terms = TfidfVectorizer(token_pattern=r"\S+", ngram_range=(1, 2), sublinear_tf=True)
    terms.fit(texts)
    with warnings.catch_warnings():
        # After a thousand iterations it is a good enough yardstick.
        warnings.simplefilter("ignore", ConvergenceWarning)
        answer = task.fit_linear(_features(terms, train), train.labels)
    return [answer(_features(terms, table)) for table in scored]


def has_no_spaces(texts: Sequence[str]) -> bool:
    """Guess from script and word length whether white space does not separate words here."""
    sample = " ".join(texts[:_SAMPLE_ROWS])
    words = sample.split()
    characters = sum(map(len, words))
    if characters == 0:
        return False
    share = len(_UNSPACED.findall(sample)) / characters
    return share > 0.3 or characters / len(words) > _LONGEST_MEAN_WORD


def _features(terms: Any, table: LabelledTable) -> Any:
    from scipy.sparse import csr_matrix, hstack

    first = terms.transform(table.texts)
    if table.pairs is None:
        return first
    second = terms.transform(table.pairs)
    both = first.multiply(second)
    overlap = csr_matrix(both.sum(axis=1))
    return hstack([first, second, abs(first - second), both, overlap]).tocsr()
