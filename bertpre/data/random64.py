"""The counter hash of 64 bits that all random choices and seeds come from, on any machine alike.

A number is a pure function of a seed, a purpose and integers such as (epoch, example), so nothing
depends on the order of the draws, on workers or on the batch.
"""

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
U64 = npt.NDArray[np.uint64]

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB


def derive(seed: int, purpose: str, *integers: int) -> int:
    """Derive a 64-bit number for one purpose.

    Args:
        seed: the experiment's seed, ≥ 0.
        purpose: what the number is for, so that purposes never share numbers.
        integers: what it is for within the purpose, such as (epoch, example).

    Source: Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators" (splitmix64);
        each argument is absorbed by one round of its output function.
    """
    name = hashlib.sha256(purpose.encode()).digest()[:8]
    state = _round(seed & _MASK) ^ int.from_bytes(name, "little")
    for value in integers:
        state = _round(state ^ (value & _MASK))
    return _round(state)


def hash64(key: int | U64, values: npt.NDArray[Any]) -> U64:
    """Hash each integer under a key; the vectorised step of `derive`.

    Args:
        key: a number from `derive`, or an array of them.
        values: integers of any shape that broadcasts with the keys.

    Returns:
        Uniform 64-bit numbers of their common shape.
    """
    return _round_array(values.astype(np.uint64) ^ np.asarray(key, dtype=np.uint64))


def uniform(numbers: U64) -> npt.NDArray[np.float64]:
    """Turn 64-bit numbers into floats in [0, 1), by their upper 53 bits."""
    return (numbers >> np.uint64(11)).astype(np.float64) * 2.0**-53


def below(numbers: U64, limit: int | npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Turn 64-bit numbers into integers in [0, limit), limit < 2**32, by multiply and shift."""
    wide = (numbers >> np.uint64(32)) * np.asarray(limit, dtype=np.uint64)
    return (wide >> np.uint64(32)).astype(np.int64)


def count_heads(keys: U64, coins: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Toss coins for each key and count the heads.

    Args:
        keys: uint64, (n,).
        coins: int64, (n,): how many are tossed for each.
    """
    words = (coins + 63) // 64
    if not words.any():
        return np.zeros(len(keys), np.int64)
    owners = np.repeat(np.arange(len(keys)), words)
    place = np.arange(len(owners)) - np.repeat(np.cumsum(words) - words, words)
    numbers = hash64(keys[owners], place)
    # In a key's last word, only as many bits count as coins are left.
    spare = np.maximum(64 * (place + 1) - coins[owners], 0).astype(np.uint64)
    ones = np.unpackbits((numbers >> spare).view(np.uint8).reshape(-1, 8), axis=1).sum(axis=1)
    return np.bincount(owners, weights=ones, minlength=len(keys)).astype(np.int64)


def permute(positions: npt.NDArray[Any], size: int, key: int) -> npt.NDArray[np.int64]:
    """Map positions to places in a permutation of ``range(size)`` that is never stored.

    A Feistel network over the smallest even number of bits that covers ``size``; results past the
    end go through it again, so the map stays one to one.

    Args:
        positions: integers in [0, size).
        size: how many things are permuted, ≥ 1.
        key: a number from `derive` that decides the permutation.

    Source: Black and Rogaway 2002, "Ciphers with arbitrary finite domains" (cycle walking).
    """
    half = max(1, ((size - 1).bit_length() + 1) // 2)
    low_bits = np.uint64((1 << half) - 1)
    keys = [derive(key, "feistel", i) for i in range(6)]
    result = positions.astype(np.uint64)
    todo = np.arange(len(result))
    while todo.size:
        values = result[todo]
        left, right = values >> np.uint64(half), values & low_bits
        for round_key in keys:
            left, right = right, left ^ (hash64(round_key, right) & low_bits)
        values = (left << np.uint64(half)) | right
        result[todo] = values
        todo = todo[values >= np.uint64(size)]
    return result.astype(np.int64)


def _mix(value: int) -> int:
    value = ((value ^ (value >> 30)) * _MIX_1) & _MASK
    value = ((value ^ (value >> 27)) * _MIX_2) & _MASK
    return value ^ (value >> 31)


def _round(value: int) -> int:
    return _mix((value + _GAMMA) & _MASK)


def _round_array(values: U64) -> U64:
    # Arithmetic on unsigned arrays wraps silently, as a hash needs it to.
    values = values + np.uint64(_GAMMA)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(_MIX_1)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(_MIX_2)
    return values ^ (values >> np.uint64(31))
