"""The counter hash: its published values, its statistics, and values pinned for ever."""

import numpy as np
import pytest

from bertpre.data.random64 import below, count_heads, derive, hash64, permute, uniform

COUNT = 1_000_000


@pytest.fixture(scope="module")
def numbers():
    return hash64(derive(0, "test"), np.arange(COUNT))


def test_hash64_gives_the_published_values_of_splitmix64():
    # Source: the reference implementation by Sebastiano Vigna, https://prng.di.unimi.it/splitmix64.c;
    # its first outputs for the seed 1234567, as ports test them. Its state grows by a constant.
    states = np.uint64(1234567) + np.arange(5, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)

    assert hash64(0, states).tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


def test_hash64_under_key_zero_is_the_first_value_of_a_stream():
    # Source: as above; 0 -> 0xE220A8397B1DCDAF is the first output for the seed 0.
    seeds = np.array([0, 1234567])

    assert hash64(0, seeds).tolist() == [0xE220A8397B1DCDAF, 6457827717110365317]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    # Pinned: another value would silently change the data of every experiment.
    [
        ((0, "pairs"), 0xC19179CD2E78ADA),
        ((0, "pairs", 0), 0x2CF6979D416FC21E),
        ((0, "pairs", 1), 0xD981D1DD5DAE2FC8),
        ((1, "pairs", 1), 0xBB4E2B1D9DAECD29),
        ((0, "masks", 3, 7), 0xCBE82AD3AEE96596),
        ((2**63, "masks", 2**64 - 1), 0x5099D431366FA248),
    ],
)
def test_derive_gives_the_pinned_values(arguments, expected):
    assert derive(*arguments) == expected


def test_permute_gives_the_pinned_order():
    assert permute(np.arange(10), 10, derive(0, "order", 0)).tolist() == [
        7,
        1,
        4,
        3,
        8,
        6,
        5,
        2,
        9,
        0,
    ]


def test_derive_depends_on_every_argument_and_on_their_order():
    results = [
        derive(0, "a"),
        derive(1, "a"),
        derive(0, "b"),
        derive(0, "a", 0),
        derive(0, "a", 1),
        derive(0, "a", 0, 1),
        derive(0, "a", 1, 0),
        derive(0, "a", 0, 0),
        derive(0, "a", -1),
    ]

    assert len(set(results)) == len(results)
    assert all(0 <= number < 2**64 for number in results)


def test_hash64_agrees_with_the_same_arithmetic_on_python_integers():
    key = derive(0, "pairs")
    values = np.array([0, 1, 5, 2**40, 2**63 - 1])

    def published(state: int) -> int:
        # Source: as above, in integers of any size.
        bits = 2**64 - 1
        state = (state + 0x9E3779B97F4A7C15) & bits
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & bits
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & bits
        return state ^ (state >> 31)

    expected = [published(key ^ int(value)) for value in values]

    assert hash64(key, values).tolist() == expected


def test_hash64_takes_one_key_or_a_key_for_each_value():
    keys = np.array([derive(0, "a"), derive(0, "b")], dtype=np.uint64)

    together = hash64(keys, np.array([7, 7]))

    assert together.tolist() == [
        int(hash64(int(keys[0]), np.array([7]))[0]),
        int(hash64(int(keys[1]), np.array([7]))[0]),
    ]


def test_hash64_keeps_the_shape_and_does_not_change_its_input():
    values = np.arange(6, dtype=np.int32).reshape(2, 3)

    result = hash64(1, values)

    assert (result.shape, result.dtype) == ((2, 3), np.uint64)
    assert values.ravel().tolist() == [0, 1, 2, 3, 4, 5]


def test_each_bit_is_set_half_of_the_time(numbers):
    bits = np.unpackbits(numbers.view(np.uint8).reshape(-1, 8), axis=1)

    # Six standard deviations of a share over a million draws: 6 * 0.5 / 1000.
    np.testing.assert_allclose(bits.mean(axis=0), 0.5, atol=0.003)


def test_a_changed_input_bit_changes_half_of_the_output_bits():
    values = np.arange(2000, dtype=np.uint64)

    for bit in range(0, 64, 7):
        changed = hash64(9, values) ^ hash64(9, values ^ np.uint64(1 << bit))
        share = np.unpackbits(changed.view(np.uint8)).mean()
        assert share == pytest.approx(0.5, abs=0.01)


def test_uniform_is_flat_in_the_half_open_interval(numbers):
    floats = uniform(numbers)

    assert floats.min() >= 0.0
    assert floats.max() < 1.0
    assert uniform(np.array([2**64 - 1, 0], dtype=np.uint64)).tolist() == [1 - 2.0**-53, 0.0]
    counts = np.histogram(floats, bins=20, range=(0, 1))[0]
    np.testing.assert_allclose(counts / COUNT, 0.05, atol=0.0014)  # six standard deviations


@pytest.mark.parametrize("limit", [1, 2, 3, 10, 97])
def test_below_is_flat_and_in_range(numbers, limit):
    draws = below(numbers, limit)

    counts = np.bincount(draws, minlength=limit)
    assert len(counts) == limit
    share = 1 / limit
    np.testing.assert_allclose(
        counts / COUNT, share, atol=6 * np.sqrt(share * (1 - share) / COUNT) + 1e-9
    )


def test_below_takes_a_limit_for_each_number(numbers):
    limits = np.arange(COUNT) % 50 + 1

    draws = below(numbers, limits)

    assert (draws >= 0).all()
    assert (draws < limits).all()
    assert draws[limits == 1].max() == 0


def test_below_reaches_both_ends_of_a_large_limit():
    ends = np.array([0, 2**64 - 1], dtype=np.uint64)

    assert below(ends, 2**32 - 1).tolist() == [0, 2**32 - 2]


def test_two_purposes_give_unrelated_numbers():
    first = uniform(hash64(derive(0, "pairs"), np.arange(100_000)))
    second = uniform(hash64(derive(0, "masks"), np.arange(100_000)))

    # Six standard deviations of a correlation over 100,000 draws.
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.019


def test_heads_are_counted_among_as_many_coins_as_are_tossed():
    coins = np.array([0, 1, 63, 64, 65, 1000, 100_000])
    keys = hash64(derive(0, "coins"), np.arange(len(coins)))

    heads = count_heads(keys, coins)

    assert heads[0] == 0
    assert (heads <= coins).all()
    # Half of them, within five standard deviations.
    assert (np.abs(heads - coins / 2) <= 5 * np.sqrt(coins) / 2).all()


def test_heads_are_binomial():
    keys = hash64(derive(0, "coins"), np.arange(64_000))

    counts = np.bincount(count_heads(keys, np.full(64_000, 3)), minlength=4)

    # 1, 3, 3, 1 in eight.
    np.testing.assert_allclose(counts, [8000, 24_000, 24_000, 8000], atol=5 * 122)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 8, 16, 17, 100, 255, 256, 257, 1000, 65_537])
def test_permute_is_a_bijection(size):
    places = permute(np.arange(size), size, derive(0, "order", size))

    assert sorted(places.tolist()) == list(range(size))


def test_permute_gives_the_same_place_to_a_position_asked_for_alone():
    key = derive(0, "order")
    places = permute(np.arange(1000), 1000, key)

    assert permute(np.array([17, 999, 0]), 1000, key).tolist() == places[[17, 999, 0]].tolist()
    assert permute(np.array([], dtype=np.int64), 1000, key).tolist() == []


def test_permute_differs_by_key():
    first = permute(np.arange(1000), 1000, derive(0, "order", 0))
    second = permute(np.arange(1000), 1000, derive(0, "order", 1))

    assert (first == second).sum() < 10  # one fixed point is expected by chance


def test_permute_sends_each_position_everywhere_equally_often():
    size, keys = 6, 6000
    counts = np.zeros((size, size))
    for i in range(keys):
        counts[np.arange(size), permute(np.arange(size), size, derive(i, "flat"))] += 1

    expected = keys / size
    np.testing.assert_allclose(counts, expected, atol=6 * np.sqrt(expected))


def test_permute_leaves_no_neighbours_together():
    places = permute(np.arange(10_000), 10_000, derive(0, "order"))

    together = (np.diff(places) == 1).mean()

    assert together < 0.002  # by chance one in 10,000
    assert abs(np.corrcoef(np.arange(10_000), places)[0, 1]) < 0.06
