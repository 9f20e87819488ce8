"""Weights under Hugging Face names: into and out of a model, and in files."""

import json
import pickle
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from bertpre.errors import CheckpointError
from bertpre.model.names import (
    BUFFERS,
    Model,
    canonical_name,
    is_classifier,
    is_encoder,
    named_parts,
    plain_names,
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
    plain = plain_names(tensors)
    for given, tensor in sorted(tensors.items()):
        name = canonical_name(plain[given], parts)
        if name in BUFFERS:
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
    new = tuple(sorted(parts.keys() - found.keys()))
    return LoadReport(tuple(sorted(found)), new, tuple(sorted(unused)))


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
