"""Files of tagged tokens in every form: read, written, and every fault of a row."""

import csv
import datetime
import gzip
import io
import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bertpre.config.schema import Finetune
from bertpre.corpus.files import STDIN
from bertpre.corpus.tables import read_rows
from bertpre.errors import ConfigError, CorpusError
from bertpre.finetuning.tagged_cells import join_cell, split_cell
from bertpre.finetuning.tagged_files import claim, open_tagged
from bertpre.finetuning.tagged_rows import TaggedFile, TaggedRow

FIXTURE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
JAN = ([("Jan", "B-PER"), ("sleeps", "O")], [(".", "O")])


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def lines(folder: Path, *objects: object, name: str = "t.jsonl") -> Path:
    return write(folder, name, "".join(json.dumps(one) + "\n" for one in objects))


def opened(path: Path, *, with_tags=True, layout=None, **options) -> TaggedFile:
    return open_tagged(path, Finetune(**options), with_tags=with_tags, layout=layout)


def rows(path: Path, **options) -> list[TaggedRow]:
    return list(opened(path, **options).rows())


def pairs(path: Path, **options) -> list[list[tuple[str, str]]]:
    return [list(zip(one.tokens, one.tags, strict=True)) for one in rows(path, **options)]


def fault(path: Path, **options):
    [row] = rows(path, **options)
    assert (row.tokens, row.tags) == ((), None)
    return row.fault


def tagged(path: Path, tag: str | None = "X", **options) -> str:
    """Write a file with one tag for all tokens; None for rows without tags."""
    file = opened(path, with_tags=False, **options)
    parts = [
        file.write(row, None if tag is None else [tag] * len(row.tokens)) for row in file.rows()
    ]
    return file.header() + "".join(parts)


# Every form


@pytest.mark.parametrize(
    ("name", "content", "layout"),
    [
        (
            "t.conll",
            "Jan\tB-PER\nsleeps\tO\n\n.\tO\n",
            {"form": "columns", "width": 2, "separator": "\t", "text": 1, "label": 2},
        ),
        (
            "t.jsonl",
            '{"tokens": ["Jan", "sleeps"], "labels": ["B-PER", "O"]}\n\n'
            '{"tokens": ["."], "labels": ["O"]}\n',
            {"form": "tokens", "text": "tokens", "label": "labels"},
        ),
        (
            "t.jsonl",
            '{"text": "Jan sleeps", "entities": [{"start": 0, "end": 3, "label": "PER"}]}\n'
            '{"text": ".", "entities": []}',
            {"form": "entities", "text": "text", "label": "entities"},
        ),
        (
            "t.jsonl",
            '{"text": "Jan sleeps", "label": "B-PER O"}\n{"text": ".", "label": "O"}\n',
            {"form": "cells", "text": "text", "label": "label"},
        ),
        (
            "t.tsv",
            "text\tlabel\nJan sleeps\tB-PER O\n.\tO\n",
            {"form": "cells", "text": "text", "label": "label"},
        ),
        (
            "t.csv",
            "label,text\n\"['B-PER', 'O']\",\"['Jan', 'sleeps']\"\nO,.\n",
            {"form": "cells", "text": "text", "label": "label"},
        ),
    ],
)
def test_forms_read_alike(tmp_path, name, content, layout):
    path = write(tmp_path, name, content)
    zipped = write(tmp_path, f"{name}.gz", gzip.compress(content.encode()))

    assert pairs(path) == pairs(zipped) == list(JAN)
    assert opened(path).layout == layout
    # Tags that the predicted ones would replace are read from columns alone, to be checked.
    old = [("B-PER", "O"), ("O",)] if layout["form"] == "columns" else [None, None]
    assert [row.tags for row in rows(path, with_tags=False)] == old


def test_parquet_has_lists_or_texts(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = {
        "tokens": [["New York", ""], ["."], None],
        "ner": [[3, 0], [0], [0]],
        "text": ["a b", "c", "d"],
        "label": ["X O", "O", "O"],
    }
    parquet.write_table(pyarrow.table(table), tmp_path / "t.parquet")

    first, second, third = rows(tmp_path / "t.parquet", text_column="tokens", label_column="ner")
    assert (first.tokens, first.tags) == (("New York", ""), ("3", "0"))
    assert (second.tokens, second.tags) == ((".",), ("0",))
    assert "row 3: column 'tokens': expected text, found null" in third.fault.message
    assert pairs(tmp_path / "t.parquet") == [[("a", "X"), ("b", "O")], [("c", "O")], [("d", "O")]]
    assert tagged(tmp_path / "t.parquet", text_column="tokens", label_column="ner") == (
        '{"tokens": ["New York", ""], "ner": ["X", "X"], "text": "a b", "label": "X O"}\n'
        '{"tokens": ["."], "ner": ["X"], "text": "c", "label": "O"}\n'
        '{"tokens": null, "ner": [0], "text": "d", "label": "O"}\n'
    )
    assert opened(tmp_path / "t.parquet").form == "jsonl"


def test_all_columns_of_parquet_come_out_as_json_lines(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = {"id": [1], "tokens": [["a"]], "x": [{"y": 0.5}], "day": [datetime.date(2020, 1, 2)]}
    parquet.write_table(pyarrow.table(table), tmp_path / "a.parquet")
    parquet.write_table(pyarrow.table({"tokens": [["a"]], "tags": [[2]]}), tmp_path / "b.parquet")
    parquet.write_table(pyarrow.table({"tokens": [[1]]}), tmp_path / "c.parquet")
    parquet.write_table(
        pyarrow.table({"d": [{"w": "['a b', 'c']"}], "tags": ["O O"]}), tmp_path / "d.parquet"
    )

    out = write(tmp_path, "out.jsonl", tagged(tmp_path / "a.parquet"))
    nested = {"text_column": "d.w", "label_column": "d.t"}

    assert json.loads(out.read_text()) == {
        "id": 1, "tokens": ["a"], "x": {"y": 0.5}, "day": "2020-01-02", "labels": ["X"]
    }  # fmt: skip
    assert pairs(out) == [[("a", "X")]]
    assert pairs(tmp_path / "b.parquet") == [[("a", "2")]]
    assert "column 'tokens': expected texts, found the number 1" in (
        fault(tmp_path / "c.parquet", with_tags=False).message
    )
    assert json.loads(tagged(tmp_path / "d.parquet", **nested)) == {
        "d": {"w": "['a b', 'c']", "t": '["X", "X"]'}, "tags": "O O"
    }  # fmt: skip
    with pytest.raises(CorpusError, match="no column 'label'; found 'id', 'tokens'"):
        opened(tmp_path / "a.parquet")
    with pytest.raises(CorpusError, match="no column 'text'; found 'd', 'tags'"):
        opened(tmp_path / "d.parquet")


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("t.conll", "# id 1\na\tO\nb\tO\n\n\nc\tO", "# id 1\na\tX\nb\tX\n\n\nc\tX"),
        ("t.bio", "a\nb\n\nc\n", "a\tX\nb\tX\n\nc\tX\n"),
        (
            "t.jsonl",
            '{"id": 1.50, "tokens": ["é", "b"], "labels": [], "n": null}\n{"tokens": []}\n',
            '{"id": 1.50, "tokens": ["é", "b"], "labels": ["X", "X"], "n": null}\n'
            '{"tokens": [], "labels": []}\n',
        ),
        (
            "t.jsonl",
            '{"text": " a,b", "id": -0}\n',
            '{"text": " a,b", "id": -0, "entities": [{"start": 1, "end": 2, "label": "X"}, '
            '{"start": 2, "end": 3, "label": "X"}, {"start": 3, "end": 4, "label": "X"}]}\n',
        ),
        (
            "t.tsv",
            "id\ttext\n1\ta  b\n2\tc\n",
            "id\ttext\tlabels\n1\ta  b\tX X\n2\tc\tX\n",
        ),
        ("t.tsv", "label\ttext\n1\ta b\n", "label\ttext\nX X\ta b\n"),
        ("t.tsv", "tokens\ttags\tid\na b\tO O\t1\n", "tokens\ttags\tid\na b\tX X\t1\n"),
        ("t.tsv", "text\tlabel\na b\n", "text\tlabel\na b\tX X\n"),
        ("t.tsv", 'text\tid\n"a" b\t"1"\n', 'text\tid\tlabels\n"a" b\t"1"\tX X\n'),
        ("t.tsv", "text\tid\na\t1\t\nb\n", "text\tid\tlabels\na\t1\tX\t\nb\t\tX\n"),
        ("t.tsv", "text\n\na\n", "text\tlabels\n\t\na\tX\n"),
        ("t.tsv", "label\ttext\nO\ta\r\r\n", "label\ttext\nX\ta\r\r\n"),
        ("t.csv", 'text,x\n"a\nb",1\n', 'text,x,labels\n"a\nb",1,X X\n'),
        (
            "t.csv",
            "id,text\n\"1,2\",\"['a b', 'c']\"\n",
            'id,text,labels\n"1,2","[\'a b\', \'c\']","[""X"", ""X""]"\n',
        ),
        ("t.csv", 'text,tags\n[],O\n"",O\n', "text,tags\n[],[]\n,\n"),
    ],
)
def test_files_go_out_in_the_form_in_which_they_came(tmp_path, name, content, expected):
    assert tagged(write(tmp_path, name, content)) == expected


def test_rows_without_predictions_stay_as_they_are(tmp_path):
    columns = write(tmp_path, "t.conll", "a O\nb\n\nc O\n")
    objects = write(tmp_path, "t.jsonl", '{"tokens": ["a"],  "x":1}\r\nno\n{"tokens": 1}')
    table = write(tmp_path, "t.csv", 'id,text\n1,a b\n2\n3,"c\td"\n')

    assert tagged(columns, None) == "a O\nb\n\nc O\n"
    assert tagged(objects, None) == '{"tokens": ["a"],  "x":1}\r\nno\n{"tokens": 1}\n'
    assert tagged(table, None) == "id,text,labels\n1,a b,\n2\n3,c\td,\n"
    assert tagged(objects) == ('{"tokens": ["a"], "x": 1, "labels": ["X"]}\nno\n{"tokens": 1}\n')
    assert tagged(table) == "id,text,labels\n1,a b,X X\n2\n3,c\td,X X\n"


def test_a_row_with_a_fault_has_it_when_it_is_read_again(tmp_path):
    path = write(tmp_path, "t.tsv", "id\ttext\n1\n2\tb\textra\n3\tc\n")

    again = write(tmp_path, "again.tsv", tagged(path))

    assert again.read_text() == "id\ttext\tlabels\n1\n2\tb\t\textra\n3\tc\tX\n"
    assert [row.fault is None for row in rows(again)] == [False, False, True]


def test_no_header_stays_none(tmp_path):
    path = write(tmp_path, "t.tsv", "a b\tO O\n")

    options = {"header": False, "text_column": 1, "label_column": 2}
    assert pairs(path, **options) == [[("a", "O"), ("b", "O")]]
    assert tagged(path, **options) == "a b\tX X\n"
    assert tagged(path, header=False, text_column=1) == "a b\tO O\tX X\n"
    with pytest.raises(CorpusError, match="no column 'label', as there is no header line"):
        opened(path, header=False, text_column=1)
    with pytest.raises(ConfigError, match="text_column and label_column are both 'text'"):
        opened(write(tmp_path, "u.tsv", "text\nb\n"), label_column=1)


def test_added_tags_are_named_as_in_training(tmp_path):
    path = write(tmp_path, "t.csv", "words\na\n")
    layout = {"form": "cells", "text": "words", "label": "x,y"}

    assert tagged(path, layout=layout) == 'words,"x,y"\na,X\n'
    assert tagged(path, layout={**layout, "label": 2}) == "words,labels\na,X\n"
    assert [opened(path, layout=layout, with_tags=False).form] == ["csv"]


def test_cells_that_need_quotes_where_there_are_none_are_refused(tmp_path):
    path = write(tmp_path, "t.csv", 'text,"id"\n"a,1\n')

    assert tagged(path, quoting="none") == 'text,"id",labels\n"a,1,X\n'
    with pytest.raises(CorpusError) as caught:
        tagged(path, "B-X,Y", quoting="none")
    assert caught.value.message == (
        f"{path}: line 2: cannot write 'B-X,Y' as csv without quotes, since it contains a comma"
    )
    assert "--quoting csv" in caught.value.hint


CELL = st.text(st.sampled_from("ab ,\"\t\r\n['é"), max_size=6)


@FIXTURE
@given(
    st.lists(st.lists(CELL, min_size=3, max_size=3), min_size=1, max_size=4),
    st.sampled_from(["tsv", "csv"]),
    st.booleans(),
    st.booleans(),
)
def test_all_other_cells_come_back(tmp_path, cells, format, is_quoted, has_tags):
    """The file is written by Python's csv module, or joined where quotes are text."""
    delimiter = "," if format == "csv" else "\t"
    table = [["id", "text", "labels" if has_tags else "x"], *cells]
    if is_quoted:
        text = io.StringIO()
        csv.writer(text, delimiter=delimiter, quoting=csv.QUOTE_ALL).writerows(table)
        content = text.getvalue()
    else:
        bare = str.maketrans("", "", delimiter + "\r\n")
        table = [[cell.translate(bare) for cell in row] for row in table]
        content = "".join(delimiter.join(row) + "\n" for row in table)
    quoting = "csv" if is_quoted else "none"
    path = write(tmp_path, f"t.{format}", content)

    out = write(tmp_path, f"out.{format}", tagged(path, quoting=quoting))

    names = ["id", "text", "labels"] if has_tags else ["id", "text", "x", "labels"]
    found = read_rows(out, format=format, header=True, columns=names, quoting=quoting)
    for given_cells, row in zip(table[1:], found, strict=True):
        num_tokens = len(split_cell(given_cells[1]))
        assert list(row.cells[: 2 if has_tags else 3]) == given_cells[: 2 if has_tags else 3]
        assert split_cell(row.cells[-1]) == ("X",) * num_tokens
    assert all(row.fault is None for row in rows(out, quoting=quoting))


def test_quotes_that_were_detected_are_detected_again(tmp_path):
    path = write(tmp_path, "t.tsv", 'text\tid\n"a ""b"""\t1\n"c\td"\t2\n')

    out = write(tmp_path, "out.tsv", tagged(path))

    assert out.read_text() == 'text\tid\tlabels\n"a ""b"""\t1\tX X\n"c\td"\t2\tX X\n'
    assert [row.tokens for row in rows(out)] == [("a", '"b"'), ("c", "d")]


def test_the_form_of_a_prediction_file_may_be_another(tmp_path):
    """Options of the training file are repeated in prediction, but name nothing there."""
    columns = {"form": "columns", "width": 3, "separator": " ", "text": 2, "label": 3}
    tokens = {"form": "tokens", "text": "words", "label": "ner"}
    cells = {"form": "cells", "text": "body", "label": "tags"}
    conll = write(tmp_path, "t.conll", "a\nb\n")
    objects = write(tmp_path, "t.jsonl", '{"text": "a b"}\n')
    table = write(tmp_path, "t.tsv", "text\na b\n")

    assert tagged(conll, layout=tokens, text_column="words", label_column="ner") == "a\tX\nb\tX\n"
    for layout in (columns, tokens, cells):
        assert "entities" in tagged(objects, layout=layout, text_column=layout["text"])
    for layout in (columns, tokens):
        assert tagged(table, layout=layout, text_column=layout["text"]) == (
            "text\tlabels\na b\tX X\n"
        )
    assert tagged(objects, layout={"form": "cells", "text": "text", "label": "tags"}) == (
        '{"text": "a b", "tags": "X X"}\n'
    )


def test_the_columns_of_training_hold_for_prediction(tmp_path):
    train = write(tmp_path, "train.conll", "1 a N O\n")
    new = write(tmp_path, "new.conll", "1 b V\n")
    layout = opened(train, text_column=2).layout

    assert rows(new, with_tags=False, layout=layout)[0].tokens == ("b",)
    assert tagged(new, layout=layout) == "1 b V X\n"
    objects = lines(tmp_path, {"words": ["a"], "ner": ["O"]})
    layout = opened(objects, text_column="words", label_column="ner").layout
    assert layout == {"form": "tokens", "text": "words", "label": "ner"}
    assert tagged(objects, layout=layout) == '{"words": ["a"], "ner": ["X"]}\n'


def test_standard_input_needs_a_format(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match="standard input: the format is unknown") as caught:
        opened(Path("-"), with_tags=False)
    assert "--format conll" in caught.value.hint

    for format, content in (("conll", "a\n"), ("jsonl", '{"tokens": ["a"]}\n'), ("tsv", "text\na")):
        with write(tmp_path, "in", content).open("rb") as file:
            saved = os.dup(0)
            os.dup2(file.fileno(), 0)
            try:
                [row] = rows(STDIN, with_tags=False, format=format)
            finally:
                os.dup2(saved, 0)
                os.close(saved)
        assert row.tokens == ("a",)


def test_names_mean_nothing_in_a_column_file(tmp_path):
    path = write(tmp_path, "t.conll", "a O\n")

    for option in ("text_column", "label_column"):
        with pytest.raises(ConfigError, match=f"{option}: 'word': expected a number") as caught:
            opened(path, **{option: "word"})
        assert f"--{option.replace('_', '-')} 1" in caught.value.hint


def test_options_that_contradict_are_refused(tmp_path):
    objects = lines(tmp_path, {"tokens": ["a"], "labels": ["O"]})

    with pytest.raises(ConfigError, match="text_column and label_column are both 'tokens'"):
        opened(objects, text_column="tokens", label_column="tokens")
    with pytest.raises(ConfigError, match="text_column and label_column are both 'x'"):
        opened(tmp_path / "t.tsv", text_column="x", label_column="x")
    table = write(tmp_path, "t.tsv", "y\na\n")
    layout = {"form": "cells", "text": "x", "label": "y"}
    with pytest.raises(ConfigError, match="text_column and label_column are both 'y'") as caught:
        opened(table, with_tags=False, layout=layout, text_column="y")
    assert caught.value.hint == "choose the columns with --text-column"
    with pytest.raises(ConfigError, match="pair_column: 'b': tokens with tags have no second"):
        opened(objects, pair_column="b")


def test_invalid_bytes_are_counted(tmp_path, caplog):
    path = write(tmp_path, "t.conll", b"a\xff O\n")

    assert pairs(path, on_bad_bytes="replace") == [[("a\ufffd", "O")]]
    assert f"{path}: 1 byte sequences are not valid utf-8" in caplog.text
    with pytest.raises(CorpusError, match="line 1, byte 2 of the line: expected UTF-8"):
        opened(path)


# JSON lines


def test_numbers_are_labels_as_they_are_written(tmp_path):
    path = write(tmp_path, "t.jsonl", '{"tokens": ["a", "b"], "labels": [3, 1e0]}\n')

    assert pairs(path) == [[("a", "3"), ("b", "1e0")]]


def test_numbers_are_no_tokens(tmp_path):
    path = write(tmp_path, "t.jsonl", '{"tokens": ["a", 10.0], "labels": [3, 1]}\n')

    for with_tags in (True, False):
        assert fault(path, with_tags=with_tags).message == (
            f"{path}: line 1: field 'tokens': expected texts, found the number '10.0' at place 2"
        )


def test_labels_of_another_name_are_named(tmp_path):
    names = {"id": [1], "tokens": ["a", "b"], "pos_tags": [1, 2], "ner_tags": [0, 0]}
    path = lines(tmp_path, names)

    with pytest.raises(CorpusError) as caught:
        opened(path)
    assert caught.value.message == (
        f"{path}: line 1: found the lists 'tokens' and 'ner_tags' and 'pos_tags', but no 'labels'"
    )
    assert caught.value.hint == "name the field of labels: --label-column ner_tags"
    assert pairs(path, label_column="ner_tags") == [[("a", "0"), ("b", "0")]]
    assert rows(path, with_tags=False)[0].tokens == ("a", "b")


def test_fields_may_be_inside_others(tmp_path):
    path = lines(tmp_path, {"d": {"w": ["a"], "t": ["O"], "x": 1}, "id": 2})

    options = {"text_column": "d.w", "label_column": "d.t"}
    assert pairs(path, **options) == [[("a", "O")]]
    assert json.loads(tagged(path, **options)) == {
        "d": {"w": ["a"], "t": ["X"], "x": 1}, "id": 2
    }  # fmt: skip


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@FIXTURE
@given(
    st.dictionaries(st.text(), JSON, max_size=4),
    st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=5),
)
def test_all_other_fields_come_back(tmp_path, fields, tokens):
    fields = {**fields, "tokens": tokens}
    path = lines(tmp_path, fields)

    out = tagged(path)

    assert json.loads(out) == {**fields, "labels": ["X"] * len(tokens)}
    assert out.encode()


def test_numbers_too_long_for_python_come_back(tmp_path):
    number = "0.12345678901234567890123" + "0" * 5000
    path = write(tmp_path, "t.jsonl", f'{{"n": [{number}, 1e999, 1{"0" * 5000}], "tokens": []}}\n')

    assert tagged(path).startswith(f'{{"n": [{number}, 1e999, 1{"0" * 5000}], ')


def test_entities_are_tags_and_words_that_they_cut_are_said(tmp_path, caplog):
    path = lines(
        tmp_path,
        {
            "text": "unNewYork in 北京市",
            "entities": [
                {"start": 13, "end": 15, "label": "LOC", "id": 7},
                {"start": 2, "end": 9, "label": "LOC"},
            ],
        },
    )

    assert pairs(path) == [
        [
            ("un", "O"),
            ("NewYork", "B-LOC"),
            ("in", "O"),
            ("北", "B-LOC"),
            ("京", "I-LOC"),
            ("市", "O"),
        ]
    ]
    assert caplog.text.count("1 of 2 entities start or end inside a word") == 1
    assert rows(path, with_tags=False)[0].tokens == ("unNewYork", "in", "北", "京", "市")


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"tokens": ["a", "b"], "labels": ["O"]}, "found 1 tag for 2 tokens"),
        ({"tokens": ["a"], "labels": [""]}, "tag 1 is empty"),
        (
            {"tokens": ["a"], "labels": "O"},
            "field 'labels': expected a list of texts, found a text",
        ),
        ({"tokens": ["a"]}, "field 'labels': expected a list of texts, found nothing"),
        (
            {"tokens": ["a", None], "labels": []},
            "'tokens': expected texts, found nothing at place 2",
        ),
        ({"tokens": [["a"]], "labels": []}, "'tokens': expected texts, found a list at place 1"),
        ({"tokens": ["a"], "labels": [True]}, "'labels': expected texts, found true at place 1"),
        ({"tokens": ["\ud800"], "labels": ["O"]}, "'tokens': contains half of a surrogate pair"),
        ({"text": "\ud800", "entities": []}, "field 'text': contains half of a surrogate pair"),
        ({"text": "a b", "label": "O"}, "found 1 tag for 2 tokens"),
        ({"text": "a", "entities": {}}, "'entities': expected a list of entities, found an object"),
    ],
)
def test_bad_fields_are_faults(tmp_path, fields, problem):
    assert problem in fault(lines(tmp_path, fields)).message


@pytest.mark.parametrize(
    ("entities", "problem"),
    [
        (
            [{"start": 0, "end": 99, "label": "A"}],
            "'A' from 0 to 99 is outside the text of 8 characters",
        ),
        ([{"start": -1, "end": 3, "label": "A"}], "'A' from -1 to 3 is outside the text"),
        ([{"start": 2, "end": 2, "label": "A"}], "'A' from 2 to 2 has no text"),
        ([{"start": 3, "end": 1, "label": "A"}], "'A' from 3 to 1 has no text"),
        ([{"start": 3, "end": 4, "label": "A"}], "'A' from 3 to 4 has no text"),
        ([{"start": 0.0, "end": 3, "label": "A"}], "start: expected an integer, found 0.0"),
        ([{"start": "0", "end": 3, "label": "A"}], "start: expected an integer, found a text"),
        ([{"start": 0, "label": "A"}], "end: expected an integer, found nothing"),
        ([{"start": True, "end": 3, "label": "A"}], "start: expected an integer, found true"),
        ([{"start": 0, "end": 3, "label": ""}], "label: expected a text, found nothing"),
        ([{"start": 0, "end": 3, "label": ["A"]}], "label: expected a text, found a list"),
        ([[0, 3, "A"]], "entity 1 of 'entities': expected an object with start, end and label"),
        (
            [{"start": 2, "end": 7, "label": "A"}, {"start": 0, "end": 3, "label": "B"}],
            "'B' from 0 to 3 and 'A' from 2 to 7 overlap",
        ),
        ([{"start": 0, "end": 3, "label": "A"}] * 2, "'A' from 0 to 3 and 'A' from 0 to 3 overlap"),
    ],
)
def test_bad_entities_are_faults(tmp_path, entities, problem):
    error = fault(lines(tmp_path, {"text": "Jan here", "entities": entities}))

    assert error.message.startswith(f"{tmp_path / 't.jsonl'}: line 1: ")
    assert problem in error.message
    assert "count the characters of the text from 0" in error.hint


def test_entities_that_touch_do_not_overlap(tmp_path):
    entities = [{"start": 2, "end": 3, "label": 1}, {"start": 0, "end": 2, "label": 1}]

    assert pairs(lines(tmp_path, {"text": "北京市", "entities": entities})) == [
        [("北", "B-1"), ("京", "I-1"), ("市", "B-1")]
    ]


@pytest.mark.parametrize("line", ["{", "[", "[1]", "3", '{"tokens": [}'])
def test_lines_that_are_no_objects_are_faults(tmp_path, line):
    path = write(tmp_path, "t.jsonl", line + '\n{"tokens": ["a"], "labels": ["O"]}\n')

    bad, good = rows(path)

    assert bad.fault.line == 1
    assert bad.fault.message.count("line ") == 1
    assert good.tokens == ("a",)


def test_objects_without_tokens_are_refused_with_all_that_may_be(tmp_path):
    path = lines(tmp_path, {"sentence": "a", "label": "O"})

    with pytest.raises(CorpusError) as caught:
        opened(path)
    assert caught.value.message.endswith(
        "line 1: found the fields 'sentence', 'label'; expected lists 'tokens' and 'labels', "
        "a text 'text' and a list 'entities', or texts 'text' and 'label'"
    )
    assert "--text-column" in caught.value.hint
    with pytest.raises(CorpusError, match="expected a list 'tokens' or a text 'text'") as caught:
        opened(path, with_tags=False)
    assert caught.value.hint == "name the field of tokens or of the text with --text-column"


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_a_file_without_rows_has_none(tmp_path, content):
    for name in ("t.jsonl", "t.conll", "t.tsv"):
        assert rows(write(tmp_path, name, content)) == []


# Tables


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("", ()),
        ("a  b ", ("a", "b")),
        ("a\u00a0b\u3000c d", ("a\u00a0b\u3000c", "d")),
        ("a\nb\tc", ("a", "b", "c")),
        ("['a', 'b c', \"d'e\"]", ("a", "b c", "d'e")),
        ('["a", "\\u00e9", "\\/", "\\ud83d\\ude00"]', ("a", "é", "/", "😀")),
        ("['a' 'b'\n 'c']", ("a", "b", "c")),
        (r"['\'', '\\', '\u00e9']", ("'", "\\", "é")),
        ("[]", ()),
        ("[1]", ("[1]",)),
        ("[ a ]", ("[", "a", "]")),
        ("['a', None]", ("['a',", "None]")),
        ("['a''b']", ("['a''b']",)),
        ("[['a']]", ("[['a']]",)),
        (r"['\ud800']", (r"['\ud800']",)),
        (r"['\d']", (r"['\d']",)),
    ],
)
def test_a_cell_is_split_at_spaces_or_a_list(cell, expected):
    assert split_cell(cell) == expected


@pytest.mark.parametrize("cell", ["[3, 0]", "[3 0]", '["3", 0]', "3 0"])
def test_numbers_may_be_a_list_of_tags(cell):
    assert split_cell(cell, with_numbers=True) == ("3", "0")


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_a_cell_gives_back_what_was_written_into_it(items):
    cell = join_cell(items)

    assert split_cell(cell) == tuple(items)
    assert not set(cell) & set("\t\r\n")


def test_unequal_numbers_are_a_fault_that_names_both(tmp_path):
    path = write(tmp_path, "t.tsv", "text\tlabel\na b c\tO O\n")

    error = fault(path)

    assert error.message == f"{path}: line 2: found 2 tags for 3 tokens"
    assert error.hint == "give every token one tag"


def test_bad_rows_keep_their_place(tmp_path):
    path = write(tmp_path, "t.tsv", "id\ttext\n1\ta\n2\n3\tb\n4\n")

    found = rows(path, with_tags=False)

    assert [row.line for row in found] == [2, 3, 4, 5]
    assert [row.fault is None for row in found] == [True, False, True, False]


# What is claimed


@pytest.mark.parametrize(
    ("name", "content", "options", "reason"),
    [
        ("t.conll", "", {}, "a file of columns"),
        ("t.bio.gz", "", {}, "a file of columns"),
        ("t.txt", "a O", {"format": "conll"}, "a file of columns"),
        ("t.jsonl", '{"tokens": [], "labels": []}', {}, "lists 'tokens' and 'labels'"),
        (
            "t.jsonl",
            '\n{"w": ["a"], "t": ["O"]}',
            {"text_column": "w", "label_column": "t"},
            "lists 'w' and 't'",
        ),
        ("t.jsonl", '{"tokens": ["a"], "ner": [0]}', {}, "lists 'tokens' and 'ner'"),
        ("t.jsonl", '{"tokens": ["a"], "ner": [0], "text": "a"}', {}, None),
        ("t.jsonl", '{"tokens": ["a"], "ner": [0, 1]}', {}, None),
        ("t.jsonl", '{"text": "a", "entities": []}', {}, "a list 'entities'"),
        ("t.jsonl", '{"text": "a", "entities": [], "label": "x"}', {}, None),
        ("t.jsonl", '{"text": "a", "label": ["x"]}', {}, None),
        ("t.jsonl", '{"text": "a", "label": "x"}', {}, None),
        ("t.jsonl", "no", {}, None),
        ("t.jsonl", "", {}, None),
        ("t.tsv", "text\tlabel\na b\tO O\n", {}, None),
        ("t.dat", "a O", {}, None),
    ],
)
def test_files_that_show_tagged_tokens_are_claimed(tmp_path, name, content, options, reason):
    assert claim(write(tmp_path, name, content), Finetune(**options)) == reason


@FIXTURE
@given(
    st.lists(
        st.lists(st.text("ab#é北 \u3000", min_size=1), min_size=1, max_size=4),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from(["t.conll", "t.jsonl", "t.tsv"]),
)
def test_tokens_in_are_tokens_out(tmp_path, sentences, name):
    if name == "t.conll":
        content = "\n".join("".join(f"{one}\tO\n" for one in tokens) for tokens in sentences)
    elif name == "t.jsonl":
        content = "".join(json.dumps({"tokens": tokens}) + "\n" for tokens in sentences)
    else:
        content = "text\n" + "".join(join_cell(tokens) + "\n" for tokens in sentences)
    path = write(tmp_path, name, content)

    found = pairs(write(tmp_path, f"again-{name}", tagged(path)))

    assert found == [[(one, "X") for one in tokens] for tokens in sentences]
