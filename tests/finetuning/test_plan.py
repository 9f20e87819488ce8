"""What is to be trained: splits, folds, seeds, and requests that contradict each other."""

import pytest

from bertpre.config.schema import Finetune
from bertpre.errors import ConfigError, CorpusError
from bertpre.finetuning.plan import read_plan


def write(folder, name, *rows):
    path = folder / name
    path.write_text("\n".join(["text\tlabel", *rows]) + "\n", encoding="utf-8")
    return path


def read(train, dev=None, test=None, seed=0, **options):
    return read_plan(train, dev=dev, test=test, config=Finetune(**options), seed=seed)


@pytest.fixture
def forty(tmp_path):
    return write(tmp_path, "train.tsv", *(f"text {i}\t{i % 2}" for i in range(40)))


def test_classes_come_from_the_training_table_alone(tmp_path):
    train = write(tmp_path, "train.tsv", "a\t3", "b\t1", "c\t2")
    dev = write(tmp_path, "dev.tsv", "a\t2")

    plan = read(train, dev=dev)

    assert plan.task.names == ("1", "2", "3")
    assert (plan.scored_tables()["dev"].labels, plan.test) == (("2",), None)
    assert list(plan.tables()) == ["train", "dev"]
    (member,) = plan.members
    assert (member.train_rows.tolist(), member.dev_rows) == ([0, 1, 2], None)


@pytest.mark.parametrize("part", ["dev", "test"])
def test_every_table_is_checked_against_the_training_labels(tmp_path, part):
    train = write(tmp_path, "train.tsv", "a\t0", "b\t1")
    other = write(tmp_path, "other.tsv", "a\t2")

    with pytest.raises(CorpusError, match=r"labels that .*train.tsv does not have: '2' on line 2"):
        read(train, **{part: other})


def test_without_dev_rows_of_the_training_table_are_held_out(forty):
    plan = read(forty, dev_fraction=0.25)

    (member,) = plan.members
    assert (len(member.train_rows), len(member.dev_rows)) == (30, 10)
    assert len(plan.scored_tables()["dev"]) == 10
    assert plan.scored_tables()["dev"].labels.count("1") == 5


def test_seeds_share_one_split(forty):
    first, second = read(forty, seeds=2, seed=5).members

    assert (first.name, first.seed, second.name, second.seed) == ("seed-5", 5, "seed-6", 6)
    assert first.dev_rows.tolist() == second.dev_rows.tolist()


def test_folds_are_named_and_score_all_rows(forty):
    plan = read(forty, folds=4)

    assert [member.name for member in plan.members] == ["fold-1", "fold-2", "fold-3", "fold-4"]
    assert sorted(row for member in plan.members for row in member.dev_rows) == list(range(40))
    assert len(plan.scored_tables()["dev"]) == 40


def test_folds_of_several_seeds_are_all_of_their_products(forty):
    members = read(forty, folds=2, seeds=2, seed=3).members

    assert [(member.name, member.seed) for member in members] == [
        ("fold-1-seed-3", 3), ("fold-2-seed-3", 3), ("fold-1-seed-4", 4), ("fold-2-seed-4", 4),
    ]  # fmt: skip


def test_folds_and_a_dev_table_are_refused(forty):
    with pytest.raises(ConfigError, match="--folds and --dev exclude each other"):
        read(forty, dev=forty, folds=2)


def test_more_folds_than_rows_are_refused(tmp_path):
    train = write(tmp_path, "train.tsv", "a\t0", "b\t1", "c\t0")

    with pytest.raises(CorpusError, match="3 rows cannot make 5 folds — pass --folds 3 or less"):
        read(train, folds=5)


def test_classes_that_some_folds_cannot_score_are_named(tmp_path, caplog):
    train = write(tmp_path, "train.tsv", *["a\t0"] * 9, "b\t1")

    read(train, folds=3)

    assert (
        "classes with fewer rows than there are folds (1), so some folds lack them: '1'"
        in caplog.text
    )


def test_a_class_of_one_row_is_trained_on_and_named(tmp_path, caplog):
    train = write(tmp_path, "train.tsv", "a\t0", "b\t0", "c\t1", "d\t1", "e\trare")

    plan = read(train, dev_fraction=0.5)

    assert 4 in plan.members[0].train_rows
    assert (
        "train.tsv: classes with only one row (1), which is trained on and never held out: 'rare'"
        in caplog.text
    )


def test_classes_of_one_row_each_cannot_be_split(tmp_path):
    train = write(tmp_path, "train.tsv", "x\ta", "y\tb", "z\tc")

    with pytest.raises(
        CorpusError, match=r"each of the 3 classes has only one row.* — pass.*--dev"
    ):
        read(train)


def test_too_few_numbers_cannot_be_split(tmp_path):
    train = write(tmp_path, "train.tsv", "x\t1", "y\t2.5")

    with pytest.raises(CorpusError, match=r"train.tsv: 2 rows are too few, so none can be held"):
        read(train, task="regression")


def test_windows_of_pairs_are_refused(forty):
    with pytest.raises(ConfigError, match="long_texts: windows work for single texts only"):
        read(forty, pair_column="other", long_texts="windows")


def test_an_overlap_of_windows_needs_windows(forty):
    with pytest.raises(ConfigError, match="window_overlap: has no effect without windows"):
        read(forty, window_overlap=0.5)
    read(forty, window_overlap=0.5, long_texts="windows")


@pytest.mark.parametrize(
    ("options", "metric"),
    [({}, "accuracy"), ({"metric": "macro_f1"}, "macro_f1"), ({"task": "regression"}, "spearman"),
     ({"task": "multi-label"}, "micro_f1"), ({"metric": "loss"}, "loss")],
)  # fmt: skip
def test_the_metric_goes_by_the_kind_of_label(forty, options, metric):
    assert read(forty, **options).metric == metric


def test_a_metric_of_another_kind_is_refused(forty):
    with pytest.raises(
        ConfigError, match="metric: classification has no spearman; expected one of"
    ):
        read(forty, metric="spearman")


@pytest.mark.parametrize(
    ("name", "value"),
    [("label_smoothing", 0.1), ("class_weights", "balanced"), ("focal_gamma", 2.0)],
)
def test_what_is_for_classes_is_refused_for_numbers(forty, name, value):
    with pytest.raises(
        ConfigError, match=f"{name}: applies to classes only, but the labels are numb"
    ):
        read(forty, task="regression", **{name: value})


def test_single_texts_cannot_be_compared(forty):
    with pytest.raises(ConfigError, match="pooling: compare is for pairs of texts") as caught:
        read(forty, pooling="compare")

    assert "--pair-column" in caught.value.hint
