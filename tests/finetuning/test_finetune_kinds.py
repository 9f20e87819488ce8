"""Fine-tuning beyond one class a row: pairs, several names, numbers, windows, seeds and folds."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from bertpre.artefacts import check_files, read_manifest
from bertpre.config.schema import Finetune
from bertpre.errors import CheckpointError, ConfigError
from bertpre.finetuning.finetune import finetune
from bertpre.finetuning.results import MemberStart
from bertpre.finetuning.running import Placement, Run, load_finetuned, run_model
from bertpre.inference.predict import predict

SUBJECTS = ("the cat", "a dog", "our teacher")
VERBS = ("sees", "follows", "likes", "paints")

CPU = Placement(torch.device("cpu"), "fp32")


def write(path, header, rows):
    lines = ["\t".join(header), *("\t".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def rows_of(path):
    return [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """Texts of two subjects, each of which is a name; 48 rows."""
    rows = []
    for number in range(48):
        chosen = [subject for bit, subject in enumerate(SUBJECTS) if number >> bit & 1]
        text = " and ".join([VERBS[number % 4], *chosen]) + f" the river {number % 3}"
        rows.append((text, "|".join(subject.split()[1] for subject in chosen)))
    return write(tmp_path_factory.mktemp("several") / "t.tsv", ("text", "label"), rows)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """Pairs with a number: how many of the words "the cat" are in the first; 60 rows."""
    rows = [
        (
            f"{'the cat ' * (number % 4)}sees",
            f"{VERBS[number % 3]} a boat",
            100 + 2.5 * (number % 4),
        )
        for number in range(60)
    ]
    path = tmp_path_factory.mktemp("pairs") / "t.tsv"
    return write(path, ("first", "second", "score"), rows)


@pytest.fixture(scope="module")
def names_recipe(recipe):
    return dataclasses.replace(recipe, label_separator="|")


@pytest.fixture(scope="module")
def pairs_recipe(recipe):
    return dataclasses.replace(
        recipe, text_column="first", pair_column="second", label_column="score", task="regression"
    )


@pytest.fixture(scope="module")
def names_model(tmp_path_factory, tiny_checkpoint, several, names_recipe):
    folder = tmp_path_factory.mktemp("names") / "model"
    finetune(
        tiny_checkpoint, train=several, dev=several, test=several, output=folder,
        config=names_recipe,
    )  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def numbers_model(tmp_path_factory, tiny_checkpoint, pairs, pairs_recipe):
    folder = tmp_path_factory.mktemp("numbers") / "model"
    finetune(tiny_checkpoint, train=pairs, test=pairs, output=folder, config=pairs_recipe)
    return folder


@pytest.fixture(scope="module")
def folds_model(tmp_path_factory, tiny_checkpoint, tables, recipe):
    folder = tmp_path_factory.mktemp("folds") / "model"
    finetune(
        tiny_checkpoint, train=tables / "train.tsv", test=tables / "test.tsv", output=folder,
        config=dataclasses.replace(recipe, folds=3, num_epochs=8),
    )  # fmt: skip
    return folder


def test_several_names_are_learnt(names_model):
    metrics = json.loads((names_model / "metrics.json").read_text())
    manifest = read_manifest(names_model, "model")

    assert metrics["test"]["micro_f1"] > 0.9
    assert metrics["test"].keys() == {"accuracy", "macro_f1", "micro_f1", "loss"}
    assert metrics["baselines"]["tfidf_linear"]["test"]["micro_f1"] > 0.9
    assert manifest["classes"] == ["cat", "dog", "teacher"]
    assert manifest["class_counts"]["train"] == {"cat": 24, "dog": 24, "teacher": 24}
    assert len(manifest["thresholds"]) == 3
    assert metrics["per_class"]["test"]["cat"]["rows"] == 24
    assert not (names_model / "confusion_matrix.png").exists()


def test_predictions_of_several_names_use_the_thresholds(tmp_path, names_model, several):
    output = tmp_path / "out.tsv"

    predict(names_model, several, output=output)

    thresholds = read_manifest(names_model, "model")["thresholds"]
    header, *rows = rows_of(output)
    assert header == ["prediction", "cat", "dog", "teacher"]
    for row in rows:
        given = [
            name
            for name, cell, threshold in zip(header[1:], row[1:], thresholds, strict=True)
            if float(cell) >= threshold
        ]
        assert row[0] == "|".join(given)


def test_numbers_are_learnt_in_their_unit(numbers_model, tmp_path, pairs):
    metrics = json.loads((numbers_model / "metrics.json").read_text())

    predict(numbers_model, pairs, output=tmp_path / "out.tsv")

    true = [float(row[2]) for row in rows_of(pairs)[1:]]
    found = [float(row[0]) for row in rows_of(tmp_path / "out.tsv")[1:]]
    assert metrics["test"].keys() == {"spearman", "pearson", "rmse", "loss"}
    assert metrics["test"]["pearson"] > 0.9
    assert metrics["test"]["rmse"] == pytest.approx(
        np.sqrt(np.mean(np.subtract(found, true) ** 2)), rel=1e-2
    )
    assert metrics["baselines"]["majority"]["test"]["rmse"] == pytest.approx(2.795, abs=0.05)
    assert (numbers_model / "predicted_numbers.png").exists()
    assert read_manifest(numbers_model, "model")["classes"] == ["score"]


def test_what_compares_pairs_predicts_as_it_was_scored(
    tmp_path, tiny_checkpoint, pairs, pairs_recipe
):
    folder = tmp_path / "model"
    config = dataclasses.replace(pairs_recipe, pooling="compare", num_epochs=3)
    finetune(tiny_checkpoint, train=pairs, test=pairs, output=folder, config=config)

    predict(folder, pairs, output=tmp_path / "out.tsv")

    found = [float(row[0]) for row in rows_of(tmp_path / "out.tsv")[1:]]
    scored = [float(row[0]) for row in rows_of(folder / "test_predictions.tsv")[1:]]
    np.testing.assert_allclose(found, scored, rtol=1e-4)  # sums in another order
    assert read_manifest(folder, "model")["pooling"] == "compare"
    assert load_file(folder / "model.safetensors")["classifier.weight"].shape == (1, 6 * 32)


def test_a_model_of_pairs_is_given_pairs(numbers_model, tmp_path, pairs):
    config = Finetune(text_column="first")

    with pytest.raises(ConfigError, match=r"was trained on pairs .*None — set the column of the"):
        predict(numbers_model, pairs, output=tmp_path / "out.tsv", config=config)


@pytest.mark.parity
@pytest.mark.parametrize("kind", ["names", "numbers"])
def test_transformers_loads_every_kind_and_gives_the_same_logits(request, kind, several, pairs):
    transformers = pytest.importorskip("transformers")
    folder = request.getfixturevalue(f"{kind}_model")
    cells = rows_of(several if kind == "names" else pairs)[1:10]
    texts, seconds = [row[0] for row in cells], None if kind == "names" else [r[1] for r in cells]
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenize = transformers.AutoTokenizer.from_pretrained(folder)

    assert tokenize.model_max_length == read_manifest(folder, "model")["max_seq_length"] == 32
    inputs = tokenize(
        texts, seconds, padding=True, truncation=True, max_length=32, return_tensors="pt"
    )
    with torch.no_grad():
        expected = theirs(**inputs).logits.numpy()

    ours = load_finetuned(folder, CPU.device)
    found = run_model(Run(ours.model, ours.encoder.texts(texts, seconds)), placement=CPU)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)  # sums in another order
    assert theirs.config.problem_type == (
        "multi_label_classification" if kind == "names" else "regression"
    )


def test_windows_are_averaged(tmp_path, tiny_checkpoint, tables, recipe):
    config = dataclasses.replace(
        recipe, num_epochs=2, long_texts="windows", max_seq_length=7, window_overlap=0.5
    )

    finetune(tiny_checkpoint, train=tables / "train.tsv", output=tmp_path / "model", config=config)

    counts = read_manifest(tmp_path / "model", "model")["counts"]["train"]
    assert counts["windowed_rows"] > 0
    assert counts["truncated_rows"] == 0
    ours = load_finetuned(tmp_path / "model", CPU.device)
    texts = ["the cat sees the river near the harbour.", "a dog"]
    encoded = ours.encoder.texts(texts)
    assert encoded.first_of_row[1] > 2
    found = run_model(Run(ours.model, encoded), placement=CPU)
    alone = dataclasses.replace(encoded, first_of_row=np.arange(len(encoded.starts)))
    each = [
        run_model(Run(ours.model, alone), np.array([number]), placement=CPU)[0]
        for number in range(encoded.first_of_row[-1])
    ]
    split = int(encoded.first_of_row[1])
    np.testing.assert_allclose(found[0], np.mean(each[:split], axis=0), atol=1e-5)
    np.testing.assert_allclose(found[1], np.mean(each[split:], axis=0), atol=1e-5)


def test_folds_make_a_folder_of_models_with_scores_of_all_rows(folds_model, tables):
    manifest = read_manifest(folds_model, "model")
    metrics = json.loads((folds_model / "metrics.json").read_text())
    header, *rows = rows_of(folds_model / "dev_predictions.tsv")

    check_files(folds_model, manifest, content=True)
    assert manifest["members"] == ["fold-1", "fold-2", "fold-3"]
    assert [row[-1] for row in rows] == [str(line) for line in range(2, 74)]
    assert np.mean([row[0] == row[-2] for row in rows]) == pytest.approx(metrics["dev"]["accuracy"])
    assert metrics["dev"]["accuracy"] > 0.35  # of four classes, by 72 rows
    each = [metrics["members"][name]["test"]["accuracy"] for name in manifest["members"]]
    assert metrics["mean"]["test"]["accuracy"] == pytest.approx(np.mean(each))
    assert metrics["standard_deviation"]["test"]["accuracy"] == pytest.approx(np.std(each, ddof=1))
    assert header[0] == "prediction"


def test_a_row_is_scored_by_the_model_that_did_not_see_it(folds_model, tables, tmp_path):
    outputs = [tmp_path / f"{name}.tsv" for name in (1, 2, 3)]
    config = Finetune(device="cpu", precision="fp32")
    for number, output in enumerate(outputs, start=1):
        predict(folds_model / f"fold-{number}", tables / "train.tsv", output=output, config=config)

    each = [rows_of(output)[1:] for output in outputs]
    stored = rows_of(folds_model / "dev_predictions.tsv")[1:]

    for row, kept in enumerate(stored):
        shares = [np.array(rows[row][1:], dtype=float) for rows in each]
        off = [np.abs(share - np.array(kept[1:-2], dtype=float)).max() for share in shares]
        assert min(off) < 3e-6  # six places are shown


def test_a_folder_of_models_predicts_their_mean(folds_model, tables, tmp_path):
    config = Finetune(device="cpu", precision="fp32")
    parts = [folds_model / f"fold-{number}" for number in (1, 2, 3)]

    whole = predict(folds_model, tables / "test.tsv", output=tmp_path / "a.tsv", config=config)
    together = predict(parts, tables / "test.tsv", output=tmp_path / "b.tsv", config=config)

    assert whole.num_models == together.num_models == 3
    assert (tmp_path / "a.tsv").read_bytes() == (tmp_path / "b.tsv").read_bytes()
    stored = [row[:-2] for row in rows_of(folds_model / "test_predictions.tsv")]
    for row, kept in zip(rows_of(tmp_path / "a.tsv")[1:], stored[1:], strict=True):
        np.testing.assert_allclose(
            np.array(row[1:], dtype=float), np.array(kept[1:], dtype=float), atol=3e-6
        )


def test_a_part_of_a_folder_starts_another_task_but_the_whole_does_not(
    folds_model, tables, tmp_path, recipe
):
    config = dataclasses.replace(recipe, num_epochs=1)
    train = tables / "train.tsv"

    finetune(folds_model / "fold-2", train=train, output=tmp_path / "model", config=config)
    with pytest.raises(CheckpointError, match=r"holds 3 models; only .*fold-1"):
        finetune(folds_model, train=train, output=tmp_path / "other", config=config)

    assert (tmp_path / "model" / "manifest.json").is_file()


def test_a_model_that_is_named_twice_is_an_error(folds_model, tables, tmp_path):
    (tmp_path / "link").symlink_to(folds_model / "fold-1")
    for models in (
        [folds_model, folds_model],
        [folds_model, folds_model / "fold-1"],
        [folds_model / "fold-1", tmp_path / "link"],
    ):
        with pytest.raises(ConfigError, match=r": is given twice, .* — give each model once"):
            predict(models, tables / "test.tsv", output=tmp_path / "out.tsv")

    assert not (tmp_path / "out.tsv").exists()


def test_seeds_are_told_one_by_one_and_averaged(tmp_path, tiny_checkpoint, tables, recipe):
    events = []

    config = dataclasses.replace(recipe, seeds=2, num_epochs=2)
    result = finetune(
        tiny_checkpoint, train=tables / "train.tsv", dev=tables / "dev.tsv",
        output=tmp_path / "model", config=config, seed=4,
        on_event=events.append,
    )  # fmt: skip

    assert [event for event in events if isinstance(event, MemberStart)] == [
        ("seed-4", 1, 2), ("seed-5", 2, 2),
    ]  # fmt: skip
    first, second = result.members
    np.testing.assert_allclose(
        result.outputs["dev"], (first.outputs["dev"] + second.outputs["dev"]) / 2
    )
    assert first.scores["dev"]["loss"] != second.scores["dev"]["loss"]
    mean, spread = result.spread()["dev"]["loss"]
    losses = [first.scores["dev"]["loss"], second.scores["dev"]["loss"]]
    assert (mean, spread) == pytest.approx((np.mean(losses), np.std(losses, ddof=1)))


def test_a_network_that_what_needs_none_beats_is_said_to_be_one(
    tmp_path, tiny_checkpoint, tables, recipe, caplog
):
    config = dataclasses.replace(recipe, learning_rate=1e-30, num_epochs=1, baseline=True)

    result = finetune(
        tiny_checkpoint, train=tables / "train.tsv", output=tmp_path / "model", config=config
    )

    without = result.baselines["tfidf_linear"]["dev"]["accuracy"]
    assert result.dev["accuracy"] < without  # nothing was learnt
    assert (
        "the model is no better than a baseline: its dev accuracy is "
        f"{result.dev['accuracy']:.3f}, that of 'TF-IDF + linear' is {without:.3f}"
    ) in caplog.text


def test_training_stops_early_when_nothing_gets_better(
    tmp_path, tiny_checkpoint, tables, recipe, caplog
):
    caplog.set_level("INFO")
    config = dataclasses.replace(recipe, learning_rate=1e-30, num_epochs=9, early_stopping=2)

    result = finetune(
        tiny_checkpoint, train=tables / "train.tsv", output=tmp_path / "model",
        config=dataclasses.replace(config, metric="matthews", baseline=False),
    )  # fmt: skip

    (member,) = result.members
    assert (member.best_epoch, len(member.history)) == (1, 3)
    assert "stopped after epoch 3 of 9: the dev matthews was best in epoch 1" in caplog.text


@pytest.mark.parametrize(("num_epochs", "is_said"), [(3, True), (4, False)])
def test_early_stopping_that_cannot_act_is_a_warning(
    tmp_path, tiny_checkpoint, tables, recipe, caplog, num_epochs, is_said
):
    config = dataclasses.replace(
        recipe, num_epochs=num_epochs, early_stopping=2, learning_rate=1e-30, baseline=False
    )

    finetune(tiny_checkpoint, train=tables / "train.tsv", output=tmp_path / "m", config=config)

    assert is_said == (
        "early_stopping: a patience of 2 epochs cannot stop a training of 3 epochs early; pass "
        "--num-epochs 4 or more, or leave it out" in caplog.text
    )


@pytest.mark.parametrize(
    "extra",
    [
        {"adversarial_epsilon": 0.5},
        {"ema_decay": 0.9},
        {"layer_decay": 0.5},
        {"mask_probability": 0.3},
        {"label_smoothing": 0.2},
        {"class_weights": "balanced"},
        {"focal_gamma": 2.0},
    ],
    ids=lambda extra: next(iter(extra)),
)
def test_each_addition_to_the_recipe_changes_the_weights_and_is_shown(
    tmp_path, tiny_checkpoint, tables, recipe, tiny_model, extra
):
    plain = dataclasses.replace(recipe, num_epochs=1)
    shown = []
    weights = []
    for name, config in (("a", plain), ("b", dataclasses.replace(plain, **extra))):
        finetune(
            tiny_checkpoint, train=tables / "train.tsv", output=tmp_path / name, config=config,
            on_event=lambda event: shown.append(event) if isinstance(event, dict) else None,
        )  # fmt: skip
        weights.append((tmp_path / name / "model.safetensors").read_bytes())

    assert weights[0] != weights[1]
    assert shown[1].items() >= extra.items()
    assert not shown[0].keys() & extra.keys()


def test_texts_that_are_trained_on_too_and_rows_left_out_are_shown(
    tmp_path, tiny_checkpoint, tables, recipe
):
    lines = (tables / "train.tsv").read_text().splitlines()
    dev = tmp_path / "dev.tsv"
    dev.write_text("\n".join([*lines[:3], "\tthe cat", "something new\ta dog"]) + "\n")
    shown = []

    finetune(
        tiny_checkpoint, train=tables / "train.tsv", dev=dev, output=tmp_path / "model",
        config=dataclasses.replace(recipe, num_epochs=1, on_bad_rows="skip"),
        on_event=lambda event: shown.append(event) if isinstance(event, dict) else None,
    )  # fmt: skip

    assert shown[0]["dev rows"] == "3, 1 skipped"
    assert shown[0]["dev texts also in training"] == "2 of 3"
    assert shown[0]["task"] == "classification: 4 classes (one class name per cell)"


def test_pairs_with_an_empty_side_are_warned_of(tmp_path, tiny_checkpoint, recipe, caplog):
    rows = [("the cat", "", "no"), ("", "a dog", "no"), ("the cat", "the cat", "yes")] * 4
    train = write(tmp_path / "t.tsv", ("text", "other", "label"), rows)

    finetune(
        tiny_checkpoint, train=train, output=tmp_path / "model",
        config=dataclasses.replace(recipe, num_epochs=1, pair_column="other"),
    )  # fmt: skip

    assert f"{train}: 8 pairs have one empty text" in caplog.text
