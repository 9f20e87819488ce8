"""Splits: every stratum has its share, every row its place, by the seed alone."""

import numpy as np
import pytest

from bertpre.finetuning.plan import hold_out, make_folds


def strata_of(*counts):
    return np.repeat(np.arange(len(counts)), counts)


def test_a_share_of_each_stratum_is_held_out_in_order():
    strata = strata_of(60, 30, 10)

    kept, held_out = hold_out(strata, fraction=0.1, seed=1)

    assert np.bincount(strata[held_out]).tolist() == [6, 3, 1]
    assert sorted([*kept, *held_out]) == list(range(100))
    assert (np.diff(kept) > 0).all()
    assert (np.diff(held_out) > 0).all()


def test_a_split_depends_on_the_seed_alone():
    strata = np.arange(100) % 2

    first, again, other = (hold_out(strata, fraction=0.2, seed=seed) for seed in (1, 1, 2))

    assert first.held_out.tolist() == again.held_out.tolist() != other.held_out.tolist()


@pytest.mark.parametrize("fraction", [0.01, 0.5, 0.99])
def test_a_stratum_of_two_rows_is_on_both_sides_and_one_of_one_is_kept(fraction):
    strata = strata_of(2, 3, 1)

    kept, held_out = hold_out(strata, fraction=fraction, seed=0)

    assert set(strata[kept]) == {0, 1, 2}
    assert set(strata[held_out]) == {0, 1}


@pytest.mark.parametrize("num_folds", [2, 5, 7])
def test_folds_hold_every_row_out_once_with_even_shares(num_folds):
    strata = strata_of(61, 28, 11, 1)

    folds = make_folds(strata, num_folds=num_folds, seed=3)

    assert sorted(np.concatenate([fold.held_out for fold in folds])) == list(range(101))
    sizes = [len(fold.held_out) for fold in folds]
    assert max(sizes) - min(sizes) <= 1
    for stratum, count in enumerate([61, 28, 11, 1]):
        in_folds = [int((strata[fold.held_out] == stratum).sum()) for fold in folds]
        assert max(in_folds) - min(in_folds) <= 1
        assert sum(in_folds) == count
    for fold in folds:
        assert sorted([*fold.kept, *fold.held_out]) == list(range(101))


def test_folds_depend_on_the_seed_alone():
    strata = np.arange(60) % 3

    first, again, other = (make_folds(strata, num_folds=3, seed=seed) for seed in (1, 1, 2))

    assert first[0].held_out.tolist() == again[0].held_out.tolist()
    assert first[0].held_out.tolist() != other[0].held_out.tolist()
