"""Scores of tags: entities of the right borders and type, and tokens.

They run after every epoch, so they count spans and tags without scikit-learn.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bertpre.finetuning.outputs import ClassRow, Scores
from bertpre.finetuning.schemes import OUTSIDE_TAG, Scheme, Span

NO_ENTITY = "no entity"

Sentences = Sequence[Sequence[str]]
"""The tags of each sentence."""

Counts = npt.NDArray[np.int64]


class Confusions(NamedTuple):
    """Which type was found for which.

    Attributes:
        names: K types and `NO_ENTITY`, or K plain tags.
        counts: by true name (down) and found name (across).
    """

    names: tuple[str, ...]
    counts: Counts


def score_entities(true: Sentences, found: Sentences, scheme: Scheme) -> Scores:
    """Score the tags of some sentences.

    Args:
        true: may have types that the model does not know; they count as missed.
        found: as many tags for each sentence.
        scheme: of all tags.

    Returns:
        ``precision``, ``recall`` and ``f1`` of entities over all types, strictly read: type, first
        and last token must be right; the same with ``lenient_`` before it, leniently read;
        ``accuracy`` of all tokens. For plain tags: ``accuracy``, and ``macro_f1`` and ``micro_f1``
        without "O"; if "O" is among the tags, ``accuracy_without_o`` of the tokens that truly have
        another tag. A score is 0 where there is nothing to score.

    Source: micro averages as in seqeval 1.2.2; F1 of plain tags as in scikit-learn, with all tags
        but "O" as its ``labels``.
    """
    if scheme.is_plain:
        return _score_plain(_count_tags(true, found))
    scores: Scores = {}
    for prefix, read in (("", scheme.spans), ("lenient_", scheme.lenient_spans)):
        counts = _count_spans(true, found, read)
        precision, recall, f1 = _rates(counts[0].total(), counts[1].total(), counts[2].total())
        scores |= {f"{prefix}precision": precision, f"{prefix}recall": recall, f"{prefix}f1": f1}
    return {**scores, "accuracy": _share_right(true, found)}


def class_rows(true: Sentences, found: Sentences, scheme: Scheme) -> list[ClassRow]:
    """Score each type separately, strictly read; for plain tags, each tag."""
    if scheme.is_plain:
        names, counts = _count_tags(true, found)
        right, truly, given = counts.diagonal(), counts.sum(axis=1), counts.sum(axis=0)
        parts = zip(names, right.tolist(), given.tolist(), truly.tolist(), strict=True)
        return [ClassRow(name, *_rates(*some), rows=some[2]) for name, *some in parts]
    hits, with_found, with_true = _count_spans(true, found, scheme.spans)
    return [
        ClassRow(type_, *_rates(hits[type_], with_found[type_], rows), rows=rows)
        for type_ in sorted(with_found | with_true)
        for rows in [with_true[type_]]
    ]


def count_type_confusions(true: Sentences, found: Sentences, scheme: Scheme) -> Confusions:
    """Count the types of true and found entities with equal borders, strictly read.

    In the last row are found entities whose borders are those of no true one, in the last column
    true ones that were missed likewise. For plain tags, count tokens.
    """
    if scheme.is_plain:
        return _count_tags(true, found)
    pairs: Counter[tuple[str, str]] = Counter()
    for true_tags, found_tags in zip(true, found, strict=True):
        truly = {span[1:]: span.type for span in scheme.spans(true_tags)}
        given = {span[1:]: span.type for span in scheme.spans(found_tags)}
        pairs.update((truly.get(at, ""), given.get(at, "")) for at in truly.keys() | given.keys())
    types = sorted({type_ for pair in pairs for type_ in pair} - {""})
    return Confusions((*types, NO_ENTITY), _matrix([*types, ""], pairs))


def _count_spans(
    true: Sentences, found: Sentences, read: Callable[[Sequence[str]], list[Span]]
) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Count by type the entities found rightly, all found, and all true."""
    right: Counter[str] = Counter()
    with_found: Counter[str] = Counter()
    with_true: Counter[str] = Counter()
    for true_tags, found_tags in zip(true, found, strict=True):
        truly, given = read(true_tags), read(found_tags)
        with_true.update(span.type for span in truly)
        with_found.update(span.type for span in given)
        right.update(span.type for span in set(truly).intersection(given))
    return right, with_found, with_true


def _rates(right: int, num_found: int, num_true: int) -> tuple[float, float, float]:
    """Return precision, recall and F1, 0 where undefined."""
    precision = right / num_found if num_found else 0.0
    recall = right / num_true if num_true else 0.0
    f1 = 2 * right / (num_found + num_true) if right else 0.0
    return precision, recall, f1


def _share_right(true: Sentences, found: Sentences) -> float:
    right = sum(
        is_ == given
        for pair in zip(true, found, strict=True)
        for is_, given in zip(*pair, strict=True)
    )
    return right / max(sum(map(len, true)), 1)


def _count_tags(true: Sentences, found: Sentences) -> Confusions:
    pairs: Counter[tuple[str, str]] = Counter()
    for true_tags, found_tags in zip(true, found, strict=True):
        pairs.update(zip(true_tags, found_tags, strict=True))
    names = sorted({name for pair in pairs for name in pair})
    return Confusions(tuple(names), _matrix(names, pairs))


def _matrix(names: Sequence[str], pairs: Counter[tuple[str, str]]) -> Counts:
    numbers = {name: number for number, name in enumerate(names)}
    counts = np.zeros((len(names), len(names)), dtype=np.int64)
    for (is_, given), count in pairs.items():
        counts[numbers[is_], numbers[given]] = count
    return counts


def _score_plain(confusions: Confusions) -> Scores:
    names, counts = confusions
    right, truly, given = counts.diagonal(), counts.sum(axis=1), counts.sum(axis=0)
    kept = np.array([name != OUTSIDE_TAG for name in names], dtype=bool)
    *_, micro = _rates(*(int(part[kept].sum()) for part in (right, given, truly)))
    each = 2 * right[kept] / np.maximum(truly + given, 1)[kept]
    scores = {
        "accuracy": _share(right, truly),
        "macro_f1": float(each.mean()) if len(each) else 0.0,
        "micro_f1": micro,
    }
    if OUTSIDE_TAG in names:
        scores["accuracy_without_o"] = _share(right[kept], truly[kept])
    return scores


def _share(part: npt.NDArray[Any], whole: npt.NDArray[Any]) -> float:
    return float(part.sum() / max(whole.sum(), 1))
