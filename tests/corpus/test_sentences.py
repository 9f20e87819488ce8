"""Lines to sentences."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertpre.config.fields import Kmer
from bertpre.corpus.sentences import Record, cut_sentences, cut_sequence, split_sentences


def records(*documents: list[str]) -> list[Record]:
    return [
        Record(text, "f", line, line == 1)
        for document in documents
        for line, text in enumerate(document, start=1)
    ]


def cut(how: str, *documents: list[str]) -> list[tuple[str, int, bool]]:
    found = cut_sentences(records(*documents), how, language="en")
    return [(record.text, record.line, record.starts_document) for record in found]


def test_a_line_is_a_sentence_as_it_stands():
    assert cut("line", [" a. b ", "c"]) == [(" a. b ", 1, True), ("c", 2, False)]


def test_splitting_keeps_documents_and_lines():
    assert cut("split", ["Dr. Smith came. He left.", "So?"], ["Next day."]) == [
        ("Dr. Smith came.", 1, True),
        ("He left.", 1, False),
        ("So?", 2, False),
        ("Next day.", 1, True),
    ]


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("en", 'The U.S. is big. "Yes!" he said.', ["The U.S. is big.", '"Yes!" he said.']),
        (
            "zh",
            "今天很好。我们去吧！他说：“好的。”然后",
            ["今天很好。", "我们去吧！", "他说：“好的。”", "然后"],
        ),
        ("hi", "यह एक है। यह दो है।", ["यह एक है।", "यह दो है।"]),
        ("en", "  no end", ["no end"]),
    ],
)
def test_sentences_are_those_of_the_language(language, text, expected):
    assert list(split_sentences(text, language)) == expected


@pytest.mark.parametrize("sentence", ["今天天气很好。", "It is a fine day, Dr. Smith. ", "word "])
def test_a_text_of_any_length_is_split_soon_and_whole(sentence):
    text = sentence * 30_000

    start = time.process_time()
    found = list(split_sentences(text, "zh" if sentence[-1] == "。" else "en"))

    assert time.process_time() - start < 10  # at once, the library takes minutes
    assert "".join(found).replace(" ", "") == text.replace(" ", "")
    assert len(found) == (1 if sentence == "word " else 30_000)


def test_windows_hold_so_many_tokens_across_lines_but_not_documents():
    assert cut("window:3", ["1 2", "3  4 5 6 7", "8"], ["9"], ["a b c"]) == [
        ("1 2 3", 1, True),
        ("4 5 6", 2, False),
        ("7 8", 2, False),
        ("9", 1, True),
        ("a b c", 1, True),
    ]


def test_windows_count_han_characters():
    assert [text for text, _, _ in cut("window:4", ["今天天气很好ab cd"])] == [
        "今天天气",
        "很好ab cd",
    ]


@settings(deadline=None)
@given(
    st.lists(
        st.lists(st.text("ACGT", min_size=1, max_size=40), min_size=1, max_size=3), max_size=4
    ),
    st.integers(1, 6),
    st.integers(1, 8),
    st.data(),
)
def test_windows_of_kmers_keep_every_kmer_and_no_other(lines, length, width, data):
    kmer = Kmer(length, data.draw(st.integers(1, length)))
    document = [" ".join(line) for line in lines]

    found = list(cut_sentences(records(document), f"window:{width}", language="en", kmer=kmer))

    def kmers(texts):
        return [
            piece for text in texts for word in text.split() for piece in cut_sequence(word, kmer)
        ]

    assert kmers(record.text for record in found) == kmers(document)
    # A sequence of more k-mers than a window holds is cut; shorter ones stay together.
    assert all(len(kmers([record.text])) <= width for record in found)
