"""Scores against values worked out by hand, brute force, and scipy."""

import math

import numpy as np
import pytest
from scipy import stats

from bertpre.finetuning.classification import Classification
from bertpre.finetuning.multi_label import MultiLabel, choose_thresholds
from bertpre.finetuning.regression import Regression, correlation
from bertpre.finetuning.scores import count_confusions
from bertpre.finetuning.task import score

CLASSES = Classification(names=("a", "b", "c"))
NAMES = MultiLabel(names=("a", "b"))
NUMBERS = Regression(names=("value",))


def sure_of(classes):
    """Outputs whose likeliest classes are these."""
    return np.eye(3)[classes]


def test_macro_f1_is_the_mean_over_all_classes_and_micro_f1_the_accuracy():
    targets = np.array([0, 0, 0, 1, 1, 2])
    predicted = np.array([0, 0, 1, 1, 0, 2])

    found = CLASSES.scores(sure_of(predicted), targets)

    # Class 0: 2 right of 3 predicted and 3 true; class 1: 1 of 2 and 2; class 2: 1 of 1 and 1.
    assert found["accuracy"] == found["micro_f1"] == pytest.approx(4 / 6)
    assert found["macro_f1"] == pytest.approx((2 / 3 + 1 / 2 + 1) / 3)


def test_a_class_that_is_nowhere_counts_as_zero_without_a_warning():
    found = CLASSES.scores(sure_of([0, 1]), np.array([0, 1]))

    assert (found["accuracy"], found["macro_f1"]) == (1.0, pytest.approx(2 / 3))


def test_matthews_is_the_correlation_of_two_classes():
    targets, predicted = np.array([1, 1, 1, 0, 0, 0]), np.array([1, 1, 0, 0, 0, 1])

    found = CLASSES.scores(sure_of(predicted), targets)

    # (TP TN - FP FN) / sqrt((TP+FP)(TP+FN)(TN+FP)(TN+FN)) = (4 - 1) / 9
    assert found["matthews"] == pytest.approx(1 / 3)


def test_the_loss_is_the_mean_of_the_true_classes():
    outputs = np.array([[0.5, 0.5, 0.0], [0.1, 0.8, 0.1]])

    found = score(CLASSES, outputs, np.array([0, 2]))

    assert found["loss"] == pytest.approx(-(math.log(0.5) + math.log(0.1)) / 2)
    assert found["accuracy"] == 0.5


def test_a_probability_of_zero_gives_a_finite_loss():
    found = score(CLASSES, np.array([[1.0, 0.0, 0.0]]), np.array([1]))

    assert found["loss"] == pytest.approx(-math.log(1e-12))


def test_several_names_are_scored_by_name_and_by_row():
    targets = np.array([[1, 0], [1, 1], [0, 0], [0, 1]], dtype=np.float32)
    outputs = np.array([[0.9, 0.2], [0.8, 0.4], [0.1, 0.6], [0.7, 0.9]])

    found = score(MultiLabel(names=("a", "b"), thresholds=(0.5, 0.5)), outputs, targets)

    # a: 2 hits, 3 given, 2 true, F1 4/5; b: 1 hit, 2 given, 2 true, F1 1/2.
    assert found["macro_f1"] == pytest.approx((4 / 5 + 1 / 2) / 2)
    assert found["micro_f1"] == pytest.approx(2 * 3 / (5 + 4))
    assert found["accuracy"] == 1 / 4
    shares = [0.9, 0.8, 0.8, 0.4, 0.9, 0.4, 0.3, 0.9]
    assert found["loss"] == pytest.approx(-np.log(shares).mean())


def test_thresholds_are_as_good_as_any():
    generator = np.random.default_rng(0)
    targets = (generator.random((200, 3)) < [0.2, 0.5, 0.01]).astype(np.float32)
    outputs = np.clip(0.3 * targets + generator.random((200, 3)) * 0.7, 0, 1).round(2)

    found = choose_thresholds(outputs, targets)

    def f1(threshold, values, true):
        given = values >= threshold
        return 2 * (given * true).sum() / max(given.sum() + true.sum(), 1)

    grid = np.linspace(0, 1, 1001)
    for column in (0, 1):
        best = max(f1(t, outputs[:, column], targets[:, column]) for t in grid)
        own = f1(found[column], outputs[:, column], targets[:, column])
        assert own == pytest.approx(best)
    # The third has too few rows: its threshold is the best of all names together.
    assert f1(found[2], outputs, targets) == pytest.approx(
        max(f1(t, outputs, targets) for t in grid)
    )


def test_names_that_no_row_has_get_a_threshold_of_a_half():
    assert choose_thresholds(np.full((3, 2), 0.9), np.zeros((3, 2))) == [0.5, 0.5]


def test_decisions_follow_the_task():
    outputs = np.array([[0.2, 0.7], [0.6, 0.3]])

    def decided(task):
        return [line.split("\t")[0] for line in task.prediction_lines(outputs)]

    assert decided(Classification(names=("a", "b"))) == ["b", "a"]
    assert decided(MultiLabel(names=("a", "b"), thresholds=(0.5, 0.3))) == ["b", "a,b"]
    assert decided(NUMBERS) == ["0.2", "0.6"]


def test_numbers_are_scored_as_scipy_does():
    generator = np.random.default_rng(1)
    true = generator.integers(0, 9, 60).astype(np.float32)[:, None]
    found = true + generator.normal(0, 3, (60, 1)).round(0)

    scores = score(NUMBERS, found, true)

    assert scores["spearman"] == pytest.approx(stats.spearmanr(found[:, 0], true[:, 0]).statistic)
    assert scores["pearson"] == pytest.approx(stats.pearsonr(found[:, 0], true[:, 0]).statistic)
    assert scores["rmse"] == pytest.approx(math.sqrt(scores["loss"]))
    assert scores["loss"] == pytest.approx(((found - true) ** 2).mean())


def test_what_does_not_vary_correlates_with_nothing():
    assert correlation(np.ones(5), np.arange(5.0)) == 0.0


def test_each_class_has_a_row():
    targets, predicted = np.array([0, 0, 0, 1]), np.array([0, 0, 1, 1])

    rows = CLASSES.class_rows(sure_of(predicted), targets)

    assert rows == [
        ("a", 1.0, pytest.approx(2 / 3), pytest.approx(0.8), 3),
        ("b", 0.5, 1.0, pytest.approx(2 / 3), 1),
        ("c", 0.0, 0.0, 0.0, 0),
    ]
    assert NUMBERS.class_rows(np.zeros((1, 1)), np.zeros((1, 1))) == []


def test_confusions_count_true_down_and_predicted_across():
    counts = count_confusions(np.array([0, 1, 1, 2]), np.array([0, 0, 1, 0]), 3)

    assert counts.tolist() == [[1, 1, 1], [0, 1, 0], [0, 0, 0]]
