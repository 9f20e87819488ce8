"""Fine-tuning: what it learns, what it writes, and what it refuses."""

import dataclasses
import json
import logging
import math
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from bertpre.artefacts import check_files, read_manifest
from bertpre.config.schema import Finetune
from bertpre.errors import (
    CheckpointError,
    ConfigError,
    CorpusError,
    DataFormatError,
    TokenizerError,
    TrainingError,
)
from bertpre.finetuning import running
from bertpre.finetuning.classification import Classification
from bertpre.finetuning.finetune import finetune
from bertpre.finetuning.generation import Generation
from bertpre.finetuning.loop import best_epoch, default_num_epochs
from bertpre.finetuning.results import EpochReport, MemberStart, Progress
from bertpre.finetuning.start import default_learning_rate, place_training, read_start
from bertpre.tokenizer.tokenizer import Tokenizer

THREE = Classification(names=("0", "1", "2"))


def start_of(folder, **options):
    return read_start(folder, config=Finetune(**options))


def head_of(folder, **options):
    return start_of(folder, **options).build(THREE, seed=0)


def test_a_learnable_task_is_learnt(tiny_model):
    metrics = json.loads((tiny_model / "metrics.json").read_text())

    assert metrics["dev"]["accuracy"] >= 0.9
    assert metrics["test"]["accuracy"] >= 0.9
    assert metrics["dev"].keys() == {"accuracy", "macro_f1", "micro_f1", "matthews", "loss"}
    assert metrics["baselines"].keys() == {"majority", "tfidf_linear"}
    assert metrics["baselines"]["tfidf_linear"]["test"]["accuracy"] >= 0.9
    assert metrics["baselines"]["majority"]["test"]["accuracy"] < 0.6


def test_the_folder_holds_everything_and_its_manifest_says_so(tiny_model, tables):
    manifest = read_manifest(tiny_model, "model")

    check_files(tiny_model, manifest, content=True)
    assert {path.name for path in tiny_model.iterdir()} == {
        "classes.tsv",
        "config.json",
        "confusion_matrix.png",
        "curves.png",
        "dev_predictions.tsv",
        "manifest.json",
        "metrics.json",
        "model.safetensors",
        "test_predictions.tsv",
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.txt",
    }
    assert manifest["classes"] == sorted(manifest["classes"])
    assert manifest["counts"]["train"]["rows"] == 72
    assert sum(manifest["class_counts"]["train"].values()) == 72
    assert manifest["max_seq_length"] == 32
    assert manifest["pooling"] == manifest["options"]["pooling"] == "cls"
    assert len(manifest["history"]) == manifest["options"]["num_epochs"] == 12
    assert str(tables) not in (tiny_model / "manifest.json").read_text()


def test_the_scores_are_those_of_the_best_epoch(tiny_model):
    manifest = read_manifest(tiny_model, "model")
    metrics = json.loads((tiny_model / "metrics.json").read_text())

    kept = manifest["history"][manifest["best_epoch"] - 1]["dev"]

    assert kept == metrics["dev"]
    assert kept["accuracy"] == max(epoch["dev"]["accuracy"] for epoch in manifest["history"])


def test_the_labels_are_in_the_config_under_the_names_of_hugging_face(tiny_model):
    classes = read_manifest(tiny_model, "model")["classes"]

    config = json.loads((tiny_model / "config.json").read_text())

    assert config["id2label"] == {str(number): label for number, label in enumerate(classes)}
    assert config["label2id"] == {label: number for number, label in enumerate(classes)}


def test_dev_predictions_are_a_row_for_each_dev_row(tiny_model, tables):
    classes = read_manifest(tiny_model, "model")["classes"]
    metrics = json.loads((tiny_model / "metrics.json").read_text())

    lines = (tiny_model / "dev_predictions.tsv").read_text().splitlines()
    rows = [line.split("\t") for line in lines]

    true = [line.split("\t")[1] for line in (tables / "dev.tsv").read_text().splitlines()[1:]]
    assert rows[0] == ["prediction", *classes, "label", "line"]
    assert [row[-2] for row in rows[1:]] == true
    assert [row[-1] for row in rows[1:]] == [str(line) for line in range(2, 2 + len(true))]
    right = sum(row[0] == row[-2] for row in rows[1:])
    assert right / len(true) == pytest.approx(metrics["dev"]["accuracy"])
    for row in rows[1:]:
        shares = [float(cell) for cell in row[1:-2]]
        assert sum(shares) == pytest.approx(1, abs=1e-5)
        assert row[0] == classes[shares.index(max(shares))]


def test_equal_runs_give_equal_bytes(tmp_path, tiny_checkpoint, tables, recipe, tiny_model):
    config = dataclasses.replace(recipe, num_epochs=2)
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        finetune(
            tiny_checkpoint,
            train=tables / "train.tsv",
            output=tmp_path / name,
            config=config,
            seed=seed,
        )

    first, second, other = (
        {path.name: path.read_bytes() for path in sorted((tmp_path / name).iterdir())}
        for name in "abc"
    )

    assert first == second
    assert first["model.safetensors"] != other["model.safetensors"]
    assert first["dev_predictions.tsv"] != other["dev_predictions.tsv"]


def test_events_are_the_summary_the_progress_and_the_epochs(
    tmp_path, tiny_checkpoint, tables, recipe
):
    events = []

    result = finetune(
        tiny_checkpoint,
        train=tables / "train.tsv",
        output=tmp_path / "model",
        config=dataclasses.replace(recipe, num_epochs=2, max_seq_length=12),
        on_event=events.append,
    )

    (summary,) = [event for event in events if isinstance(event, dict)]
    updates = [event for event in events if isinstance(event, Progress)]
    assert summary["dev rows"].endswith("(held out from the training table)")
    assert summary["pooling"] == "cls"
    assert int(summary["texts cut at the end"].split()[0]) > 0
    assert updates[-1] == Progress("training", "updates", updates[-1].total, updates[-1].total)
    (member,) = result.members
    assert [event for event in events if isinstance(event, EpochReport)] == list(member.history)
    assert not any(isinstance(event, MemberStart) for event in events)
    assert result.test is None
    assert "test" not in json.loads((tmp_path / "model" / "metrics.json").read_text())


def test_weights_of_the_checkpoint_are_the_start_and_new_ones_are_named(tiny_checkpoint, caplog):
    with caplog.at_level("INFO"):
        model = head_of(tiny_checkpoint)

    stored = load_file(tiny_checkpoint / "model.safetensors")
    torch.testing.assert_close(
        model.bert.embeddings.word.weight,
        stored["bert.embeddings.word_embeddings.weight"],
        rtol=0,
        atol=0,  # copied
    )
    assert "randomly initialized: classifier.bias, classifier.weight; not used: cls." in caplog.text


def test_from_scratch_takes_the_shape_and_the_vocabulary_alone(tiny_checkpoint, caplog):
    with caplog.at_level("INFO"):
        start = start_of(tiny_checkpoint, from_scratch=True)
        model = start.build(THREE, seed=0)

    stored = load_file(tiny_checkpoint / "model.safetensors")
    word = model.bert.embeddings.word.weight
    assert word.shape == stored["bert.embeddings.word_embeddings.weight"].shape
    assert (word != stored["bert.embeddings.word_embeddings.weight"]).any()
    assert start.encoder.tokenizer.fingerprint == Tokenizer.load(tiny_checkpoint).fingerprint
    assert "only the shape and the vocabulary are used; all weights are random" in caplog.text


def test_new_weights_depend_on_the_seed_alone(tiny_checkpoint):
    start = start_of(tiny_checkpoint)

    first, again, other = (start.build(THREE, seed=seed).classifier.weight for seed in (1, 1, 2))

    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_dropout_is_that_of_fine_tuning_whatever_pretraining_used(tiny_checkpoint):
    config = head_of(tiny_checkpoint, hidden_dropout_prob=0.3).bert.config

    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (0.3, 0.3)


@pytest.mark.parametrize(
    ("objective", "manifest", "options", "expected"),
    [
        ("mlm-nsp", True, {}, "cls"),
        ("mlm", True, {}, "mean"),
        ("mlm-nsp", False, {}, "cls"),
        ("mlm", False, {}, "mean"),
        ("mlm", True, {"pooling": "cls"}, "cls"),
        ("mlm-nsp", True, {"pooling": "mean"}, "mean"),
        ("mlm-nsp", True, {"from_scratch": True}, "mean"),
        ("mlm-nsp", True, {"pair_column": "other"}, "cls"),
        ("mlm", True, {"pair_column": "other"}, "compare"),
        ("mlm", True, {"pair_column": "other", "pooling": "mean"}, "mean"),
        ("mlm-nsp", True, {"pair_column": "other", "from_scratch": True}, "compare"),
    ],
)
def test_pooling_is_cls_where_next_sentences_trained_the_pooler(
    make_checkpoint, objective, manifest, options, expected
):
    folder = make_checkpoint(objective=objective, manifest=manifest)

    start = start_of(folder, **options)

    assert start.pooling == expected
    model = start.build(THREE, seed=0)
    assert (model.bert.pooler is not None) == (expected == "cls")


def test_a_new_pooler_is_announced(make_checkpoint, caplog):
    with caplog.at_level("INFO"):
        head_of(make_checkpoint(objective="mlm"), pooling="cls")

    assert "pretraining did not train the pooler, so it starts from random weights" in caplog.text
    assert "bert.pooler.dense.bias, bert.pooler.dense.weight, classifier.bias" in caplog.text


def copy_with(folder, target, *, drop=(), **tensors):
    """Copy a folder without a manifest, with other weights."""
    shutil.copytree(folder, target)
    weights = load_file(target / "model.safetensors") | tensors
    kept = {name: value for name, value in weights.items() if name not in drop}
    save_file(kept, target / "model.safetensors", metadata={"format": "pt"})
    return target


NSP = ("cls.seq_relationship.weight", "cls.seq_relationship.bias")


def test_a_pooler_that_a_library_wrote_untrained_is_drawn_anew(tmp_path, make_checkpoint, caplog):
    folder = copy_with(make_checkpoint(manifest=False), tmp_path / "copy", drop=NSP)
    stored = load_file(folder / "model.safetensors")["bert.pooler.dense.weight"]

    with caplog.at_level("INFO"):
        model = head_of(folder, pooling="cls")

    assert start_of(folder).pooling == "mean"
    assert not torch.equal(model.bert.pooler.dense.weight, stored)
    assert "not used: bert.pooler.dense.bias, bert.pooler.dense.weight" in caplog.text


def test_a_pooler_with_a_bias_is_a_trained_one(tmp_path, make_checkpoint, caplog):
    folder = copy_with(
        make_checkpoint(manifest=False),
        tmp_path / "copy",
        drop=NSP,
        **{"bert.pooler.dense.bias": torch.full((32,), 0.1)},
    )

    model = head_of(folder)

    assert torch.equal(model.bert.pooler.dense.bias, torch.full((32,), 0.1))
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_the_length_is_what_pretraining_saw_or_what_a_plain_folder_allows(make_checkpoint):
    assert start_of(make_checkpoint()).encoder.max_seq_length == 32
    assert start_of(make_checkpoint(manifest=False)).encoder.max_seq_length == 64


def test_a_longer_length_than_pretraining_saw_is_a_warning(tiny_checkpoint, caplog):
    assert start_of(tiny_checkpoint, max_seq_length=48).encoder.max_seq_length == 48
    assert "max_seq_length 48: the checkpoint saw 32 at most" in caplog.text


def test_a_longer_length_than_there_are_positions_is_an_error(tiny_checkpoint):
    with pytest.raises(ConfigError, match="max_seq_length: 65, but the encoder has 64 positions —"):
        start_of(tiny_checkpoint, max_seq_length=65)


def test_a_length_that_holds_no_pair_is_an_error(tiny_checkpoint):
    with pytest.raises(
        ConfigError, match=r"max_seq_length: 4, but \[CLS\] a \[SEP\] b \[SEP\] has 5"
    ):
        start_of(tiny_checkpoint, max_seq_length=4, pair_column="other")


def test_a_fine_tuned_model_starts_another_task(tiny_model, tiny_checkpoint, caplog):
    with caplog.at_level("INFO"):
        start = start_of(tiny_model)
        model = start.build(THREE, seed=0)

    stored = load_file(tiny_model / "model.safetensors")
    assert model.classifier.out_features == 3
    assert (start.pooling, start.encoder.max_seq_length) == ("cls", 32)
    assert "not used: classifier.bias, classifier.weight" in caplog.text
    torch.testing.assert_close(
        model.bert.embeddings.word.weight,
        stored["bert.embeddings.word_embeddings.weight"],
        rtol=0,
        atol=0,  # copied
    )


def test_a_vocabulary_larger_than_the_model_is_an_error(tmp_path, make_checkpoint):
    folder = make_checkpoint(manifest=False)
    config = json.loads((folder / "config.json").read_text())
    rows = config["vocab_size"]
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": rows - 1}))

    with pytest.raises(CheckpointError, match=rf"vocabulary has {rows} entries.*only {rows - 1} —"):
        head_of(folder)


def test_a_damaged_checkpoint_is_an_error(tmp_path, tiny_checkpoint):
    folder = tmp_path / "copy"
    shutil.copytree(tiny_checkpoint, folder)
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (folder / "model.safetensors").write_bytes(data)

    with pytest.raises(DataFormatError, match=r"model.safetensors: damaged"):
        head_of(folder)


@pytest.mark.parametrize(
    ("hidden_size", "rate"), [(768, 3e-5), (1024, 1.6875e-5), (128, 1e-3), (32, 1e-3)]
)
def test_the_learning_rate_follows_the_width(hidden_size, rate):
    assert default_learning_rate(hidden_size, task=THREE) == pytest.approx(rate)


def test_writing_takes_a_higher_rate_and_more_epochs():
    task = Generation(names=(), tokens="13a")

    assert default_learning_rate(768, task=task) == pytest.approx(1.2e-4)
    assert default_learning_rate(256, task=task) == pytest.approx(1e-3)
    assert default_num_epochs(3200, 32, task=task) == 8
    assert default_num_epochs(320, 32, task=task) == 50


def test_fp16_is_for_pretraining_alone(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **options: False)
    monkeypatch.setattr(running, "pick_device", lambda name: torch.device("cuda"))

    assert place_training(Finetune(precision="auto")).precision == "fp32"
    assert place_training(Finetune(precision="bf16")).precision == "bf16"


@pytest.mark.parametrize(
    ("rows", "batch_size", "epochs"), [(100_000, 32, 3), (3200, 32, 3), (600, 32, 16), (5, 32, 300)]
)
def test_small_tables_get_more_epochs(rows, batch_size, epochs):
    assert default_num_epochs(rows, batch_size, task=THREE) == epochs


@pytest.mark.parametrize(
    ("dev", "metric", "best"),
    [
        ([(0.5, 1.0), (0.7, 0.9), (0.6, 0.2)], "accuracy", 2),
        ([(0.7, 0.9), (0.7, 0.8), (0.7, 0.8)], "accuracy", 2),
        ([(0.5, 1.0), (0.7, 0.9), (0.6, 0.2)], "loss", 3),
    ],
)
def test_the_best_epoch_is_by_the_metric_and_then_by_loss(dev, metric, best):
    history = [
        EpochReport(epoch, 0.0, {"accuracy": accuracy, "loss": loss})
        for epoch, (accuracy, loss) in enumerate(dev, start=1)
    ]

    assert best_epoch(history, metric) == best


def test_a_loss_that_is_not_finite_stops_before_the_update(tmp_path, tiny_checkpoint, tables):
    config = Finetune(learning_rate=1e30, num_epochs=1, batch_size=8, device="cpu")

    with pytest.raises(TrainingError, match=r"the loss is (nan|inf) at update \d+ of \d+ — lower"):
        finetune(
            tiny_checkpoint, train=tables / "train.tsv", output=tmp_path / "model", config=config
        )

    assert list(tmp_path.iterdir()) == []


def test_nothing_is_left_by_bad_input(tmp_path, tiny_checkpoint, tables, recipe):
    out = tmp_path / "new" / "model"
    train = tables / "train.tsv"
    bad = tmp_path / "bad.tsv"
    bad.write_text("text\tlabel\nfine\tunheard of\n")
    calls = [
        (CorpusError, "there is no such file", (tiny_checkpoint, tmp_path / "none.tsv", {})),
        (CorpusError, "labels that .* does not have", (tiny_checkpoint, train, {"dev": bad})),
        (CheckpointError, "there is no such folder", (tmp_path / "none", train, {})),
        (CheckpointError, "not a model folder", (tables, train, {})),
    ]

    for error, text, (checkpoint, table, more) in calls:
        with pytest.raises(error, match=text):
            finetune(checkpoint, train=table, output=out, config=recipe, **more)

    assert list(tmp_path.iterdir()) == [bad]


def test_an_existing_output_is_refused_and_replaced_on_request(
    tmp_path, tiny_checkpoint, tables, recipe, tiny_model
):
    output = tmp_path / "model"
    shutil.copytree(tiny_model, output)
    config = dataclasses.replace(recipe, num_epochs=1)

    with pytest.raises(ConfigError, match=r"model: already exists — .*--overwrite"):
        finetune(tiny_checkpoint, train=tables / "train.tsv", output=output, config=config)
    finetune(
        tiny_checkpoint, train=tables / "train.tsv", output=output, config=config, overwrite=True
    )

    assert read_manifest(output, "model")["options"]["num_epochs"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_folder_without_a_tokenizer_is_an_error(tmp_path, make_checkpoint):
    folder = make_checkpoint(manifest=False)
    for name in ("vocab.txt", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()

    with pytest.raises(TokenizerError, match=str(folder)):
        head_of(folder)


def test_texts_without_a_token_are_counted_and_warned_of(
    tmp_path, tiny_checkpoint, tables, recipe, caplog
):
    train = tmp_path / "train.tsv"
    train.write_text((tables / "train.tsv").read_text() + "\u200b\tthe cat\n")

    finetune(
        tiny_checkpoint,
        train=train,
        dev=tables / "dev.tsv",
        output=tmp_path / "model",
        config=dataclasses.replace(recipe, num_epochs=1),
    )

    assert f"{train}: 1 texts have no tokens" in caplog.text
    assert read_manifest(tmp_path / "model", "model")["counts"]["train"]["empty_rows"] == 1


def test_the_first_loss_is_that_of_chance(tmp_path, tiny_checkpoint, tables, recipe):
    result = finetune(
        tiny_checkpoint,
        train=tables / "train.tsv",
        output=tmp_path / "model",
        config=dataclasses.replace(recipe, num_epochs=1, learning_rate=1e-9),
    )

    chance = math.log(len(result.task.names))
    assert result.members[0].history[0].train_loss == pytest.approx(chance, rel=0.05)
