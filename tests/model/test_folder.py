"""A folder becomes the model that its config.json names, and config.json describes a model."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from bertpre.config import schema
from bertpre.errors import CheckpointError
from bertpre.model.bert import BertModel
from bertpre.model.folder import load_model, read_model_config, save_model
from bertpre.model.heads import (
    BertForPreTraining,
    BertForSequenceClassification,
    BertForTokenClassification,
)

MakeConfig = Callable[..., schema.Model]
Build = Callable[..., BertForPreTraining]


@pytest.fixture
def models(make_config, randomize):
    config = make_config()
    found = [
        BertModel(config, vocab_size=50),
        BertModel(config, vocab_size=50, with_pooler=False),
        BertForPreTraining(config, vocab_size=50, with_nsp=True),
        BertForPreTraining(config, vocab_size=50, with_nsp=False),
        BertForSequenceClassification(config, vocab_size=50, num_labels=3, pooling="cls"),
        BertForSequenceClassification(config, vocab_size=50, num_labels=3, pooling="mean"),
        BertForSequenceClassification(config, vocab_size=50, num_labels=3, pooling="compare"),
        BertForTokenClassification(config, vocab_size=50, num_labels=3, has_crf=False),
        BertForTokenClassification(config, vocab_size=50, num_labels=3, has_crf=True),
    ]
    for model in found:
        randomize(model)
    return found


def test_every_kind_comes_back_as_it_was(models, tmp_path):
    for number, model in enumerate(models):
        folder = tmp_path / str(number)
        folder.mkdir()
        save_model(folder, model)

        again = load_model(folder)

        assert type(again) is type(model)
        assert not again.training
        assert dict(again.named_parameters()).keys() == dict(model.named_parameters()).keys()
        for name, parameter in model.named_parameters():
            assert torch.equal(parameter, again.get_parameter(name)), name


def test_the_encoder_alone_is_taken_out(models, tmp_path):
    save_model(tmp_path, models[2])

    encoder = load_model(tmp_path, encoder_only=True)

    assert isinstance(encoder, BertModel)
    assert encoder.pooler is not None
    assert torch.equal(encoder.pooler.dense.weight, models[2].bert.pooler.dense.weight)


def test_an_architecture_without_a_home_here_is_an_error(models, tmp_path):
    save_model(tmp_path, models[0], extra_config={"architectures": ["BertForQuestionAnswering"]})

    with pytest.raises(
        CheckpointError, match=r"architectures: bertpre has no 'ForQuestionAnswering' — "
    ):
        load_model(tmp_path)


def test_weights_without_the_head_that_the_config_names_are_an_error(models, tmp_path):
    save_model(tmp_path, models[2])
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["cls.seq_relationship.bias"]
    save_file(tensors, tmp_path / "model.safetensors")

    with pytest.raises(CheckpointError) as caught:
        load_model(tmp_path)

    assert str(caught.value) == (
        f"{tmp_path}: config.json says ForPreTraining, but the weights lack "
        "cls.seq_relationship.bias — the file is incomplete: copy it again"
    )
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == ["BertForPreTraining"]


def test_equal_weights_give_equal_bytes(build: Build, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir()
        save_model(folder, build(), extra_config={"pad_token_id": 3})

    for name in ("model.safetensors", "config.json"):
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()
    header = (folders[0] / "model.safetensors").read_bytes()[8:]
    assert header.startswith(b'{"__metadata__":{"format":"pt"},')


def test_saved_files_are_as_readable_as_any_other(build: Build, tmp_path: Path) -> None:
    (tmp_path / "plain").touch()

    save_model(tmp_path, build())

    modes = {(tmp_path / name).stat().st_mode for name in ("model.safetensors", "plain")}
    assert len(modes) == 1


def test_config_json_holds_hugging_face_keys(build: Build, tmp_path: Path) -> None:
    save_model(tmp_path, build(hidden_act="gelu_new"), extra_config={"pad_token_id": 3})

    assert json.loads((tmp_path / "config.json").read_text()) == {
        "architectures": ["BertForPreTraining"],
        "attention_probs_dropout_prob": 0.0,
        "classifier_dropout": None,
        "hidden_act": "gelu_new",
        "hidden_dropout_prob": 0.0,
        "hidden_size": 24,
        "initializer_range": 0.02,
        "intermediate_size": 40,
        "layer_norm_eps": 1e-12,
        "max_position_embeddings": 16,
        "model_type": "bert",
        "num_attention_heads": 3,
        "num_hidden_layers": 2,
        "pad_token_id": 3,
        "type_vocab_size": 2,
        "vocab_size": 50,
    }


def test_padding_is_entry_0_unless_the_tokenizer_has_it_elsewhere(
    build: Build, tmp_path: Path
) -> None:
    save_model(tmp_path, build())

    # Source: BertConfig of the transformers library, pad_token_id.
    assert json.loads((tmp_path / "config.json").read_text())["pad_token_id"] == 0


@pytest.mark.parametrize(
    ("changes", "pooling", "expected"),
    [
        ({}, "cls", {"model_type": "bert", "architectures": ["BertForSequenceClassification"]}),
        (
            {},
            "mean",
            {
                "model_type": "bertpre",
                "architectures": ["BertpreForSequenceClassification"],
                "pooling": "mean",
            },
        ),
        ({}, "compare", {"model_type": "bertpre", "pooling": "compare"}),
        (
            {"norm": "pre"},
            "cls",
            {"model_type": "bertpre", "norm": "pre", "position_embeddings": "learned"},
        ),
    ],
)
def test_config_json_of_a_classifier_names_its_kind_and_labels(
    changes: dict[str, Any],
    pooling: Any,
    expected: dict[str, Any],
    make_config: MakeConfig,
    tmp_path: Path,
) -> None:
    model = BertForSequenceClassification(
        make_config(**changes), vocab_size=50, num_labels=2, pooling=pooling
    )

    save_model(tmp_path, model)

    raw = read_model_config(tmp_path).raw
    assert raw | expected == raw
    assert raw["id2label"] == {"0": "LABEL_0", "1": "LABEL_1"}
    assert raw["label2id"] == {"LABEL_0": 0, "LABEL_1": 1}


@pytest.mark.parametrize(
    ("has_crf", "expected"),
    [
        (False, {"model_type": "bert", "architectures": ["BertForTokenClassification"]}),
        (
            True,
            {
                "model_type": "bertpre",
                "architectures": ["BertpreForTokenClassification"],
                "crf": True,
            },
        ),
    ],
)
def test_config_json_of_a_tagger_names_its_labels_and_its_crf(
    has_crf: bool, expected: dict[str, Any], make_config: MakeConfig, tmp_path: Path
) -> None:
    model = BertForTokenClassification(make_config(), vocab_size=50, num_labels=2, has_crf=has_crf)

    save_model(tmp_path, model)

    raw = read_model_config(tmp_path).raw
    assert raw | expected == raw
    assert ("crf" in raw) == has_crf
    assert raw["id2label"] == {"0": "LABEL_0", "1": "LABEL_1"}
    assert raw["label2id"] == {"LABEL_0": 0, "LABEL_1": 1}


def test_a_crf_that_the_weights_lack_is_an_error(models, tmp_path: Path) -> None:
    save_model(tmp_path, models[-2], extra_config={"model_type": "bertpre", "crf": True})

    with pytest.raises(CheckpointError, match=r"the weights lack crf.end_transitions, crf.start_"):
        load_model(tmp_path)


def write_config(folder: Path, **content: Any) -> None:
    (folder / "config.json").write_text(json.dumps(content))


def test_read_model_config_ignores_what_it_does_not_know(tmp_path: Path) -> None:
    write_config(
        tmp_path,
        vocab_size=402,
        hidden_size=16,
        num_attention_heads=2,
        output_past=True,
        norm="pre",  # not a key of model_type bert
        position_embedding_type="absolute",
        hidden_dropout_prob=0,
    )

    folder = read_model_config(tmp_path)

    assert folder.vocab_size == 402
    assert folder.config == schema.Model(
        hidden_size=16, num_attention_heads=2, hidden_dropout_prob=0.0
    )
    assert folder.raw["output_past"] is True


def test_read_model_config_takes_the_library_defaults_for_absent_keys(tmp_path: Path) -> None:
    write_config(tmp_path, model_type="bert")

    folder = read_model_config(tmp_path)

    assert folder.vocab_size == 30_522  # transformers.BertConfig()
    assert folder.config == schema.Model()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"model_type": "gpt2"}, 'model_type is "gpt2", expected "bert" or "bertpre" — bertpre'),
        (
            {"position_embedding_type": "relative_key"},
            'position_embedding_type is "relative_key", expected "absolute"',
        ),
        ({"is_decoder": True}, "is_decoder is true, expected false"),
        (
            {"hidden_act": "swish", "num_hidden_layers": 0},
            "num_hidden_layers: Input should be greater than or equal to 1, found 0; "
            "hidden_act: Input should be 'gelu', 'gelu_new' or 'relu', found 'swish'",
        ),
        (
            {"hidden_size": 20},
            "hidden_size 20 is not a multiple of num_attention_heads 12",
        ),
        ({"vocab_size": "many"}, "vocab_size: Input should be a valid integer, found 'many'"),
    ],
)
def test_read_model_config_refuses_what_bertpre_does_not_compute(
    content: dict[str, Any], message: str, tmp_path: Path
) -> None:
    write_config(tmp_path, **content)

    with pytest.raises(CheckpointError) as caught:
        read_model_config(tmp_path)

    assert f"{tmp_path}/config.json: {message}" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "config.json: not valid JSON"),
        ("[1, 2]", r"config.json: expected a JSON object, found \[1, 2\]"),
        (None, "has no config.json — use a checkpoint or a Hugging Face BERT folder"),
    ],
)
def test_read_model_config_refuses_a_file_that_is_none(
    text: str | None, message: str, tmp_path: Path
) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)

    with pytest.raises(CheckpointError, match=message):
        read_model_config(tmp_path)


def test_other_names_of_an_activation_are_known(tmp_path: Path) -> None:
    # The tanh form by the names of later versions; see transformers' ACT2FN.
    write_config(tmp_path, hidden_act="gelu_pytorch_tanh")

    assert read_model_config(tmp_path).config.hidden_act == "gelu_new"


def test_the_config_of_2018_has_another_name(tmp_path: Path) -> None:
    write_config(tmp_path, hidden_size=24, num_attention_heads=2)
    (tmp_path / "config.json").rename(tmp_path / "bert_config.json")

    assert read_model_config(tmp_path).config.hidden_size == 24
