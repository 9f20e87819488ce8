"""Exact duplicates: their share in fixed memory, and their places with the help of the disk."""

import random

import pytest

from bertpre.corpus import duplicates
from bertpre.corpus.duplicates import DistinctSketch, Repeats, hash_text


def share(values) -> float:
    sketch = DistinctSketch()
    for value in values:
        sketch.add([hash_text(str(value))])
    return sketch.repeated_share()


def test_the_share_is_exact_for_few_values():
    assert share([]) == 0
    assert share([1, 2, 3]) == 0
    assert share([1, 1, 2, 1]) == 0.5


@pytest.mark.parametrize("distinct", [3_000, 40_000])
def test_the_share_is_near_for_many_values(monkeypatch, distinct):
    monkeypatch.setattr(duplicates, "_SKETCH_HASHES", 4096)
    values = [i % distinct for i in range(50_000)]

    # Four standard deviations of a sketch of 2,048 to 4,096 hashes.
    assert share(values) == pytest.approx(1 - distinct / 50_000, abs=4 / 2048**0.5)


def test_the_sketch_stays_small(monkeypatch):
    monkeypatch.setattr(duplicates, "_SKETCH_HASHES", 100)
    sketch = DistinctSketch()
    for i in range(10_000):
        sketch.add([hash_text(str(i))])

    assert len(sketch._kept) <= 100


@pytest.mark.parametrize("at_once", [7, 1 << 16])
def test_repeats_are_all_but_the_first_of_their_kind(tmp_path, monkeypatch, at_once):
    monkeypatch.setattr(duplicates, "_BUFFERED_HASHES", at_once)
    draw = random.Random(1)
    values = [str(draw.randrange(300)) for _ in range(1001)]

    repeats = Repeats((hash_text(value) for value in values), tmp_path)

    seen: set[str] = set()
    for place, value in enumerate(values):
        assert repeats[place] == (value in seen)
        seen.add(value)
    assert [path.name for path in tmp_path.iterdir()] == ["repeats"]


def test_no_values_have_no_repeats(tmp_path):
    assert not Repeats(iter(()), tmp_path)[0]
