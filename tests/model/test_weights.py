"""Weights under Hugging Face's names: which spellings load, and which files are refused."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from bertpre.config import schema
from bertpre.errors import CheckpointError
from bertpre.model.bert import BertModel
from bertpre.model.folder import read_model_config, save_model
from bertpre.model.heads import (
    BertForPreTraining,
    BertForSequenceClassification,
    BertForTokenClassification,
)
from bertpre.model.names import (
    CLASSIFIER,
    CLASSIFIER_BIAS,
    CRF,
    MLM_BIAS,
    MLM_HEAD,
    NSP_HEAD,
    POOLER,
    POSITIONS,
    WORDS,
    has_trained_pooler,
    is_classifier,
    is_encoder,
    is_pooler,
    plain_names,
)
from bertpre.model.weights import load_hugging_face, read_weights, to_hugging_face

MakeConfig = Callable[..., schema.Model]
Build = Callable[..., BertForPreTraining]


def zeros_like(model: BertForPreTraining) -> BertForPreTraining:
    twin = BertForPreTraining(
        model.bert.config, vocab_size=model.bert.vocab_size, with_nsp=model.nsp is not None
    )
    for parameter in twin.parameters():
        nn.init.zeros_(parameter)
    return twin


def assert_same_weights(model: nn.Module, other: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, other.get_parameter(name)), name


@pytest.mark.parametrize(
    "changes",
    [{}, {"with_nsp": False}, {"norm": "pre", "position_embeddings": "sinusoidal"}],
    ids=["nsp", "mlm", "tutorial"],
)
def test_weights_survive_a_round_trip_through_a_folder(
    changes: dict[str, Any], build: Build, tmp_path: Path
) -> None:
    model = build(**changes)
    twin = zeros_like(model)

    save_model(tmp_path, model)
    report = load_hugging_face(twin, read_weights(tmp_path))
    folder = read_model_config(tmp_path)

    assert_same_weights(model, twin)
    assert report.new == report.unused == ()
    assert set(report.loaded) == set(to_hugging_face(model))
    assert folder.config == model.bert.config
    assert folder.vocab_size == 50


def test_hugging_face_tensors_are_contiguous_fp32_copies_in_order(build: Build) -> None:
    model = build().bfloat16()

    tensors = to_hugging_face(model)

    assert list(tensors) == sorted(tensors)
    assert all(t.dtype == torch.float32 and t.is_contiguous() for t in tensors.values())
    assert "cls.predictions.decoder.weight" not in tensors
    assert tensors["bert.encoder.layer.1.attention.self.key.weight"].shape == (24, 24)
    tensors["cls.predictions.bias"].zero_()
    assert model.mlm.bias.any()


def old_spelling(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): tensor
        for name, tensor in tensors.items()
    }


def with_buffers_and_decoder(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {
        **tensors,
        "bert.embeddings.position_ids": torch.arange(16)[None],
        "cls.predictions.decoder.weight": tensors["bert.embeddings.word_embeddings.weight"],
        "cls.predictions.decoder.bias": tensors["cls.predictions.bias"],
    }


def with_decoder_bias_only(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    tensors["cls.predictions.decoder.bias"] = tensors.pop("cls.predictions.bias")
    return tensors


def in_half_precision(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.half() for name, tensor in tensors.items()}


@pytest.mark.parametrize(
    "spell", [old_spelling, with_buffers_and_decoder, with_decoder_bias_only, in_half_precision]
)
def test_other_spellings_of_the_same_weights_load(
    spell: Callable[[dict[str, Tensor]], dict[str, Tensor]], build: Build
) -> None:
    model = build().half().float()  # so that half precision is exact
    twin = zeros_like(model)

    report = load_hugging_face(twin, spell(to_hugging_face(model)))

    assert_same_weights(model, twin)
    assert report.new == report.unused == ()


def test_an_encoder_without_prefix_loads_and_the_rest_is_listed(build: Build) -> None:
    source, model = build(), build()
    tensors = {
        name.removeprefix("bert."): tensor
        for name, tensor in to_hugging_face(source).items()
        if name.startswith("bert.") and "pooler" not in name
    }
    tensors["qa_outputs.weight"] = torch.zeros(2, 24)

    report = load_hugging_face(model, tensors)

    assert report.unused == ("qa_outputs.weight",)
    assert report.new == (
        "bert.pooler.dense.bias",
        "bert.pooler.dense.weight",
        "cls.predictions.bias",
        "cls.predictions.transform.LayerNorm.bias",
        "cls.predictions.transform.LayerNorm.weight",
        "cls.predictions.transform.dense.bias",
        "cls.predictions.transform.dense.weight",
        "cls.seq_relationship.bias",
        "cls.seq_relationship.weight",
    )


def test_a_head_for_other_labels_stays_new(make_config: MakeConfig) -> None:
    five, three = (
        BertForSequenceClassification(make_config(), vocab_size=50, num_labels=n, pooling="cls")
        for n in (5, 3)
    )
    before = three.classifier.weight.clone()

    report = load_hugging_face(three, to_hugging_face(five))

    assert report.new == report.unused == ("classifier.bias", "classifier.weight")
    assert torch.equal(three.classifier.weight, before)


def test_a_tagger_for_other_tags_leaves_only_its_encoder(make_config: MakeConfig) -> None:
    five, three = (
        BertForTokenClassification(make_config(), vocab_size=50, num_labels=n, has_crf=True)
        for n in (5, 3)
    )

    report = load_hugging_face(three, to_hugging_face(five))

    assert (
        report.new
        == report.unused
        == (
            "classifier.bias",
            "classifier.weight",
            "crf.end_transitions",
            "crf.start_transitions",
            "crf.transitions",
        )
    )


def test_an_untied_decoder_matters_only_with_an_mlm_head(
    build: Build, make_config: MakeConfig
) -> None:
    tensors = to_hugging_face(build())
    tensors["cls.predictions.decoder.weight"] = torch.zeros(50, 24)
    classifier = BertForSequenceClassification(
        make_config(), vocab_size=50, num_labels=3, pooling="cls"
    )

    load_hugging_face(classifier, tensors)
    with pytest.raises(CheckpointError) as caught:
        load_hugging_face(build(), tensors, source="run/final")

    assert str(caught.value) == (
        "run/final: cls.predictions.decoder.weight differs from "
        "bert.embeddings.word_embeddings.weight, but both are "
        "bert.embeddings.word_embeddings.weight in bertpre — bertpre ties the MLM decoder to the "
        "word embedding; use a checkpoint that does"
    )


def test_no_matching_name_is_an_error(build: Build) -> None:
    tensors = {f"h.{i}.attn.c_attn.weight": torch.zeros(2) for i in range(4)}

    with pytest.raises(CheckpointError) as caught:
        load_hugging_face(build(), tensors, source="gpt")

    assert str(caught.value) == (
        "gpt: none of its 4 tensors has a name of BERT's (the first: h.0.attn.c_attn.weight, "
        "h.1.attn.c_attn.weight, h.2.attn.c_attn.weight, …) — is this a BERT checkpoint?"
    )


def test_another_vocabulary_is_an_error_with_both_shapes(build: Build, make_config) -> None:
    model = BertForPreTraining(make_config(), vocab_size=53, with_nsp=True)

    with pytest.raises(CheckpointError) as caught:
        load_hugging_face(model, to_hugging_face(build()))

    assert str(caught.value) == (
        "the weights: bert.embeddings.word_embeddings.weight is [50, 24], the model needs "
        "[53, 24] (and 1 more) — the sizes in config.json, the vocabulary and the weights must "
        "agree"
    )


def test_an_encoder_with_a_gap_is_an_error_and_changes_nothing(build: Build) -> None:
    model = build()
    before = to_hugging_face(model)
    tensors = {
        name: tensor + 1 for name, tensor in before.items() if ".layer.1.attention" not in name
    }

    with pytest.raises(CheckpointError) as caught:
        load_hugging_face(model, tensors)

    assert str(caught.value) == (
        "the weights: 10 of the encoder's 37 tensors are missing: "
        "bert.encoder.layer.1.attention.output.LayerNorm.bias, "
        "bert.encoder.layer.1.attention.output.LayerNorm.weight, "
        "bert.encoder.layer.1.attention.output.dense.bias, … — the file is incomplete, or "
        "config.json describes another model"
    )
    assert all(torch.equal(t, before[name]) for name, t in to_hugging_face(model).items())


def test_weights_that_cannot_be_written_are_an_error(build: Build, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").mkdir()

    with pytest.raises(CheckpointError, match=r"model.safetensors: cannot be written .*free space"):
        save_model(tmp_path, build())


def test_legacy_weights_are_read(build: Build, tmp_path: Path) -> None:
    tensors = to_hugging_face(build())
    torch.save(tensors, tmp_path / "pytorch_model.bin")

    read = read_weights(tmp_path)

    assert read.keys() == tensors.keys()
    assert all(torch.equal(read[name], tensors[name]) for name in tensors)


def test_a_folder_without_weights_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(
        CheckpointError, match=r"has neither model.safetensors nor pytorch_model.bin — use a"
    ):
        read_weights(tmp_path)


def test_a_damaged_safetensors_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"a": torch.zeros(1000)}, path)
    path.write_bytes(path.read_bytes()[:2000])

    with pytest.raises(
        CheckpointError, match=r"model.safetensors: not a whole safetensors file .* again"
    ):
        read_weights(tmp_path)


@pytest.mark.parametrize("content", [b"", b"junk" * 100, b"PK\x03\x04junk", None])
def test_a_damaged_legacy_file_is_an_error(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "pytorch_model.bin"
    if content is None:
        torch.save({"a": torch.zeros(1000)}, path)
        content = path.read_bytes()[:2000]
    path.write_bytes(content)

    with pytest.raises(CheckpointError, match=r"pytorch_model.bin: (not a whole|holds more than)"):
        read_weights(tmp_path)


class RunsCode:
    """Makes a folder when unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.path,)


def test_a_legacy_file_that_would_run_code_is_refused(tmp_path: Path) -> None:
    torch.save({"a": RunsCode(str(tmp_path / "made"))}, tmp_path / "pytorch_model.bin")

    with pytest.raises(CheckpointError) as caught:
        read_weights(tmp_path)

    assert str(caught.value) == (
        f"{tmp_path}/pytorch_model.bin: holds more than tensors, or is damaged; bertpre runs no "
        "code from it — convert it to model.safetensors where you trust it"
    )
    assert not (tmp_path / "made").exists()


def test_a_legacy_file_of_something_else_is_an_error(tmp_path: Path) -> None:
    torch.save({"model": {"a": torch.zeros(2)}}, tmp_path / "pytorch_model.bin")

    with pytest.raises(CheckpointError, match="expected names with tensors, found something else"):
        read_weights(tmp_path)


def test_a_bare_encoder_exchanges_weights_too(build: Build, make_config: MakeConfig) -> None:
    source = build()
    encoder = BertModel(make_config(), vocab_size=50)

    report = load_hugging_face(encoder, to_hugging_face(source))

    assert_same_weights(encoder, source.bert)
    assert report.new == ()
    assert all(name.startswith("cls.") for name in report.unused)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        # What DataParallel, a training wrapper and a sentence encoder put before the names.
        ("module.bert.", "bert."),
        ("model.", "bert."),
        ("0.auto_model.", "bert."),
        ("bert.", "bert."),
        ("", ""),
    ],
)
def test_plain_names_drops_what_lies_around_one_encoder(given: str, expected: str) -> None:
    inside = ["embeddings.word_embeddings.weight", "pooler.dense.bias"]

    found = plain_names([given + name for name in inside])

    assert list(found.values()) == [expected + name for name in inside]


def test_plain_names_drops_the_same_from_the_heads() -> None:
    names = ["module.bert.embeddings.word_embeddings.weight", "module.cls.predictions.bias"]

    assert plain_names(names)[names[1]] == "cls.predictions.bias"


def test_plain_names_leaves_two_encoders_and_other_networks_alone() -> None:
    two = ["a.bert.embeddings.word_embeddings.weight", "b.bert.embeddings.word_embeddings.weight"]

    assert plain_names(two) == {name: name for name in two}
    # Its name ends like ours, but it is another network.
    other = "distilbert.embeddings.word_embeddings.weight"
    assert plain_names([other])[other] == "bert.embeddings.word_embeddings.weight"


@pytest.mark.parametrize("legacy", [False, True])
def test_a_model_in_several_files_is_read_as_one(
    legacy: bool, build: Build, tmp_path: Path
) -> None:
    tensors = to_hugging_face(build())
    names = sorted(tensors)
    parts = [{name: tensors[name] for name in names[i::2]} for i in range(2)]
    whole = "pytorch_model.bin" if legacy else "model.safetensors"
    files = [f"part-{i}{Path(whole).suffix}" for i in range(2)]
    for file, part in zip(files, parts, strict=True):
        (torch.save if legacy else save_file)(part, tmp_path / file)
    weight_map = {name: files[i] for i, part in enumerate(parts) for name in part}
    index = tmp_path / f"{whole}.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))

    read = read_weights(tmp_path)

    assert read.keys() == tensors.keys()
    assert all(torch.equal(read[name], tensors[name]) for name in tensors)
    (tmp_path / files[1]).unlink()
    with pytest.raises(CheckpointError, match=rf"files that are not in the folder: {files[1]} — "):
        read_weights(tmp_path)
    index.write_text("[]")
    with pytest.raises(CheckpointError, match=r"index.json: expected JSON with a weight_map"):
        read_weights(tmp_path)


def test_an_index_cannot_name_files_outside_its_folder(build: Build, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    save_file(to_hugging_face(build()), tmp_path / "outside.safetensors")
    index = {"weight_map": {"bert.pooler.dense.bias": "../outside.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))

    with pytest.raises(CheckpointError, match=r"not in the folder: outside\.safetensors"):
        read_weights(folder)


def test_weights_of_other_libraries_are_named(tmp_path: Path) -> None:
    (tmp_path / "tf_model.h5").touch()
    (tmp_path / "bert_model.ckpt.index").touch()

    with pytest.raises(CheckpointError) as caught:
        read_weights(tmp_path)

    assert str(caught.value) == (
        f"{tmp_path}: has neither model.safetensors nor pytorch_model.bin, but "
        "bert_model.ckpt.index, tf_model.h5, which bertpre cannot read — convert it to PyTorch "
        "with the transformers library first"
    )


def test_a_pooler_is_trained_if_it_has_a_head_or_a_bias() -> None:
    weight, zero, one = torch.ones(2, 2), torch.zeros(2), torch.ones(2)

    assert not has_trained_pooler({})
    assert not has_trained_pooler({"pooler.dense.weight": weight, "pooler.dense.bias": zero})
    assert has_trained_pooler({"pooler.dense.weight": weight, "pooler.dense.bias": one})
    assert has_trained_pooler(
        {"bert.pooler.dense.bias": zero, "cls.seq_relationship.weight": weight}
    )
    assert not has_trained_pooler({"cls.seq_relationship.weight": weight})


def test_the_parts_beside_the_encoder_are_what_the_models_have(
    build: Build, make_config: MakeConfig
) -> None:
    classifier = BertForSequenceClassification(
        make_config(), vocab_size=50, num_labels=3, pooling="cls"
    )

    tagger = BertForTokenClassification(make_config(), vocab_size=50, num_labels=3, has_crf=True)

    pretraining, labels = to_hugging_face(build()).keys(), to_hugging_face(classifier).keys()
    tags = to_hugging_face(tagger).keys()

    beside = {name for name in pretraining | labels | tags if not is_encoder(name)}
    assert beside == POOLER | MLM_HEAD | NSP_HEAD | CLASSIFIER | CRF
    assert {name for name in tags if not is_encoder(name)} == CLASSIFIER | CRF
    assert {name for name in beside if is_pooler(name)} == POOLER
    assert {name for name in beside if is_classifier(name)} == CLASSIFIER | CRF
    assert {MLM_BIAS, CLASSIFIER_BIAS, WORDS, POSITIONS} <= pretraining | labels
