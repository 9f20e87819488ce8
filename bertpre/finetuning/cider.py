"""CIDEr-D: how much of what is special about a reference a text has."""

import math
from collections import Counter
from collections.abc import Sequence

_LONGEST = 4

Ngram = tuple[str, ...]


def cider_d(
    found: Sequence[Sequence[str]], references: Sequence[Sequence[str]], *, sigma: float
) -> float:
    """Score token sequences against one reference each; the mean, 0 to 10.

    n-grams of one to four tokens are weighted by how few of these references have them, so scores
    of different sets of references do not compare, and that of a single row is 0.

    Args:
        found: the texts, as tokens.
        references: the true ones.
        sigma: a text that is so many tokens longer or shorter gets exp(-1/2) of its score; 6 in the
            paper.

    Source: Vedantam et al. 2015, "CIDEr: consensus-based image description evaluation", equations 1
        to 3 and section 6 (CIDEr-D).
    """
    counts = [[_count(text) for text in texts] for texts in (found, references)]
    having = Counter(ngram for count in counts[1] for ngram in count)
    log_total = math.log(len(references))

    def weigh(count: Counter[Ngram]) -> list[dict[Ngram, float]]:
        by_size: list[dict[Ngram, float]] = [{} for _ in range(_LONGEST)]
        for ngram, times in count.items():
            rarity = log_total - math.log(max(1, having[ngram]))
            by_size[len(ngram) - 1][ngram] = times * rarity
        return by_size

    total = 0.0
    for text, true, count, true_count in zip(found, references, *counts, strict=True):
        # The public implementation counts pairs of tokens.
        difference = max(0, len(text) - 1) - max(0, len(true) - 1)
        closeness = math.exp(-(difference**2) / (2 * sigma**2))
        pairs = zip(weigh(count), weigh(true_count), strict=True)
        total += closeness * sum(_similarity(*pair) for pair in pairs) / _LONGEST
    return 10 * total / len(found)


def _count(tokens: Sequence[str]) -> Counter[Ngram]:
    return Counter(
        tuple(tokens[start : start + size])
        for size in range(1, _LONGEST + 1)
        for start in range(len(tokens) - size + 1)
    )


def _similarity(found: dict[Ngram, float], true: dict[Ngram, float]) -> float:
    """Return the cosine of two vectors, with the found one clipped to the true one."""
    norm = math.sqrt(sum(w * w for w in found.values()) * sum(w * w for w in true.values()))
    if norm == 0:
        return 0.0
    return sum(min(w, true[n]) * true[n] for n, w in found.items() if n in true) / norm
