"""Counting words in one pass: the same words as the finished tokenizer will see."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertpre.config.fields import Kmer
from bertpre.tokenizer import word_counts as module
from bertpre.tokenizer.normalizing import Rules, make_normalizer, make_pre_tokenizer
from bertpre.tokenizer.word_counts import SortedCounts, WordCounts

CASED = Rules(whole=False, lowercase=False, strip_accents=False)
ODD = "aAbé1 \t\x0b\x0c\x1c\x85\u200b\u200f\u2028\u3000\x00\ufeff\u0301中国龦가ガ.,-!。、_"
texts = st.text(st.sampled_from(ODD) | st.characters(codec="utf-8"))


def count(lines: list[str], rules: Rules = CASED) -> tuple[WordCounts, dict[str, int]]:
    totals = WordCounts(rules)
    for line in lines:
        totals.add(line)
    words = totals.finish()
    return totals, dict(words)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("lowercase", [False, True])
def test_words_are_those_of_the_whole_text(whole, lowercase):
    rules = Rules(whole=whole, lowercase=lowercase, strip_accents=lowercase)
    normalizer, pre_tokenizer = make_normalizer(rules), make_pre_tokenizer(rules)

    @settings(max_examples=150, deadline=None, derandomize=True)
    @given(st.lists(texts, max_size=4))
    def check(lines: list[str]) -> None:
        expected = Counter(
            word
            for line in lines
            for word, _ in pre_tokenizer.pre_tokenize_str(normalizer.normalize_str(line))
        )
        totals, words = count([*lines, *lines], rules)
        assert words == {word: 2 * times for word, times in expected.items()}
        assert totals.total == 2 * expected.total()

    check()


def test_characters_are_counted_and_those_inside_words_noted():
    totals, words = count(["ab a, ba.", "ab"])

    assert words == {",": 1, ".": 1, "a": 1, "ab": 2, "ba": 1}
    assert totals.characters == {"a": 4, "b": 3, ",": 1, ".": 1}
    assert totals.inside == {"a", "b"}


def test_folding_often_changes_nothing(monkeypatch):
    lines = ["the cat sat, the mat", "中国的猫 sat", "x" * 300, "sat. " * 20] * 3
    expected = count(lines)
    monkeypatch.setattr(module, "_CHUNKS_KEPT", 2)
    monkeypatch.setattr(module, "_CHARACTERS_AT_ONCE", 5)

    totals, words = count(lines)

    assert words == expected[1]
    assert (
        vars(totals).items()
        >= {
            "total": expected[0].total,
            "characters": expected[0].characters,
            "inside": expected[0].inside,
            "cut_words": expected[0].cut_words,
        }.items()
    )


def test_long_text_without_white_space_is_folded_by_its_length(monkeypatch):
    monkeypatch.setattr(module, "_CHARACTERS_KEPT", 1000)
    totals = WordCounts(CASED)

    totals.add("acgt" * 500)

    assert not totals._chunks


def test_runs_over_100_characters_are_counted_in_parts():
    totals, words = count(["a" * 250 + "," + "b" * 100, "a" * 250 + "," + "b" * 100, "c" * 101])

    assert totals.cut_words == 3
    assert words == {",": 2, "a" * 50: 2, "a" * 100: 4, "b" * 100: 2, "c" * 100: 1, "c": 1}


def test_a_run_that_is_read_in_parts_is_cut_once():
    # 50,000 characters are read at once.
    long = ["acgt" * 30_000, "acgt" * 30_000, "g" * 50_010, "c" * 100_000, "a" * 50_000]

    totals, words = count(["short " + run for run in long])

    assert totals.cut_words == 5
    assert words == {
        "short": 5, "acgt" * 25: 2400, "g" * 100: 500, "g" * 10: 1, "c" * 100: 1000, "a" * 100: 500,
    }  # fmt: skip


def test_whole_tokens_are_never_cut():
    rules = Rules(whole=True, lowercase=False, strip_accents=False)

    totals, words = count(["a" * 250 + ", 中国"], rules)

    assert words == {"a" * 250 + ",": 1, "中国": 1}
    assert totals.cut_words == 0


def test_rare_words_are_forgotten_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr(module, "_MOST_WORDS", 4)

    totals, words = count(["a a a b b c d e", "f"])

    assert words == {"a": 3, "b": 2, "c": 1, "d": 1}
    assert (totals.total, totals.distinct, totals.forgotten) == (9, 6, 2)
    assert set(totals.characters) == set("abcdef")


@pytest.mark.parametrize("kept", [10_000, 150])
def test_words_on_disk_give_the_same_counts_in_any_order(monkeypatch, kept):
    draw = random.Random(3)
    lines = [" ".join(f"w{int(draw.paretovariate(0.7)) % 900}é" for _ in range(30))
             for _ in range(60)]  # fmt: skip
    monkeypatch.setattr(module, "_MOST_WORDS", kept)
    expected = count(lines)
    monkeypatch.setattr(module, "_WORDS_IN_MEMORY", 40)
    monkeypatch.setattr(module, "_CHUNKS_KEPT", 25)
    monkeypatch.setattr(module, "_CHARACTERS_AT_ONCE", 50)

    for order in (lines, lines[::-1], sorted(lines)):
        totals, words = count(order)

        assert totals._spill is not None
        assert words == expected[1]
        assert (totals.total, totals.distinct, totals.forgotten) == (
            expected[0].total, expected[0].distinct, expected[0].forgotten,
        )  # fmt: skip
        assert totals.characters == expected[0].characters
        assert totals.inside == expected[0].inside


def test_the_most_frequent_words_are_chosen_evenly_over_ties():
    words = SortedCounts({"a": 1, "b": 5, "c": 1, "d": 1, "e": 1, "f": 2})

    assert dict(words.most_frequent(4)) == {"b": 5, "c": 1, "e": 1, "f": 2}
    assert dict(words.most_frequent(2)) == {"b": 5, "f": 2}
    assert dict(words.most_frequent(6)) == dict(words)


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_kmers_of_a_long_line_are_counted_piece_by_piece(monkeypatch, stride):
    rules = Rules(whole=True, lowercase=True, strip_accents=False, kmer=Kmer(3, stride))
    sequence = "ACGTTGCAac" * 40
    expected = Counter(sequence[i : i + 3].lower() for i in range(0, 398 + stride - 1, stride))
    monkeypatch.setattr(module, "_CHUNKS_KEPT", 7)

    totals, words = count([sequence], rules)

    assert words == expected
    assert totals.total == expected.total()


def test_the_fingerprint_does_not_depend_on_the_order_of_lines():
    def fingerprint(*lines: str) -> str:
        totals = WordCounts(CASED)
        for line in lines:
            totals.add(line)
        return totals.finish().fingerprint()

    assert fingerprint("b a", "é c") == fingerprint("c é", "a", "b")
    assert fingerprint("b a") != fingerprint("b a a")
