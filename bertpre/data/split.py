"""The held-out split: which documents, or tails of documents, are kept for evaluation."""

from collections.abc import Callable
from functools import reduce

import numpy as np

from bertpre.data.documents import Array, SplitDocuments, keep_on_disk
from bertpre.data.random64 import U64, derive, hash64
from bertpre.data.tokens import TokenStore

FEWEST_DOCUMENTS = 20  # with fewer, whole documents would be too coarse a share

# Takes where documents start and end, and their hashes; returns starts, ends, and which are chosen.
Choice = Callable[[Array, Array, U64], tuple[Array, Array, Array]]


def split_documents(
    store: TokenStore, *, fraction: float, seed: int
) -> tuple[SplitDocuments, SplitDocuments]:
    """Divide the corpus into training and held-out documents.

    A document is held out by a hash of the seed and its text, so that equal documents stay on one
    side and a corpus that grows keeps its split. With few documents the last sentences of each are
    held out instead.

    Args:
        store: the tokenised corpus.
        fraction: share to hold out; 0 holds out nothing.
        seed: the experiment's seed.

    Returns:
        Training and held-out documents; the latter may be none.
    """
    key = derive(seed, "held-out")
    smallest = reduce(
        lambda found, shard: np.unique(np.concatenate([found, hash64(key, shard[1])]))[
            :FEWEST_DOCUMENTS
        ],
        store.documents(),
        np.zeros(0, np.uint64),
    )
    if fraction == 0:
        return (
            _choose(store, lambda first, last, _: (first, last, first >= 0)),
            _choose(store, lambda first, last, _: (first, last, first < 0)),
        )
    if len(smallest) == FEWEST_DOCUMENTS:
        # At least two distinct documents, as a random next sentence needs another document.
        threshold = max(np.uint64(int(fraction * 2**64)), smallest[1] + np.uint64(1))
        return (
            _choose(store, lambda first, last, h: (first, last, hash64(key, h) >= threshold)),
            _choose(store, lambda first, last, h: (first, last, hash64(key, h) < threshold)),
        )

    def middle(first: Array, last: Array) -> Array:
        sizes = last - first
        # Two sentences stay, or the document would have no next sentence to teach.
        wanted = np.maximum(1, np.rint(fraction * sizes)).astype(np.int64)
        return last - np.clip(wanted, 0, np.maximum(sizes - 2, 0))

    return (
        _choose(store, lambda first, last, _: (first, middle(first, last), first >= 0)),
        _choose(
            store,
            lambda first, last, _: (middle(first, last), last, middle(first, last) < last),
        ),
    )


def _choose(store: TokenStore, choice: Choice) -> SplitDocuments:
    kinds: tuple[type[np.int64] | type[np.uint64], ...] = (np.int64, np.int64, np.uint64)
    chosen = [
        keep_on_disk(
            (_chosen(choice, starts, hashes)[i] for starts, hashes in store.documents()), t
        )
        for i, t in enumerate(kinds)
    ]
    return SplitDocuments(store, first=chosen[0], last=chosen[1], hashes=chosen[2])


def _chosen(choice: Choice, starts: Array, hashes: U64) -> tuple[Array, Array, Array]:
    first, last, is_chosen = choice(starts[:-1], starts[1:], hashes)
    return first[is_chosen], last[is_chosen], hashes[is_chosen]
