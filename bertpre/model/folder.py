"""Model folders: the weights, and a config.json that describes them.

What Hugging Face's BERT cannot express (pre-norm, sinusoidal positions, mean pooling, a CRF) is
written with ``model_type: bertpre``, so that the transformers library refuses it instead of loading
it wrongly.
"""

import dataclasses
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from pydantic import TypeAdapter, ValidationError

from bertpre.artefacts import write_json
from bertpre.config import schema
from bertpre.errors import CheckpointError
from bertpre.model.bert import BertModel
from bertpre.model.decoder import EncoderDecoder, TextGenerator
from bertpre.model.heads import (
    BertForPreTraining,
    BertForSequenceClassification,
    BertForTokenClassification,
    Classifier,
)
from bertpre.model.names import Model, encoder_of, is_pooler, plain_names
from bertpre.model.prefix import PrefixGenerator
from bertpre.model.weights import WEIGHTS, load_hugging_face, read_weights, write_weights

CONFIG = "config.json"
GENERATION_CONFIG = "generation_config.json"
OLD_CONFIG = "bert_config.json"  # Google's name, which older folders still use

_TOKENS = ("decoder_start_token_id", "eos_token_id", "pad_token_id")
# The options that config.json shares with the model section, under the same names.
_SHARED = tuple(
    field.name
    for field in dataclasses.fields(cast(Any, schema.Model))
    if field.name not in ("vocab_size", "norm", "position_embeddings")
)
# Other names of the same functions.
_ACTIVATION_NAMES = {
    "gelu_python": "gelu",
    "gelu_fast": "gelu_new",
    "gelu_pytorch_tanh": "gelu_new",
}
PAIR_TYPE = "encoder-decoder"  # the transformers library's name for an encoder and a decoder
_LIBRARY_VOCAB_SIZE = 30_522  # the transformers library's default
# What bertpre can compute; the first value is the default.
_ACCEPTED: dict[str, tuple[object, ...]] = {
    "model_type": ("bert", "bertpre"),
    "position_embedding_type": ("absolute",),
    "is_decoder": (False,),
}


class ModelFolder(NamedTuple):
    """A folder's config.json as our options, and ``raw`` as it is stored."""

    config: schema.Model
    vocab_size: int
    raw: dict[str, Any]


def load_model(folder: str | Path, *, encoder_only: bool = False) -> Model:
    """Load the model that config.json describes, in evaluation mode, on the CPU.

    Args:
        folder: a checkpoint, a fine-tuned or an imported model.
        encoder_only: leave out heads, but keep a pooler.

    Raises:
        CheckpointError: the folder lacks such a model or a part of it.
    """
    folder = Path(folder)
    config, vocab_size, raw = read_model_config(folder)
    tensors = read_weights(folder)
    kind = (raw.get("architectures") or ["BertModel"])[0].removeprefix("Bertpre")
    kind = kind.removeprefix("Bert")
    model: Model
    if encoder_only or kind == "Model":
        has_pooler = any(map(is_pooler, plain_names(tensors).values()))
        model = BertModel(config, vocab_size=vocab_size, with_pooler=has_pooler)
    elif kind == "EncoderDecoder" or raw.get("model_type") == PAIR_TYPE:
        model = EncoderDecoder(
            config,
            vocab_size=vocab_size,
            num_decoder_layers=raw.get("decoder", raw).get(
                "num_hidden_layers" if "decoder" in raw else "num_decoder_layers"
            ),
            is_shared=raw.get("is_shared", False),
        )
    elif kind == "ForGeneration":
        model = PrefixGenerator(config, vocab_size=vocab_size)
    elif kind in ("ForPreTraining", "ForMaskedLM"):
        model = BertForPreTraining(config, vocab_size=vocab_size, with_nsp=kind == "ForPreTraining")
    elif kind == "ForSequenceClassification":
        model = BertForSequenceClassification(
            config,
            vocab_size=vocab_size,
            num_labels=len(raw["id2label"]),
            pooling=raw.get("pooling", "cls"),
        )
    elif kind == "ForTokenClassification":
        model = BertForTokenClassification(
            config,
            vocab_size=vocab_size,
            num_labels=len(raw["id2label"]),
            has_crf=raw.get("crf", False),
        )
    else:
        raise CheckpointError(
            f"{folder / CONFIG}: architectures: bertpre has no {kind!r}",
            "convert the folder with `bertpre import`, which keeps the encoder",
        )
    report = load_hugging_face(model, tensors, source=folder)
    if report.new:
        raise CheckpointError(
            f"{folder}: {CONFIG} says {kind}, but the weights lack {', '.join(report.new[:3])}",
            "the file is incomplete: copy it again",
        )
    return model.eval()


def save_model(
    folder: Path,
    model: Model,
    *,
    extra_config: Mapping[str, Any] | None = None,
    generation_config: Mapping[str, Any] | None = None,
) -> None:
    """Write model.safetensors and config.json; equal weights give equal bytes.

    Args:
        folder: exists.
        model: on any device.
        extra_config: additions to config.json, such as ``id2label`` or ``pad_token_id``.
        generation_config: the content of generation_config.json, for models that write text; its
            special tokens are added to config.json, too.

    Raises:
        CheckpointError: the weights cannot be written.
    """
    generation = generation_config or {}
    tokens = {name: value for name, value in generation.items() if name in _TOKENS}
    write_json(folder / CONFIG, {**_config_of(model), **tokens, **(extra_config or {})})
    if generation:
        write_json(folder / GENERATION_CONFIG, generation)
    write_weights(folder / WEIGHTS, model)
    # safetensors makes its file unreadable for group and others.
    shutil.copymode(folder / CONFIG, folder / WEIGHTS)


def read_model_config(folder: Path) -> ModelFolder:
    """Read config.json of a bertpre or a Hugging Face BERT folder; unknown keys are ignored.

    Raises:
        CheckpointError: it is missing or malformed, or describes an unsupported model.
    """
    path = folder / CONFIG
    if not path.is_file() and (folder / OLD_CONFIG).is_file():
        path = folder / OLD_CONFIG
    if not path.is_file():
        raise CheckpointError(
            f"{folder}: has no {CONFIG}", "use a checkpoint or a Hugging Face BERT folder"
        )
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{path}: not valid JSON ({error})") from error
    if not isinstance(raw, dict):
        raise CheckpointError(f"{path}: expected a JSON object, found {raw!r:.60}")
    stated = raw
    if raw.get("model_type") == PAIR_TYPE:
        raw = _encoder_entries(path, raw)
    for key, accepted in _ACCEPTED.items():
        if raw.get(key, accepted[0]) not in accepted:
            expected = " or ".join(map(json.dumps, accepted))
            raise CheckpointError(
                f"{path}: {key} is {json.dumps(raw[key])}, expected {expected}",
                "bertpre reads only BERT encoders",
            )
    own = ("norm", "position_embeddings") if raw.get("model_type") == "bertpre" else ()
    values: dict[str, Any] = {"vocab_size": _LIBRARY_VOCAB_SIZE}
    values |= {key: raw[key] for key in (*_SHARED, *own, "vocab_size") if key in raw}
    if isinstance(activation := raw.get("hidden_act"), str):
        values["hidden_act"] = _ACTIVATION_NAMES.get(activation, activation)
    try:
        config = TypeAdapter(schema.Model).validate_python(values)
    except ValidationError as error:
        problems = [f"{p['loc'][0]}: {p['msg']}, found {p['input']!r}" for p in error.errors()]
        raise CheckpointError(f"{path}: " + "; ".join(problems)) from error
    if config.hidden_size % config.num_attention_heads:
        raise CheckpointError(
            f"{path}: hidden_size {config.hidden_size} is not a multiple of num_attention_heads "
            f"{config.num_attention_heads}"
        )
    vocab_size = cast(int, config.vocab_size)
    shape = dataclasses.replace(cast(Any, config), vocab_size=None)
    return ModelFolder(shape, vocab_size, stated)


def _config_of(model: Model) -> dict[str, Any]:
    """Return the content of a model's config.json."""
    bert = encoder_of(model)
    config = bert.config
    content: dict[str, Any] = {name: getattr(config, name) for name in _SHARED}
    content |= {"vocab_size": bert.vocab_size, "pad_token_id": 0, "classifier_dropout": None}
    variant: dict[str, Any] = {}
    if config.norm != "post" or config.position_embeddings != "learned":
        variant |= {"norm": config.norm, "position_embeddings": config.position_embeddings}
    if isinstance(model, Classifier):
        labels = [f"LABEL_{i}" for i in range(model.classifier.out_features)]
        content["id2label"] = {str(i): label for i, label in enumerate(labels)}
        content["label2id"] = {label: i for i, label in enumerate(labels)}
    if isinstance(model, BertForSequenceClassification):
        architecture = "ForSequenceClassification"
        if model.pooling != "cls":
            variant["pooling"] = model.pooling
    elif isinstance(model, BertForTokenClassification):
        architecture = "ForTokenClassification"
        if model.crf is not None:
            variant["crf"] = True
    elif isinstance(model, BertModel):
        architecture = "Model"
    elif isinstance(model, EncoderDecoder):
        return _pair_config(model, content | variant)
    elif isinstance(model, TextGenerator):
        architecture, variant["form"] = "ForGeneration", "prefix"
    else:
        architecture = "ForMaskedLM" if model.nsp is None else "ForPreTraining"
    kind = "bertpre" if variant else "bert"
    architectures = [kind.capitalize() + architecture]
    return {**content, **variant, "model_type": kind, "architectures": architectures}


def _pair_config(model: EncoderDecoder, content: dict[str, Any]) -> dict[str, Any]:
    """Return that of an encoder and a decoder, each with its own entries."""
    num_layers = len(model.decoder.layers)
    if "norm" in content:
        return {
            **content,
            "model_type": "bertpre",
            "architectures": ["BertpreEncoderDecoder"],
            "num_decoder_layers": num_layers,
            "is_shared": model.is_shared,
        }
    encoder = {**content, "model_type": "bert", "architectures": ["BertModel"]}
    decoder = {
        **encoder,
        "architectures": ["BertLMHeadModel"],
        "num_hidden_layers": num_layers,
        "is_decoder": True,
        "add_cross_attention": True,
        "tie_word_embeddings": True,
    }
    return {
        "model_type": PAIR_TYPE,
        "architectures": ["EncoderDecoderModel"],
        "is_encoder_decoder": True,
        "is_shared": model.is_shared,
        "tie_word_embeddings": False,
        "vocab_size": model.bert.vocab_size,
        "pad_token_id": 0,
        "encoder": encoder,
        "decoder": decoder,
    }


def _encoder_entries(path: Path, raw: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of the encoder, whose shape the decoder must share but for its depth."""
    encoder, decoder = raw.get("encoder"), raw.get("decoder")
    if not isinstance(encoder, dict) or not isinstance(decoder, dict):
        raise CheckpointError(f"{path}: model_type is {PAIR_TYPE}, but it lacks encoder or decoder")
    for key in ("model_type", "vocab_size", *_SHARED):
        if key != "num_hidden_layers" and encoder.get(key) != decoder.get(key):
            raise CheckpointError(
                f"{path}: {key} is {json.dumps(encoder.get(key))} in the encoder and "
                f"{json.dumps(decoder.get(key))} in the decoder; expected the same",
                "bertpre reads only pairs of BERTs that differ in nothing but their depth",
            )
    return encoder
