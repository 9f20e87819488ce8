"""Reading rows: what comes out, and errors that name file, line and what was there."""

import pickle
import re
import sys
from decimal import Decimal
from pathlib import Path

import pytest

from bertpre.corpus.tables import Row, RowError, read_rows
from bertpre.errors import CorpusError


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def rows(path: Path, *columns: str | int, format="tsv", header=True, **options) -> list[Row]:
    return list(read_rows(path, format=format, header=header, columns=columns, **options))


def refused(path: Path, *columns: str | int, **options) -> CorpusError:
    with pytest.raises(CorpusError) as caught:
        rows(path, *columns, **options)
    return caught.value


def test_tsv_has_no_quoting_so_a_lone_quote_swallows_nothing(tmp_path):
    path = write(tmp_path / "t.tsv", 'text\tlabel\n"open\t1\n"a\tb"\nlast\t2\n')

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
    assert "the column's number" in error.hint


def test_a_comma_file_read_as_tsv_shows_its_one_column(tmp_path):
    error = refused(write(tmp_path / "t.tsv", "text,label\na,1\n"), "text")

    assert "no column 'text'; found 1 column: 'text,label'" in error.message


def test_a_column_name_that_is_there_twice_is_refused(tmp_path):
    error = refused(write(tmp_path / "t.tsv", "text\ttext\na\tb\n"), "text")

    assert error.message.endswith("line 1: 2 columns are named 'text'")


def test_a_name_needs_a_header(tmp_path):
    error = refused(write(tmp_path / "t.tsv", "a\tb\n"), "text", header=False)

    assert error.message.endswith("no column 'text', as there is no header line")
    assert error.hint == "use the column's number, from 1"


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
    assert "double the inner quotes" in error.hint


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
        ('{"text": "a\\ud800"}', "line 2: field 'text': contains half of a surrogate pair"),
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


PANDAS = 'label\ttext\n1\t"she said ""no"" twice"\n2\t"a\tb\nc"\n3\tplain\n'


def test_tsv_as_pandas_writes_it_is_noticed(tmp_path, caplog):
    caplog.set_level("INFO")
    path = write(tmp_path / "t.tsv", PANDAS)

    assert rows(path, "text") == [
        Row(2, ('she said "no" twice',)),
        Row(3, ("a\tb\nc",)),
        Row(5, ("plain",)),
    ]
    assert "t.tsv: cells look quoted, so they are read with --quoting csv; --quoting none" in (
        caplog.text
    )


def test_tsv_whose_rows_fit_only_as_quoted_cells_is_noticed(tmp_path):
    path = write(tmp_path / "t.tsv", 'label\ttext\n1\t"one\ntwo"\n2\tthree\n')

    assert [row.cells[0] for row in rows(path, "text")] == ["one\ntwo", "three"]


@pytest.mark.parametrize(
    "lines",
    [
        ['"A sentence in quotes."', '"Another."'],
        ['"open', "middle", 'close"'],
        ['""hi""', "x"],
        ['He said ""hi"" twice', "x"],
    ],
)
def test_tsv_with_quotes_that_prove_nothing_is_text(tmp_path, lines):
    path = write(tmp_path / "t.tsv", "text\tlabel\n" + "".join(f"{s}\t1\n" for s in lines))

    assert [row.cells[0] for row in rows(path, "text")] == lines


def test_what_a_quote_means_can_be_stated(tmp_path):
    tsv, csv = write(tmp_path / "t.tsv", PANDAS), write(tmp_path / "t.csv", 'text,n\n"a,1\n')

    with pytest.raises(CorpusError, match="line 3: found 3 columns, expected 2 as in line 1"):
        rows(tsv, 1, quoting="none")
    assert rows(csv, "text", format="csv", quoting="none") == [Row(2, ('"a',))]
    one = write(tmp_path / "u.tsv", 'text\n"A sentence."\n')
    assert rows(one, "text", quoting="csv") == [Row(2, ("A sentence.",))]


def test_quoted_cells_that_come_late_are_a_warning(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("bertpre.corpus.delimited._SAMPLE_CHARACTERS", 10)
    path = write(tmp_path / "t.tsv", 'text\nplain text\n"so ""called"" cell"\n"an""other"\n')

    assert len(rows(path, "text")) == 3
    assert (
        caplog.text.count("t.tsv: line 3: a cell looks quoted, but its quotes are read as text")
        == 1
    )
    assert "--quoting csv" in caplog.text


def test_a_sample_that_ends_within_a_cell_is_judged_by_what_is_whole(tmp_path, monkeypatch):
    monkeypatch.setattr("bertpre.corpus.delimited._SAMPLE_CHARACTERS", 30)
    path = write(tmp_path / "t.tsv", 'text\n"so ""called"" cell"\n"one\ntwo"\n')

    assert [row.cells[0] for row in rows(path, "text")] == ['so "called" cell', "one\ntwo"]


def test_a_field_inside_another_is_named_with_a_dot(tmp_path):
    path = write(
        tmp_path / "t.jsonl",
        '{"meta": {"body": {"en": "a"}}}\n{"meta.body.en": "b"}\n{"meta": {"title": "c"}}\n'
        '{"meta": "d"}\n',
    )
    skipped: list[CorpusError] = []

    found = rows(path, "meta.body.en", format="jsonl", on_bad_row=skipped.append)

    assert found == [Row(1, ("a",)), Row(2, ("b",))]
    assert [error.message.partition(": line ")[2] for error in skipped] == [
        "3: no field 'meta.body.en'; found 'title'",
        "4: no field 'meta.body.en'; found none",
    ]


def test_parquet_gives_text_columns_and_skips_what_is_none(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="needs the extra parquet")
    from pyarrow import parquet

    path = tmp_path / "t.parquet"
    table = pyarrow.table(
        {"id": [7, 8, 9], "text": ["a", None, "é" * 9], "meta": [{"x": "p"}, {"x": "q"}, None]}
    )
    parquet.write_table(table, path)
    skipped: list[CorpusError] = []
    counts: list[int] = []

    found = rows(
        path, "text", "id", format="parquet", on_bad_row=skipped.append, on_bytes=counts.append
    )

    assert found == [Row(1, ("a", "7")), Row(3, ("é" * 9, "9"))]
    assert [error.message for error in skipped] == [
        f"{path}: row 2: column 'text': expected text, found null"
    ]
    assert sum(counts) == path.stat().st_size
    assert rows(path, "meta.x", format="parquet", on_bad_row=skipped.append)[1].cells == ("q",)
    assert rows(path, 2, format="parquet", on_bad_row=skipped.append)[0].cells == ("a",)
    assert refused(path, "body", format="parquet").message.endswith(
        "no column 'body'; found 'id', 'text', 'meta'"
    )
    assert "row 2: column 'text'" in refused(path, "text", format="parquet").message
    assert "row 2: column 'text'" in refused(path, 2, format="parquet").message


def test_parquet_writes_numbers_as_people_do_and_joins_lists(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="needs the extra parquet")
    from pyarrow import parquet

    path = tmp_path / "t.parquet"
    table = pyarrow.table(
        {
            "double": [0.1, 3.0, 1.5e300, None],
            "single": pyarrow.array([0.1, -2.5, 16.0, float("nan")], pyarrow.float32()),
            "decimal": [Decimal("1.50"), Decimal("2"), Decimal("0.1"), Decimal("7")],
            "flag": [True, False, True, False],
            "names": [["a", "b"], [], ["c"], ["d,e"]],
            "numbers": [[1, 2], [3], [], [4]],
        }
    )
    parquet.write_table(table, path)
    skipped: list[CorpusError] = []
    columns, commas = table.column_names, {"names": ",", 6: ","}

    found = rows(
        path, *columns[:5], 6, format="parquet", on_bad_row=skipped.append, list_separators=commas
    )

    assert [row.cells for row in found] == [
        ("0.1", "0.1", "1.50", "true", "a,b", "1,2"),
        ("3", "-2.5", "2.00", "false", "", "3"),
        ("1.5e+300", "16", "0.10", "true", "c", ""),
    ]
    assert [error.problem for error in skipped] == ["column 'double': expected text, found null"]
    message = refused(path, "single", format="parquet").message
    assert message.endswith("row 4: column 'single': expected text, found nan")
    message = refused(path, "names", format="parquet", list_separators=commas).message
    assert message.endswith("row 4: column 'names': 'd,e' contains the separator ','")
    assert "'names': expected text, found list" in refused(path, "names", format="parquet").message


def test_a_damaged_or_missing_parquet_file_is_an_error(tmp_path):
    pytest.importorskip("pyarrow", reason="needs the extra parquet")
    path = write(tmp_path / "t.parquet", b"PAR1 and no more")

    assert (
        "t.parquet: not a readable parquet file ("
        in refused(path, "text", format="parquet").message
    )
    assert "there is no such file" in refused(tmp_path / "no", 1, format="parquet").message
    assert "cannot be read from a pipe" in refused(Path("/dev/null"), 1, format="parquet").message


def test_parquet_without_its_package_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    error = refused(write(tmp_path / "t.parquet", b"PAR1"), "text", format="parquet")

    assert error.message.endswith("reading parquet needs the package pyarrow")
    assert error.hint == "pip install 'bertpre[parquet]'"


@pytest.mark.parametrize(
    ("name", "text", "separator"),
    [
        ("t.csv", "id,text\n0,whole\n1,Hello, world\n", "comma"),
        ("t.tsv", "id\ttext\n0\twhole\n1\tHello\tworld\n", "tab"),
    ],
)
def test_a_text_that_its_separator_divides_is_an_error_and_not_half_a_text(
    tmp_path, name, text, separator
):
    path = write(tmp_path / name, text)

    message = f"{name}: line 3: found 3 columns, expected 2 as in line 1: '1' — a {separator}"
    with pytest.raises(CorpusError, match=message):
        rows(path, "text", format=name[-3:])


def test_empty_cells_at_the_end_of_a_row_are_no_loss(tmp_path):
    path = write(tmp_path / "t.tsv", "id\ttext\n1\twhole\t\t\n")

    assert rows(path, "text") == [Row(2, ("whole",))]


def test_without_a_header_the_first_row_says_how_many_columns_there_are(tmp_path):
    path = write(tmp_path / "t.tsv", "1\ta\n2\tb\tc\n")

    with pytest.raises(CorpusError, match="line 2: found 3 columns, expected 2 as in line 1"):
        rows(path, 2, header=False)


@pytest.mark.parametrize("name", ["t.tsv", "t.csv"])
def test_a_blank_line_between_rows_of_one_column_is_an_empty_text(tmp_path, name):
    path = write(tmp_path / name, "text\nNA\n\na boat\n\n\n")

    assert rows(path, "text", format=name[-3:]) == [
        Row(2, ("NA",)),
        Row(3, ("",)),
        Row(4, ("a boat",)),
    ]


def test_a_blank_line_is_one_row_however_many_rows_follow(tmp_path):
    path = write(tmp_path / "t.tsv", "text\na\n\nb\nc\n\n\nd\n")

    found = [(row.line, *row.cells) for row in rows(path, "text")]

    assert found == [(2, "a"), (3, ""), (4, "b"), (5, "c"), (6, ""), (7, ""), (8, "d")]


@pytest.mark.parametrize(
    ("name", "header", "hint"),
    [
        ("a.csv", "label\ttext", "line 1 contains tabs: pass --format tsv"),
        ("a.tsv", "label,text", "line 1 contains commas: pass --format csv"),
        (
            "a.csv",
            "label;text",
            "line 1 contains semicolons: separate the columns by tabs or commas",
        ),
        ("a.tsv", '"label"\t"texts"', "choose one of these"),
    ],
)
def test_another_separator_or_quoting_is_noticed(tmp_path, name, header, hint):
    path = tmp_path / name
    path.write_text(f"{header}\n")

    with pytest.raises(CorpusError, match="no column 'text'") as error:
        list(read_rows(path, format=path.suffix[1:], header=True, columns=["text"]))

    assert error.value.hint.startswith(hint)


def test_a_tsv_whose_cells_are_all_quoted_is_read_without_the_quotes(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text('"label"\t"text"\n"1"\t"one"\n"2"\t"two"\n')

    rows = read_rows(path, format="tsv", header=True, columns=["text", "label"])

    assert [row.cells for row in rows] == [("one", "1"), ("two", "2")]


def test_quoted_names_that_are_kept_say_how_to_read_them(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text('"label"\t"text"\n')

    with pytest.raises(CorpusError) as error:
        list(read_rows(path, format="tsv", header=True, columns=["text"], quoting="none"))

    assert error.value.hint == "the names are quoted: pass --quoting csv"


def test_rows_of_another_width_can_be_collected(tmp_path):
    path = write(tmp_path / "t.tsv", "text\tlabel\na\t1\nlonely\nb\t2\t3\nc\t4\n")
    bad: list[RowError] = []

    found = rows(path, "text", "label", on_bad_width=bad.append)

    assert [row.line for row in found] == [2, 5]
    assert [(error.line, error.problem) for error in bad] == [
        (3, "found 1 column, expected at least 2: 'lonely'"),
        (4, "found 3 columns, expected 2 as in line 1: 'b'"),
    ]


def test_lists_in_jsonl_become_one_cell_where_that_is_asked_for(tmp_path):
    path = write(tmp_path / "t.jsonl", '{"text": "a", "tags": ["x", 1, "y z"]}\n')

    found = rows(path, "text", "tags", format="jsonl", list_separators={"tags": "|"})

    assert found == [Row(1, ("a", "x|1|y z"))]
    assert refused(path, "tags", format="jsonl", list_separators={"text": "|"}).message.endswith(
        "line 1: field 'tags': expected text, found list"
    )


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ('["a", null]', "field 'tags': expected a list of texts, found 'None'"),
        ('["a|b"]', "field 'tags': 'a|b' contains the separator '|'"),
    ],
)
def test_a_list_that_cannot_become_a_cell_is_a_bad_row(tmp_path, items, message):
    path = write(tmp_path / "t.jsonl", f'{{"tags": {items}}}\n')

    error = refused(path, "tags", format="jsonl", list_separators={"tags": "|"})

    assert error.message.endswith(message)


def test_an_error_of_a_row_crosses_a_process_border_whole(tmp_path):
    error = refused(write(tmp_path / "t.tsv", "text\tlabel\nlonely\n"), "label")

    copy = pickle.loads(pickle.dumps(error))

    assert (type(copy), copy.line, copy.problem) == (RowError, 2, error.problem)
    assert (copy.message, copy.hint) == (error.message, error.hint)
