"""Which rows train and which choose or score: one share held out, or folds; both stratified."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bertpre.data.random64 import derive, permute

Rows = npt.NDArray[np.int64]


class Split(NamedTuple):
    """Row numbers, each ascending.

    Attributes:
        kept: rows to learn from.
        held_out: rows that are not.
    """

    kept: Rows
    held_out: Rows


def hold_out(strata: npt.NDArray[np.int64], *, fraction: float, seed: int) -> Split:
    """Hold out a share of each stratum; one of two rows or more is on both sides.

    Args:
        strata: the group of each row, (rows,).
        fraction: share held out, 0 < fraction < 1.
        seed: decides which rows.

    Returns:
        The split; nothing is held out where each stratum has one row.
    """
    is_held_out = np.zeros(len(strata), dtype=bool)
    for stratum in np.unique(strata):
        rows = np.flatnonzero(strata == stratum)
        if len(rows) >= 2:
            count = min(max(1, round(fraction * len(rows))), len(rows) - 1)
            key = derive(seed, "dev split", int(stratum))
            is_held_out[rows[permute(np.arange(count), len(rows), key)]] = True
    return Split(np.flatnonzero(~is_held_out), np.flatnonzero(is_held_out))


def make_folds(strata: npt.NDArray[np.int64], *, num_folds: int, seed: int) -> list[Split]:
    """Deal the rows of each stratum out to folds, as evenly as may be.

    Args:
        strata: the group of each row, (rows,), with ``num_folds`` rows or more in all.
        num_folds: K ≥ 2.
        seed: decides which rows go together.

    Returns:
        K splits; each row is held out in one of them. Folds differ by one row at most.
    """
    fold_of = np.empty(len(strata), dtype=np.int64)
    dealt = 0
    for stratum in np.unique(strata):
        rows = np.flatnonzero(strata == stratum)
        key = derive(seed, "folds", int(stratum))
        shuffled = rows[permute(np.arange(len(rows)), len(rows), key)]
        # Where one stratum ended the next goes on, or the first folds would get all odd rows.
        fold_of[shuffled] = (dealt + np.arange(len(rows))) % num_folds
        dealt += len(rows)
    return [
        Split(np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold))
        for fold in range(num_folds)
    ]
