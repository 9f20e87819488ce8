"""Reading lines and rows: what comes out, and errors that name file, line and what was there."""

import gzip
import re
from pathlib import Path

import pytest

from bertpre.errors import CorpusError
from bertpre.text.tables import Row, format_by_name, read_lines, read_rows, table_format


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def rows(path: Path, *columns: str | int, format="tsv", header=True, **options) -> list[Row]:
    return list(read_rows(path, format=format, header=header, columns=columns, **options))


def refused(path: Path, *columns: str | int, **options) -> CorpusError:
    with pytest.raises(CorpusError) as caught:
        rows(path, *columns, **options)
    return caught.value


def test_only_a_newline_ends_a_line(tmp_path):
    text = "a\x0bb\x0cc\x1cd\x85e\u2028f\u2029g\rh\ni\r\nj"
    path = write(tmp_path / "lines.txt", text)

    lines = list(read_lines(path))

    assert lines == ["a\x0bb\x0cc\x1cd\x85e\u2028f\u2029g\rh\n", "i\r\n", "j"]


def test_a_byte_order_mark_is_removed_at_the_start_only(tmp_path):
    path = write(tmp_path / "bom.txt", "\ufeffa\n\ufeffb\n")

    assert list(read_lines(path)) == ["a\n", "\ufeffb\n"]


@pytest.mark.parametrize("name", ["text.txt", "text.txt.gz", "text"])
def test_gzip_is_known_by_its_content_whatever_the_name(tmp_path, name):
    path = write(tmp_path / name, gzip.compress(b"one\n") + gzip.compress("zwei é\n".encode()))

    assert list(read_lines(path)) == ["one\n", "zwei é\n"]


def test_a_plain_file_with_a_gzip_name_is_read_as_it_is(tmp_path):
    assert list(read_lines(write(tmp_path / "text.txt.gz", "plain\n"))) == ["plain\n"]


def test_bytes_on_disk_are_counted_for_gzip_too(tmp_path):
    path = write(tmp_path / "text.gz", gzip.compress(b"a line of text\n" * 10_000))
    counts: list[int] = []

    list(read_lines(path, on_bytes=counts.append))

    assert sum(counts) == path.stat().st_size


def test_bytes_that_are_not_utf8_are_located(tmp_path):
    path = write(tmp_path / "bad.txt", b"good\nab\xed\xa0\x80\xff\ngood\n")

    with pytest.raises(CorpusError) as caught:
        list(read_lines(path))

    assert caught.value.message == (
        f"{path}: line 2, byte 3 of the line: expected UTF-8, found 0xED"
    )
    assert "iconv" in caught.value.hint


def test_a_truncated_gzip_file_is_an_error(tmp_path):
    whole = gzip.compress("\n".join(str(i) for i in range(100_000)).encode())
    path = write(tmp_path / "cut.txt.gz", whole[: len(whole) // 2])

    with pytest.raises(CorpusError, match=r"cut\.txt\.gz: damaged gzip file after line \d+ \("):
        list(read_lines(path))


def test_a_corrupted_gzip_file_is_an_error(tmp_path):
    whole = bytearray(gzip.compress(b"some text, some more text\n" * 1000))
    whole[15] ^= 0xFF

    with pytest.raises(CorpusError, match="damaged gzip file after line"):
        list(read_lines(write(tmp_path / "bad.gz", bytes(whole))))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(CorpusError, match=r"none\.txt: there is no such file — check the path"):
        list(read_lines(tmp_path / "none.txt"))


def test_a_folder_in_place_of_a_file_is_an_error(tmp_path):
    with pytest.raises(CorpusError, match=r"cannot be read \(Is a directory\)"):
        list(read_lines(tmp_path))


def test_tsv_has_no_quoting_so_a_lone_quote_swallows_nothing(tmp_path):
    path = write(tmp_path / "t.tsv", 'text\tlabel\n"open\t1\n"a\tb"\tc\nlast\t2\n')

    assert rows(path, "label", "text") == [
        Row(2, ("1", '"open')),
        Row(3, ('b"', '"a')),
        Row(4, ("2", "last")),
    ]


def test_csv_quotes_hold_commas_newlines_and_quotes(tmp_path):
    path = write(tmp_path / "t.csv", 'text,label\r\n"a, ""b""\nc",1\r\nd,2\r\n')

    assert rows(path, "text", "label", format="csv") == [
        Row(2, ('a, "b"\nc', "1")),
        Row(4, ("d", "2")),
    ]


def test_every_cell_is_text(tmp_path):
    path = write(tmp_path / "t.tsv", "text\nnull\nNA\nNaN\n007\n1.0\n   \n")

    assert [row.cells[0] for row in rows(path, "text")] == [
        "null", "NA", "NaN", "007", "1.0", "   ",
    ]  # fmt: skip


@pytest.mark.parametrize("format", ["tsv", "csv"])
def test_a_cell_may_be_of_any_size(tmp_path, format):
    cell = "5900 " * 60_000
    path = write(tmp_path / "t", f"text\n{cell}\n")

    assert rows(path, "text", format=format)[0].cells == (cell,)


def test_blank_lines_crlf_and_a_byte_order_mark_do_not_matter(tmp_path):
    path = write(tmp_path / "t.tsv", "\ufefftext\tlabel\r\n\r\na\tb\r\n\r\n\r\n")

    assert rows(path, "text", "label") == [Row(3, ("a", "b"))]


def test_columns_are_numbered_from_1(tmp_path):
    path = write(tmp_path / "t.tsv", "a\tb\tc\nd\te\tf\n")

    assert rows(path, 3, 1, header=False) == [Row(1, ("c", "a")), Row(2, ("f", "d"))]


def test_a_number_with_a_header_is_a_name_if_there_is_one(tmp_path):
    path = write(tmp_path / "t.tsv", "2\t1\nx\ty\n")

    assert rows(path, 1)[0].cells == ("y",)
    assert rows(write(tmp_path / "u.tsv", "a\tb\nx\ty\n"), 1)[0].cells == ("x",)


@pytest.mark.parametrize("column", ["txt", 3, 0])
def test_a_missing_column_is_an_error_that_lists_those_there_are(tmp_path, column):
    error = refused(write(tmp_path / "t.tsv", "text\tlabel\na\tb\n"), column)

    assert error.message.endswith(
        f"t.tsv: line 1: no column {column!r}; found 2 columns: 'text', 'label'"
    )
    assert "give the column's number" in error.hint


def test_a_comma_file_read_as_tsv_shows_its_one_column(tmp_path):
    error = refused(write(tmp_path / "t.tsv", "text,label\na,1\n"), "text")

    assert "no column 'text'; found 1 column: 'text,label'" in error.message


def test_a_column_name_that_is_there_twice_is_refused(tmp_path):
    error = refused(write(tmp_path / "t.tsv", "text\ttext\na\tb\n"), "text")

    assert error.message.endswith("line 1: 2 columns are called 'text'")


def test_a_name_needs_a_header(tmp_path):
    error = refused(write(tmp_path / "t.tsv", "a\tb\n"), "text", header=False)

    assert error.message.endswith("without a header line there is no column 'text'")
    assert error.hint == "give the column's number, from 1"


@pytest.mark.parametrize(("format", "separator"), [("tsv", "tabs"), ("csv", "commas")])
def test_a_short_row_is_an_error_with_line_found_and_expected(tmp_path, format, separator):
    comma = "," if format == "csv" else "\t"
    path = write(tmp_path / "t", f"text{comma}label\na{comma}1\n\nlonely\n")

    error = refused(path, "label", format=format)

    assert error.message.endswith("t: line 4: found 1 column, expected at least 2: 'lonely'")
    assert separator in error.hint


def test_csv_with_a_quote_left_open_is_an_error_at_its_row(tmp_path):
    error = refused(write(tmp_path / "t.csv", 'text\na\n"open\nb\n'), "text", format="csv")

    assert re.search(r"t\.csv: line 3: not valid csv \(", error.message)
    assert "double the quotes" in error.hint


def test_a_header_alone_and_an_empty_file_have_no_rows(tmp_path):
    assert rows(write(tmp_path / "header.tsv", "text\n"), "text") == []
    assert rows(write(tmp_path / "empty.tsv", ""), "text") == []


def test_jsonl_gives_fields_and_numbers_as_they_are_written(tmp_path):
    path = write(
        tmp_path / "t.jsonl",
        '{"text": "a\\u00e9\u2028b", "label": 1.0}\n\n{"label": true, "text": "c", "1": "d"}\n',
    )

    assert rows(path, "text", "label", format="jsonl") == [
        Row(1, ("aé\u2028b", "1.0")),
        Row(3, ("c", "true")),
    ]
    assert refused(path, 1, format="jsonl").message.endswith(
        "line 1: no field '1'; found 'text', 'label'"
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{oops", "line 2: not valid JSON (Expecting property name"),
        ("[" * 100_000, "line 2: not valid JSON (maximum recursion depth exceeded"),
        ('["a"]', "line 2: expected a JSON object, found '[\"a\"]'"),
        ("{}", "line 2: no field 'text'; found none"),
        ('{"text": null}', "line 2: field 'text': expected text, found null"),
        ('{"text": ["a"]}', "line 2: field 'text': expected text, found list"),
        ('{"text": "a\\ud800"}', "line 2: field 'text': holds half of a surrogate pair"),
    ],
)
def test_a_jsonl_line_that_cannot_be_used_is_an_error_or_skipped(tmp_path, line, message):
    path = write(tmp_path / "t.jsonl", f'{{"text": "a"}}\n{line}\n{{"text": "b"}}\n')
    skipped: list[CorpusError] = []

    assert message in refused(path, "text", format="jsonl").message
    assert rows(path, "text", format="jsonl", on_bad_row=skipped.append) == [
        Row(1, ("a",)),
        Row(3, ("b",)),
    ]
    assert [message in error.message for error in skipped] == [True]


def test_a_whole_surrogate_pair_is_one_character(tmp_path):
    path = write(tmp_path / "t.jsonl", '{"text": "\\ud83d\\ude00"}\n')

    assert rows(path, "text", format="jsonl")[0].cells == ("😀",)


@pytest.mark.parametrize(
    ("name", "format"),
    [("a.TXT", "txt"), ("a.b.jsonl.gz", "jsonl"), ("a.csv", "csv"), ("a.tsv.GZ", "tsv"),
     ("a.gz", None), ("README", None), ("tsv", None)],
)  # fmt: skip
def test_the_name_tells_the_format(name, format):
    assert format_by_name(Path(name)) == format


def test_the_format_of_a_table_is_asked_for_or_told_by_the_name():
    assert table_format(Path("a.csv"), "tsv") == "tsv"
    assert table_format(Path("a.csv.gz"), "auto") == "csv"


@pytest.mark.parametrize("name", ["a.txt", "a.dat"])
def test_a_table_whose_name_tells_nothing_is_an_error(name):
    with pytest.raises(CorpusError, match=f"{name}: the name does not say which kind of table"):
        table_format(Path(name), "auto")
