"""From a checkpoint to classifiers to be trained."""

import dataclasses
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch

from bertpre.artefacts import (
    MANIFEST,
    fingerprint,
    fingerprint_file,
)
from bertpre.config import schema
from bertpre.config.schema import Finetune
from bertpre.data.random64 import derive
from bertpre.errors import CheckpointError, ConfigError
from bertpre.finetuning.batches import Encoder
from bertpre.model.bert import initialize
from bertpre.model.folder import read_model_config
from bertpre.model.heads import BertForSequenceClassification, Pooling
from bertpre.model.weights import load_hugging_face, read_weights
from bertpre.tokenizer.tokenizer import Tokenizer
from bertpre.training.device import Precision, PrecisionName, pick_precision
from bertpre.training.run_folder import read_model_manifest

log = logging.getLogger(__name__)


# Of what does not come from a checkpoint, whatever pretraining started from: the larger weights
# that help a narrow model there make one that starts from scratch on few rows worse.
_FRESH_STD = 0.02
_SHORTEST_PAIR = 5
_PLAIN_LENGTH = 512  # what BERT was trained to, for folders that do not say


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """What a checkpoint gives to the classifiers that start from it.

    Args:
        source: the folder.
        shape: of the encoder, with the dropout of fine-tuning.
        vocab_size: rows of the word embedding.
        weights: by the names in the folder, without what is not used; none from scratch.
        unused: names of weights that are left out because they are of another task, or untrained.
        encoder: how texts become tokens.
        pooling: what the head sees.
        fingerprint: of the checkpoint's files.
    """

    source: Path
    shape: schema.Model
    vocab_size: int
    weights: Mapping[str, torch.Tensor]
    unused: tuple[str, ...]
    encoder: Encoder
    pooling: Pooling
    fingerprint: str

    def build(
        self, *, num_outputs: int, seed: int, is_told: bool = True
    ) -> BertForSequenceClassification:
        """Build a classifier, on the CPU.

        Args:
            num_outputs: of the new head.
            seed: decides the weights that do not come from the checkpoint.
            is_told: whether to log which weights these are.

        Raises:
            CheckpointError: the weights do not fit the shape.
        """
        model = BertForSequenceClassification(
            self.shape,
            vocab_size=self.vocab_size,
            num_labels=num_outputs,
            pooling=self.pooling,
        )
        initialize(model, _FRESH_STD, torch.Generator().manual_seed(derive(seed, "init")))
        level = logging.INFO if is_told else logging.DEBUG
        if not self.weights:
            log.log(
                level,
                "%s: only the shape and the vocabulary are used; all weights are random",
                self.source,
            )
            return model
        report = load_hugging_face(model, self.weights, source=self.source)
        log.log(
            level,
            "%s: %d weights loaded; new, random: %s; not used: %s",
            self.source,
            len(report.loaded),
            ", ".join(report.new) or "none",
            ", ".join([*self.unused, *report.unused]) or "none",
        )
        return model


def read_start(folder: Path, *, config: Finetune) -> Start:
    """Read what classifiers start from.

    Args:
        folder: a checkpoint, a fine-tuned model (its head is dropped), or a Hugging Face BERT.
        config: pooling, lengths, dropout, and whether to keep the shape alone.

    Raises:
        CheckpointError: the folder's weights, shape and vocabulary do not fit each other.
        ConfigError: a longer sequence is asked for than the encoder has positions, or one too
            short for a pair.
    """
    facts = read_facts(folder)
    shape = read_model_config(folder)
    tokenizer = Tokenizer.load(folder)
    check_vocabulary(folder, tokenizer, shape.vocab_size)
    weights = {} if config.from_scratch else read_weights(folder)
    # Another task's head has other classes, or the same in another order.
    unused = [name for name in weights if name.startswith("classifier.")]
    pooling = _pick_pooling(config, facts, weights)
    pooler = [name for name in weights if name.removeprefix("bert.").startswith("pooler.")]
    if pooling == "cls" and not config.from_scratch and not _has_trained_pooler(weights):
        log.warning(
            "%s: pretraining did not train the pooler, so it starts from random weights; "
            "--pooling mean may do better",
            folder,
        )
        unused += pooler
    return Start(
        source=folder,
        shape=dataclasses.replace(
            cast(Any, shape.config),
            hidden_dropout_prob=config.hidden_dropout_prob,
            attention_probs_dropout_prob=config.hidden_dropout_prob,
        ),
        vocab_size=shape.vocab_size,
        weights={name: value for name, value in weights.items() if name not in unused},
        unused=tuple(unused),
        encoder=Encoder(
            tokenizer=tokenizer,
            max_seq_length=_pick_length(config, facts, shape.config.max_position_embeddings),
            long_texts=config.long_texts,
            window_overlap=config.window_overlap,
        ),
        pooling=pooling,
        fingerprint=facts.get("fingerprint") or _fingerprint(folder),
    )


def check_vocabulary(folder: Path, tokenizer: Tokenizer, rows: int) -> None:
    """Compare a tokenizer with the rows of the word embedding beside it.

    Raises:
        CheckpointError: the tokenizer has more entries. Fewer are fine: other libraries pad.
    """
    if tokenizer.vocab_size > rows:
        raise CheckpointError(
            f"{folder}: its vocabulary has {tokenizer.vocab_size:,} entries, "
            f"its model only {rows:,}",
            "copy the tokenizer files that the model was trained with into the folder",
        )


def pick_training_precision(name: PrecisionName, device: torch.device) -> Precision:
    """Choose the precision of training; see `bertpre.training.device.pick_precision`.

    Where only fp16 is faster than fp32, fp32 it is: fp16 needs a loss that is scaled to its range,
    which is not worth its care in a training of minutes.
    """
    found = pick_precision(name, device)
    return "fp32" if found == "fp16" else found


def default_learning_rate(hidden_size: int) -> float:
    """Give the peak learning rate for an encoder of that width.

    Narrow encoders need far more than the 2e-5 to 5e-5 of BERT-base, or they stay at the majority
    class. Source: measured on 128, 256; Devlin et al. 2018, appendix A.3 for 768.
    """
    return min(3e-5 * (768 / hidden_size) ** 2, 1e-3)


def read_facts(folder: Path) -> dict[str, Any]:
    """Read what a folder's manifest says; nothing if it has none, as other libraries' folders.

    Raises:
        DataFormatError: the folder is of another kind, or a file is not what the manifest says.
    """
    if not (folder / MANIFEST).is_file():
        return {}
    return read_model_manifest(folder)


def _fingerprint(folder: Path) -> str:
    names = ("config.json", "model.safetensors", "pytorch_model.bin")
    paths = [folder / name for name in names]
    return fingerprint({path.name: fingerprint_file(path) for path in paths if path.is_file()})


def _pick_pooling(
    config: Finetune, facts: dict[str, Any], weights: dict[str, torch.Tensor]
) -> Pooling:
    if config.pooling == "compare" and config.pair_column is None:
        raise ConfigError(
            "pooling: compare is for pairs of texts, but there is no second text",
            "name its column with --pair-column, or pass --pooling mean",
        )
    if config.pooling != "auto":
        return config.pooling
    averaged: Pooling = "mean" if config.pair_column is None else "compare"
    if config.from_scratch:
        return averaged  # a random pooler is the harder start: nothing has trained it
    if facts.get("kind") == "model":
        return "cls" if facts["pooling"] == "cls" else averaged
    return "cls" if _has_trained_pooler(weights) else averaged


def _has_trained_pooler(weights: Mapping[str, torch.Tensor]) -> bool:
    named = {name.removeprefix("bert."): value for name, value in weights.items()}
    if "pooler.dense.bias" not in named:
        return False
    # Libraries write a pooler that nothing has trained; its bias is still what it began as, 0.
    return "cls.seq_relationship.weight" in named or bool(named["pooler.dense.bias"].any())


def _pick_length(config: Finetune, facts: dict[str, Any], num_positions: int) -> int:
    seen = facts.get("max_seq_length", min(_PLAIN_LENGTH, num_positions))
    asked = config.max_seq_length
    if asked is None:
        return int(seen)
    if asked > num_positions:
        raise ConfigError(
            f"max_seq_length: {asked:,}, but the encoder has {num_positions:,} positions",
            f"pass --max-seq-length {num_positions} or less",
        )
    if config.pair_column is not None and asked < _SHORTEST_PAIR:
        raise ConfigError(
            f"max_seq_length: {asked}, but [CLS] a [SEP] b [SEP] has {_SHORTEST_PAIR} tokens",
            f"pass --max-seq-length {_SHORTEST_PAIR} or more",
        )
    if asked > seen:
        log.warning(
            "max_seq_length %d: the checkpoint saw %d at most, so later positions are untrained",
            asked,
            seen,
        )
    return asked
