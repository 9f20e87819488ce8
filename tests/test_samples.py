"""The samples in data/samples are read as what they are samples of."""

from pathlib import Path

import pytest

from bertpre.config.schema import TextOptions
from bertpre.corpus.documents import read_documents
from bertpre.corpus.tables import read_rows

SAMPLES = Path(__file__).parent.parent / "data" / "samples"


def read(name: str, **options):
    return list(read_documents([SAMPLES / name], TextOptions(**options)))


def test_sentences_are_documents_between_blank_lines():
    documents = read("sentences.txt")

    assert [len(document.sentences) for document in documents] == [4, 5, 4, 5, 3]
    assert documents[1].sentences[0] == "A new bridge was finished over the river last spring."
    assert documents[1].line == 6


def test_records_are_a_document_each():
    documents = read("records.jsonl")

    assert len(documents) == 12
    assert documents[7].sentences == ("Fan number two is out of balance. Ordered a new rotor.",)
    assert "4 °C" in documents[3].sentences[0]
    assert "“E17”" in documents[9].sentences[0]


def test_labelled_rows_have_two_labels_in_equal_parts():
    rows = list(
        read_rows(SAMPLES / "labelled.tsv", format="tsv", header=True, columns=["text", "label"])
    )

    labels = [row.cells[1] for row in rows]
    assert (labels.count("good"), labels.count("bad"), len(labels)) == (10, 10, 20)


def test_pairs_have_a_text_a_partner_and_a_label():
    rows = list(
        read_rows(
            SAMPLES / "pairs.tsv", format="tsv", header=True, columns=["text", "pair", "label"]
        )
    )

    assert len(rows) == 12
    assert {row.cells[2] for row in rows} == {"0", "1"}
    assert all(text and pair and text != pair for text, pair, _ in (row.cells for row in rows))


def test_anonymised_rows_are_numbers_between_spaces():
    documents = read("anonymised.tsv")
    rows = read_rows(SAMPLES / "anonymised.tsv", format="tsv", header=True, columns=["label"])

    assert len(documents) == 20
    assert all(token.isdigit() for document in documents for token in document.sentences[0].split())
    assert {row.cells[0] for row in rows} == {"0", "1", "2"}


def test_dna_is_lines_of_bases():
    documents = read("dna.txt")

    assert [len(document.sentences) for document in documents] == [6, 6, 6]
    assert {base for document in documents for line in document.sentences for base in line} == set(
        "ACGT"
    )


def test_chinese_is_sentences_without_spaces():
    documents = read("chinese.txt")

    assert [len(document.sentences) for document in documents] == [4, 4, 4, 3]
    assert documents[0].sentences[0] == "小镇的图书馆在河边，每天早上八点开门。"
    assert not any(" " in line for document in documents for line in document.sentences)


@pytest.mark.parametrize(
    "path", sorted(path for path in SAMPLES.iterdir()), ids=lambda path: path.name
)
def test_a_sample_is_small_and_has_plain_line_ends(path):
    content = path.read_bytes()

    assert 10 <= content.count(b"\n") <= 30
    assert content.endswith(b"\n")
    assert not content.endswith(b"\n\n")
    assert b"\r" not in content


def test_tagged_tokens_have_names_of_people_and_places():
    sentences = (SAMPLES / "tagged.conll").read_text(encoding="utf-8").strip().split("\n\n")
    rows = [[line.split("\t") for line in sentence.split("\n")] for sentence in sentences]

    assert len(rows) == 20
    assert rows[0][:3] == [["Anna", "B-PER"], ["Brandt", "I-PER"], ["sold", "O"]]
    tags = {tag for row in rows for _, tag in row}
    assert tags == {"O", "B-PER", "I-PER", "B-LOC", "I-LOC"}
