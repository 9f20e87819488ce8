"""What reading a corpus found, as counts and quantiles."""

from collections import Counter

from bertpre.corpus.report import quantiles


def test_a_quantile_is_the_smallest_value_with_that_share_at_or_below_it():
    one_to_a_hundred = Counter(range(1, 101))

    assert quantiles(one_to_a_hundred) == (5, 25, 50, 75, 95, 99)
    assert quantiles(Counter({7: 3, 9: 1})) == (7, 7, 7, 7, 9, 9)


def test_the_quantiles_of_nothing_are_zero():
    assert quantiles(Counter()) == (0,) * 6
