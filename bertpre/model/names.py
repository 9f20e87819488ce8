"""The Hugging Face names of our parameters; only the fused query-key-value has another layout."""

from collections.abc import Collection, Iterable, Mapping

from torch import Tensor, nn

from bertpre.model.bert import BertModel, EncoderLayer
from bertpre.model.decoder import TextGenerator
from bertpre.model.heads import BertForPreTraining, BertForTokenClassification, Classifier

Finetuned = Classifier | TextGenerator
Model = BertModel | BertForPreTraining | Finetuned


def _dense(*prefixes: str) -> frozenset[str]:
    return frozenset(f"{prefix}.{kind}" for prefix in prefixes for kind in ("weight", "bias"))


WORDS = "bert.embeddings.word_embeddings.weight"
POSITIONS = "bert.embeddings.position_embeddings.weight"
MLM_BIAS = "cls.predictions.bias"
CLASSIFIER_BIAS = "classifier.bias"
# The tensors of each part besides the encoder.
POOLER = _dense("bert.pooler.dense")
MLM_HEAD = _dense("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm")
MLM_HEAD |= {MLM_BIAS}
NSP_HEAD = _dense("cls.seq_relationship")
CLASSIFIER = _dense("classifier")
# Not a name of the transformers library, which has no CRF.
CRF = frozenset(f"crf.{name}" for name in ("transitions", "start_transitions", "end_transitions"))
# Buffers that some versions stored: always 0, 1, 2 … and 0, 0, 0 …
BUFFERS = ("bert.embeddings.position_ids", "bert.embeddings.token_type_ids")

_OLD_NAMES = (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias"))
# Tensors that some files repeat, and the names of the originals.
_COPIES = {"cls.predictions.decoder.weight": WORDS, "cls.predictions.decoder.bias": MLM_BIAS}


def encoder_of(model: Model) -> BertModel:
    """Return the encoder of a model with or without a head."""
    return model if isinstance(model, BertModel) else model.bert


def named_parts(model: Model) -> dict[str, Tensor]:
    """Return the parameters by Hugging Face name; parts of a fused one are views of it."""
    bert, parts = encoder_of(model), dict[str, Tensor]()
    embeddings = bert.embeddings
    parts[WORDS] = embeddings.word.weight
    parts["bert.embeddings.token_type_embeddings.weight"] = embeddings.token_type.weight
    if embeddings.position is not None:
        parts[POSITIONS] = embeddings.position.weight
    dense: dict[str, nn.Linear | nn.LayerNorm] = {"bert.embeddings.LayerNorm": embeddings.norm}
    for i, layer in enumerate(bert.encoder.layers):
        assert isinstance(layer, EncoderLayer)
        prefix = f"bert.encoder.layer.{i}"
        qkv = layer.attention.qkv
        for j, name in enumerate(("query", "key", "value")):
            parts[f"{prefix}.attention.self.{name}.weight"] = qkv.weight.chunk(3)[j]
            parts[f"{prefix}.attention.self.{name}.bias"] = qkv.bias.chunk(3)[j]
        dense[f"{prefix}.attention.output.dense"] = layer.attention.output
        dense[f"{prefix}.attention.output.LayerNorm"] = layer.attention_norm
        dense[f"{prefix}.intermediate.dense"] = layer.feed_forward.up
        dense[f"{prefix}.output.dense"] = layer.feed_forward.down
        dense[f"{prefix}.output.LayerNorm"] = layer.feed_forward_norm
    if bert.encoder.final_norm is not None:
        dense["bert.encoder.LayerNorm"] = bert.encoder.final_norm
    if bert.pooler is not None:
        dense["bert.pooler.dense"] = bert.pooler.dense
    if isinstance(model, BertForPreTraining):
        parts[MLM_BIAS] = model.mlm.bias
        dense["cls.predictions.transform.dense"] = model.mlm.dense
        dense["cls.predictions.transform.LayerNorm"] = model.mlm.norm
        if model.nsp is not None:
            dense["cls.seq_relationship"] = model.nsp.dense
    elif isinstance(model, Classifier):
        dense["classifier"] = model.classifier
        if isinstance(model, BertForTokenClassification) and model.crf is not None:
            parts |= {f"crf.{name}": part for name, part in model.crf.named_parameters()}
    for prefix, module in dense.items():
        parts[f"{prefix}.weight"], parts[f"{prefix}.bias"] = module.weight, module.bias
    return parts


def plain_names(names: Iterable[str]) -> dict[str, str]:
    """Map each name in a file to the name without the prefix of a module around the model.

    ``module.bert.encoder…`` becomes ``bert.encoder…``, ``module.cls…`` becomes ``cls…``, and
    ``0.auto_model.encoder…`` becomes ``bert.encoder…``. Names stay unchanged unless the file holds
    exactly one wrapped encoder.
    """
    names, embedding = list(names), WORDS.removeprefix("bert.")
    prefixes = [name.removesuffix(embedding) for name in names if name.endswith(embedding)]
    if len(prefixes) != 1 or prefixes[0] in ("", "bert."):
        return {name: name for name in names}
    inner = prefixes[0]
    if inner.endswith(".bert."):
        return {name: name.removeprefix(inner.removesuffix("bert.")) for name in names}
    return {
        name: f"bert.{name.removeprefix(inner)}" if name.startswith(inner) else name
        for name in names
    }


def canonical_name(name: str, parts: Collection[str]) -> str:
    """Return a tensor's name as `named_parts` spells it.

    Args:
        name: from `plain_names`; perhaps without ``bert.``, with ``gamma`` and ``beta``, or of a
            tied copy.
        parts: the model's names; a copy is only renamed if the model has the original.
    """
    for old, new in _OLD_NAMES:
        name = name.replace(old, new)
    if name.startswith(("embeddings.", "encoder.", "pooler.")):
        name = f"bert.{name}"
    # Without an MLM head it does not matter whether the decoder is tied.
    return _COPIES.get(name, name) if MLM_BIAS in parts else name


def is_encoder(name: str) -> bool:
    """Return whether a tensor belongs to the encoder, which must be complete."""
    return name.startswith(("bert.embeddings.", "bert.encoder."))


def is_pooler(name: str) -> bool:
    """Return whether a tensor belongs to a pooler, with or without a leading ``bert.``."""
    return name.removeprefix("bert.").startswith("pooler.")


def is_classifier(name: str) -> bool:
    """Return whether a tensor belongs to a classification head, its CRF included."""
    return name.startswith(("classifier.", "crf."))


def has_trained_pooler(tensors: Mapping[str, Tensor]) -> bool:
    """Return whether the pooler has been trained, by next-sentence prediction or otherwise.

    Libraries also write an untrained pooler, whose bias is still 0.
    """
    named = {canonical_name(name, ()): tensor for name, tensor in tensors.items()}
    if "bert.pooler.dense.bias" not in named:
        return False
    return not NSP_HEAD.isdisjoint(named) or bool(named["bert.pooler.dense.bias"].any())
