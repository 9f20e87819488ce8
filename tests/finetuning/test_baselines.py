"""Baselines on tables where it is known what they can do."""

import numpy as np
import pytest

from bertpre.config.schema import Finetune
from bertpre.finetuning import baselines
from bertpre.finetuning.baselines import (
    bag_of_words,
    commonest,
    has_no_spaces,
    is_small_enough,
    score_baselines,
)
from bertpre.finetuning.classification import Classification
from bertpre.finetuning.multi_label import MultiLabel
from bertpre.finetuning.plan import read_plan
from bertpre.finetuning.regression import Regression
from bertpre.finetuning.tables import LabelledTable

CLASSES = Classification(names=("a", "b", "c"))
NAMES = MultiLabel(names=("a", "b"))
NUMBERS = Regression(names=("value",))


def table_of(*rows):
    texts, labels = zip(*rows, strict=True)
    return LabelledTable(name="t", texts=texts, labels=labels, lines=tuple(range(1, len(rows) + 1)))


def plan_of(folder, rows, dev=None, test=None, **options):
    paths = {}
    for name, lines in (("train", rows), ("dev", dev), ("test", test)):
        paths[name] = None if lines is None else folder / f"{name}.tsv"
        if lines is not None:
            paths[name].write_text("".join(f"{line}\n" for line in ["text\tlabel", *lines]))
    train = paths.pop("train")
    return read_plan(train, **paths, config=Finetune(**options), seed=0)


def test_the_commonest_is_that_of_the_training_rows(tmp_path):
    plan = plan_of(tmp_path, ["x\tb", "x\tb", "x\ta"], dev=["x\ta", "x\ta", "x\ta", "x\tb"])

    found = score_baselines(plan, Finetune(baseline=False))

    # F1 of b: 1 right of 4 predicted and 1 true = 0.4; of a: 0.
    assert found.keys() == {"majority"}
    assert found["majority"]["dev"]["accuracy"] == 0.25
    assert found["majority"]["dev"]["macro_f1"] == pytest.approx(0.2)
    assert found["majority"]["dev"]["matthews"] == 0.0


def test_of_equally_common_classes_the_first_is_answered():
    (answers,) = commonest(CLASSES, table_of(("x", "c"), ("x", "b")), [table_of(("x", "a"))])

    assert answers.argmax(axis=1).tolist() == [1]


def test_the_commonest_of_several_names_is_the_commonest_cell():
    train = table_of(("x", "a,b"), ("x", "a,b"), ("x", "a"), ("x", ""))

    (answers,) = commonest(NAMES, train, [table_of(("x", ""), ("y", ""))])

    assert answers.tolist() == [[1, 1], [1, 1]]


def test_the_commonest_number_is_the_mean():
    (answers,) = commonest(NUMBERS, table_of(("x", "1"), ("x", "4")), [table_of(("x", "0"))])

    assert answers.tolist() == [[2.5]]


def test_the_bag_of_words_uses_words_of_one_character(tmp_path):
    rows = ["x the\t1", "y the\t0"] * 5
    plan = plan_of(tmp_path, rows, dev=["the x\t1", "the y\t0", "x\t1"], test=rows)

    found = score_baselines(plan, Finetune())["tfidf_linear"]

    assert found["dev"]["accuracy"] == found["test"]["accuracy"] == 1.0


def test_the_bag_of_words_gives_the_same_each_time():
    generator = np.random.default_rng(0)
    rows = [
        (" ".join(map(str, generator.integers(0, 30, 6))), "abc"[generator.integers(0, 3)])
        for _ in range(60)
    ]

    first, second = (
        bag_of_words(CLASSES, table_of(*rows[:40]), [table_of(*rows[40:])])[0] for _ in range(2)
    )

    np.testing.assert_array_equal(first, second)


def test_scripts_without_spaces_are_read_by_characters(tmp_path):
    good, bad = ("今天天气很好", "这本书好看"), ("今天天气很差", "这本书难看")
    rows = [f"{text}啊\t1" for text in good] + [f"{text}啊\t0" for text in bad]
    plan = plan_of(tmp_path, rows * 3, dev=["他的字很好\t1", "他的字很差\t0"])

    assert score_baselines(plan, Finetune())["tfidf_linear"]["dev"]["accuracy"] == 1.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a plain sentence", False), ("看行业谈环境小析 网游", True), ("ไปจองมาแล้วนาจา", True),
     ("ACGT" * 40, True), ("1459 979 921", False), ("한국어 문장 입니다", False), ("", False)],
)  # fmt: skip
def test_spaces_part_words_or_not_by_script_and_length(text, expected):
    assert has_no_spaces([text]) == expected


def test_pairs_are_compared():
    train = LabelledTable(
        name="t",
        texts=("a b c", "d e f", "g h i", "a b d", "c e g", "b d f") * 4,
        pairs=("a b c", "d e f", "g h i", "x y z", "u v w", "p q r") * 4,
        labels=("b", "b", "b", "a", "a", "a") * 4,
        lines=tuple(range(24)),
    )
    held_out = LabelledTable(
        name="d", texts=("h i a", "f d c"), pairs=("h i a", "z u q"), labels=("b", "a"),
        lines=(1, 2),
    )  # fmt: skip

    (scores,) = bag_of_words(CLASSES, train, [held_out])

    assert scores.argmax(axis=1).tolist() == [1, 0]
    assert scores.shape == (2, 3)  # class c has no row and is never the answer


def test_several_names_have_thresholds_of_their_own(tmp_path):
    rows = ["x the\tp,q", "y the\tp", "z the\tq", "w the\t"] * 9
    plan = plan_of(tmp_path, rows, dev=rows, test=rows[:4])

    found = score_baselines(plan, Finetune())["tfidf_linear"]

    assert found["test"]["micro_f1"] == found["dev"]["accuracy"] == 1.0


def test_a_single_name_can_be_scored(tmp_path):
    rows = ["x the\tp", "y the\t"] * 9
    plan = plan_of(tmp_path, rows, dev=rows, task="multi-label")

    assert score_baselines(plan, Finetune())["tfidf_linear"]["dev"]["micro_f1"] == 1.0


def test_numbers_are_predicted_by_ridge_regression(tmp_path):
    rows = ["x the\t1.5", "y the\t2.5", "z the\t7.25"] * 9
    plan = plan_of(tmp_path, rows, dev=rows, task="regression")

    found = score_baselines(plan, Finetune())

    assert found["tfidf_linear"]["dev"]["spearman"] == pytest.approx(1.0)
    assert found["majority"]["dev"]["pearson"] == 0.0


def test_rows_that_are_held_out_are_not_learnt_from(tmp_path):
    # Each text is one word of its own: what has not seen it cannot do better than the commonest.
    rows = [f"word{number}\t{'ab'[number % 2]}" for number in range(40)]
    plan = plan_of(tmp_path, rows, dev_fraction=0.5)

    assert score_baselines(plan, Finetune())["tfidf_linear"]["dev"]["accuracy"] <= 0.6


def test_with_folds_no_row_is_scored_by_what_saw_it(tmp_path):
    # Each text is one word of its own: what has not seen it cannot do better than the commonest.
    rows = [f"word{number}\t{'ab'[number % 2]}" for number in range(40)]
    plan = plan_of(tmp_path, rows, test=rows, folds=4)

    found = score_baselines(plan, Finetune())["tfidf_linear"]

    assert found["dev"]["accuracy"] <= 0.6
    assert found["test"]["accuracy"] == 1.0


def test_a_fold_that_lacks_a_class_can_be_scored(tmp_path):
    plan = plan_of(tmp_path, ["x\ta", "y\ta", "z\ta", "w\tb"], folds=2)

    assert score_baselines(plan, Finetune())["tfidf_linear"]["dev"]["accuracy"] >= 0.5


def test_a_baseline_is_for_tables_up_to_a_size_or_on_request(tmp_path, monkeypatch):
    table = table_of(("1234", "a"), ("5678", "b"))
    plan = plan_of(tmp_path, ["1234\ta", "5678\tb"], dev=["1\ta"])

    monkeypatch.setattr(baselines, "MOST_BASELINE_CHARACTERS", 8)
    assert is_small_enough(table)
    monkeypatch.setattr(baselines, "MOST_BASELINE_CHARACTERS", 7)
    assert not is_small_enough(table)
    assert score_baselines(plan, Finetune()).keys() == {"majority"}
    assert score_baselines(plan, Finetune(baseline=True)).keys() == {"majority", "tfidf_linear"}
    monkeypatch.undo()
    monkeypatch.setattr(baselines, "MOST_BASELINE_ROWS", 1)
    assert not is_small_enough(table)
