"""The table from hashes of words to their numbers."""

import numpy as np
import pytest

from bertpre.tokenizer import piece_cache
from bertpre.tokenizer.piece_cache import NOT_FOUND, WordTable


def test_a_table_finds_what_was_added_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(piece_cache, "_SLOT_BITS", 8)  # 256 slots, so that words collide
    table = WordTable()
    generator = np.random.default_rng(1)
    hashes = np.unique(generator.integers(1, 2**64 - 1, 220, dtype=np.uint64))
    known, unknown = hashes[:200], hashes[200:]

    for part in np.array_split(np.arange(200), 7):
        table.add(known[part], part.astype(np.int32))

    assert table.find(known).tolist() == list(range(200))
    assert table.find(np.repeat(known[:3], 2)).tolist() == [0, 0, 1, 1, 2, 2]
    assert table.find(unknown).tolist() == [NOT_FOUND] * 20
