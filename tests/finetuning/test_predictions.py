"""The lines of a table of predictions, by the kind of the labels."""

import numpy as np

from bertpre.finetuning.labels import Labels
from bertpre.finetuning.predictions import empty_line, prediction_header, prediction_lines


def test_a_row_is_the_likeliest_class_and_six_places_of_each():
    labels = Labels(kind="classification", names=("no", "yes, really"))

    lines = list(prediction_lines(labels, np.array([[0.25, 0.75], [1 / 3, 2 / 3]]), None))

    assert prediction_header(labels) == "prediction\tno\tyes, really"
    assert lines == ["yes, really\t0.250000\t0.750000", "yes, really\t0.333333\t0.666667"]
    assert empty_line(labels) == "\t\t"


def test_a_row_of_several_names_is_those_over_their_thresholds():
    labels = Labels(kind="multi-label", names=("a", "b"), separator="|")
    readings = np.array([[0.5, 0.5], [0.1, 0.3], [0.2, 0.1]])

    lines = list(prediction_lines(labels, readings, np.array([0.4, 0.3])))

    assert prediction_header(labels) == "prediction\ta\tb"
    assert [line.split("\t")[0] for line in lines] == ["a|b", "b", ""]


def test_a_number_stands_alone():
    labels = Labels(kind="regression", names=("score",))

    lines = list(prediction_lines(labels, np.array([[3.14159265], [-1e-7], [123456.0]]), None))

    assert prediction_header(labels) == "prediction"
    assert lines == ["3.14159", "-1e-07", "123456"]
    assert empty_line(labels) == ""


def test_classes_called_as_our_own_columns_get_other_names():
    labels = Labels(kind="classification", names=("label", "line", "other", "prediction"))

    assert prediction_header(labels).split("\t") == [
        "prediction", "probability of label", "probability of line", "other",
        "probability of prediction",
    ]  # fmt: skip
    assert empty_line(labels) == "\t\t\t\t"
