"""Every kind of folder is told apart and described with its own figures."""

import json
import shutil
from collections.abc import Iterable

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from bertpre.artefacts import write_manifest
from bertpre.data.dataset import PretrainingData
from bertpre.data.parts import make_part
from bertpre.data.tokenizing import Part
from bertpre.errors import DataFormatError
from bertpre.inspection.inspection import inspect
from bertpre.inspection.sections import Bars, Curves, Examples, Grid, Picture, Section
from bertpre.interop.facts import Facts


def facts(sections: Iterable[Section], title: str) -> dict[str, str]:
    (found,) = [s for s in sections if isinstance(s, Facts) and s.title == title]
    return dict(found.rows)


def grid(sections: Iterable[Section], title: str) -> Grid:
    (found,) = [s for s in sections if isinstance(s, Grid) and s.title == title]
    return found


def bars(sections: Iterable[Section], title: str) -> dict[str, int]:
    (found,) = [s for s in sections if isinstance(s, Bars) and s.title == title]
    return dict(found.bars)


def test_a_tokenizer_shows_report_pieces_and_encodings(chain, tiny_documents):
    found = inspect(chain / "tokenizer", texts=["the cat [SEP] 猫"])

    assert found.kind == "tokenizer"
    entries = (chain / "tokenizer/vocab.txt").read_text(encoding="utf-8").splitlines()
    about = facts(found.sections, "tokenizer")
    assert about["entries"] == str(len(entries))
    assert about["control tokens"] == "[PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, [MASK] 4"
    assert facts(found.sections, "its text: corpus")["documents"] == str(len(tiny_documents))
    ordinary = entries[5:]
    starts = [entry for entry in ordinary if not entry.startswith("##")]
    pieces = facts(found.sections, "pieces")
    assert pieces["start a word"] == str(len(starts))
    assert pieces["rare"].endswith(entries[-1])
    lengths = bars(found.sections, "characters per piece")
    assert lengths["1"] == sum(len(entry.removeprefix("##")) == 1 for entry in ordinary)
    assert sum(lengths.values()) == len(ordinary)
    ((text, cut, number, unknown),) = grid(found.sections, "sample encodings").rows
    assert text == "the cat [SEP] 猫"
    assert cut.endswith("[UNK]")
    assert (len(cut.split()), int(unknown)) == (int(number), cut.split().count("[UNK]"))


def test_a_tokenizer_of_another_library_has_no_report(make_foreign, tmp_path):
    shutil.copy(make_foreign() / "vocab.txt", tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')

    found = inspect(tmp_path)

    assert found.kind == "tokenizer"
    assert "no report" in facts(found.sections, "tokenizer")["made by"]


@pytest.mark.parametrize(
    ("mode", "kind", "sample"),
    [("whole", "whole tokens", "5900 900 9001"), ("kmer:2", "2-mers with stride", "ACGTTGCAACGT")],
)
def test_samples_are_of_the_kind_that_the_tokenizer_cuts(tmp_path, mode, kind, sample):
    from bertpre.config.schema import BuildVocab
    from bertpre.tokenizer.vocabulary import build_vocab

    (tmp_path / "a.txt").write_text("5900 900 9001 ACGTTGCAACGT\n" * 3)
    options = BuildVocab(token_mode=mode, min_frequency=1)
    build_vocab([tmp_path / "a.txt"], tmp_path / "tokenizer", options)

    found = inspect(tmp_path / "tokenizer")

    assert facts(found.sections, "tokenizer")["kind"].startswith(kind)
    assert [row[0] for row in grid(found.sections, "sample encodings").rows] == [sample]


def test_data_shows_counts_lengths_pieces_and_examples(chain):
    found = inspect(chain / "data", num_examples=2)

    manifest = json.loads((chain / "data/manifest.json").read_text())["report"]
    assert found.kind == "data"
    about = facts(found.sections, "data")
    assert about["training examples"] == f"{manifest['training_examples']:,}"
    assert about["objective"] == "mlm-nsp"
    lengths = bars(found.sections, "tokens per example")
    assert sum(lengths.values()) == manifest["training_examples"]
    assert lengths["46-48"] >= manifest["full_length_examples"]
    rows = grid(found.sections, "pieces in the training text").rows
    # Each sentence of the fixture ends with a full stop, and most have "the".
    assert "the (" in rows[0][1]
    assert ". (" in rows[0][1]
    (examples,) = [s for s in found.sections if isinstance(s, Examples)]
    assert len(examples.lines) == 2
    assert all("[MASK]→" in line or "→" in line for line in examples.lines)


def test_each_bar_of_lengths_counts_the_examples_that_it_names(chain):
    data = PretrainingData(chain / "data")
    # [CLS] A [SEP] B [SEP]
    sizes = data.records["a_length"].astype(int) + data.records["b_length"] + 3

    lengths = bars(inspect(chain / "data").sections, "tokens per example")

    for name, count in lengths.items():
        low, high = map(int, name.split("-"))
        assert count == ((sizes >= low) & (sizes <= high)).sum()
    assert sum(lengths.values()) == len(sizes)


def test_a_run_shows_steps_losses_checkpoints_and_curves(chain):
    found = inspect(chain / "run")

    rows = [json.loads(line) for line in (chain / "run/metrics.jsonl").read_text().splitlines()]
    scores = {row["step"]: row["mlm_loss"] for row in rows if row["split"] == "eval"}
    best = min(scores, key=scores.__getitem__)
    about = facts(found.sections, "run")
    assert (found.kind, about["state"], about["steps"]) == ("run", "finished", "12 of 12")
    assert about["held out, best"].startswith(f"step {best}: MLM loss {scores[best]:.3f}")
    checkpoints = grid(found.sections, "checkpoints").rows
    assert [row[0] for row in checkpoints] == [
        "checkpoints/step-00000004", "checkpoints/step-00000008", "checkpoints/step-00000012",
        "final",
    ]  # fmt: skip
    marked = [row[0] for row in checkpoints if row[3] == "best"]
    assert marked == [f"checkpoints/step-{best:08d}"]
    assert {row[4] for row in checkpoints} == {"complete"}
    curves = {s.title: s for s in found.sections if isinstance(s, Curves)}
    assert list(curves["MLM loss (nats)"].lines["held out"]) == sorted(scores.items())
    assert set(curves["MLM loss (nats)"].lines) == {
        "training", "held out", "word frequencies alone"
    }  # fmt: skip
    (picture,) = [s for s in found.sections if isinstance(s, Picture)]
    assert picture.path == chain / "run/curves.png"


def test_an_unfinished_run_and_a_damaged_checkpoint_are_said_to_be_so(chain, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(chain / "run", run)
    shutil.rmtree(run / "final")
    damaged = run / "checkpoints/step-00000008/model.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:100])

    found = inspect(run)

    assert facts(found.sections, "run")["state"].startswith("unfinished")
    state = grid(found.sections, "checkpoints").rows[1][4]
    assert state.startswith("damaged: ")
    assert "expected" in state


def test_a_run_that_was_only_started_is_shown(chain, tmp_path):
    (tmp_path / "run").mkdir()
    shutil.copy(chain / "run/config.yaml", tmp_path / "run")

    found = inspect(tmp_path / "run")

    assert facts(found.sections, "run")["steps"] == "0 of 12"
    assert grid(found.sections, "checkpoints").rows == []


def test_a_checkpoint_shows_shapes_parameters_and_what_made_it(chain):
    found = inspect(chain / "run/final", texts=["a dog"])

    assert found.kind == "checkpoint"
    about = facts(found.sections, "checkpoint")
    assert about["made by"] == "pretrain"
    assert about["step"] == "12"
    rows = {row[0]: row[1:] for row in grid(found.sections, "tensors").rows}
    assert rows["bert.encoder.layer.*.intermediate.dense.weight"] == ["64 x 32", "2", "4,096"]
    # By hand: embeddings 90 + 48 + 2 rows of 32 and a norm; 2 layers of 4 (32 * 32 + 32) +
    # 32 * 64 + 64 + 64 * 32 + 32 + 2 norms of 64; pooler, MLM transform, norm, bias; NSP.
    embeddings = (90 + 48 + 2) * 32 + 64
    layer = 4 * (32 * 32 + 32) + (32 * 64 + 64) + (64 * 32 + 32) + 2 * 64
    heads = (32 * 32 + 32) * 2 + 64 + 90 + 2 * 32 + 2
    assert facts(found.sections, "size")["parameters"] == f"{embeddings + 2 * layer + heads:,}"
    assert facts(found.sections, "its text")["documents"] == "80"
    assert "mlm loss" in facts(found.sections, "held out, at this step")
    assert grid(found.sections, "sample encodings").rows[0][0] == "a dog"


def test_folders_of_other_libraries_and_imports_say_so(make_foreign, tmp_path):
    from bertpre.interop.import_checkpoint import import_checkpoint

    foreign = make_foreign("BertForQuestionAnswering")
    tensors = load_file(foreign / "model.safetensors")
    tensors["bert.embeddings.position_ids"] = np.arange(48)[None]
    save_file(tensors, foreign / "model.safetensors", metadata={"format": "pt"})
    import_checkpoint(foreign, tmp_path / "in")

    theirs, ours = inspect(foreign), inspect(tmp_path / "in")

    assert "another library" in facts(theirs.sections, "checkpoint")["made by"]
    names = {row[0] for row in grid(theirs.sections, "tensors").rows}
    assert "bert.embeddings.position_embeddings.weight" in names
    assert not any(name.endswith("position_ids") for name in names)
    about = facts(ours.sections, "checkpoint")
    assert about["made by"] == "import"
    assert about["tensors not used"] == "qa_outputs.bias, qa_outputs.weight"


def test_a_model_shows_labels_scores_and_history(chain):
    found = inspect(chain / "model")

    metrics = json.loads((chain / "model/metrics.json").read_text())
    assert found.kind == "model"
    about = facts(found.sections, "model")
    assert (about["task"], about["labels"]) == ("classification", "2")
    scores = grid(found.sections, "scores")
    assert list(scores.header[:4]) == ["", "part", "accuracy", "macro f1"]
    assert scores.rows[0][:3] == ["the model", "dev", f"{metrics['dev']['accuracy']:.4f}"]
    assert {row[0] for row in scores.rows} == {
        "the model", "most common label", "TF-IDF + linear",
    }  # fmt: skip
    assert [row[0] for row in grid(found.sections, "labels").rows] == ["cat", "dog"]
    (curves,) = [s for s in found.sections if isinstance(s, Curves)]
    assert [x for x, _ in curves.lines["dev"]] == [1, 2]
    pictures = {s.path.name for s in found.sections if isinstance(s, Picture)}
    assert "confusion_matrix.png" in pictures


def test_a_model_of_several_shows_their_scores_and_those_of_each_class(chain, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(chain / "model", folder)
    (folder / "fold-1").mkdir()
    for name in ("config.json", "model.safetensors"):
        (folder / name).rename(folder / "fold-1" / name)
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "members": ["fold-1"]}))
    metrics = json.loads((folder / "metrics.json").read_text())
    metrics["members"] = {"fold-1": {"dev": {"accuracy": 0.25, "loss": 1.5}}}
    metrics["per_class"] = {"dev": {"cat": {"precision": 0.5, "rows": 3}}}
    (folder / "metrics.json").write_text(json.dumps(metrics))

    found = inspect(folder)

    (fold,) = [row for row in grid(found.sections, "scores").rows if row[0] == "fold-1"]
    assert fold[:3] == ["fold-1", "dev", "0.2500"]
    classes = grid(found.sections, "classes, dev rows")
    assert (classes.header, classes.rows) == (
        ["label", "precision", "rows"],
        [["cat", "0.5000", "3"]],
    )


def test_a_model_of_numbers_shows_these_and_no_labels(chain, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(chain / "model", folder)
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text()) | {"task": "regression", "classes": ["score"]}
    manifest["class_counts"] = {"dev": {}}
    manifest["options"]["metric"] = "pearson"
    path.write_text(json.dumps(manifest))
    scores = {"spearman": 0.5, "pearson": 0.25, "rmse": 1.5, "loss": 2.0}
    metrics = {"dev": scores, "baselines": {"majority": {"dev": scores}}, "per_class": {"dev": {}}}
    (folder / "metrics.json").write_text(json.dumps(metrics))

    found = inspect(folder)

    about = facts(found.sections, "model")
    assert (about["task"], about["number"]) == ("regression", "score")
    assert {s.title for s in found.sections if isinstance(s, Grid)} == {"scores", "tensors"}
    table = grid(found.sections, "scores")
    assert table.header == ["", "part", "pearson", "spearman", "rmse", "loss"]
    assert [row[0] for row in table.rows] == ["the model", "mean label"]


@pytest.mark.parametrize(
    ("name", "title", "row"),
    [("model", "model", ("task", "classification")), ("run/final", "checkpoint", ("step", "12"))],
)
def test_an_onnx_folder_shows_its_files_and_what_the_model_is(chain, tmp_path, name, title, row):
    folder = tmp_path / "onnx"
    shutil.copytree(chain / name, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "model.safetensors").rename(folder / "model.onnx")
    write_manifest(folder, "onnx", manifest | {"exported_from": "a" * 64})

    found = inspect(folder)

    assert "model.onnx" in facts(found.sections, "exported for ONNX")
    assert row in facts(found.sections, title).items()
    assert facts(found.sections, title)["exported from"] == "a" * 12
    assert "tensors" not in {s.title for s in found.sections}


def test_texts_are_cut_by_the_tokenizer_of_a_run_or_of_several_models(chain, tmp_path):
    shutil.copytree(chain / "run", tmp_path / "run")
    shutil.rmtree(tmp_path / "run/final")
    shutil.copytree(chain / "model", tmp_path / "folds/fold-1")
    facts_of_all = {"task": "classification", "classes": [], "members": ["fold-1"]}
    write_manifest(tmp_path / "folds", "model", facts_of_all)

    for name in ("run", "folds"):
        table = grid(inspect(tmp_path / name, texts=["a dog"]).sections, "sample encodings")
        assert table.rows == [["a dog", "a dog", "2", "0"]]


def test_what_is_no_folder_of_ours_is_an_error(tmp_path):
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad/manifest.json").write_text("{")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/manifest.json").write_text('{"kind": "extension"}')

    for path, message in [
        (tmp_path / "none", "none: there is no such folder; expected a folder"),
        (tmp_path / "a.txt", "a.txt: is a file; expected a folder"),
        (tmp_path, "expected a tokenizer, data, run, checkpoint or model folder, found a.txt, bad"),
        (tmp_path / "bad", "manifest.json: not valid JSON"),
        (
            tmp_path / "other",
            "expected one of the kinds tokenizer, part, data, .* found 'extension'",
        ),
    ]:
        with pytest.raises(DataFormatError, match=message):
            inspect(path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", "{", "config.json: cannot be read"),
        ("config.json", "[]", "config.json: expected a JSON object"),
        ("model.safetensors", "x", "model.safetensors: not a whole safetensors file"),
        ("metrics.json", "{", "metrics.json: not valid JSON"),
    ],
)
def test_a_damaged_model_is_an_error(chain, tmp_path, name, content, message):
    from bertpre.errors import CheckpointError

    shutil.copytree(chain / "model", tmp_path / "model")
    (tmp_path / "model" / name).write_text(content)

    with pytest.raises(CheckpointError, match=message):
        inspect(tmp_path / "model")


def test_a_damaged_data_folder_is_an_error(tiny_data, tmp_path):
    shutil.copytree(tiny_data, tmp_path / "data")
    ids = tmp_path / "data/tokens/00000.ids.bin"
    ids.write_bytes(bytes(ids.stat().st_size))

    with pytest.raises(DataFormatError, match=r"00000\.ids\.bin: damaged: its sha256 is"):
        inspect(tmp_path / "data")


def test_a_part_of_a_corpus_shows_what_it_is_of(tmp_path, tiny_corpus, tiny_tokenizer):
    make_part([tiny_corpus], tokenizer=tiny_tokenizer, output=tmp_path / "part", part=Part(2, 3))

    found = inspect(tmp_path / "part", texts=["the cat"])

    about = facts(found.sections, "part of a corpus, for --merge")
    assert (found.kind, about["part"], about["of"]) == ("part", "2", "3")
    assert isinstance(found.sections[-1], Grid)
