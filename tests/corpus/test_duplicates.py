"""Exact duplicates are found with the help of the disk."""

import random

import pytest

from bertpre.corpus import duplicates
from bertpre.corpus.duplicates import Repeats
from bertpre.corpus.report import hash_text


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
