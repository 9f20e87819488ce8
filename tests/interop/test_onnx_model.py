"""model.onnx computes what we compute, at shapes it was not traced with."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertpre.config.schema import Finetune
from bertpre.errors import InteropError
from bertpre.finetuning.finetune import finetune
from bertpre.inspection.inspection import inspect
from bertpre.interop import onnx_model
from bertpre.interop.export import export
from bertpre.interop.facts import Facts
from bertpre.model.flat import flatten
from bertpre.model.folder import load_model
from bertpre.model.heads import BertForSequenceClassification, BertForTokenClassification


@pytest.fixture(scope="module")
def onnxruntime():
    for name in ("onnx", "onnxscript"):
        pytest.importorskip(name, reason=f"the package {name} is not installed")
    return pytest.importorskip("onnxruntime", reason="the package onnxruntime is not installed")


def test_without_the_libraries_it_says_what_to_install(chain, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)

    with pytest.raises(InteropError) as caught:
        export(chain / "run", tmp_path / "out", to="onnx")

    assert str(caught.value).startswith("ONNX needs the packages onnx, onnxruntime and onnxscript")
    assert caught.value.hint == "pip install 'bertpre[onnx]'"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parity
def test_a_checkpoint_gives_logits_and_hidden_states_of_any_batch(onnxruntime, chain, tmp_path):
    report = export(chain / "run", tmp_path / "out", to="onnx")

    session = onnxruntime.InferenceSession(
        tmp_path / "out/model.onnx", providers=["CPUExecutionProvider"]
    )
    assert [given.name for given in session.get_inputs()] == [
        "input_ids", "attention_mask", "token_type_ids"
    ]  # fmt: skip
    assert all(given.shape == ["batch", "length"] for given in session.get_inputs())
    names = [found.name for found in session.get_outputs()]
    assert names == ["logits", "seq_relationship_logits", "last_hidden_state", "pooler_output"]
    ids = torch.randint(90, (5, 33), generator=torch.Generator().manual_seed(1))
    keep = torch.arange(33) < torch.tensor([[33], [1], [20], [7], [32]])
    outputs = session.run(
        ["last_hidden_state"],
        {
            "input_ids": ids.numpy(),
            "attention_mask": keep.long().numpy(),
            "token_type_ids": torch.zeros_like(ids).numpy(),
        },
    )
    model = load_model(chain / "run/final", encoder_only=True)
    with torch.no_grad():
        expected = model(flatten(ids, keep)).hidden_states
    np.testing.assert_allclose(outputs[0][keep.numpy()], expected.numpy(), atol=1e-5)
    assert report.largest_difference is not None
    assert report.largest_difference < 1e-4
    seen = inspect(tmp_path / "out")
    assert seen.kind == "onnx"
    assert isinstance(seen.sections[0], Facts)
    assert "model.onnx" in seen.sections[0].rows
    card = (tmp_path / "out/README.md").read_text(encoding="utf-8")
    assert 'onnxruntime.InferenceSession("model.onnx")' in card
    content = (tmp_path / "out/model.onnx").read_bytes()  # promise: no paths in an artefact
    assert str(Path(onnx_model.__file__).parents[1]).encode() not in content
    assert b"site-packages" not in content


@pytest.mark.slow
@pytest.mark.parity
def test_variants_and_mean_pooling_go_too(onnxruntime, chain, tutorial_checkpoint, tmp_path):
    recipe = Finetune(num_epochs=1, device="cpu", precision="fp32", pooling="mean")
    finetune(
        tutorial_checkpoint, train=chain / "train.tsv", output=tmp_path / "mean", config=recipe
    )

    export(tmp_path / "mean", tmp_path / "out", to="onnx")

    session = onnxruntime.InferenceSession(
        tmp_path / "out/model.onnx", providers=["CPUExecutionProvider"]
    )
    given = [np.array([[2, 7, 9, 3, 0]]), np.array([[1, 1, 1, 1, 0]]), np.zeros((1, 5), np.int64)]
    (logits,) = session.run(["logits"], dict(zip(onnx_model.INPUTS, given, strict=True)))
    model = load_model(tmp_path / "mean")
    assert isinstance(model, BertForSequenceClassification)
    with torch.no_grad():
        expected = model(flatten(torch.tensor([[2, 7, 9, 3]]), torch.ones(1, 4)))
    np.testing.assert_allclose(logits, expected.numpy(), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parity
def test_a_comparison_of_pairs_goes_too(onnxruntime, chain, tmp_path):
    rows = (chain / "train.tsv").read_text(encoding="utf-8").splitlines()[1:]
    table = tmp_path / "pairs.tsv"
    table.write_text("other\ttext\tlabel\n" + "".join(f"the cat\t{row}\n" for row in rows))
    recipe = Finetune(
        num_epochs=1, device="cpu", precision="fp32", pooling="compare", pair_column="other"
    )
    finetune(chain / "run", train=table, output=tmp_path / "compare", config=recipe)

    export(tmp_path / "compare", tmp_path / "out", to="onnx")

    session = onnxruntime.InferenceSession(
        tmp_path / "out/model.onnx", providers=["CPUExecutionProvider"]
    )
    given = [
        np.array([[2, 7, 9, 3, 0]]), np.array([[1, 1, 1, 1, 0]]), np.array([[0, 0, 1, 1, 0]])
    ]  # fmt: skip
    (logits,) = session.run(["logits"], dict(zip(onnx_model.INPUTS, given, strict=True)))
    model = load_model(tmp_path / "compare")
    with torch.no_grad():
        ids, types = torch.tensor([[2, 7, 9, 3]]), torch.tensor([[0, 0, 1, 1]])
        expected = model(flatten(ids, torch.ones(1, 4), types))
    np.testing.assert_allclose(logits, expected.numpy(), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parity
def test_a_tagger_gives_scores_of_each_token_and_those_of_its_crf(
    onnxruntime, make_tagger, tmp_path, monkeypatch
):
    folder = make_tagger(has_crf=True)

    report = export(folder, tmp_path / "out", to="onnx")

    assert report.largest_difference is not None
    assert report.largest_difference < 1e-4
    card = (tmp_path / "out/README.md").read_text(encoding="utf-8")
    assert "the tags are the sequence with the highest sum of `scores`, of `transitions[a, b]`" in (
        card
    )
    monkeypatch.chdir(tmp_path / "out")
    found: dict[str, Any] = {}
    exec(card.split("```python\n")[1].split("```")[0], found)
    model, pieces = load_model(folder), found["pieces"]
    assert isinstance(model, BertForTokenClassification)
    assert model.crf is not None
    with torch.no_grad():
        ids, mask = (torch.from_numpy(pieces[name]) for name in onnx_model.INPUTS[:2])
        expected = model(flatten(ids, mask)).numpy()
    np.testing.assert_allclose(found["outputs"]["logits"][0], expected, atol=1e-5)
    assert found["scores"].shape == (4, 3)
    crf = dict(model.crf.named_parameters())
    assert found["outputs"].keys() == {"logits", *crf}
    for name, part in crf.items():
        np.testing.assert_array_equal(found["outputs"][name], part.detach().numpy())


@pytest.mark.slow
def test_other_outputs_are_an_error_and_leave_nothing(onnxruntime, chain, tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_model, "_TOLERANCE", -1.0)

    with pytest.raises(
        InteropError, match=r"the ONNX model's last_hidden_state of shape \[5, 32\]"
    ):
        export(chain / "run", tmp_path / "out", to="onnx", encoder_only=True)

    assert list(tmp_path.iterdir()) == []


def test_outputs_that_are_no_numbers_are_an_error(chain):
    model = load_model(chain / "run/final")
    padded = onnx_model.PaddedModel(model)

    class Broken:
        """What onnxruntime would be for a graph that gives nan."""

        def run(self, names, given):
            outputs = padded.outputs(*(torch.from_numpy(given[name]) for name in onnx_model.INPUTS))
            return [np.full_like(outputs[name].detach().numpy(), np.nan) for name in names]

    with pytest.raises(InteropError, match=r"last_hidden_state of shape \[5, 32\] differs by nan"):
        onnx_model._compare(Broken(), model, ["last_hidden_state"])


@pytest.mark.parametrize("kind", ["pretraining", "tagger", "crf"])
def test_the_padded_model_is_ours(chain, make_tagger, kind):
    is_tagger = kind != "pretraining"
    folder = make_tagger(has_crf=kind == "crf") if is_tagger else chain / "run/final"
    model = load_model(folder)
    ids, mask, segments = onnx_model._example(model, batch_size=3, length=9)

    found = onnx_model.PaddedModel(model).outputs(ids, mask, segments)

    expected = onnx_model._our_outputs(model, ids, mask, segments)
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        real = tensor[mask.bool()] if tensor.dim() == 3 else tensor
        torch.testing.assert_close(real, expected[name], atol=1e-5, rtol=0)
