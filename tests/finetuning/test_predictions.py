"""The lines of a table of predictions, by the task."""

import numpy as np

from bertpre.finetuning.classification import Classification
from bertpre.finetuning.multi_label import MultiLabel
from bertpre.finetuning.regression import Regression


def test_a_row_is_the_likeliest_class_and_six_places_of_each():
    task = Classification(names=("no", "yes, really"))

    lines = list(task.prediction_lines(np.array([[0.25, 0.75], [1 / 3, 2 / 3]])))

    assert task.prediction_columns() == ["prediction", "no", "yes, really"]
    assert lines == ["yes, really\t0.250000\t0.750000", "yes, really\t0.333333\t0.666667"]


def test_a_row_of_several_names_is_those_over_their_thresholds():
    task = MultiLabel(names=("a", "b"), separator="|", thresholds=(0.4, 0.3))
    outputs = np.array([[0.5, 0.5], [0.1, 0.3], [0.2, 0.1]])

    lines = list(task.prediction_lines(outputs))

    assert task.prediction_columns() == ["prediction", "a", "b"]
    assert [line.split("\t")[0] for line in lines] == ["a|b", "b", ""]


def test_several_models_give_names_above_the_mean_of_their_thresholds():
    first, second, third = (
        MultiLabel(names=("a", "b"), thresholds=thresholds)
        for thresholds in ((0.1, 0.9), (0.5, 0.8), (0.3, 0.1))
    )

    together = first.together([second, third])

    np.testing.assert_allclose(together.thresholds, [0.3, 0.6])  # 0.9 / 3 and 1.8 / 3
    assert (together.names, together.separator) == (first.names, first.separator)


def test_a_number_stands_alone():
    task = Regression(names=("score",))

    lines = list(task.prediction_lines(np.array([[3.14159265], [-1e-7], [123456.0]])))

    assert task.prediction_columns() == ["prediction"]
    assert lines == ["3.14159", "-1e-07", "123456"]


def test_classes_called_as_our_own_columns_get_other_names():
    task = Classification(names=("label", "line", "other", "prediction"))

    assert task.prediction_columns() == [
        "prediction", "probability of label", "probability of line", "other",
        "probability of prediction",
    ]  # fmt: skip
