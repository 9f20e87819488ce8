"""Runs that start from a checkpoint's weights, ours or Hugging Face's, checked without PyTorch."""

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bertpre.artefacts import MANIFEST, fingerprint_file
from bertpre.config.load import config_to_dict
from bertpre.config.schema import Config, Model
from bertpre.errors import CheckpointError, ConfigError
from bertpre.tokenizer.tokenizer import Tokenizer
from bertpre.training.run_folder import (
    RUN_CONFIG,
    RunConfig,
    find_checkpoint,
    newest_whole_checkpoint,
    read_model_manifest,
    read_run_config,
)

if TYPE_CHECKING:
    from torch import Tensor

    from bertpre.model.heads import BertForPreTraining

log = logging.getLogger(__name__)

_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
# Dropout belongs to training, and positions that the checkpoint lacks start random.
_MAY_DIFFER = {
    "max_position_embeddings",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "initializer_range",
}
_WORDS = "bert.embeddings.word_embeddings.weight"
_WORD_BIAS = "cls.predictions.bias"
_POSITIONS = "bert.embeddings.position_embeddings.weight"


class Origin(NamedTuple):
    """The source of a run's initial weights.

    Attributes:
        folder: the checkpoint to load; None if the weights are random, or no longer needed.
        fingerprint: of its weights; None if they are random.
    """

    folder: Path | None
    fingerprint: str | None


def find_origin(config: Config, *, run: Path | None) -> Origin:
    """Find a run's initial weights, and check that their shape fits the model.

    Args:
        config: the experiment.
        run: the run folder, if its checkpoints may be resumed.

    Raises:
        CheckpointError: there is no such model.
        ConfigError: its shape differs, or embeddings are to be reset without a checkpoint.
    """
    options = config.pretrain
    if options.init_from is None:
        if options.reset_embeddings:
            raise ConfigError(
                "pretrain.reset_embeddings: needs the embeddings of a pretrain.init_from to reset",
                "set both, or neither",
            )
        return Origin(None, None)
    resumed = _resumed_without(options.init_from, run)
    if resumed is not None:
        return Origin(None, resumed.init_from)
    folder = find_checkpoint(options.init_from)
    if (folder / MANIFEST).is_file():  # other libraries' folders have none
        read_model_manifest(folder)
    shape, asked = checkpoint_shape(folder), config_to_dict(config.model)
    problems = [
        f"model.{name}: {asked[name]!r}, but {folder} has {shape[name]!r}"
        for name in sorted(shape.keys() - _MAY_DIFFER)
        if asked[name] != shape[name]
    ]
    if problems:
        raise ConfigError("; ".join(problems), "leave out the options that the checkpoint decides")
    return Origin(folder, _weights_fingerprint(folder))


def checkpoint_shape(folder: str | Path, *, run: Path | None = None) -> dict[str, Any]:
    """Read the model section of a checkpoint, for a run that starts from it.

    Args:
        folder: a checkpoint, a run folder or a Hugging Face BERT folder.
        run: the run folder, which stores the shape in case the checkpoint is gone.

    Raises:
        CheckpointError: there is no model there.
    """
    names = config_to_dict(Model()).keys() - {"vocab_size"}
    resumed = _resumed_without(str(folder), run)
    if resumed is not None:
        return {name: resumed.model[name] for name in names if name in resumed.model}
    path = find_checkpoint(folder) / "config.json"
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read as JSON ({error})") from error
    if not isinstance(stored, dict):
        raise CheckpointError(f"{path}: expected a JSON object, found {stored!r:.60}")
    return {name: stored[name] for name in names if name in stored}


def _resumed_without(init_from: str, run: Path | None) -> RunConfig | None:
    """Return a run's options if its initial weights are gone and no longer needed.

    It then resumes from its own checkpoints. With other initial weights it is another run.
    """
    if run is None or Path(init_from).exists() or not (run / RUN_CONFIG).is_file():
        return None
    stored = read_run_config(run)
    if stored.pretrain.get("init_from") != init_from or newest_whole_checkpoint(run) is None:
        return None
    return stored


def _weights_fingerprint(folder: Path) -> str:
    for name in _WEIGHTS:
        if (folder / name).is_file():
            return fingerprint_file(folder / name)
    raise CheckpointError(
        f"{folder}: has neither {' nor '.join(_WEIGHTS)}",
        "use a checkpoint or a Hugging Face BERT folder",
    )


def load_initial_weights(
    folder: Path, model: "BertForPreTraining", tokenizer: Tokenizer, *, reset_embeddings: bool
) -> None:
    """Load a checkpoint into a model that may have another vocabulary or more positions.

    Where the vocabularies differ, tokens in both get the checkpoint's rows; the others keep the
    model's random ones, and so do positions beyond the checkpoint's.

    Args:
        folder: a checkpoint or a Hugging Face BERT folder with its tokenizer.
        model: otherwise of the same shape, with random weights.
        tokenizer: of the model's vocabulary.
        reset_embeddings: keep all rows of the model's vocabulary random.

    Raises:
        CheckpointError: the weights fit neither the model nor a vocabulary.
    """
    from bertpre.model.names import canonical_name, named_parts, plain_names
    from bertpre.model.weights import load_hugging_face, read_weights

    parts, tensors = named_parts(model), read_weights(folder)
    rows = _matching_rows(folder, tokenizer, reset_embeddings=reset_embeddings)
    plain = plain_names(tensors)
    for given, value in tensors.items():
        name = canonical_name(plain[given], parts)
        if name in (_WORDS, _WORD_BIAS) and rows is not None:
            tensors[given] = _put_rows(parts[name], *rows, value)
        elif name == _POSITIONS and name in parts:
            places = list(range(min(len(value), len(parts[name]))))
            tensors[given] = _put_rows(parts[name], places, places, value)
    report = load_hugging_face(model, tensors, source=folder)
    log.info(
        "%s: %d weights loaded; randomly initialized: %s; not used: %s",
        folder,
        len(report.loaded),
        ", ".join(report.new) or "none",
        ", ".join(report.unused) or "none",
    )


def _matching_rows(
    folder: Path, tokenizer: Tokenizer, *, reset_embeddings: bool
) -> tuple[list[int], list[int]] | None:
    """Return the rows of the model's vocabulary that the checkpoint has, and its rows for them.

    None if the two vocabularies are the same.
    """
    from bertpre.model.folder import read_model_config

    tokens, before = tokenizer.tokens, Tokenizer.load(folder).tokens
    rows = read_model_config(folder).vocab_size
    if len(before) > rows:
        raise CheckpointError(
            f"{folder}: its tokenizer has {len(before):,} entries, its model only {rows:,}",
            "use a folder whose tokenizer and weights belong together",
        )
    if reset_embeddings:
        log.info("%s: token embeddings start random", folder)
        return [], []
    if before == tokens and rows == len(tokens):
        return None
    place = {token: i for i, token in enumerate(before)}
    here = [i for i, token in enumerate(tokens) if token in place]
    if not here:
        raise CheckpointError(
            f"{folder}: its vocabulary shares no entry with that of the data",
            "start with random embeddings: pretrain.reset_embeddings",
        )
    log.info(
        "%s: has embeddings for %d of the %d entries; the others start random",
        folder,
        len(here),
        len(tokens),
    )
    return here, [place[tokens[i]] for i in here]


def _put_rows(fresh: "Tensor", here: list[int], there: list[int], rows: "Tensor") -> "Tensor":
    mixed = fresh.detach().cpu().clone()
    mixed[here] = rows[there].to(mixed.dtype)
    return mixed
