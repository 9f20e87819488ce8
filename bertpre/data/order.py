"""The order of training: a permutation for each epoch that is computed, never stored."""

from typing import Any

import numpy as np
import numpy.typing as npt

from bertpre.data.random64 import derive, permute

Array = npt.NDArray[Any]

# Beyond this much of token ids, which then may not stay in memory, examples are shuffled in blocks:
# neighbours in the index lie side by side on disk. The machine's memory must not decide, or another
# machine would train in another order.
SHUFFLED_WHOLE_BYTES = 16 * 2**30
_BLOCK = 4096  # examples that are neighbours in the index
_WINDOW = 256  # blocks that are shuffled together: some 300 MB of ids at length 128


def epoch_order(places: Array, size: int, *, key: int, ids_bytes: int) -> Array:
    """Return which examples come at places of an epoch.

    In blocks, these are permuted first, then the examples of so many consecutive blocks; what does
    not fill a block comes last in the epoch.

    Args:
        places: int64, in [0, size).
        size: examples in an epoch.
        key: a number from `derive`; another key, another order.
        ids_bytes: what the token ids take.
    """
    if ids_bytes <= SHUFFLED_WHOLE_BYTES:
        return permute(places, size, key)
    num_blocks = size // _BLOCK
    blocks_end, window_size = num_blocks * _BLOCK, _WINDOW * _BLOCK
    examples = np.empty(len(places), np.int64)
    windows = np.where(places < blocks_end, places // window_size, -1)
    for window in np.unique(windows).tolist():
        here = windows == window
        if window < 0:
            tail = permute(places[here] - blocks_end, size - blocks_end, derive(key, "tail"))
            examples[here] = blocks_end + tail
            continue
        start = window * window_size
        inside = permute(
            places[here] - start,
            min(window_size, blocks_end - start),
            derive(key, "window", window),
        )
        blocks = permute(start // _BLOCK + inside // _BLOCK, num_blocks, key)
        examples[here] = blocks * _BLOCK + inside % _BLOCK
    return examples
