"""Labelled tables: labels, splits, and every fault that a row can have."""

import gzip
import logging

import pytest

from bertpre.config.schema import Finetune
from bertpre.errors import ConfigError, CorpusError
from bertpre.finetuning.tasks import (
    LabelledTable,
    read_table,
    read_task,
    read_texts,
    sort_labels,
    split_rows,
)

CONFIG = Finetune()


def write(folder, name, *rows, header="text\tlabel", end="\n"):
    path = folder / name
    lines = [*([header] if header else []), *rows]
    path.write_text("".join(line + end for line in lines), encoding="utf-8", newline="")
    return path


def table_of(*labels):
    return LabelledTable(
        name="t.tsv",
        texts=tuple(f"text {i}" for i in range(len(labels))),
        labels=labels,
        lines=tuple(range(2, 2 + len(labels))),
    )


def read(train, dev=None, test=None, config=CONFIG, seed=0):
    return read_task(train, dev=dev, test=test, config=config, seed=seed)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["10", "9", "1"], ("1", "9", "10")),
        (["-1", "0.5", "0"], ("-1", "0", "0.5")),
        (["10", "9", "x"], ("10", "9", "x")),
        (["1.0", "2", "1"], ("1", "1.0", "2")),
        (["very bad", "good", "very bad"], ("good", "very bad")),
        (["nan", "1"], ("1", "nan")),
        (["1_0", "9"], ("1_0", "9")),
        (["12345678901234567891", "12345678901234567890"],
         ("12345678901234567890", "12345678901234567891")),
    ],
)  # fmt: skip
def test_labels_sort_as_numbers_only_if_all_are_numbers(labels, expected):
    assert sort_labels(labels) == expected


def test_cells_stay_the_text_that_they_are(tmp_path):
    texts = ["null", "NA", "NaN", "007", "None", "1e5", " two  spaces ", '"unbalanced', "a'b"]
    path = write(tmp_path, "t.tsv", *(f"{text}\t0{i}" for i, text in enumerate(texts)))

    table = read_table(path, CONFIG)

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

    plain, zipped = (read_table(tmp_path / file, CONFIG) for file in (name, f"{name}.gz"))

    assert (plain.texts, plain.labels) == (("fine", "bad"), ("1", "0"))
    assert (zipped.texts, zipped.labels) == (plain.texts, plain.labels)


def test_a_table_without_header_goes_by_numbers(tmp_path):
    path = write(tmp_path, "t.tsv", "1\tfine", "0\tbad", header=None)
    config = Finetune(header=False, text_column=2, label_column=1)

    table = read_table(path, config)

    assert (table.texts, table.labels, table.lines) == (("fine", "bad"), ("1", "0"), (1, 2))


def test_an_unbalanced_quote_does_not_swallow_the_next_rows(tmp_path):
    path = write(tmp_path, "t.tsv", '"so it began\t1', "and went on\t0", 'to "the end\t1')

    assert len(read_table(path, CONFIG)) == 3


def test_a_cell_of_300_kb_is_read(tmp_path):
    path = write(tmp_path, "t.csv", "x" * 300_000 + ",1", "short,0", header="text,label")

    assert len(read_table(path, CONFIG).texts[0]) == 300_000


def test_all_bad_rows_are_named_in_one_message(tmp_path):
    path = write(tmp_path, "t.tsv", "fine\t1", "\t1", "bad\t", "worse\t  ", " \u3000\t0")

    with pytest.raises(CorpusError) as caught:
        read_table(path, CONFIG)

    assert caught.value.message == (
        f"{path}: the text is empty on 2 lines: 3, 6; the label is empty on 2 lines: 4, 5"
    )
    assert "--label-column" in caught.value.hint


def test_ten_bad_rows_are_named_and_the_rest_counted(tmp_path):
    path = write(tmp_path, "t.tsv", "fine\t1", *["text\t"] * 1012)

    with pytest.raises(CorpusError, match=r"on 1,012 lines: 3, 4, .*, 12 and 1,002 more"):
        read_table(path, CONFIG)


def test_one_bad_row_is_a_line(tmp_path):
    path = write(tmp_path, "t.tsv", "fine\t1", "text\t")

    with pytest.raises(CorpusError, match=r"t.tsv: the label is empty on line 3 — mend or remove"):
        read_table(path, CONFIG)


@pytest.mark.parametrize("label", ["a\\tb", "a\\nb", "a\\rb"])
def test_a_label_that_would_break_the_predictions_is_refused(tmp_path, label):
    path = tmp_path / "t.jsonl"
    path.write_text(f'{{"text": "x", "label": "{label}"}}\n{{"text": "y", "label": "c"}}\n')

    with pytest.raises(CorpusError, match=r"the label holds a tab or a line break.* on line 1"):
        read_table(path, CONFIG)


@pytest.mark.parametrize("content", ["", "text\tlabel\n", "\n\n"])
def test_a_table_without_rows_is_an_error(tmp_path, content):
    path = tmp_path / "t.tsv"
    path.write_text(content)

    with pytest.raises(CorpusError, match=r"t.tsv: (has no rows|.*no column)"):
        read_table(path, CONFIG)


def test_a_missing_column_is_named_with_those_that_exist(tmp_path):
    path = write(tmp_path, "t.tsv", "fine\t1", header="text\tsentiment")

    with pytest.raises(CorpusError, match="no column 'label'; found 2 columns: 'text', 'sentimen"):
        read_table(path, CONFIG)


def test_a_comma_file_called_tsv_is_an_error(tmp_path):
    path = write(tmp_path, "t.tsv", "fine,1", header="text,label")

    with pytest.raises(CorpusError, match="no column 'text'; found 1 column: 'text,label'"):
        read_table(path, CONFIG)


def test_text_and_label_must_be_two_columns(tmp_path):
    path = write(tmp_path, "t.tsv", "fine\t1")

    with pytest.raises(ConfigError, match="text_column and label_column are both 'text' — name"):
        read_table(path, Finetune(label_column="text"))


def test_read_texts_keeps_empty_ones_and_needs_no_label(tmp_path):
    path = write(tmp_path, "t.tsv", "1\tone", "2\t", "3\tthree", header="id\ttext")

    assert list(read_texts(path, CONFIG)) == ["one", "", "three"]


def test_classes_come_from_the_training_table_alone(tmp_path):
    train = write(tmp_path, "train.tsv", "a\t3", "b\t1", "c\t2")
    dev = write(tmp_path, "dev.tsv", "a\t2")

    task = read(train, dev=dev)

    assert task.classes == ("1", "2", "3")
    assert (task.dev.labels, task.dev_is_split, task.test) == (("2",), False, None)
    assert task.train.targets(task.classes).tolist() == [2, 0, 1]
    assert list(task.tables()) == ["train", "dev"]


@pytest.mark.parametrize("part", ["dev", "test"])
def test_labels_that_training_lacks_are_named_with_their_rows(tmp_path, part):
    train = write(tmp_path, "train.tsv", "a\t0", "b\t1")
    fine = write(tmp_path, "fine.tsv", "a\t1")
    other = write(tmp_path, "other.tsv", "a\t0", "b\t2", "c\t1.0", "d\t2")

    with pytest.raises(CorpusError) as caught:
        read(train, **{"dev": fine, part: other})

    assert caught.value.message == (
        f"{other}: labels that {train} does not have: '1.0', '2' on 3 lines: 3, 4, 5; "
        "expected one of '0', '1'"
    )
    assert caught.value.hint is not None


def test_one_class_is_an_error(tmp_path):
    train = write(tmp_path, "train.tsv", "a\tyes", "b\tyes")

    with pytest.raises(CorpusError, match="all 2 rows have the label 'yes'; expected two classes"):
        read(train)


@pytest.mark.parametrize("other", ["1.0", "01", "1 "])
def test_labels_that_look_alike_are_two_classes_and_a_warning(tmp_path, caplog, other):
    train = write(tmp_path, "train.tsv", "a\t1", f"b\t{other}", "c\t1", f"d\t{other}")

    task = read(train)

    assert set(task.classes) == {"1", other}
    assert f"{train}: {task.classes[0]!r} and {task.classes[1]!r} are two classes" in caplog.text


def test_plain_labels_give_no_warning(tmp_path, caplog):
    train = write(tmp_path, "train.tsv", "a\t1", "b\t2", "c\t1", "d\t2")

    with caplog.at_level(logging.INFO):
        read(train)

    assert caplog.text == ""


def test_a_split_holds_out_the_share_of_each_class_and_keeps_the_order():
    table = table_of(*["a"] * 60, *["b"] * 30, *["c"] * 10)

    kept, held_out = split_rows(table, ["a", "b", "c"], fraction=0.1, seed=1)

    assert [held_out.labels.count(name) for name in "abc"] == [6, 3, 1]
    assert sorted(kept.lines + held_out.lines) == list(table.lines)
    assert list(kept.lines) == sorted(kept.lines)
    assert list(held_out.lines) == sorted(held_out.lines)
    assert kept.texts[0] == f"text {kept.lines[0] - 2}"


def test_a_split_depends_on_the_seed_alone():
    table = table_of(*["a", "b"] * 50)

    first, again, other = (
        split_rows(table, ["a", "b"], fraction=0.2, seed=seed)[1].lines for seed in (1, 1, 2)
    )

    assert first == again != other


@pytest.mark.parametrize("fraction", [0.01, 0.5, 0.99])
def test_a_class_of_two_rows_is_on_both_sides(fraction):
    table = table_of("a", "a", "b", "b", "b")

    kept, held_out = split_rows(table, ["a", "b"], fraction=fraction, seed=0)

    assert set(kept.labels) == set(held_out.labels) == {"a", "b"}


def test_a_class_of_one_row_is_trained_on_and_named(caplog):
    table = table_of("a", "a", "b", "b", "rare")

    kept, held_out = split_rows(table, ["a", "b", "rare"], fraction=0.5, seed=0)

    assert "rare" in kept.labels
    assert "rare" not in held_out.labels
    assert "t.tsv: classes of one row (1), which are trained on and never held out: 'rare'" in (
        caplog.text
    )


def test_classes_of_one_row_each_cannot_be_split():
    with pytest.raises(CorpusError, match=r"each of the 3 classes has one row.* — give.*--dev"):
        split_rows(table_of("a", "b", "c"), ["a", "b", "c"], fraction=0.1, seed=0)


def test_without_dev_rows_of_the_training_table_are_held_out(tmp_path):
    train = write(tmp_path, "train.tsv", *(f"text {i}\t{i % 2}" for i in range(40)))

    task = read(train, config=Finetune(dev_fraction=0.25))

    assert (len(task.train), len(task.dev), task.dev_is_split) == (30, 10, True)
