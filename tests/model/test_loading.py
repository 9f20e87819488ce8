"""A folder becomes the model that its config.json names."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from bertpre.errors import CheckpointError
from bertpre.model.bert import BertModel
from bertpre.model.heads import BertForPreTraining, BertForSequenceClassification
from bertpre.model.loading import load_model
from bertpre.model.weights import save_weights


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
    ]
    for model in found:
        randomize(model)
    return found


def test_every_kind_comes_back_as_it_was(models, tmp_path):
    for number, model in enumerate(models):
        folder = tmp_path / str(number)
        folder.mkdir()
        save_weights(folder, model)

        again = load_model(folder)

        assert type(again) is type(model)
        assert not again.training
        assert dict(again.named_parameters()).keys() == dict(model.named_parameters()).keys()
        for name, parameter in model.named_parameters():
            assert torch.equal(parameter, again.get_parameter(name)), name


def test_the_encoder_alone_is_taken_out(models, tmp_path):
    save_weights(tmp_path, models[2])

    encoder = load_model(tmp_path, encoder_only=True)

    assert isinstance(encoder, BertModel)
    assert encoder.pooler is not None
    assert torch.equal(encoder.pooler.dense.weight, models[2].bert.pooler.dense.weight)


def test_an_architecture_without_a_home_here_is_an_error(models, tmp_path):
    save_weights(tmp_path, models[0], extra_config={"architectures": ["BertForQuestionAnswering"]})

    with pytest.raises(
        CheckpointError, match=r"'ForQuestionAnswering' is none that bertpre has — "
    ):
        load_model(tmp_path)


def test_weights_without_the_head_that_the_config_names_are_an_error(models, tmp_path):
    save_weights(tmp_path, models[2])
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["cls.seq_relationship.bias"]
    save_file(tensors, tmp_path / "model.safetensors")

    with pytest.raises(CheckpointError) as caught:
        load_model(tmp_path)

    assert str(caught.value) == (
        f"{tmp_path}: config.json says ForPreTraining, but the weights lack "
        "cls.seq_relationship.bias — the file is not whole: copy it again"
    )
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == ["BertForPreTraining"]
