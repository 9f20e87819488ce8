"""Which entries a vocabulary gets."""

from collections import Counter

import pytest

from bertpre.tokenizer import learning as module
from bertpre.tokenizer.learning import (
    ChosenTokens,
    choose_pieces,
    choose_whole_tokens,
    measure,
)
from bertpre.tokenizer.normalizing import SPECIAL_TOKENS, Rules
from bertpre.tokenizer.word_counts import SortedCounts, WordCounts


def whole(counts: dict[str, int], *, room: int, min_frequency: int = 1) -> ChosenTokens:
    return choose_whole_tokens(
        SortedCounts(Counter(counts)), room=room, min_frequency=min_frequency
    )


def pieces(text: str, *, room: int, min_frequency: int = 2) -> ChosenTokens:
    totals = WordCounts(Rules(whole=False, lowercase=False, strip_accents=False))
    totals.add(text)
    return choose_pieces(totals.finish(), totals, room=room, min_frequency=min_frequency)


def test_whole_tokens_are_ordered_by_count_then_code_point():
    result = whole({"b": 2, "a": 2, "é": 3, "c": 1, "B": 2}, room=4)

    assert result == ChosenTokens(["é", "B", "a", "b"], [("c", 1)])


def test_whole_tokens_below_the_minimum_frequency_are_left_out():
    assert whole({"a": 3, "b": 2, "c": 1}, room=9, min_frequency=2) == ChosenTokens(
        ["a", "b"], [("c", 1)]
    )


def test_a_literal_special_token_is_no_entry():
    assert whole({"[MASK]": 9, "[mask]": 1}, room=9) == ChosenTokens(["[mask]"], [])


def test_merges_go_by_frequency_and_the_size_is_a_cap():
    # Pairs: h+##u 15+12, ##u+##g 20: the example of the tokenizers documentation, "hug pug hugs".
    text = "hug " * 10 + "pug " * 5 + "hugs " * 5 + "hu " * 2

    assert pieces(text, room=9).tokens == ["##g", "##s", "##u", "g", "h", "p", "s", "u", "##ug"]
    full = pieces(text, room=100)
    assert full.tokens == [
        *["##g", "##s", "##u", "g", "h", "p", "s", "u"],
        *["##ug", "hug", "pug", "hugs", "hu"],
    ]
    assert full.left_out == []


def test_a_pair_below_the_minimum_frequency_is_not_merged():
    assert "ab" not in pieces("ab", room=99).tokens
    assert "ab" in pieces("ab", room=99, min_frequency=1).tokens


def test_continuations_exist_only_for_characters_inside_words():
    assert pieces("中国 ab.", room=99).tokens == ["##b", ".", "a", "b", "中", "国"]


def test_the_rarest_characters_go_when_characters_alone_exceed_the_room():
    result = pieces("一一一 丁丁 七 丄 万万", room=3)

    assert sorted(result.tokens) == ["一", "丁", "万"]
    assert result.left_out == [("七", 1), ("丄", 1)]


def test_beyond_half_of_the_room_rare_characters_make_way_for_merges():
    # 200 characters seen once, in a text of three million: less than one in 10,000.
    rare = "".join(chr(0x4E00 + i) for i in range(200))
    words = " ".join(f"{a}{b}" for a in "abcdefghij" for b in "abcdefghij")
    text = f"{words} " * 15_000 + rare

    small, large = pieces(text, room=110), pieces(text, room=1000)

    assert len(small.tokens) == 110
    assert sum(len(piece) == 2 and piece in words for piece in small.tokens) == 55
    assert len(small.left_out) == 200 - sum(piece in rare for piece in small.tokens) > 100
    assert set(rare) < set(large.tokens)
    assert large.left_out == []


def test_room_that_merges_leave_is_given_to_characters():
    rare = "".join(chr(0x4E00 + i) for i in range(60))

    result = pieces("中国" * 400_000 + rare, room=100)

    assert set(rare) < set(result.tokens)


def test_words_with_a_character_that_is_left_out_do_not_shape_pieces(monkeypatch):
    monkeypatch.setattr(module, "_COVERAGE", 0.9)
    # The bare trainer would skip the ø and merge a and b, which never stand side by side.
    text = "aøb " * 5 + "cd " * 40

    result = pieces(text, room=10)

    assert "cd" in result.tokens
    assert "ab" not in result.tokens


def test_text_that_looks_like_special_tokens_or_continuations_is_text():
    result = pieces("[SEP] [sep] ##a [MASK] a##b " * 9, room=99)

    assert not {*SPECIAL_TOKENS, "[sep]", "##", "###", "##["} & set(result.tokens)
    assert {"[", "]", "#", "SEP", "sep", "MASK"} < set(result.tokens)


def test_measuring_counts_unknown_words_and_pieces_over_the_running_words():
    words = SortedCounts(Counter({"ab": 3, "abb": 2, "xb": 4}))

    assert measure(words, ["[UNK]", "ab", "##b"]) == (4, 3 * 1 + 2 * 2 + 4 * 1)


@pytest.mark.parametrize("room", [1, 2, 3, 7, 8, 20])
def test_the_room_is_never_exceeded(room):
    assert len(pieces("hug pug hugs bun 中 é" * 9, room=room).tokens) <= room
