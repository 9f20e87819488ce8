"""Our BERT against that of the transformers library, on the same weights, both ways."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bertpre.config import schema
from bertpre.model.bert import BertModel
from bertpre.model.folder import load_model, read_model_config, save_model
from bertpre.model.heads import (
    BertForPreTraining,
    BertForSequenceClassification,
    BertForTokenClassification,
)
from bertpre.model.weights import load_hugging_face, read_weights, to_hugging_face

os.environ["HF_HUB_OFFLINE"] = "1"  # read when the library is imported
transformers = pytest.importorskip("transformers", reason="the transformers library is not there")
transformers.utils.logging.disable_progress_bar()

pytestmark = pytest.mark.parity

MakeConfig = Callable[..., schema.Model]
Randomize = Callable[[nn.Module], None]
ACTIVATIONS = ["gelu", "gelu_new", "relu"]
CLOSE = {"atol": 1e-5, "rtol": 1e-5}  # fp32, two layers


@pytest.fixture(params=ACTIVATIONS)
def config(request: pytest.FixtureRequest, make_config: MakeConfig) -> schema.Model:
    return make_config(hidden_act=request.param)


def their_model(name: str, config: schema.Model, randomize: Randomize, **options: Any) -> Any:
    theirs = transformers.BertConfig(
        vocab_size=50,
        hidden_size=config.hidden_size,
        num_hidden_layers=config.num_hidden_layers,
        num_attention_heads=config.num_attention_heads,
        intermediate_size=config.intermediate_size,
        hidden_act=config.hidden_act,
        max_position_embeddings=config.max_position_embeddings,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        **options,
    )
    model = getattr(transformers, name)(theirs)
    randomize(model)
    return model.eval()


def inputs(pairs) -> dict[str, Tensor]:
    return {
        "input_ids": pairs.input_ids,
        "attention_mask": pairs.attention_mask.long(),
        "token_type_ids": pairs.token_type_ids,
    }


def our_gradients(model: BertForPreTraining) -> dict[str, Tensor]:
    """Name the gradients as `to_hugging_face` names the parameters."""
    gradients = [parameter.grad for parameter in model.parameters()]
    with torch.no_grad():
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter.copy_(gradient)
    return to_hugging_face(model)


def test_encoder_equals_theirs(config: schema.Model, randomize: Randomize, pairs) -> None:
    theirs = their_model("BertModel", config, randomize)
    ours = BertModel(config, vocab_size=50).eval()
    report = load_hugging_face(ours, theirs.state_dict())

    expected = theirs(**inputs(pairs))
    output = ours(pairs.flat)

    assert report.new == report.unused == ()
    keep = pairs.attention_mask
    torch.testing.assert_close(output.hidden_states, expected.last_hidden_state[keep], **CLOSE)
    torch.testing.assert_close(output.pooled_output, expected.pooler_output, **CLOSE)
    padded = ours.forward_padded(**inputs(pairs))
    torch.testing.assert_close(padded[keep], expected.last_hidden_state[keep], **CLOSE)


def test_pretraining_logits_losses_and_gradients_equal_theirs(
    config: schema.Model, randomize: Randomize, pairs, to_predict: Callable[..., Any]
) -> None:
    theirs = their_model("BertForPreTraining", config, randomize)
    ours = BertForPreTraining(config, vocab_size=50, with_nsp=True)
    report = load_hugging_face(ours, theirs.state_dict())

    expected = theirs(
        **inputs(pairs), labels=pairs.mlm_labels, next_sentence_label=pairs.nsp_labels
    )
    expected.loss.backward()
    logits = ours(pairs.flat, pairs.predicted)
    loss = ours.loss(
        to_predict(pairs.flat, pairs.predicted, pairs.predicted_labels, pairs.nsp_labels)
    )
    total = loss.mlm_loss_sum / len(pairs.predicted) + loss.nsp_loss_sum / 5
    total.backward()

    assert report.new == report.unused == ()
    chosen = pairs.mlm_labels != -100
    torch.testing.assert_close(logits.mlm, expected.prediction_logits[chosen], **CLOSE)
    torch.testing.assert_close(logits.nsp, expected.seq_relationship_logits, **CLOSE)
    torch.testing.assert_close(total, expected.loss, **CLOSE)
    right = (expected.prediction_logits.argmax(dim=-1) == pairs.mlm_labels)[chosen].sum()
    assert loss.mlm_correct == right
    gradients = our_gradients(ours)
    assert gradients.keys() == {name for name, _ in theirs.named_parameters()}
    for name, parameter in theirs.named_parameters():
        torch.testing.assert_close(gradients[name], parameter.grad, **CLOSE, msg=name)


def test_mlm_without_nsp_equals_theirs(
    make_config: MakeConfig, randomize: Randomize, pairs
) -> None:
    theirs = their_model("BertForMaskedLM", make_config(), randomize)
    ours = BertForPreTraining(make_config(), vocab_size=50, with_nsp=False).eval()
    report = load_hugging_face(ours, theirs.state_dict())

    logits = ours(pairs.flat, pairs.predicted)

    assert report.new == report.unused == ()
    expected = theirs(**inputs(pairs)).logits[pairs.mlm_labels != -100]
    torch.testing.assert_close(logits.mlm, expected, **CLOSE)


def test_classification_equals_theirs(make_config: MakeConfig, randomize: Randomize, pairs) -> None:
    theirs = their_model("BertForSequenceClassification", make_config(), randomize, num_labels=3)
    ours = BertForSequenceClassification(
        make_config(), vocab_size=50, num_labels=3, pooling="cls"
    ).eval()
    report = load_hugging_face(ours, theirs.state_dict())

    assert report.new == report.unused == ()
    torch.testing.assert_close(ours(pairs.flat), theirs(**inputs(pairs)).logits, **CLOSE)


@pytest.mark.parametrize("with_nsp", [True, False], ids=["nsp", "mlm"])
def test_a_folder_of_ours_loads_as_theirs(
    with_nsp: bool, config: schema.Model, randomize: Randomize, pairs, tmp_path: Path
) -> None:
    ours = BertForPreTraining(config, vocab_size=50, with_nsp=with_nsp).eval()
    randomize(ours)
    save_model(tmp_path, ours)

    auto = transformers.AutoModelForPreTraining if with_nsp else transformers.AutoModelForMaskedLM
    theirs, info = auto.from_pretrained(tmp_path, output_loading_info=True)
    encoder = transformers.AutoModel.from_pretrained(tmp_path)

    assert not any(info.values()), info
    logits = ours(pairs.flat, pairs.predicted)
    output = theirs.eval()(**inputs(pairs))
    chosen = pairs.mlm_labels != -100
    expected = output.prediction_logits if with_nsp else output.logits
    torch.testing.assert_close(logits.mlm, expected[chosen], **CLOSE)
    if with_nsp:
        torch.testing.assert_close(logits.nsp, output.seq_relationship_logits, **CLOSE)
    hidden = encoder.eval()(**inputs(pairs)).last_hidden_state[pairs.attention_mask]
    torch.testing.assert_close(ours.bert(pairs.flat).hidden_states, hidden, **CLOSE)


def test_a_classifier_of_ours_loads_as_theirs(
    make_config: MakeConfig, randomize: Randomize, pairs, tmp_path: Path
) -> None:
    ours = BertForSequenceClassification(
        make_config(), vocab_size=50, num_labels=3, pooling="cls"
    ).eval()
    randomize(ours)
    labels = ["bad", "fair", "good"]
    save_model(
        tmp_path,
        ours,
        extra_config={
            "id2label": {str(i): label for i, label in enumerate(labels)},
            "label2id": {label: i for i, label in enumerate(labels)},
        },
    )

    theirs, info = transformers.AutoModelForSequenceClassification.from_pretrained(
        tmp_path, output_loading_info=True
    )

    assert not any(info.values()), info
    assert theirs.config.id2label == {0: "bad", 1: "fair", 2: "good"}
    torch.testing.assert_close(ours(pairs.flat), theirs.eval()(**inputs(pairs)).logits, **CLOSE)


def test_a_tagger_of_ours_loads_as_theirs(
    make_config: MakeConfig, randomize: Randomize, pairs, tmp_path: Path
) -> None:
    ours = BertForTokenClassification(
        make_config(), vocab_size=50, num_labels=3, has_crf=False
    ).eval()
    randomize(ours)
    tags = {"id2label": {"0": "O", "1": "B-PER", "2": "I-PER"}}
    save_model(tmp_path, ours, extra_config=tags)

    theirs, info = transformers.BertForTokenClassification.from_pretrained(
        tmp_path, output_loading_info=True
    )

    assert not any(info.values()), info
    assert theirs.config.id2label == {0: "O", 1: "B-PER", 2: "I-PER"}
    expected = theirs.eval()(**inputs(pairs)).logits[pairs.attention_mask]
    torch.testing.assert_close(ours(pairs.flat), expected, **CLOSE)


def test_tokens_are_classified_as_by_theirs(
    make_config: MakeConfig, randomize: Randomize, pairs, tmp_path: Path
) -> None:
    theirs = their_model("BertForTokenClassification", make_config(), randomize, num_labels=3)
    theirs.save_pretrained(tmp_path)

    ours = load_model(tmp_path)

    assert isinstance(ours, BertForTokenClassification)
    expected = theirs(**inputs(pairs)).logits[pairs.attention_mask]
    torch.testing.assert_close(ours(pairs.flat), expected, **CLOSE)


def test_a_tagger_with_a_crf_is_refused_by_them(make_config: MakeConfig, tmp_path: Path) -> None:
    model = BertForTokenClassification(make_config(), vocab_size=50, num_labels=3, has_crf=True)
    save_model(tmp_path, model)

    with pytest.raises(ValueError, match="model type `bertpre` but Transformers does not"):
        transformers.AutoModelForTokenClassification.from_pretrained(tmp_path)


def test_a_folder_of_theirs_loads_as_ours(
    config: schema.Model, randomize: Randomize, pairs, tmp_path: Path
) -> None:
    theirs = their_model("BertForPreTraining", config, randomize)
    theirs.save_pretrained(tmp_path)

    folder = read_model_config(tmp_path)
    ours = BertForPreTraining(folder.config, vocab_size=folder.vocab_size, with_nsp=True).eval()
    report = load_hugging_face(ours, read_weights(tmp_path))

    assert folder.config == config
    assert report.new == report.unused == ()
    expected = theirs(**inputs(pairs)).prediction_logits[pairs.mlm_labels != -100]
    torch.testing.assert_close(ours(pairs.flat, pairs.predicted).mlm, expected, **CLOSE)


@pytest.mark.parametrize(
    "changes", [{"norm": "pre"}, {"position_embeddings": "sinusoidal"}], ids=str
)
def test_variants_that_their_bert_lacks_are_refused_by_it(
    changes: dict[str, Any], make_config: MakeConfig, tmp_path: Path
) -> None:
    model = BertForPreTraining(make_config(**changes), vocab_size=50, with_nsp=True)
    save_model(tmp_path, model)

    for auto in (transformers.AutoConfig, transformers.AutoModel):
        with pytest.raises(ValueError, match="model type `bertpre` but Transformers does not"):
            auto.from_pretrained(tmp_path)
