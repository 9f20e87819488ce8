"""Where weights come from that are not drawn: another checkpoint, ours or a Hugging Face one."""

import logging
from pathlib import Path

import torch
from torch import Tensor

from bertpre.errors import CheckpointError
from bertpre.model.folder import read_model_config
from bertpre.model.heads import BertForPreTraining
from bertpre.model.names import canonical_name, named_parts, plain_names
from bertpre.model.weights import load_hugging_face, read_weights
from bertpre.tokenizer.tokenizer import Tokenizer

log = logging.getLogger(__name__)

_WORDS = "bert.embeddings.word_embeddings.weight"
_WORD_BIAS = "cls.predictions.bias"
_POSITIONS = "bert.embeddings.position_embeddings.weight"


def start_from(
    folder: Path, model: BertForPreTraining, tokenizer: Tokenizer, *, reset_embeddings: bool
) -> None:
    """Load a checkpoint into a model that may have another vocabulary or more positions.

    Where the vocabularies differ, a token that both have keeps its row; the others keep the
    model's fresh ones. Positions beyond the checkpoint's stay fresh.

    Args:
        folder: a checkpoint or a Hugging Face BERT folder with its tokenizer.
        model: of the same shape otherwise, with fresh weights.
        tokenizer: of the model's vocabulary.
        reset_embeddings: keep all rows of the model's vocabulary fresh.

    Raises:
        CheckpointError: the weights do not fit the model, or belong to no vocabulary.
    """
    parts, tensors = named_parts(model), read_weights(folder)
    rows = _matching_rows(folder, tokenizer, reset_embeddings=reset_embeddings)
    plain = plain_names(tensors)
    for given, value in tensors.items():
        name = canonical_name(plain[given], parts)
        if name in (_WORDS, _WORD_BIAS) and rows is not None:
            tensors[given] = _put_rows(parts[name], *rows, value)
        elif name == _POSITIONS and name in parts:
            places = torch.arange(min(len(value), len(parts[name])))
            tensors[given] = _put_rows(parts[name], places, places, value)
    report = load_hugging_face(model, tensors, source=folder)
    log.info(
        "%s: %d weights loaded; new, random: %s; not used: %s",
        folder,
        len(report.loaded),
        ", ".join(report.new) or "none",
        ", ".join(report.unused) or "none",
    )


def _matching_rows(
    folder: Path, tokenizer: Tokenizer, *, reset_embeddings: bool
) -> tuple[Tensor, Tensor] | None:
    """Return the rows of the model's vocabulary that the checkpoint has, and where it has them.

    None if the two vocabularies are the same.
    """
    tokens, before = tokenizer.tokens, Tokenizer.load(folder).tokens
    rows = read_model_config(folder).vocab_size
    if len(before) > rows:
        raise CheckpointError(
            f"{folder}: its tokenizer has {len(before):,} entries, its model only {rows:,}",
            "give a folder whose tokenizer and weights belong together",
        )
    if reset_embeddings:
        log.info("%s: token embeddings are drawn afresh", folder)
        none = torch.zeros(0, dtype=torch.int64)
        return none, none
    if before == tokens and rows == len(tokens):
        return None
    place = {token: i for i, token in enumerate(before)}
    shared = [(i, place[token]) for i, token in enumerate(tokens) if token in place]
    if not shared:
        raise CheckpointError(
            f"{folder}: its vocabulary shares no entry with that of the data",
            "start with fresh embeddings: pretrain.reset_embeddings",
        )
    log.info(
        "%s: has embeddings for %d of the %d entries; the others are drawn afresh",
        folder,
        len(shared),
        len(tokens),
    )
    here, there = torch.tensor(shared).T
    return here, there


def _put_rows(fresh: Tensor, here: Tensor, there: Tensor, rows: Tensor) -> Tensor:
    mixed = fresh.detach().cpu().clone()
    mixed[here] = rows[there].to(mixed.dtype)
    return mixed
