"""What reading a corpus found, as counts and quantiles."""

from collections import Counter

import pytest

from bertpre.corpus import report
from bertpre.corpus.report import DistinctSketch, hash_text, quantiles


def test_a_quantile_is_the_smallest_value_with_that_share_at_or_below_it():
    one_to_a_hundred = Counter(range(1, 101))

    assert quantiles(one_to_a_hundred) == (5, 25, 50, 75, 95, 99)
    assert quantiles(Counter({7: 3, 9: 1})) == (7, 7, 7, 7, 9, 9)


def test_the_quantiles_of_nothing_are_zero():
    assert quantiles(Counter()) == (0,) * 6


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
    monkeypatch.setattr(report, "_SKETCH_HASHES", 4096)
    values = [i % distinct for i in range(50_000)]

    # Four standard deviations of a sketch of 2,048 to 4,096 hashes.
    assert share(values) == pytest.approx(1 - distinct / 50_000, abs=4 / 2048**0.5)


def test_the_sketch_stays_small(monkeypatch):
    monkeypatch.setattr(report, "_SKETCH_HASHES", 100)
    sketch = DistinctSketch()
    for i in range(10_000):
        sketch.add([hash_text(str(i))])

    assert len(sketch._kept) <= 100
