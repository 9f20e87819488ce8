"""Prediction: a row for each row, in order, whatever is in them, and all or nothing."""

import dataclasses
import gzip
import io
import json
import math
import shutil

import numpy as np
import pytest
import torch

from bertpre.artefacts import read_manifest
from bertpre.config.schema import Finetune
from bertpre.errors import ConfigError, CorpusError, DataFormatError
from bertpre.finetuning.finetune import finetune
from bertpre.finetuning.registry import task_of
from bertpre.finetuning.running import Placement, Run, load_finetuned, run_model
from bertpre.inference import tables as tables_module
from bertpre.inference.predict import PredictReport, predict

FP32 = Finetune(device="cpu", precision="fp32")


def rows_of(path):
    return [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]


CPU = Placement(torch.device("cpu"), "fp32")


class Classifier:
    """A model folder, loaded."""

    def __init__(self, folder):
        self.task = task_of(folder, read_manifest(folder, "model"))
        found = load_finetuned(folder, CPU.device)
        self.model, self.encoder = found.model, found.encoder

    def logits(self, texts):
        return run_model(Run(self.model, texts), placement=CPU)

    def outputs(self, texts):
        return self.task.predict([Run(self.model, texts)], placement=CPU)


@pytest.fixture(scope="module")
def classifier(tiny_model):
    return Classifier(tiny_model)


@pytest.fixture(scope="module")
def other_model(tmp_path_factory, tiny_checkpoint, tables, recipe):
    """A model of the same labels, hardly trained."""
    folder = tmp_path_factory.mktemp("other") / "model"
    config = dataclasses.replace(recipe, num_epochs=1)
    finetune(tiny_checkpoint, train=tables / "train.tsv", output=folder, config=config, seed=9)
    return folder


def test_every_row_gets_a_prediction_in_order(tmp_path, tiny_model, tables):
    output = tmp_path / "out.tsv"

    report = predict(tiny_model, tables / "test.tsv", output=output, config=FP32)

    true = [row[1] for row in rows_of(tables / "test.tsv")[1:]]
    found = rows_of(output)
    assert found[0] == ["prediction", *read_manifest(tiny_model, "model")["classes"]]
    assert len(found) - 1 == len(true) == report.num_rows
    assert np.mean([row[0] == label for row, label in zip(found[1:], true, strict=True)]) >= 0.9


def test_predictions_are_those_that_the_scores_were_made_of(tmp_path, tiny_model, tables):
    output = tmp_path / "out.tsv"

    predict(tiny_model, tables / "dev.tsv", output=output, config=FP32)

    stored = rows_of(tiny_model / "dev_predictions.tsv")
    for row, kept in zip(rows_of(output)[1:], stored[1:], strict=True):
        assert row[0] == kept[0]
        shares, kept_shares = (np.array(cells, dtype=float) for cells in (row[1:], kept[1:-2]))
        # Other rows in the batch change the order of sums; and six places are shown.
        np.testing.assert_allclose(shares, kept_shares, atol=2e-6)


def test_odd_rows_are_rows(tmp_path, tiny_model, classifier):
    table = tmp_path / "in.tsv"
    texts = ["", "   ", "null", "NA", '"the cat', "the cat " * 500, "[SEP]", "\u200b", "007"]
    table.write_text("id\ttext\n" + "".join(f"{i}\t{t}\n" for i, t in enumerate(texts)) + "\n\n")
    output = tmp_path / "out.tsv"

    report = predict(tiny_model, table, output=output, config=FP32)

    found = rows_of(output)[1:]
    assert report == PredictReport(
        num_rows=len(texts), num_models=1, num_truncated=1, num_windowed=0, num_empty=3,
        num_skipped=0,
    )  # fmt: skip
    expected = classifier.outputs(classifier.encoder.texts(texts))
    shares = np.array([row[1:] for row in found], dtype=float)
    np.testing.assert_allclose(shares, expected, atol=2e-6)  # six places are shown
    assert found[0] == found[1] == found[7]  # [CLS] [SEP]


def test_chunks_and_batches_do_not_show(tmp_path, tiny_model, tables, monkeypatch):
    outputs = [tmp_path / "one.tsv", tmp_path / "many.tsv"]
    done = []

    predict(tiny_model, tables / "train.tsv", output=outputs[0], config=FP32)
    monkeypatch.setattr(tables_module, "_CHUNK_ROWS", 7)
    monkeypatch.setattr(tables_module, "_FIRST_ROWS", 3)
    predict(tiny_model, tables / "train.tsv", output=outputs[1], config=FP32, on_rows=done.append)

    one, many = (rows_of(path)[1:] for path in outputs)
    assert done == [*range(7, 72, 7), 72]
    assert [row[0] for row in one] == [row[0] for row in many]
    one_shares, many_shares = (
        np.array([row[1:] for row in rows], dtype=float) for rows in (one, many)
    )
    np.testing.assert_allclose(one_shares, many_shares, atol=2e-6)  # six places are shown


def test_the_table_is_read_as_in_training_unless_told_otherwise(tmp_path, tiny_model, tables):
    texts = [row[0] for row in rows_of(tables / "test.tsv")[1:]]
    table = tmp_path / "in.csv.gz"
    table.write_bytes(gzip.compress(("\n".join(f'x,"{text}"' for text in texts)).encode()))

    with pytest.raises(CorpusError, match="no column 'text'; found 2 columns"):
        predict(tiny_model, table, output=tmp_path / "out.tsv")
    config = Finetune(header=False, text_column=2)
    predict(tiny_model, table, output=tmp_path / "out.tsv", config=config)

    assert len(rows_of(tmp_path / "out.tsv")) == 1 + len(texts)


def test_quotes_bytes_and_columns_mean_what_they_meant_in_training(
    tmp_path, tiny_checkpoint, tables
):
    rows = rows_of(tables / "train.tsv")[1:33]
    table = tmp_path / "train.csv"
    # No header, lone quotes, and é as a byte that is not UTF-8: only as in training it can be read.
    text = "".join(f'{label},"é {text}\n' for text, label in rows)
    table.write_bytes(text.encode("latin-1"))
    config = dataclasses.replace(
        FP32, header=False, text_column=2, label_column=1, quoting="none", encoding="latin-1",
        num_epochs=1, baseline=False,
    )  # fmt: skip
    finetune(tiny_checkpoint, train=table, output=tmp_path / "model", config=config)

    predict(tmp_path / "model", table, output=tmp_path / "as-trained.tsv")
    predict(tmp_path / "model", table, output=tmp_path / "stated.tsv", config=config)

    found, stated = rows_of(tmp_path / "as-trained.tsv"), rows_of(tmp_path / "stated.tsv")
    assert [row[0] for row in found] == [row[0] for row in stated]
    assert len(found) == 1 + 32


@pytest.mark.parametrize("content", ["", "text\n", "text\tlabel\n\n"])
def test_a_table_without_rows_is_an_error(tmp_path, tiny_model, content):
    table = tmp_path / "in.tsv"
    table.write_text(content)

    with pytest.raises(CorpusError, match=r"in.tsv: has no rows; expected at least one"):
        predict(tiny_model, table, output=tmp_path / "out.tsv")

    assert list(tmp_path.iterdir()) == [table]


def test_a_fault_deep_in_the_table_leaves_nothing(tmp_path, tiny_model, monkeypatch):
    table = tmp_path / "in.tsv"
    table.write_bytes(b"text\n" + b"the cat\n" * 40 + b"bad \xff byte\n")
    monkeypatch.setattr(tables_module, "_CHUNK_ROWS", 8)
    monkeypatch.setattr(tables_module, "_FIRST_ROWS", 8)

    with pytest.raises(CorpusError, match=r"in.tsv: line 42, byte 5"):
        predict(tiny_model, table, output=tmp_path / "out.tsv")

    assert list(tmp_path.iterdir()) == [table]


def test_an_existing_output_is_refused_and_replaced_on_request(tmp_path, tiny_model, tables):
    output = tmp_path / "out.tsv"
    output.write_text("precious")

    with pytest.raises(ConfigError, match=r"out.tsv: already exists — .*--overwrite"):
        predict(tiny_model, tables / "test.tsv", output=output, config=FP32)
    assert output.read_text() == "precious"
    predict(tiny_model, tables / "test.tsv", output=output, overwrite=True)

    assert output.read_text().startswith("prediction\t")


def test_outputs_that_cannot_be_are_refused(tmp_path, tiny_model, tables):
    table = tmp_path / "in.tsv"
    table.write_text("text\nthe cat\n")

    for output, text in [
        (tmp_path, "is a folder; expected a file"),
        (table, "is also the input"),
        (tmp_path / "none" / "out.tsv", "there is no folder .*/none — make it, or choose"),
    ]:
        with pytest.raises(ConfigError, match=text):
            predict(tiny_model, table, output=output, overwrite=True)

    assert table.read_text() == "text\nthe cat\n"


def test_only_a_fine_tuned_model_predicts(tmp_path, tiny_checkpoint, tables):
    with pytest.raises(
        DataFormatError, match=r"expected a model folder, found 'checkpoint'.*finet"
    ):
        predict(tiny_checkpoint, tables / "test.tsv", output=tmp_path / "out.tsv")


def test_several_models_are_averaged(tmp_path, tiny_model, other_model, tables):
    outputs = [tmp_path / name for name in ("one.tsv", "other.tsv", "both.tsv")]
    for models, output in zip((tiny_model, other_model, [tiny_model, other_model]), outputs,
                              strict=True):  # fmt: skip
        report = predict(models, tables / "test.tsv", output=output, config=FP32)

    one, other, both = (
        np.array([row[1:] for row in rows_of(path)[1:]], dtype=float) for path in outputs
    )
    assert report.num_models == 2
    np.testing.assert_allclose(both, (one + other) / 2, atol=2e-6)  # six places are shown
    assert np.abs(one - other).max() > 0.01


def test_names_of_several_models_are_those_above_the_mean_threshold(
    tmp_path, tiny_checkpoint, tables
):
    rows = [(text, label.replace(" ", ",")) for text, label in rows_of(tables / "train.tsv")[1:]]
    table = tmp_path / "names.tsv"
    table.write_text("text\tlabel\n" + "".join(f"{text}\t{names}\n" for text, names in rows))
    config = dataclasses.replace(FP32, task="multi-label", num_epochs=1, baseline=False)
    finetune(tiny_checkpoint, train=table, output=tmp_path / "low", config=config)
    shutil.copytree(tmp_path / "low", tmp_path / "high")
    predict(tmp_path / "low", table, output=tmp_path / "low.tsv", config=FP32)
    middle = np.median(np.array([row[1:] for row in rows_of(tmp_path / "low.tsv")[1:]], float))
    for name, threshold in (("low", 0.0), ("high", 2 * float(middle))):
        path = tmp_path / name / "manifest.json"
        manifest = json.loads(path.read_text())
        manifest["thresholds"] = [threshold] * len(manifest["classes"])
        path.write_text(json.dumps(manifest))

    for models in (["low", "high"], ["high", "low"]):
        folders = [tmp_path / name for name in models]
        predict(folders, table, output=tmp_path / "both.tsv", config=FP32, overwrite=True)

        header, *found = rows_of(tmp_path / "both.tsv")
        for given, *shares in found:
            above = [
                n for n, share in zip(header[1:], shares, strict=True) if float(share) > middle
            ]
            assert given == ",".join(above)
        # Neither all of the names, as by the one model, nor none, as by the other.
        assert 0 < len(found[0][0].split(",")) < len(header) - 1


def test_models_of_other_labels_are_not_averaged(tmp_path, tiny_model, tables):
    other = tmp_path / "other"
    shutil.copytree(tiny_model, other)
    manifest = json.loads((other / "manifest.json").read_text())
    manifest["classes"] = manifest["classes"][::-1]
    (other / "manifest.json").write_text(json.dumps(manifest))

    with pytest.raises(ConfigError, match=r"other: predicts .*; expected .*, as in "):
        predict([tiny_model, other], tables / "test.tsv", output=tmp_path / "out.tsv")


def test_a_model_of_single_texts_is_given_no_pairs(tmp_path, tiny_model, tables):
    config = dataclasses.replace(FP32, pair_column="label")

    with pytest.raises(
        ConfigError, match="was trained on single texts, but pair_column is 'label'"
    ):
        predict(tiny_model, tables / "test.tsv", output=tmp_path / "out.tsv", config=config)


def test_rows_that_cannot_be_read_keep_their_places_on_request(tmp_path, tiny_model):
    table = tmp_path / "in.jsonl"
    table.write_text('oops\n{"text": "the cat"}\n{"body": 1}\n{"text": "a dog"}\n{}\n')

    with pytest.raises(
        CorpusError,
        match=r"in.jsonl: not valid JSON .* on line 1; no field 'text'; found 'body' on line 3; "
        r"no field 'text'; found none on line 5 — .*--on-bad-rows skip",
    ):
        predict(tiny_model, table, output=tmp_path / "out.tsv", config=FP32)
    config = dataclasses.replace(FP32, on_bad_rows="skip")
    report = predict(tiny_model, table, output=tmp_path / "out.tsv", config=config)

    found = rows_of(tmp_path / "out.tsv")[1:]
    assert (report.num_rows, report.num_skipped) == (5, 3)
    assert [bool(row[0]) for row in found] == [False, True, False, True, False]
    assert {len(row) for row in found} == {5}  # a prediction and four classes


def test_a_table_of_unreadable_rows_alone_has_empty_predictions(tmp_path, tiny_model):
    table = tmp_path / "in.jsonl"
    table.write_text("oops\noops\n")

    config = dataclasses.replace(FP32, on_bad_rows="skip")
    report = predict(tiny_model, table, output=tmp_path / "out.tsv", config=config)

    assert (report.num_rows, report.num_skipped) == (2, 2)


def test_huge_cells_make_small_chunks(tmp_path, tiny_model, tables, monkeypatch):
    done = []
    monkeypatch.setattr(tables_module, "_CHUNK_CHARACTERS", 100)

    predict(
        tiny_model, tables / "dev.tsv", output=tmp_path / "out.tsv", config=FP32,
        on_rows=done.append,
    )  # fmt: skip

    assert len(done) > 5
    assert done[-1] == 24


def test_an_open_file_is_written_to(tiny_model, tables):
    file = io.StringIO()

    predict(tiny_model, tables / "dev.tsv", output=file, config=FP32)

    lines = file.getvalue().splitlines()
    assert lines[0].startswith("prediction\t")
    assert len(lines) == 25


@pytest.mark.parity
def test_transformers_loads_the_folder_and_gives_the_same_logits(tiny_model, classifier, tables):
    transformers = pytest.importorskip("transformers")
    texts = [row[0] for row in rows_of(tables / "test.tsv")[1:]]
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tiny_model).eval()
    tokenize = transformers.AutoTokenizer.from_pretrained(tiny_model)

    inputs = tokenize(texts, padding=True, truncation=True, max_length=32, return_tensors="pt")
    with torch.no_grad():
        expected = theirs(**inputs).logits.numpy()

    found = classifier.logits(classifier.encoder.texts(texts))
    # fp32 sums in another order.
    np.testing.assert_allclose(found, expected, atol=1e-5)
    names = classifier.task.names
    assert tuple(theirs.config.id2label[i] for i in range(len(names))) == names
    assert theirs.config.problem_type == "single_label_classification"


def test_probabilities_do_not_depend_on_the_company(classifier):
    texts = ["the cat sees the river.", "a dog", "", "our teacher " * 20]

    together = classifier.outputs(classifier.encoder.texts(texts))

    for text, expected in zip(texts, together, strict=True):
        alone = classifier.outputs(classifier.encoder.texts([text]))
        np.testing.assert_allclose(alone[0], expected, atol=1e-5)  # fp32 sums in another order
        assert math.isclose(expected.sum(), 1, abs_tol=1e-9)
