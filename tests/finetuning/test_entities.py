"""Texts cut to tokens, and entities as tags and back."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers.pre_tokenizers import BertPreTokenizer

from bertpre.finetuning.entities import (
    Entity,
    cut_at_entities,
    cut_text,
    entities_of_tags,
    tags_of_entities,
)


def tokens(text: str) -> list[str]:
    return [text[start:end] for start, end in cut_text(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" \u00a0\u3000\t\n", []),
        ("Dr. O'Neil, 3.5%", ["Dr", ".", "O", "'", "Neil", ",", "3", ".", "5", "%"]),
        ("a_b snake__", ["a", "_", "b", "snake", "_", "_"]),
        ("北京hotel2楼", ["北", "京", "hotel2", "楼"]),
        ("東京タワーの々", ["東", "京", "タ", "ワ", "ー", "の", "々"]),
        ("か\u3099 ﾀﾜｰ", ["か\u3099", "ﾀ", "ﾜ", "ｰ"]),
        ("서울에 간다", ["서울에", "간다"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("ภาษาไทย กรุงเทพฯ", ["ภาษาไทย", "กรุงเทพฯ"]),
        ("Cafe\u0301 na\u00efve", ["Cafe\u0301", "na\u00efve"]),
        ("می\u200cخواهم co\u00adop", ["می\u200cخواهم", "co\u00adop"]),
        ("ខ្មែរ\u200bភាសា", ["ខ្មែរ", "ភាសា"]),
        ("ok👍🏽❤\ufe0f!", ["ok", "👍", "🏽", "❤\ufe0f", "!"]),
        ("𠮷野家 𐐀", ["𠮷", "野", "家", "𐐀"]),
        ("a\x85b\u2028c", ["a", "b", "c"]),
    ],
)
def test_text_is_cut_at_spaces_symbols_and_han(text, expected):
    assert tokens(text) == expected


@given(st.text(string.printable))
def test_ascii_is_cut_as_bert_cuts_it(text):
    found = [place for _, place in BertPreTokenizer().pre_tokenize_str(text)]

    assert cut_text(text) == found


@given(st.text())
def test_nothing_but_spaces_is_lost(text):
    assert "".join(tokens(text)) == "".join(text.replace("\u200b", " ").split())


@given(st.text("ab .", max_size=20), st.data())
def test_entities_come_back_from_their_tags(text, data):
    bounds = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=6)))
    entities = [
        Entity(start, end, data.draw(st.sampled_from(["PER", "LOC-X", "a b"])))
        for start, end in zip(bounds[::2], bounds[1::2], strict=False)
        if text[start:end].strip()
    ]

    places, _ = cut_at_entities(cut_text(text), entities)
    found = entities_of_tags(places, tags_of_entities(places, entities))

    def without_spaces(start: int, end: int) -> tuple[int, int]:
        part = text[start:end]
        return start + len(part) - len(part.lstrip()), end - len(part) + len(part.rstrip())

    assert found == [Entity(*without_spaces(one.start, one.end), one.label) for one in entities]


def test_an_entity_cuts_the_tokens_that_it_starts_or_ends_in():
    text = "pre-NewYork based"
    entities = [Entity(4, 7, "A"), Entity(7, 11, "B"), Entity(12, 17, "C"), Entity(1, 3, "D")]

    places, num_cutting = cut_at_entities(cut_text(text), entities)

    assert [text[start:end] for start, end in places] == ["p", "re", "-", "New", "York", "based"]
    assert num_cutting == 3
    assert tags_of_entities(places, entities) == ("O", "B-D", "O", "B-A", "B-B", "B-C")


def test_tags_of_any_scheme_mark_entities():
    places = [(0, 1), (2, 3), (4, 6), (7, 9)]

    for tags in (
        ["B-X", "I-X", "O", "B-X"],
        ["B-X", "E-X", "O", "S-X"],
        ["I-X", "I-X", "O", "I-X"],
    ):
        assert entities_of_tags(places, tags) == [Entity(0, 3, "X"), Entity(7, 9, "X")]
    assert entities_of_tags(places, ["NOUN", "O", "VERB", "VERB"]) == [
        Entity(0, 1, "NOUN"),
        Entity(4, 6, "VERB"),
        Entity(7, 9, "VERB"),
    ]
    assert entities_of_tags([], []) == []
