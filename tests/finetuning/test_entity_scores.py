"""Scores of tags against seqeval, scikit-learn and counting by hand."""

import random
import warnings

import numpy as np
import pytest

from bertpre.finetuning.entity_scores import class_rows, count_type_confusions, score_entities
from bertpre.finetuning.schemes import BILOU, BIOS, BMES, IOB1, IOB2, IOBES, PLAIN, SCHEMES
from bertpre.finetuning.task import ClassRow

ENTITY_SCHEMES = [scheme for scheme in SCHEMES.values() if not scheme.is_plain]


def random_sentences(scheme, seed, *, kinds=("X", "Y"), num=60):
    rng = random.Random(seed)
    names = scheme.names(kinds, outside=True)
    true = [[rng.choice(names) for _ in range(rng.randint(1, 6))] for _ in range(num)]
    found = [[tag if rng.random() < 0.7 else rng.choice(names) for tag in tags] for tags in true]
    return true, found


def rates_of_seqeval(true, found, **options):
    from seqeval.metrics import f1_score, precision_score, recall_score

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [rate(true, found, **options) for rate in (precision_score, recall_score, f1_score)]


@pytest.mark.parity
@pytest.mark.parametrize("scheme", [IOB1, IOB2, IOBES, BILOU], ids=lambda scheme: scheme.name)
@pytest.mark.parametrize("seed", range(5))
def test_strict_scores_are_those_of_seqeval(scheme, seed):
    from seqeval import scheme as schemes

    true, found = random_sentences(scheme, seed)

    scores = score_entities(true, found, scheme)

    expected = rates_of_seqeval(true, found, mode="strict", scheme=getattr(schemes, scheme.name))
    assert 0 < scores["f1"] < 1
    assert [scores[name] for name in ("precision", "recall", "f1")] == pytest.approx(expected)


@pytest.mark.parity
@pytest.mark.parametrize("scheme", [IOB1, IOB2, IOBES], ids=lambda scheme: scheme.name)
@pytest.mark.parametrize("seed", range(5))
def test_lenient_scores_are_those_of_seqevals_default(scheme, seed):
    true, found = random_sentences(scheme, seed)

    scores = score_entities(true, found, scheme)

    names = ("lenient_precision", "lenient_recall", "lenient_f1")
    assert [scores[name] for name in names] == pytest.approx(rates_of_seqeval(true, found))


@pytest.mark.parity
def test_rows_of_types_are_those_of_seqeval():
    from seqeval.metrics.v1 import precision_recall_fscore_support
    from seqeval.scheme import IOBES as SEQEVAL_IOBES

    true, found = random_sentences(IOBES, 7, kinds=("X", "Y", "a-b"))

    rows = class_rows(true, found, IOBES)

    expected = precision_recall_fscore_support(true, found, average=None, scheme=SEQEVAL_IOBES)
    assert [row.name for row in rows] == ["X", "Y", "a-b"]
    np.testing.assert_allclose([row[1:] for row in rows], np.transpose(expected), rtol=1e-12)


def test_strict_and_lenient_scores_by_hand():
    true = [["B-X", "I-X", "O", "B-Y"], ["O", "I-X"]]
    found = [["B-X", "I-X", "O", "B-X"], ["B-Y", "I-X"]]

    scores = score_entities(true, found, IOB2)

    # Strict: of two true (the I-X after O is none) and three found, one is right.
    assert scores["precision"] == pytest.approx(1 / 3)
    assert scores["recall"] == pytest.approx(1 / 2)
    assert scores["f1"] == pytest.approx(2 / 5)
    # Lenient: of three true and four found, two are right.
    assert scores["lenient_precision"] == pytest.approx(2 / 4)
    assert scores["lenient_recall"] == pytest.approx(2 / 3)
    assert scores["lenient_f1"] == pytest.approx(4 / 7)
    assert scores["accuracy"] == pytest.approx(4 / 6)


def test_a_prediction_without_its_end_is_right_only_when_lenient():
    scores = score_entities([["B-X", "E-X", "S-X"]], [["B-X", "I-X", "S-X"]], IOBES)

    assert scores["f1"] == pytest.approx(2 / 3)  # as seqeval 1.2.2 says
    assert scores["lenient_f1"] == 1.0


def test_a_type_unknown_to_the_model_is_a_missed_entity():
    scores = score_entities([["B-NEW", "O", "B-X"]], [["O", "O", "B-X"]], IOB2)

    assert (scores["precision"], scores["recall"]) == (1.0, 0.5)


@pytest.mark.parametrize("scheme", ENTITY_SCHEMES, ids=lambda scheme: scheme.name)
def test_no_entities_at_all_give_zero(scheme):
    for true in ([["O", "O"]], [[]], []):
        scores = score_entities(true, true, scheme)

        assert scores.pop("accuracy") == float(true == [["O", "O"]])
        assert set(scores.values()) == {0.0}
        assert class_rows(true, true, scheme) == []


@pytest.mark.parametrize("scheme", [BMES, BIOS], ids=lambda scheme: scheme.name)
def test_schemes_that_seqeval_lacks_are_scored_too(scheme):
    true = [scheme.tags_of(scheme.lenient_spans(["B-X", "I-X", "I-X", "B-X"]), 4)]
    found = [scheme.tags_of(scheme.lenient_spans(["B-X", "I-X", "I-X", "I-X"]), 4)]

    assert score_entities(true, true, scheme)["f1"] == 1.0
    assert score_entities(true, found, scheme)["f1"] == 0.0


@pytest.mark.parametrize("scheme", [IOB2, PLAIN], ids=lambda scheme: scheme.name)
def test_other_numbers_of_tags_are_refused(scheme):
    with pytest.raises(ValueError, match="zip"):
        score_entities([["O", "O"]], [["O"]], scheme)
    with pytest.raises(ValueError, match="zip"):
        score_entities([["O", "O"]], [], scheme)


@pytest.mark.parametrize("tags", ["NV.", "ONV"])
def test_scores_of_plain_tags_are_those_of_scikit_learn(tags):
    from sklearn.metrics import accuracy_score, f1_score

    rng = random.Random(4)
    true = [rng.choices(tags, k=5) for _ in range(20)]
    found = [[tag if rng.random() < 0.6 else rng.choice(tags + "Q") for tag in row] for row in true]
    flat = [[tag for row in rows for tag in row] for rows in (true, found)]
    labels = sorted({*tags, "Q"} - {"O"})

    scores = score_entities(true, found, PLAIN)

    assert scores["accuracy"] == pytest.approx(accuracy_score(*flat))
    for average in ("macro", "micro"):
        expected = f1_score(*flat, labels=labels, average=average, zero_division=0)
        assert scores[f"{average}_f1"] == pytest.approx(expected)
    pairs = [pair for pair in zip(*flat, strict=True) if pair[0] != "O"]
    if "O" in tags:
        expected = accuracy_score(*zip(*pairs, strict=True))
        assert scores["accuracy_without_o"] == pytest.approx(expected)
    else:
        assert "accuracy_without_o" not in scores


def test_plain_tags_of_nothing_give_zero():
    assert set(score_entities([], [], PLAIN).values()) == {0.0}
    assert score_entities([["O"]], [["O"]], PLAIN) == {
        **{"accuracy": 1.0, "macro_f1": 0.0, "micro_f1": 0.0, "accuracy_without_o": 0.0}
    }


def test_rows_of_plain_tags_by_hand():
    rows = class_rows([["N", "N", "V"]], [["N", "V", "V"]], PLAIN)

    assert rows == [
        ClassRow("N", 1.0, 0.5, pytest.approx(2 / 3), 2),
        ClassRow("V", 0.5, 1.0, pytest.approx(2 / 3), 1),
    ]


def test_confusions_of_types_by_hand():
    true = [["B-X", "I-X", "O", "B-Y", "B-Z", "O"]]
    found = [["B-Y", "I-Y", "O", "B-Y", "I-Y", "B-X"]]

    names, counts = count_type_confusions(true, found, IOB2)

    assert names == ("X", "Y", "Z", "no entity")
    # X read as Y; Y and Z missed, as one Y over both; that Y and the last X are spurious.
    assert counts.tolist() == [[0, 1, 0, 0], [0, 0, 0, 1], [0, 0, 0, 1], [1, 1, 0, 0]]


def test_confusions_agree_with_the_scores_of_types():
    true, found = random_sentences(IOB2, 5, kinds=("X", "Y", "Z"))

    names, counts = count_type_confusions(true, found, IOB2)

    for row, is_, name in zip(class_rows(true, found, IOB2), range(3), names, strict=False):
        assert (row.name, row.rows) == (name, counts[is_].sum())
        assert row.precision == pytest.approx(counts[is_, is_] / counts[:, is_].sum())
        assert row.recall == pytest.approx(counts[is_, is_] / counts[is_].sum())


def test_confusions_of_plain_tags_count_tokens():
    names, counts = count_type_confusions([["N", "N", "O"]], [["N", "V", "O"]], PLAIN)

    assert names == ("N", "O", "V")
    assert counts.tolist() == [[1, 0, 1], [0, 1, 0], [0, 0, 0]]
