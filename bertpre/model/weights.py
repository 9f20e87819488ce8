"""Weights under Hugging Face names: into and out of a model, and in files."""

import json
import pickle
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from bertpre.errors import CheckpointError
from bertpre.model.bert import EncoderLayer
from bertpre.model.decoder import DecoderLayer, EncoderDecoder
from bertpre.model.names import (
    BUFFERS,
    Model,
    is_classifier,
    is_encoder,
    named_parts,
    names_in_model,
)

WEIGHTS = "model.safetensors"
LEGACY_WEIGHTS = "pytorch_model.bin"
# Weights of other libraries, for the message about missing ones.
_OTHER_WEIGHTS = ("tf_model.h5", "*.ckpt.index", "flax_model.msgpack", "*.onnx")


class LoadReport(NamedTuple):
    """The result of loading weights, as sorted Hugging Face names.

    ``loaded`` and ``new`` make up the model; new ones keep their values. ``unused`` are tensors of
    the file, under the file's names, that the model does not have.
    """

    loaded: tuple[str, ...]
    new: tuple[str, ...]
    unused: tuple[str, ...]


def to_hugging_face(model: Model) -> dict[str, Tensor]:
    """Return copies of the parameters under Hugging Face names.

    Returns:
        Contiguous fp32 tensors on the CPU, sorted by name; query, key and value are separate, and
        the tied decoder is left out.
    """
    return {
        name: part.detach().to("cpu", torch.float32, copy=True).contiguous()
        for name, part in sorted(named_parts(model).items())
    }


def load_hugging_face(
    model: Model,
    tensors: Mapping[str, Tensor],
    *,
    source: str | Path = "the weights",
) -> LoadReport:
    """Copy tensors with Hugging Face names into the model.

    Accepts names with and without ``bert.`` or within another module, the old ``gamma`` and
    ``beta``, stored position buffers, and a decoder that repeats the word embedding. Heads may
    be missing or have another size: they stay unchanged and are reported as new. The encoder must
    be complete.

    Args:
        model: its parameters are overwritten.
        tensors: from `read_weights`.
        source: their origin, for messages.

    Raises:
        CheckpointError: the encoder is missing or incomplete, or sizes do not fit.
    """
    parts = named_parts(model)
    found: dict[str, Tensor] = {}
    spelled: dict[str, str] = {}
    unused: list[str] = []
    names = names_in_model(tensors, model)
    for given, tensor in sorted(tensors.items()):
        name = names[given]
        if name.endswith(BUFFERS):
            continue
        if name not in parts:
            unused.append(given)
        elif name in found and not torch.equal(found[name], tensor):
            raise CheckpointError(
                f"{source}: {given} differs from {spelled[name]}, but both are {name} in bertpre",
                "bertpre ties the MLM decoder to the word embedding; use a checkpoint that does",
            )
        else:
            found[name], spelled[name] = tensor, given
    for name in [name for name in found if is_classifier(name)]:
        if found[name].shape != parts[name].shape:  # a head for another set of labels
            unused.append(spelled.pop(name))
            del found[name]
    if not found:
        raise CheckpointError(
            f"{source}: none of its {len(tensors)} tensors has a name of BERT's"
            f" (the first: {_listed(sorted(tensors))})",
            "is this a BERT checkpoint?",
        )
    _check_fit(found, parts, source)
    with torch.no_grad():
        for name, tensor in found.items():
            parts[name].copy_(tensor)
    if isinstance(model, EncoderDecoder) and model.is_shared:
        _check_shared(found, parts, source)
    # A part of another name may be the same parameter.
    filled = {parts[name].data_ptr() for name in found}
    new = [name for name in parts if name not in found and parts[name].data_ptr() not in filled]
    return LoadReport(tuple(sorted(found)), tuple(sorted(new)), tuple(sorted(unused)))


def copy_encoder(model: EncoderDecoder, *, with_layers: bool) -> None:
    """Let the decoder start as a copy of the encoder.

    Args:
        model: with the weights of the encoder.
        with_layers: copy the layers, too, from equally spaced depths if there are fewer; not only
            the embeddings. Cross-attention is a copy of self-attention.

    Source: Rothe et al. 2020, section 3 ("BERT2BERT"); there cross-attention is random.
    """
    decoder, encoder = model.decoder, model.bert.encoder
    width = model.bert.config.hidden_size
    with torch.no_grad():
        _copy(decoder.embeddings, model.bert.embeddings)
        if not with_layers:
            return
        last, depth = len(encoder.layers) - 1, len(decoder.layers)
        for number, own in enumerate(decoder.layers):
            layer = encoder.layers[round(number * last / max(1, depth - 1))]
            assert isinstance(own, DecoderLayer)
            assert isinstance(layer, EncoderLayer)
            for part in ("attention", "attention_norm", "feed_forward", "feed_forward_norm"):
                _copy(getattr(own, part), getattr(layer, part))
            qkv, cross = layer.attention.qkv, own.cross_attention
            cross.query.weight.copy_(qkv.weight[:width])
            cross.query.bias.copy_(qkv.bias[:width])
            cross.key_value.weight.copy_(qkv.weight[width:])
            cross.key_value.bias.copy_(qkv.bias[width:])
            _copy(cross.output, layer.attention.output)
            _copy(own.cross_attention_norm, layer.attention_norm)
        if decoder.final_norm is not None and encoder.final_norm is not None:
            _copy(decoder.final_norm, encoder.final_norm)


def _copy(target: nn.Module, source: nn.Module) -> None:
    if target is not source:  # else they are shared
        target.load_state_dict(source.state_dict())


def _check_shared(
    found: Mapping[str, Tensor], parts: Mapping[str, Tensor], source: str | Path
) -> None:
    """Refuse different tensors for one shared parameter; the last one is what it has now."""
    for name, tensor in found.items():
        if not torch.equal(parts[name].to(tensor), tensor):
            raise CheckpointError(
                f"{source}: {name} differs from the encoder's, but encoder and decoder share it",
                "the file is damaged: copy it again",
            )


def write_weights(path: Path, model: Model) -> None:
    """Write a safetensors file; equal weights give equal bytes.

    Raises:
        CheckpointError: it cannot be written.
    """
    try:
        # Only one key: the order of several is random.
        save_file(to_hugging_face(model), path, metadata={"format": "pt"})
    except SafetensorError as error:
        raise CheckpointError(
            f"{path}: cannot be written ({error})", "check free space and permissions"
        ) from error


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Read model.safetensors, or else pytorch_model.bin, without running code from it.

    A model in several files (``model.safetensors.index.json`` names them) is read as one.

    Raises:
        CheckpointError: both are missing, or the file is damaged or holds more than tensors.
    """
    for name, read in ((WEIGHTS, _read_safetensors), (LEGACY_WEIGHTS, _read_legacy)):
        if (folder / name).is_file():
            return read(folder / name)
        index = folder / f"{name}.index.json"
        if index.is_file():
            tensors: dict[str, Tensor] = {}
            for shard in _shards(index):
                tensors |= read(shard)
            return tensors
    others = sorted(path.name for pattern in _OTHER_WEIGHTS for path in folder.glob(pattern))
    raise CheckpointError(
        f"{folder}: has neither {WEIGHTS} nor {LEGACY_WEIGHTS}"
        + (f", but {', '.join(others)}, which bertpre cannot read" if others else ""),
        "convert it to PyTorch with the transformers library first"
        if others
        else "use a checkpoint, a fine-tuned model or a Hugging Face BERT folder",
    )


def _shards(index: Path) -> list[Path]:
    try:
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"{index}: expected JSON with a weight_map ({error})", "copy or download it again"
        ) from error
    shards = [index.parent / str(name) for name in sorted(names, key=str)]
    missing = [path.name for path in shards if path.parent != index.parent or not path.is_file()]
    if missing:
        raise CheckpointError(
            f"{index}: names files that are not in the folder: {', '.join(missing)}",
            "copy or download them too",
        )
    return shards


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{path}: not a whole safetensors file ({error})", "copy or download it again"
        ) from error


def _read_legacy(path: Path) -> dict[str, Tensor]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"{path}: holds more than tensors, or is damaged; bertpre runs no code from it",
            f"convert it to {WEIGHTS} where you trust it",
        ) from error
    except (RuntimeError, EOFError, LookupError, ValueError, TypeError, OSError) as error:
        raise CheckpointError(
            f"{path}: not a whole PyTorch file ({type(error).__name__}: {error})",
            "copy or download it again",
        ) from error
    if not isinstance(content, dict) or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in content.items()
    ):
        raise CheckpointError(f"{path}: expected names with tensors, found something else")
    return dict(content)


def _check_fit(
    found: Mapping[str, Tensor], parts: Mapping[str, Tensor], source: str | Path
) -> None:
    wrong = [
        f"{name} is {list(tensor.shape)}, the model needs {list(parts[name].shape)}"
        for name, tensor in sorted(found.items())
        if tensor.shape != parts[name].shape
    ]
    if wrong:
        raise CheckpointError(
            f"{source}: {wrong[0]}" + (f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""),
            "the sizes in config.json, the vocabulary and the weights must agree",
        )
    encoder = {name for name in parts if is_encoder(name)}
    missing = sorted(encoder - found.keys())
    if missing:
        raise CheckpointError(
            f"{source}: {len(missing)} of the encoder's {len(encoder)} tensors are missing: "
            f"{_listed(missing)}",
            "the file is incomplete, or config.json describes another model",
        )


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
