"""What label cells mean: found from how they look, sorted, and turned into targets."""

import logging

import numpy as np
import pytest

from bertpre.config.schema import Finetune
from bertpre.errors import CorpusError, DataFormatError
from bertpre.finetuning.labels import sort_labels
from bertpre.finetuning.multi_label import MultiLabel
from bertpre.finetuning.registry import TASKS, find_task, member_folders, task_class, task_of
from bertpre.finetuning.regression import Regression
from bertpre.finetuning.tables import LabelledTable


def make(*cells, kind="classification"):
    config = Finetune(task=kind, label_column="score")
    lines = tuple(range(2, 2 + len(cells)))
    table = LabelledTable(name="t.tsv", texts=cells, labels=cells, lines=lines)
    return task_class(kind).learn(table, config=config)


def find_kind(cells, *, separator):
    task, reason = find_task(cells, separator=separator)
    return task.name, reason


def test_the_schema_and_the_table_of_tasks_name_the_same():
    annotation = Finetune.__annotations__["task"]

    assert set(annotation.__args__) == {"auto", *TASKS}
    assert all(task_class(name).name == name for name in TASKS)


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


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["yes", "no"] * 9, "classification"),
        ([str(number) for number in range(90)], "classification"),
        (["1.0", "2.0", "3.0"] * 9, "classification"),
        (["0.5", "1.0", "1.5", "2.0"] * 9, "classification"),
        ([f"{number / 7:.3f}" for number in range(90)], "regression"),
        (["0.25", "1e-3", "4", "-2.5"], "regression"),
        (["joy", "anger", "joy,anger", "joy"], "multi-label"),
        (["3", "1", "1,3", "", "3 , 1"], "multi-label"),
        (["Paris, France", "London, UK", "Paris, France"], "classification"),
        (["a,", "b", "a"], "classification"),
        (["", ""], "classification"),
    ],
)
def test_the_kind_is_found_from_the_labels(cells, kind):
    assert find_kind(cells, separator=",")[0] == kind


def test_one_bad_cell_does_not_make_names_of_numbers():
    numbers = [f"0.{number:03}" for number in range(100)]

    for bad in ("nan", "0,5", "N/A", "inf"):
        assert find_kind([*numbers, bad], separator=",")[0] == "regression"
    assert find_kind(["1.0", "1.1", "2.0", "beta"] * 20, separator=",")[0] == "classification"


def test_the_reason_for_a_kind_is_in_words():
    assert find_kind(["a", "b", "b,a"], separator=",")[1] == "cells such as 'b,a'"
    assert find_kind(["0.5", "0.25", "1"], separator=",")[1] == (
        "3 distinct numbers, not all integers"
    )
    assert find_kind(["0", "1"], separator=",")[1] == "numbers used as class names"


@pytest.mark.parametrize(
    ("cell", "kind", "fault"),
    [
        ("", "classification", "the label is empty"),
        (" \u3000", "regression", "the label is empty"),
        ("", "multi-label", None),
        ("3,5", "regression", "the label '3,5' is not a number"),
        ("nan", "regression", "the label 'nan' is not a number"),
        ("1e999", "regression", "the label '1e999' is not a number"),
        ("1_0", "regression", "the label '1_0' is not a number"),
        ("-1e300", "regression", "the label '-1e300' is larger than 1e+18"),
        (" -1.5e3 ", "regression", None),
        ("a\nb", "classification", "the label contains a tab or a line break, which a "
         "prediction table cannot hold"),
        ("a,,b", "multi-label", "the label has an empty name before or after a ','"),
        ("a,b", "multi-label", None),
    ],
)  # fmt: skip
def test_a_cell_is_judged_by_its_kind(cell, kind, fault):
    assert task_class(kind).cell_fault(cell, separator=",") == fault


def test_classes_become_numbers():
    labels = make("b", "a", "b")

    assert labels.names == ("a", "b")
    assert labels.targets(["b", "a"]).tolist() == [1, 0]
    assert labels.unknown(["c", "a"]) == [["c"], []]


def test_several_names_become_ones():
    labels = make("10, 9", "", "9", kind="multi-label")

    assert labels.names == ("9", "10")
    assert labels.targets(["10,9", "", "10,10"]).tolist() == [[1, 1], [0, 0], [0, 1]]
    assert labels.unknown(["9,8,7", ""]) == [["8", "7"], []]


def test_numbers_stay_numbers():
    labels = make("1", "2.5", kind="regression")

    assert labels.names == ("score",)
    assert labels.targets(["1", "-2e1"]).tolist() == [[1.0], [-20.0]]
    assert labels.unknown(["7"]) == [[]]


@pytest.mark.parametrize(
    ("cells", "kind", "message"),
    [
        (["yes", "yes"], "classification", "t.tsv: all 2 rows have the label 'yes'; expected at"),
        (["", ""], "multi-label", "t.tsv: none of the 2 rows has a label"),
        (["2", "2.0"], "regression", "t.tsv: all 2 rows have the value 2; expected diffe"),
    ],
)
def test_labels_from_which_nothing_can_be_learnt_are_refused(cells, kind, message):
    with pytest.raises(CorpusError, match=message) as caught:
        make(*cells, kind=kind)

    assert "--label-column" in caught.value.hint


@pytest.mark.parametrize("other", ["1.0", "01", "1 "])
def test_labels_that_look_alike_are_two_classes_and_a_warning(caplog, other):
    labels = make("1", other)

    assert set(labels.names) == {"1", other}
    assert f"t.tsv: {labels.names[0]!r} and {labels.names[1]!r} are two classes" in caplog.text


def test_plain_labels_give_no_warning(caplog):
    with caplog.at_level(logging.INFO):
        make("1", "2", "1")

    assert caplog.text == ""


def test_strata_are_classes_rarest_names_or_tenths():
    names = MultiLabel(names=("a", "b", "c"))
    numbers = Regression(names=("value",))

    assert make("b", "a").strata(["b", "a", "b"]).tolist() == [1, 0, 1]
    assert names.strata(["a", "a,b", "", "a,b,c", "a"]).tolist() == [1, 2, 0, 3, 1]
    strata = numbers.strata([str(99 - number) for number in range(100)])
    assert np.bincount(strata).tolist() == [10] * 10
    assert (strata[0], strata[99]) == (9, 0)


def test_a_model_folder_says_what_its_outputs_are(tmp_path):
    manifest = {
        "task": "multi-label",
        "classes": ["a", "b"],
        "options": {"label_separator": "|"},
    }

    assert task_of(tmp_path, manifest) == MultiLabel(names=("a", "b"), separator="|")
    assert member_folders(tmp_path, manifest) == [tmp_path]
    assert member_folders(tmp_path, {"members": ["seed-0"]}) == [tmp_path / "seed-0"]
    with pytest.raises(
        DataFormatError, match=r"an older bertpre wrote this model.*fine-tune it ag"
    ):
        task_of(tmp_path, {"classes": ["a", "b"]})


def test_a_task_that_does_not_exist_is_refused_by_name(tmp_path):
    with pytest.raises(DataFormatError, match=r"task 'classificauion' .*expected one of classifi"):
        task_of(tmp_path, {"task": "classificauion", "classes": ["a", "b"], "options": {}})
