"""The Hugging Face names of our parameters; only the fused query-key-value has another layout."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from torch import Tensor, nn

from bertpre.model.bert import BertEmbeddings, BertModel, EncoderLayer
from bertpre.model.decoder import Decoder, DecoderLayer, EncoderDecoder, TextGenerator
from bertpre.model.heads import (
    BertForPreTraining,
    BertForTokenClassification,
    Classifier,
    MlmHead,
)

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
BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")

_OLD_NAMES = (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias"))
# Tensors that some files repeat, and the names of the originals.
_COPIES = {"cls.predictions.decoder.weight": WORDS, "cls.predictions.decoder.bias": MLM_BIAS}
_PAIR_COPIES = {f"decoder.{copy}": f"decoder.{name}" for copy, name in _COPIES.items()}


def encoder_of(model: Model) -> BertModel:
    """Return the encoder of a model with or without a head."""
    return model if isinstance(model, BertModel) else model.bert


def named_parts(model: Model) -> dict[str, Tensor]:
    """Return the parameters by Hugging Face name; parts of a fused one are views of it.

    A part that encoder and decoder share has two names.
    """
    parts = _encoder_parts(encoder_of(model))
    if isinstance(model, BertForPreTraining):
        parts |= _head_parts(model.mlm)
        if model.nsp is not None:
            parts |= _dense_parts("cls.seq_relationship", model.nsp.dense)
    elif isinstance(model, Classifier):
        parts |= _dense_parts("classifier", model.classifier)
        if isinstance(model, BertForTokenClassification) and model.crf is not None:
            parts |= {f"crf.{name}": part for name, part in model.crf.named_parameters()}
    elif isinstance(model, EncoderDecoder):
        parts = {f"encoder.{name.removeprefix('bert.')}": part for name, part in parts.items()}
        own = _decoder_parts(model.decoder) | _head_parts(model.mlm)
        parts |= {f"decoder.{name}": part for name, part in own.items()}
    elif isinstance(model, TextGenerator):
        parts |= _head_parts(model.mlm)
    return parts


def _encoder_parts(bert: BertModel) -> dict[str, Tensor]:
    parts = _embedding_parts(bert.embeddings)
    for i, layer in enumerate(bert.encoder.layers):
        assert isinstance(layer, EncoderLayer)
        parts |= _layer_parts(f"bert.encoder.layer.{i}", layer)
    if bert.encoder.final_norm is not None:
        parts |= _dense_parts("bert.encoder.LayerNorm", bert.encoder.final_norm)
    if bert.pooler is not None:
        parts |= _dense_parts("bert.pooler.dense", bert.pooler.dense)
    return parts


def _decoder_parts(decoder: Decoder) -> dict[str, Tensor]:
    parts = _embedding_parts(decoder.embeddings)
    for i, layer in enumerate(decoder.layers):
        assert isinstance(layer, DecoderLayer)
        prefix = f"bert.encoder.layer.{i}"
        parts |= _layer_parts(prefix, layer)
        cross, prefix = layer.cross_attention, f"{prefix}.crossattention"
        parts |= _dense_parts(f"{prefix}.self.query", cross.query)
        parts |= _fused_parts(f"{prefix}.self", cross.key_value, ("key", "value"))
        parts |= _dense_parts(f"{prefix}.output.dense", cross.output)
        parts |= _dense_parts(f"{prefix}.output.LayerNorm", layer.cross_attention_norm)
    if decoder.final_norm is not None:
        parts |= _dense_parts("bert.encoder.LayerNorm", decoder.final_norm)
    return parts


def _embedding_parts(embeddings: BertEmbeddings) -> dict[str, Tensor]:
    parts: dict[str, Tensor] = {
        WORDS: embeddings.word.weight,
        "bert.embeddings.token_type_embeddings.weight": embeddings.token_type.weight,
    }
    if embeddings.position is not None:
        parts[POSITIONS] = embeddings.position.weight
    return parts | _dense_parts("bert.embeddings.LayerNorm", embeddings.norm)


def _layer_parts(prefix: str, layer: EncoderLayer | DecoderLayer) -> dict[str, Tensor]:
    fused = _fused_parts(f"{prefix}.attention.self", layer.attention.qkv, ("query", "key", "value"))
    return {
        **fused,
        **_dense_parts(f"{prefix}.attention.output.dense", layer.attention.output),
        **_dense_parts(f"{prefix}.attention.output.LayerNorm", layer.attention_norm),
        **_dense_parts(f"{prefix}.intermediate.dense", layer.feed_forward.up),
        **_dense_parts(f"{prefix}.output.dense", layer.feed_forward.down),
        **_dense_parts(f"{prefix}.output.LayerNorm", layer.feed_forward_norm),
    }


def _head_parts(head: MlmHead) -> dict[str, Tensor]:
    return {
        MLM_BIAS: head.bias,
        **_dense_parts("cls.predictions.transform.dense", head.dense),
        **_dense_parts("cls.predictions.transform.LayerNorm", head.norm),
    }


def _fused_parts(prefix: str, fused: nn.Linear, names: Sequence[str]) -> dict[str, Tensor]:
    count, parts = len(names), dict[str, Tensor]()
    for name, weight, bias in zip(
        names, fused.weight.chunk(count), fused.bias.chunk(count), strict=True
    ):
        parts |= {f"{prefix}.{name}.weight": weight, f"{prefix}.{name}.bias": bias}
    return parts


def _dense_parts(prefix: str, module: nn.Linear | nn.LayerNorm) -> dict[str, Tensor]:
    return {f"{prefix}.weight": module.weight, f"{prefix}.bias": module.bias}


def _modern(name: str) -> str:
    for old, new in _OLD_NAMES:
        name = name.replace(old, new)
    return name


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
    name = _modern(name)
    if name.startswith(("embeddings.", "encoder.", "pooler.")):
        name = f"bert.{name}"
    # Without an MLM head it does not matter whether the decoder is tied.
    return _COPIES.get(name, name) if MLM_BIAS in parts else name


def names_in_model(given: Collection[str], model: Model) -> dict[str, str]:
    """Map the name of each tensor in a file to the model's name for it, as `named_parts` has it.

    A model of an encoder and a decoder takes the encoder and the MLM head of a BERT; a BERT takes
    the encoder of such a model.
    """
    parts, is_pair = named_parts(model), isinstance(model, EncoderDecoder)
    if is_encoder_decoder(given):
        names = {name: _modern(name) for name in given}
        if is_pair:
            return {name: _PAIR_COPIES.get(modern, modern) for name, modern in names.items()}
        return {name: of_encoder(modern) for name, modern in names.items()}
    plain = plain_names(given)
    head = (MLM_BIAS,) if is_pair else parts
    names = {name: canonical_name(plain[name], head) for name in given}
    if not is_pair:
        return names
    return {name: _of_pair(known) for name, known in names.items()}


def of_encoder(name: str) -> str:
    """Return the name in a BERT of a tensor of an encoder and a decoder."""
    return f"bert.{name.removeprefix('encoder.')}" if name.startswith("encoder.") else name


def _of_pair(name: str) -> str:
    """Return the name in an encoder and a decoder of a tensor of a BERT."""
    is_head = not name.startswith("bert.")
    return f"decoder.{name}" if is_head else f"encoder.{name.removeprefix('bert.')}"


def is_encoder_decoder(names: Collection[str]) -> bool:
    """Return whether tensors are those of an encoder and a decoder."""
    return {f"encoder.{WORDS.removeprefix('bert.')}", f"decoder.{WORDS}"} <= set(names)


def is_encoder(name: str) -> bool:
    """Return whether a tensor belongs to the encoder, which must be complete."""
    return name.startswith(
        ("bert.embeddings.", "bert.encoder.", "encoder.embeddings.", "encoder.encoder.")
    )


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
