"""From files and folders to documents: grouping, skipping, counting, and refusing."""

import gzip
import json
import logging
import os
from pathlib import Path

import pytest

from bertpre.config.fields import Kmer
from bertpre.config.schema import BuildVocab, MakeData, TextOptions
from bertpre.corpus.documents import Document, read_documents, read_records
from bertpre.corpus.report import CorpusReport
from bertpre.data.make_data import make_data
from bertpre.errors import ConfigError, CorpusError
from bertpre.tokenizer.vocabulary import build_vocab


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def sentences(*inputs: Path, **options) -> list[tuple[str, ...]]:
    return [document.sentences for document in read_documents(inputs, TextOptions(**options))]


def test_a_blank_line_ends_a_document_and_the_last_needs_no_newline(tmp_path):
    path = write(tmp_path / "a.txt", "\n\none\n two \n \t\u3000\n\n\nthree")

    assert list(read_documents([path], TextOptions())) == [
        Document(("one", " two "), str(path), 3),
        Document(("three",), str(path), 8),
    ]


@pytest.mark.parametrize(
    ("document", "expected"),
    [("line", [("a",), ("b",), ("c",)]), ("file", [("a", "b", "c")]),
     ("blank-line", [("a",), ("b", "c")])],
)  # fmt: skip
def test_what_ends_a_document_is_an_option(tmp_path, document, expected):
    path = write(tmp_path / "a.txt", "a\n\nb\nc\n")

    assert sentences(path, document=document) == expected


def test_the_end_of_a_file_ends_a_document(tmp_path):
    first, second = write(tmp_path / "a.txt", "a"), write(tmp_path / "b.txt", "b")

    assert sentences(first, second) == [("a",), ("b",)]


def test_a_byte_order_mark_and_crlf_change_nothing(tmp_path):
    text = "one\ntwo\n\nthree\n\nfour"
    twin = b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()

    assert sentences(write(tmp_path / "b.txt", twin)) == sentences(write(tmp_path / "a.txt", text))


def test_there_are_as_many_sentences_as_newlines(tmp_path):
    line = "a\x00b\x85c\u2028d\u2029e\x0bf\x0cg\u200bh\u200fi\xadj\x1ck"
    path = write(tmp_path / "a.txt", f"{line}\n" * 7)

    assert sentences(path) == [(line,) * 7]


def test_a_folder_is_read_recursively_in_sorted_order(tmp_path):
    write(tmp_path / "b.txt", "2")
    write(tmp_path / "a" / "z.jsonl", '{"text": "1"}')
    write(tmp_path / "c.tsv.gz", gzip.compress(b"label\ttext\nx\t3\n"))
    write(tmp_path / "d.csv", 'text\n"4, 5"\n')
    write(tmp_path / ".hidden" / "a.txt", "no")
    write(tmp_path / ".hidden.txt", "no")

    assert sentences(tmp_path) == [("1",), ("2",), ("3",), ("4, 5",)]


def test_files_that_are_passed_over_are_said(tmp_path, caplog):
    write(tmp_path / "a.txt", "a")
    write(tmp_path / "README.md", "read me")

    assert sentences(tmp_path) == [("a",)]
    assert "skipped files of unknown format: 1, such as" in caplog.text
    assert "README.md; --format txt reads every file as text" in caplog.text


def test_a_stated_format_reads_every_file_of_a_folder(tmp_path):
    write(tmp_path / "a.log", "a")
    write(tmp_path / "b.csv", "b, c")

    assert sentences(tmp_path, format="txt") == [("a",), ("b, c",)]


def test_a_file_whose_name_tells_nothing_is_text(tmp_path):
    assert sentences(write(tmp_path / "corpus.log", "a\tb\n")) == [("a\tb",)]


def test_gzip_gives_the_same_documents(tmp_path):
    text = b"a\nb\n\nc\n"

    packed = sentences(write(tmp_path / "b.txt.gz", gzip.compress(text)))

    assert packed == sentences(write(tmp_path / "a.txt", text))


def test_a_row_is_a_document_and_its_lines_are_sentences(tmp_path):
    texts = ["one\r\n\n two", "three", " \n\t", ""]
    path = write(tmp_path / "a.jsonl", "\n".join(json.dumps({"body": text}) for text in texts))
    report = CorpusReport()

    options = TextOptions(text_column="body")
    documents = list(read_documents([path], options, report=report))

    assert documents == [
        Document(("one", " two"), str(path), 1),
        Document(("three",), str(path), 2),
    ]
    assert (report.documents, report.sentences, report.characters) == (2, 3, 12)
    assert report.empty_documents == 2


def test_a_column_may_be_a_number_without_a_header(tmp_path):
    path = write(tmp_path / "a.tsv", "1\t5900 900\n2\t9001\n")

    assert sentences(path, header=False, text_column=2) == [("5900 900",), ("9001",)]


def test_the_report_counts_what_was_read(tmp_path):
    path = write(tmp_path / "a.txt", "one\ntwo\n\nthree\n")
    report = CorpusReport()

    list(read_records([path], TextOptions(), report=report))

    assert report == CorpusReport(
        documents=2,
        sentences=3,
        characters=11,
        one_sentence_documents=1,
        longest_record=5,
        sentence_length_quantiles=(3, 3, 3, 5, 5, 5),
        document_length_quantiles=(1, 1, 1, 2, 2, 2),
    )


def test_a_file_without_text_is_an_empty_document_where_files_are_documents(tmp_path):
    paths = [write(tmp_path / "a.txt", "\n"), write(tmp_path / "b.txt", "b")]
    report = CorpusReport()

    list(read_records(paths, TextOptions(document="file"), report=report))

    assert (report.documents, report.empty_documents) == (1, 1)


def test_unusable_jsonl_lines_are_counted_and_the_first_are_named(tmp_path, caplog):
    path = write(tmp_path / "a.jsonl", '{oops\n{"text": "a\u2028b"}\n' + '{"txt": "c"}\n' * 5)
    report = CorpusReport()

    documents = list(read_documents([path], TextOptions(), report=report))

    assert [document.sentences for document in documents] == [("a\u2028b",)]
    assert report.bad_records == 6
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 3
    assert "a.jsonl: line 1: not valid JSON" in warnings[0]
    assert warnings[1].endswith("a.jsonl: line 3: no field 'text'; found 'txt'")
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_a_wrong_field_is_an_error_after_a_thousand_records(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"txt": "a"}\n' * 1500)

    with pytest.raises(CorpusError) as caught:
        sentences(path)

    assert "none of the first 1,000 records is usable; the last: " in caught.value.message
    assert "line 1000: no field 'text'; found 'txt'" in caught.value.message
    assert caught.value.hint == "check --format and --text-column"


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.txt", b""), ("a.txt", " \n\t\n\u3000\n\n \t \n".encode()), ("a.tsv", b"text\n"),
     ("a.jsonl", b"{}"), ("a.txt.gz", gzip.compress(b""))],
)  # fmt: skip
def test_no_text_at_all_is_an_error(tmp_path, name, content):
    with pytest.raises(CorpusError, match=f"no text in the input: .*{name} — check the files"):
        sentences(write(tmp_path / name, content))


def test_no_text_names_the_unusable_records_and_some_files(tmp_path):
    paths = [write(tmp_path / f"{i}.jsonl", "{}\n") for i in range(4)]

    with pytest.raises(
        CorpusError,
        match=r"4 unusable records \(the last: .*no field .*\) in .*0\.jsonl, .*2\.jsonl, …",
    ):
        sentences(*paths)


def test_a_missing_input_is_an_error_before_anything_is_read(tmp_path):
    path = write(tmp_path / "a.txt", "a")

    with pytest.raises(CorpusError, match=r"none: there is no such file or folder — check"):
        read_documents([path, tmp_path / "none"], TextOptions())


def test_a_folder_without_text_files_is_an_error(tmp_path):
    write(tmp_path / "image.png", b"\x89PNG")

    with pytest.raises(CorpusError, match=r"no text files in this folder; expected .* \.txt"):
        read_documents([tmp_path], TextOptions())


def test_progress_ends_at_the_bytes_on_disk(tmp_path):
    paths = [
        write(tmp_path / "a.txt", "some text\n" * 30_000),
        write(tmp_path / "b.txt.gz", gzip.compress(b"more text\n" * 30_000)),
    ]
    total = sum(path.stat().st_size for path in paths)
    seen: list[tuple[int, int | None]] = []

    list(
        read_records(
            paths, TextOptions(), on_progress=lambda done, of_all: seen.append((done, of_all))
        )
    )

    assert seen[-1] == (total, total)
    assert seen == sorted(seen)


TEXT = "a\nb\n\na\nb\n\nc\na\n\na\n"


@pytest.mark.parametrize(
    ("dedup", "expected", "removed"),
    [
        ("documents", [("a", "b"), ("c", "a"), ("a",)], (2, 1)),
        ("lines", [("a", "b"), ("c",)], (4, 2)),
        ("none", [("a", "b"), ("a", "b"), ("c", "a"), ("a",)], (0, 0)),
    ],
)
def test_exact_duplicates_are_removed_on_request(tmp_path, dedup, expected, removed):
    path = write(tmp_path / "a.txt", TEXT)
    report = CorpusReport()

    documents = list(read_documents([path], TextOptions(dedup=dedup), report=report))

    assert [document.sentences for document in documents] == expected
    assert (report.removed_lines, report.removed_documents) == removed
    assert report.documents == len(expected)
    assert report.duplicate_line_share == round(4 / 7, 6)
    assert report.duplicate_document_share == 0.25


def test_a_document_goes_on_when_its_first_line_is_removed(tmp_path):
    path = write(tmp_path / "a.txt", "x\n\nx\ny\nz\n")

    assert sentences(path, dedup="lines") == [("x",), ("y", "z")]


def test_removing_duplicates_warns_once_and_counts_progress_of_both_readings(tmp_path, caplog):
    path = write(tmp_path / "a.jsonl", '{oops\n{"text": "a"}\n')
    seen = []
    report = CorpusReport()

    list(
        read_records(
            [path],
            TextOptions(dedup="lines"),
            report=report,
            on_progress=lambda *progress: seen.append(progress),
        )
    )

    assert caplog.text.count("not valid JSON") == 1
    assert report.bad_records == 1
    assert seen[-1] == (2 * path.stat().st_size,) * 2


def test_duplicates_in_a_pipe_are_an_error(tmp_path):
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(CorpusError, match="a pipe can only be read once, but --dedup reads"):
        read_records([tmp_path / "pipe"], TextOptions(dedup="lines"))


@pytest.mark.parametrize(
    ("dedup", "warning"),
    [("none", "25 % of the documents"), ("documents", "57 % of the lines"), ("lines", None)],
)
def test_many_duplicates_are_a_warning_unless_they_are_removed(tmp_path, caplog, dedup, warning):
    sentences(write(tmp_path / "a.txt", TEXT), dedup=dedup)

    assert ("exactly repeat an earlier one" in caplog.text) == (warning is not None)
    if warning:
        assert warning in caplog.text
        assert f"--dedup {warning.split()[-1]} removes them" in caplog.text


def test_bad_bytes_are_counted_in_the_report(tmp_path):
    path = write(tmp_path / "a.txt", b"good\nab\xed\xa0\x80 \xff\ngood\n")
    report = CorpusReport()

    list(read_records([path], TextOptions(on_bad_bytes="replace"), report=report))

    assert report.bad_bytes == 2


def test_t08_an_encoding_gives_what_the_utf8_twin_gives(tmp_path):
    text = "小镇的图书馆在河边。\n每天早上八点开门。\n\n三\n"
    plain, twin = write(tmp_path / "a.txt", text), write(tmp_path / "b.txt", text.encode("gb18030"))

    assert sentences(twin, encoding="gb18030") == sentences(plain)


def test_t09_control_characters_are_counted(tmp_path):
    path = write(tmp_path / "a.txt", "a\x00b\x85c\u2028d\u200be\tf\r\n")
    report = CorpusReport()

    list(read_records([path], TextOptions(), report=report))

    assert report.control_characters == 2  # NUL and NEL; the others are spaces or formats


def test_lines_are_split_into_sentences_within_their_document(tmp_path):
    path = write(tmp_path / "a.txt", "One. Two!\nThree.\n\nFour? Five.\n")

    assert sentences(path, sentences="split") == [("One.", "Two!", "Three."), ("Four?", "Five.")]


def test_a_document_that_is_too_long_to_hold_is_cut(tmp_path, monkeypatch):
    monkeypatch.setattr("bertpre.corpus.records.LONGEST_DOCUMENT", 5)
    path = write(tmp_path / "a.txt", "abc\ndef\nghi\n\njkl\n")
    report = CorpusReport()

    documents = list(read_documents([path], TextOptions(), report=report))

    assert [document.sentences for document in documents] == [("abc", "def"), ("ghi",), ("jkl",)]
    assert (report.documents, report.cut_documents) == (3, 1)


def test_the_length_of_a_document_does_not_count_towards_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr("bertpre.corpus.records.LONGEST_DOCUMENT", 5)
    path = write(tmp_path / "a.txt", "abc\n\ndef\nghi\n\njkl\nmno\n")
    report = CorpusReport()

    documents = list(read_documents([path], TextOptions(), report=report))

    # Three and six characters: the second line of each pair starts within the first five.
    assert [document.sentences for document in documents] == [
        ("abc",), ("def", "ghi"), ("jkl", "mno")
    ]  # fmt: skip
    assert report.cut_documents == 0


def test_a_row_of_a_table_of_pairs_is_a_document_of_its_two_sides(tmp_path):
    rows = 'a,b,label\n"one\ntwo",three,1\n,four,0\n ,,1\nfive,six,0\n'
    path = write(tmp_path / "a.csv", rows)
    report = CorpusReport()

    found = list(
        read_documents([path], TextOptions(text_column="a", pair_column="b"), report=report)
    )

    assert [(document.sentences, document.line) for document in found] == [
        (("one two", "three"), 2),
        (("four",), 4),
        (("five", "six"), 6),
    ]
    assert report.empty_documents == 1


def test_pairs_have_columns_by_number_and_nested_fields(tmp_path):
    table = write(tmp_path / "a.tsv", "x\ty\tz\n")
    objects = write(tmp_path / "a.jsonl", '{"q": {"a": "x"}, "b": "z"}\n')

    assert sentences(table, header=False, text_column=1, pair_column=3) == [("x", "z")]
    assert sentences(objects, text_column="q.a", pair_column="b") == [("x", "z")]


def test_pairs_are_refused_where_there_are_no_columns(tmp_path):
    path = write(tmp_path / "a.txt", "one\n")

    with pytest.raises(ConfigError, match=r"a\.txt: read as txt, which has no columns"):
        read_records([path], TextOptions(pair_column="b"))
    path = write(tmp_path / "a.conll", "one O\n")
    with pytest.raises(ConfigError, match=r"a\.conll: read as conll, which has single texts"):
        read_records([path], TextOptions(pair_column="b"))


def test_marks_in_a_column_file_start_documents(tmp_path):
    marked = write(
        tmp_path / "a.conll",
        "early O\n\nbird O\n\n-DOCSTART- O\n\n# id 1\nJan O\n. O\n\nno\n\n1 O\n"
        "-DOCSTART- O\n\nbad\n\n2 O\n\n-DOCSTART-S O\n\n-DOCSTART- O\n-DOCSTART- O\n"
        "\n3 O\n\n-DOCSTART-\n",
    )
    plain = write(tmp_path / "b.conll", "4 O\n\n5 O\n")
    report = CorpusReport()

    documents = list(read_documents([marked, plain], TextOptions(), report=report))

    assert [(one.sentences, one.line) for one in documents] == [
        (("early",), 1),
        (("bird",), 3),
        (("Jan .", "1"), 8),
        (("2", "-DOCSTART-S"), 18),
        (("3",), 25),
        (("4",), 1),
        (("5",), 3),
    ]
    assert (report.documents, report.empty_documents, report.bad_records) == (7, 0, 2)
    nested = list(read_documents([marked], TextOptions(dedup="documents")))
    assert [one.sentences for one in nested] == [one.sentences for one in documents[:5]]


def test_a_document_of_spaces_is_empty(tmp_path):
    path = write(tmp_path / "a.conll", "-DOCSTART-\ta\n\n \tO\n\n-DOCSTART-\n\n \tO\n\na\tO\n")
    report = CorpusReport()

    documents = list(read_documents([path], TextOptions(), report=report))

    assert [one.sentences for one in documents] == [("a",)]
    assert report.empty_documents == 1


def test_each_sentence_of_a_column_file_is_a_document_of_its_tokens(tmp_path, caplog):
    path = write(tmp_path / "a.conll", "\nJan B-PER\n. O\n\nno\n\n1 O\n2 O\n3 O\n")
    report = CorpusReport()

    documents = list(read_documents([path], TextOptions(), report=report))

    assert documents == [
        Document(("Jan .",), str(path), 2),
        Document(("1 2 3",), str(path), 7),
    ]
    assert report.bad_records == 1
    assert "skipped: " in caplog.text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sentences": "split"}, "--sentences split would split the pairs"),
        ({"sentences": "window:5"}, "--sentences window:5 would split the pairs"),
        ({"dedup": "lines"}, "--dedup lines would split the pairs"),
    ],
)
def test_pairs_are_not_taken_apart(tmp_path, options, message):
    path = write(tmp_path / "a.tsv", "text\tb\none\ttwo\n")

    with pytest.raises(ConfigError, match=message):
        read_records([path], TextOptions(pair_column="b", **options))
    assert sentences(path, pair_column="b", dedup="documents") == [("one", "two")]


def test_mostly_unusable_records_are_refused_with_the_last_reason(tmp_path):
    good, bad = '{"text": "a"}\n', '{"title": "a"}\n'
    few = write(tmp_path / "few.jsonl", good + 10 * bad)
    many = write(tmp_path / "many.jsonl", 12 * bad + good)

    assert sentences(few) == [("a",)]
    with pytest.raises(CorpusError, match=r"unusable: 12, against 1 .*line 12: no field"):
        sentences(many)


def test_json_by_name_is_refused_unless_its_form_is_stated(tmp_path):
    path = write(tmp_path / "a.json", '{"text": "one"}\n')
    packed = write(tmp_path / "a.json.gz", gzip.compress(b'{"text": "one"}\n'))

    for file in (path, packed):
        with pytest.raises(CorpusError, match=r"\.json may mean one object per"):
            sentences(file)
        assert sentences(file, format="jsonl") == [("one",)]


def test_hidden_files_are_passed_over_and_said(tmp_path, caplog):
    write(tmp_path / "a.txt", "one\n")
    write(tmp_path / ".b.txt", "two\n")

    assert sentences(tmp_path) == [("one",)]
    assert "skipped hidden files: 1, such as" in caplog.text


def test_what_was_made_beside_the_text_is_no_text(tmp_path, caplog):
    text = "the cat sat\nthe dog ran\n\nthe fox hid\nthe cow ate\n\nthe hen lay\nthe ant dug\n"
    write(tmp_path / "a.txt", text)
    write(tmp_path / "notes" / "manifest.json", '{"kind": "another program\'s"}')
    write(tmp_path / "notes" / "b.txt", "more\n")
    before = sentences(tmp_path)
    build_vocab([tmp_path], tmp_path / "tokenizer", BuildVocab())
    caplog.clear()
    make_data([tmp_path], tokenizer=tmp_path / "tokenizer", output=tmp_path / "made" / "data",
              config=MakeData(objective="mlm"))  # fmt: skip

    # Nor was the data folder's own unfinished one, which is gone by the time that one looks.
    assert "hidden" not in caplog.text
    caplog.clear()
    assert len(before) == 4
    assert sentences(tmp_path) == before
    assert "skipped folders made by bertpre: 2, such as" in caplog.text
    assert f"{tmp_path / 'made' / 'data'}\n" in caplog.text
    # Named itself, a folder is a slip, such as a forgotten --merge, but a file is meant.
    with pytest.raises(CorpusError, match=r"tokenizer: a folder made by bertpre, not text"):
        sentences(tmp_path / "tokenizer")
    vocabulary = (tmp_path / "tokenizer" / "vocab.txt").read_text().split()
    assert sentences(tmp_path / "tokenizer" / "vocab.txt") == [tuple(vocabulary)]


def test_standard_input_named_twice_is_refused():
    with pytest.raises(CorpusError, match="standard input can only be read once"):
        read_records(["-", "-"], TextOptions())


def test_duplicates_in_standard_input_are_an_error_though_it_may_be_a_file():
    with pytest.raises(CorpusError, match="/dev/stdin: a pipe can only be read once"):
        read_records(["-"], TextOptions(dedup="lines"))


def test_one_column_is_no_pair(tmp_path):
    path = write(tmp_path / "a.tsv", "text\tb\none\ttwo\n")

    with pytest.raises(ConfigError, match="--pair-column text: is also the text column"):
        read_records([path], TextOptions(pair_column="text"))


def test_repeated_sides_of_pairs_are_no_duplicates(tmp_path, caplog):
    sentences(write(tmp_path / "a.tsv", "text\tb\na\tx\na\ty\na\tz\n"), pair_column="b")

    assert "repeat an earlier one" not in caplog.text


def test_windows_count_kmers(tmp_path):
    path = write(tmp_path / "a.txt", "ACGTACGTAC\nACGT\nACG\n")
    options = TextOptions(sentences="window:4")

    found = list(read_documents([path], options, kmer=Kmer(3, 1)))

    # 8 k-mers of 3 in the first line: 4 and 4. Then 2 and 1.
    assert found[0].sentences == ("ACGTAC", "ACGTAC", "ACGT ACG")
