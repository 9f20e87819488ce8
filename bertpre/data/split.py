"""The held-out split: which documents, or tails of documents, are kept for evaluation."""

import numpy as np
import numpy.typing as npt

from bertpre.data.pairs import SplitDocuments
from bertpre.data.random64 import derive, hash64
from bertpre.data.tokens import TokenStore

FEWEST_DOCUMENTS = 20  # with fewer, whole documents would be too coarse a share


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
    starts, hashes = store.document_starts, store.document_hashes
    first, last = starts[:-1], starts[1:]
    if fraction == 0:
        nothing = np.zeros(0, np.int64)
        return (
            SplitDocuments(store, first=first, last=last, hashes=hashes),
            SplitDocuments(store, first=nothing, last=nothing, hashes=hashes[:0]),
        )
    draws = hash64(derive(seed, "held-out"), hashes)
    distinct = np.unique(draws)
    if len(distinct) >= FEWEST_DOCUMENTS:
        # At least two distinct documents, as a random next sentence needs another document.
        threshold = max(np.uint64(int(fraction * 2**64)), distinct[1] + np.uint64(1))
        held_out = draws < threshold
        return (
            _choose(store, first, last, hashes, ~held_out),
            _choose(store, first, last, hashes, held_out),
        )
    sizes = last - first
    # Two sentences stay, or the document would have no next sentence to teach.
    wanted = np.maximum(1, np.rint(fraction * sizes)).astype(np.int64)
    tails = np.clip(wanted, 0, np.maximum(sizes - 2, 0))
    middle = last - tails
    return (
        SplitDocuments(store, first=first, last=middle, hashes=hashes),
        _choose(store, middle, last, hashes, tails > 0),
    )


def _choose(
    store: TokenStore,
    first: npt.NDArray[np.int64],
    last: npt.NDArray[np.int64],
    hashes: npt.NDArray[np.uint64],
    chosen: npt.NDArray[np.bool_],
) -> SplitDocuments:
    return SplitDocuments(store, first=first[chosen], last=last[chosen], hashes=hashes[chosen])
