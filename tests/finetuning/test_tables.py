"""Labelled tables: every form that one can have, and every fault that a row can have."""

import gzip
import json
import os

import pytest

from bertpre.config.schema import Finetune
from bertpre.corpus.files import STDIN
from bertpre.errors import ConfigError, CorpusError
from bertpre.finetuning.classification import Classification
from bertpre.finetuning.multi_label import split_names
from bertpre.finetuning.reading import read_table, read_train_table
from bertpre.finetuning.tables import read_texts

CONFIG = Finetune()
SKIP = Finetune(on_bad_rows="skip")


def write(folder, name, *rows, header="text\tlabel", end="\n"):
    path = folder / name
    lines = [*([header] if header else []), *rows]
    path.write_text("".join(line + end for line in lines), encoding="utf-8", newline="")
    return path


def read(path, config=CONFIG):
    return read_train_table(path, config)[0]


def test_cells_stay_the_text_that_they_are(tmp_path):
    texts = ["null", "NA", "NaN", "007", "None", "1e5", " two  spaces ", '"unbalanced', "a'b"]
    path = write(tmp_path, "t.tsv", *(f"{text}\t0{i}" for i, text in enumerate(texts)))

    table = read(path)

    assert table.texts == tuple(texts)
    assert table.labels == tuple(f"0{i}" for i in range(len(texts)))
    assert table.lines == tuple(range(2, 2 + len(texts)))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("bom.tsv", b"\xef\xbb\xbftext\tlabel\nfine\t1\nbad\t0\n"),
        ("crlf.tsv", b"text\tlabel\r\nfine\t1\r\nbad\t0"),
        ("blank_end.tsv", b"text\tlabel\nfine\t1\nbad\t0\n\n\n\r\n"),
        ("columns.tsv", b"id\tlabel\textra\ttext\n1\t1\tx\tfine\n2\t0\t\tbad\n"),
        ("quoted.csv", b'label,text\n1,"fine"\n"0",bad\n'),
        ("numbers.jsonl", b'{"label": 1, "text": "fine"}\n{"text": "bad", "label": 0}\n'),
    ],
)
def test_forms_of_one_table_read_alike(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content))

    plain, zipped = (read(tmp_path / file) for file in (name, f"{name}.gz"))

    assert (plain.texts, plain.labels) == (("fine", "bad"), ("1", "0"))
    assert (zipped.texts, zipped.labels) == (plain.texts, plain.labels)


def test_a_table_without_header_goes_by_numbers(tmp_path):
    path = write(tmp_path, "t.tsv", "1\tfine", "0\tbad", header=None)

    table = read(path, Finetune(header=False, text_column=2, label_column=1))

    assert (table.texts, table.labels, table.lines) == (("fine", "bad"), ("1", "0"), (1, 2))


def test_pairs_have_two_columns_of_text_of_which_one_may_be_empty(tmp_path):
    path = write(tmp_path, "t.tsv", "a\t\t1", "\tb\t0", "c\td\\te\t1", header="text\tother\tlabel")

    table = read(path, Finetune(pair_column="other"))

    assert (table.texts, table.pairs) == (("a", "", "c"), ("", "b", "d\\te"))


def test_a_pair_of_two_empty_texts_is_a_bad_row(tmp_path):
    path = write(tmp_path, "t.tsv", "a\tb\t1", " \t\t0", header="text\tother\tlabel")

    with pytest.raises(CorpusError, match=r"t.tsv: both texts are empty on line 3 — fix"):
        read(path, Finetune(pair_column="other"))


def test_an_unbalanced_quote_does_not_swallow_the_next_rows(tmp_path):
    path = write(tmp_path, "t.tsv", '"so it began\t1', "and went on\t0", 'to "the end\t1')

    assert len(read(path)) == 3


def test_an_unbalanced_quote_in_csv_is_an_error_at_its_row(tmp_path):
    rows = ("a,1", '"so it began,0', "and went on,1")
    path = write(tmp_path, "t.csv", *rows, header="text,label")

    with pytest.raises(CorpusError, match=r"t.csv: line 3: not valid csv .* --quoting none"):
        read(path)
    assert read(path, Finetune(quoting="none")).texts[1] == '"so it began'


def test_a_cell_of_300_kb_is_read(tmp_path):
    path = write(tmp_path, "t.csv", "x" * 300_000 + ",1", "short,0", header="text,label")

    assert len(read(path).texts[0]) == 300_000


def test_another_encoding_is_stated(tmp_path):
    path = tmp_path / "t.tsv"
    path.write_bytes("text\tlabel\n好的\t1\n坏的\t0\n".encode("gb18030"))

    with pytest.raises(CorpusError, match=r"line 2, byte 1 .*most likely --encoding gb18030"):
        read(path)
    assert read(path, Finetune(encoding="gb18030")).texts == ("好的", "坏的")


def test_bad_bytes_are_replaced_on_request_and_counted(tmp_path, caplog):
    path = tmp_path / "t.tsv"
    path.write_bytes(b"text\tlabel\na\xffb\t1\nc\t0\n")

    assert read(path, Finetune(on_bad_bytes="replace")).texts[0] == "a\ufffdb"
    assert "t.tsv: 1 byte sequences are not valid utf-8" in caplog.text


def test_all_bad_rows_are_named_in_one_message(tmp_path):
    path = write(tmp_path, "t.tsv", "fine\t1", "\t1", "bad\t", "worse\t  ", " \u3000\t0", "lonely")

    with pytest.raises(CorpusError) as caught:
        read(path)

    assert caught.value.message == (
        f"{path}: the text is empty on 2 lines: 3, 6; the label is empty on 2 lines: 4, 5; "
        "found 1 column, expected at least 2: 'lonely' on line 7"
    )
    assert "--on-bad-rows skip" in caught.value.hint


def test_ten_bad_rows_are_named_and_the_rest_counted(tmp_path):
    path = write(tmp_path, "t.tsv", "fine\t1", *["text\t"] * 1012)

    with pytest.raises(CorpusError, match=r"on 1,012 lines: 3, 4, .*, 12 and 1,002 more"):
        read(path)


def test_five_kinds_of_problem_are_told_and_the_rest_counted(tmp_path):
    path = write(tmp_path, "t.tsv", "fine\t1", *(f"lonely {number}" for number in range(7)))

    with pytest.raises(CorpusError, match=r"'lonely 4' on line 7; and 2 more kinds of problem —"):
        read(path)


def test_bad_rows_are_left_out_on_request_and_said(tmp_path, caplog):
    path = write(tmp_path, "t.tsv", "fine\t1", "\t1", "bad\t", "x\ty\tz", "poor\t0")

    table = read(path, SKIP)

    assert (table.texts, table.lines, table.num_skipped) == (("fine", "poor"), (2, 6), 3)
    assert f"3 of 5 rows skipped: {path}: the text is empty on line 3; the label is" in caplog.text


def test_a_table_of_bad_rows_alone_is_an_error_even_so(tmp_path):
    path = write(tmp_path, "t.tsv", "\t1", "bad\t")

    with pytest.raises(
        CorpusError, match="the text is empty on line 2; the label is empty on line"
    ):
        read(path, SKIP)


@pytest.mark.parametrize("label", ["a\\tb", "a\\nb", "a\\rb"])
def test_a_label_that_would_break_the_predictions_is_refused(tmp_path, label):
    path = tmp_path / "t.jsonl"
    path.write_text(f'{{"text": "x", "label": "{label}"}}\n{{"text": "y", "label": "c"}}\n')

    with pytest.raises(CorpusError, match=r"the label contains a tab or a line break.* on line 1"):
        read(path)


@pytest.mark.parametrize("content", ["", "text\tlabel\n", "\n\n"])
def test_a_table_without_rows_is_an_error(tmp_path, content):
    path = tmp_path / "t.tsv"
    path.write_text(content)

    with pytest.raises(CorpusError, match=r"t.tsv: (has no rows|.*no column)"):
        read(path)


def test_a_missing_column_is_named_with_those_that_exist(tmp_path):
    path = write(tmp_path, "t.tsv", "fine\t1", header="text\tsentiment")

    with pytest.raises(CorpusError, match="no column 'label'; found 2 columns: 'text', 'sentimen"):
        read(path)


def test_a_comma_file_called_tsv_is_an_error(tmp_path):
    path = write(tmp_path, "t.tsv", "fine,1", header="text,label")

    with pytest.raises(CorpusError, match="no column 'text'; found 1 column: 'text,label'"):
        read(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label_column": "text"}, "text_column and label_column are both 'text' — choose the"),
        ({"pair_column": "text"}, "text_column and pair_column are both 'text'"),
        ({"pair_column": "label"}, "pair_column and label_column are both 'label'"),
    ],
)
def test_each_column_is_another(tmp_path, options, message):
    path = write(tmp_path, "t.tsv", "fine\t1")

    with pytest.raises(ConfigError, match=message):
        read(path, Finetune(**options))


def test_a_list_of_labels_in_jsonl_is_several_names(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text(
        '{"text": "x", "label": ["joy", "calm"]}\n{"text": "y", "label": []}\n'
        '{"text": "z", "label": [3]}\n{"text": "w", "label": ["joy"]}\n'
        '{"text": "v", "label": ["calm"]}\n'
    )

    table, labels, _ = read_train_table(path, Finetune(task="multi-label"))

    assert (labels.name, labels.names) == ("multi-label", ("3", "calm", "joy"))
    assert table.labels == ("joy,calm", "", "3", "joy", "calm")


@pytest.mark.parametrize(
    ("labels", "kind", "names"),
    [
        ([1.0, 2.0, 1.0, 2.0], "classification", ("1", "2")),
        ([0.25, 1.5, 2.75, 3.0], "regression", ("label",)),
        ([["joy"], ["joy", "fear"], ["fear"], []], "multi-label", ("fear", "joy")),
    ],
)
def test_labels_in_parquet_are_what_they_would_be_as_text(tmp_path, labels, kind, names):
    pyarrow = pytest.importorskip("pyarrow", reason="needs the extra parquet")
    from pyarrow import parquet

    path = tmp_path / "t.parquet"
    parquet.write_table(pyarrow.table({"text": list("abcd"), "label": labels}), path)

    found = read_train_table(path, CONFIG)[1]

    assert (found.name, found.names) == (kind, names)


@pytest.mark.parametrize(
    ("task", "kind", "reason"),
    [
        ("auto", "regression", "4 distinct numbers, not all integers"),
        ("classification", "classification", "set by --task"),
    ],
)
def test_the_task_is_found_or_told(tmp_path, task, kind, reason):
    path = write(tmp_path, "t.tsv", "a\t0.5", "b\t2", "c\t1.25", "d\t-3")

    _, labels, found_reason = read_train_table(path, Finetune(task=task))

    assert (labels.name, found_reason) == (kind, reason)


@pytest.mark.parametrize(
    ("labels", "task", "is_said"),
    [
        (["joy", "joy,fear"], "auto", True),
        (["Paris, France", "Lyon, France"], "auto", True),
        (["joy", "fear"], "auto", False),
        (["joy", "fear", "joy,fear"], "auto", False),  # several names, as the summary says
        (["joy", "joy,fear"], "classification", False),
    ],
)
def test_separators_inside_the_names_of_classes_are_said(tmp_path, caplog, labels, task, is_said):
    path = write(tmp_path, "t.tsv", *(f"x\t{label}" for label in labels))

    read(path, Finetune(task=task))

    shown = min(label for label in labels if "," in label) if is_said else ""
    assert is_said == (
        f"t.tsv: each label that contains ',', such as {shown!r}, is taken as the name of one "
        "class; if they are lists of names, pass --task multi-label; if that is right, pass"
        in caplog.text
    )


def test_labels_that_are_no_numbers_are_bad_rows_of_a_regression(tmp_path):
    path = write(tmp_path, "t.tsv", "a\t0.5", "b\ttwo", "c\tinf", "d\t3")

    with pytest.raises(
        CorpusError,
        match=r"t.tsv: the label 'two' is not a number on line 3; the label 'inf' is not a number "
        r"on line 4 — .*; or pass --task classification if the labels are class names",
    ):
        read(path, Finetune(task="regression"))


def test_labels_that_training_lacks_are_named_with_their_rows(tmp_path):
    other = write(tmp_path, "other.tsv", "a\t0", "b\t2", "c\t1.0", "d\t2")
    task = Classification(names=("0", "1"))

    with pytest.raises(CorpusError) as caught:
        read_table(other, CONFIG, task, part="dev", train_name="train.tsv")

    assert caught.value.message == (
        f"{other}: labels that train.tsv does not have: '1.0', '2' on 3 lines: 3, 4, 5; "
        "expected one of '0', '1'"
    )
    assert "--on-bad-rows skip" in caught.value.hint


def test_labels_that_training_lacks_are_left_out_on_request(tmp_path, caplog):
    other = write(tmp_path, "other.tsv", "a\t0", "b\t2", "\t1", "d\t1")
    task = Classification(names=("0", "1"))

    table = read_table(other, SKIP, task, part="dev", train_name="train.tsv")

    assert (table.texts, table.num_skipped) == (("a", "d"), 2)
    assert "labels that train.tsv does not have: '2' on line 3: skipped" in caplog.text


def test_read_texts_keeps_empty_ones_and_needs_no_label(tmp_path):
    path = write(tmp_path, "t.tsv", "1\tone", "2\t", "3\tthree", header="id\ttext")

    assert [row.cells for row in read_texts(path, CONFIG)] == [("one",), ("",), ("three",)]


def test_standard_input_has_no_name_to_tell_its_form():
    with pytest.raises(
        ConfigError, match=r"standard input: the format is unknown.*— set it with --format"
    ):
        list(read_texts(STDIN, CONFIG))


def test_a_labelled_table_is_no_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")

    for path, name in (("-", "standard input"), (tmp_path / "pipe", "pipe")):
        with pytest.raises(ConfigError, match=rf"{name}: expected a file, since .*"):
            read(path, Finetune(format="tsv"))


@pytest.mark.parametrize("others", [[], ["c"]])
def test_lists_are_several_names_whatever_they_hold(tmp_path, others):
    path = tmp_path / "t.jsonl"
    labels = [["a"], ["b", "d"], [], *others]
    path.write_text("".join(json.dumps({"text": "x", "label": label}) + "\n" for label in labels))

    table, found, reason = read_train_table(path, Finetune())

    assert (found.name, reason) == ("multi-label", "lists of names")
    assert [split_names(cell, found.separator) for cell in table.labels[:3]] == [
        ["a"],
        ["b", "d"],
        [],
    ]


def test_decimal_commas_are_named_as_what_they_may_be(tmp_path, caplog):
    rows = (f"x\t0,{number}" for number in range(10, 40))

    _, labels, _ = read_train_table(write(tmp_path, "t.tsv", *rows), Finetune())

    assert labels.name == "classification"
    assert "if they are numbers, replace the decimal commas by points" in caplog.text
