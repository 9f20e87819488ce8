"""Scores against values worked out by hand, and baselines on tables where they are known."""

import math

import numpy as np
import pytest

from bertpre.finetuning import scores
from bertpre.finetuning.scores import (
    bag_of_words_baseline,
    count_confusions,
    is_small_enough,
    majority_baseline,
    score,
    score_classes,
)
from bertpre.finetuning.tasks import LabelledTable


def table_of(*rows):
    texts, labels = zip(*rows, strict=True)
    return LabelledTable(name="t", texts=texts, labels=labels, lines=tuple(range(1, len(rows) + 1)))


def test_macro_f1_is_the_mean_over_all_classes():
    targets = np.array([0, 0, 0, 1, 1, 2])
    predicted = np.array([0, 0, 1, 1, 0, 2])

    found = score_classes(predicted, targets, 3)

    # Class 0: 2 right of 3 predicted and 3 true; class 1: 1 of 2 and 2; class 2: 1 of 1 and 1.
    assert found.accuracy == pytest.approx(4 / 6)
    assert found.macro_f1 == pytest.approx((2 / 3 + 1 / 2 + 1) / 3)


def test_a_class_that_is_nowhere_counts_as_zero_without_a_warning():
    found = score_classes(np.array([0, 1]), np.array([0, 1]), 4)

    assert found == (1.0, 0.5)


def test_the_loss_is_the_mean_of_the_true_classes():
    probabilities = np.array([[0.5, 0.5, 0.0001], [0.1, 0.8, 0.1]])

    found = score(np.log(probabilities), np.array([0, 2]))

    assert found.loss == pytest.approx(-(math.log(0.5) + math.log(0.1)) / 2)
    assert found.accuracy == 0.5


def test_confusions_count_true_down_and_predicted_across():
    counts = count_confusions(np.array([0, 1, 1, 2]), np.array([0, 0, 1, 0]), 3)

    assert counts.tolist() == [[1, 1, 1], [0, 1, 0], [0, 0, 0]]


def test_the_majority_is_that_of_the_training_rows():
    train = table_of(("x", "b"), ("x", "b"), ("x", "a"))
    dev = table_of(("x", "a"), ("x", "a"), ("x", "a"), ("x", "b"))

    found = majority_baseline(train, ["a", "b"], {"dev": dev})

    # F1 of b: 1 right of 4 predicted and 1 true = 0.4; of a: 0.
    assert found["dev"].accuracy == 0.25
    assert found["dev"].macro_f1 == pytest.approx(0.2)


def test_the_bag_of_words_uses_words_of_one_character():
    train = table_of(*[("x the", "1"), ("y the", "0")] * 5)
    held_out = table_of(("the x", "1"), ("the y", "0"), ("x", "1"))

    found = bag_of_words_baseline(train, ["0", "1"], {"dev": held_out, "test": train})

    assert found["dev"] == found["test"] == (1.0, 1.0)


def test_the_bag_of_words_gives_the_same_each_time():
    generator = np.random.default_rng(0)
    rows = [
        (" ".join(map(str, generator.integers(0, 30, 6))), str(generator.integers(0, 3)))
        for _ in range(60)
    ]

    first, second = (
        bag_of_words_baseline(table_of(*rows[:40]), ["0", "1", "2"], {"dev": table_of(*rows[40:])})
        for _ in range(2)
    )

    assert first == second


def test_a_baseline_is_for_tables_up_to_a_size(monkeypatch):
    table = table_of(("1234", "a"), ("5678", "b"))

    monkeypatch.setattr(scores, "MOST_BASELINE_CHARACTERS", 8)
    assert is_small_enough(table)
    monkeypatch.setattr(scores, "MOST_BASELINE_CHARACTERS", 7)
    assert not is_small_enough(table)
    monkeypatch.undo()
    monkeypatch.setattr(scores, "MOST_BASELINE_ROWS", 1)
    assert not is_small_enough(table)
