"""Baselines that write texts without a network.

scikit-learn is imported where it is used, after the tables are checked.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from bertpre.finetuning.baselines import has_no_spaces
from bertpre.finetuning.outputs import GeneratedText, Outputs, as_rows
from bertpre.finetuning.tables import LabelledTable

_MOST_ROWS = 20_000
_QUERIES_AT_ONCE = 500


def write_nearest(train: LabelledTable, scored: Sequence[LabelledTable]) -> list[Outputs]:
    """Answer with the target of the most similar training source."""
    known = train.sources()
    return [_outputs(nearest_targets(known, train.labels, table.sources())) for table in scored]


def write_commonest(train: LabelledTable, scored: Sequence[LabelledTable]) -> list[Outputs]:
    """Always answer with the most common training target."""
    answer = commonest_target(train.labels)
    return [_outputs([answer] * len(table)) for table in scored]


def copy_sources(train: LabelledTable, scored: Sequence[LabelledTable]) -> list[Outputs]:
    """Answer with the source; of a pair, with its first text."""
    return [_outputs(table.texts) for table in scored]


def _outputs(texts: Sequence[str]) -> Outputs:
    return as_rows([GeneratedText(text) for text in texts])


def nearest_targets(
    sources: Sequence[str], targets: Sequence[str], queries: Sequence[str]
) -> list[str]:
    """Return for each query the target of the most similar source, by TF-IDF; the first of equals.

    Terms are up to three tokens, or characters in scripts without spaces. Only the first 20,000
    sources are looked at.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    sources = sources[:_MOST_ROWS]
    if has_no_spaces(sources):
        terms = TfidfVectorizer(analyzer="char", ngram_range=(1, 3), sublinear_tf=True)
    else:
        terms = TfidfVectorizer(
            token_pattern=r"\S+", ngram_range=(1, 3), sublinear_tf=True, lowercase=False
        )
    known = terms.fit_transform(sources).T.tocsr()
    found: list[str] = []
    for first in range(0, len(queries), _QUERIES_AT_ONCE):
        similar = terms.transform(queries[first : first + _QUERIES_AT_ONCE]) @ known
        found += [targets[int(row)] for row in np.asarray(similar.argmax(axis=1)).ravel()]
    return found


def commonest_target(targets: Sequence[str]) -> str:
    """Return the target that occurs most often; the first of equals."""
    return Counter(targets).most_common(1)[0][0]
