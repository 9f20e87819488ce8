"""What fine-tuning starts from: a checkpoint, turned into models to train."""

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch

from bertpre.artefacts import MANIFEST, fingerprint, fingerprint_file
from bertpre.config import schema
from bertpre.config.schema import Finetune
from bertpre.data.random64 import derive
from bertpre.errors import CheckpointError, ConfigError
from bertpre.finetuning.batches import Encoder
from bertpre.finetuning.labels import name_some
from bertpre.finetuning.loop import default_num_epochs
from bertpre.finetuning.plan import Plan
from bertpre.finetuning.running import Placement, place_inference
from bertpre.finetuning.task import Task
from bertpre.model.bert import initialize
from bertpre.model.folder import ModelFolder, read_model_config
from bertpre.model.heads import Pooling
from bertpre.model.names import Finetuned, has_trained_pooler, is_classifier, is_pooler
from bertpre.model.weights import load_hugging_face, read_weights
from bertpre.tokenizer.tokenizer import Tokenizer
from bertpre.training.run_folder import read_model_manifest

log = logging.getLogger(__name__)


# For weights that are not in the checkpoint, whatever pretraining used: the larger initial weights
# that help a narrow model there hurt one that starts from scratch on few rows.
_FRESH_STD = 0.02
_MOST_WEIGHTS = 6  # to be named one by one
_SHORTEST_PAIR = 5
PLAIN_LENGTH = 512  # BERT's length, for folders that do not state theirs


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """A checkpoint, prepared for the models that start from it.

    Args:
        source: the folder.
        shape: the encoder's, with the dropout of fine-tuning.
        vocab_size: rows of the word embedding.
        weights: those that are used, by their names in the folder; none from scratch.
        unused: names of weights that belong to another task or are untrained.
        encoder: turns texts into tokens.
        pooling: what the head sees; None if it sees every token.
        fingerprint: of the checkpoint's files.
    """

    source: Path
    shape: schema.Model
    vocab_size: int
    weights: Mapping[str, torch.Tensor]
    unused: tuple[str, ...]
    encoder: Encoder
    pooling: Pooling | None
    fingerprint: str

    def resolve(self, config: Finetune, plan: Plan) -> Finetune:
        """Fill in the options that depend on the checkpoint and the tables."""
        num_rows = len(plan.members[0].train_rows)
        resolved: Finetune = dataclasses.replace(
            cast(Any, config),
            task=plan.task.name,
            metric=plan.metric,
            learning_rate=config.learning_rate
            or default_learning_rate(self.shape.hidden_size, task=plan.task),
            num_epochs=config.num_epochs
            or default_num_epochs(num_rows, config.batch_size, task=plan.task),
            max_seq_length=self.encoder.max_seq_length,
            pooling=self.pooling or config.pooling,
        )
        return resolved

    def build(self, task: Task, *, seed: int, level: int = logging.INFO) -> Finetuned:
        """Build a model with a new head, on the CPU.

        Args:
            task: decides the head.
            seed: decides the weights that are not in the checkpoint.
            level: of the log message that names these weights.

        Raises:
            CheckpointError: the weights do not fit the shape.
        """
        model = task.build_model(self.shape, vocab_size=self.vocab_size, pooling=self.pooling)
        initialize(model, _FRESH_STD, torch.Generator().manual_seed(derive(seed, "init")))
        if not self.weights:
            log.log(
                level,
                "%s: only the shape and the vocabulary are used; all weights are random",
                self.source,
            )
            return model
        report = load_hugging_face(model, self.weights, source=self.source)
        new = task.complete(model, report.new)
        log.log(
            level,
            "%s: %d weights loaded; randomly initialized: %s; not used: %s",
            self.source,
            len(report.loaded),
            name_some(_modules_of(new)) or "none",
            ", ".join([*self.unused, *report.unused]) or "none",
        )
        return model


def read_start(folder: Path, *, config: Finetune, pools: bool = True) -> Start:
    """Read the checkpoint that fine-tuning starts from.

    Args:
        folder: a checkpoint, a fine-tuned model (its head is dropped), or a Hugging Face BERT.
        config: pooling, lengths, dropout, and whether to use the shape only.
        pools: whether the head sees one vector per text.

    Raises:
        CheckpointError: the folder's weights, shape and vocabulary do not match.
        ConfigError: ``max_seq_length`` exceeds the encoder's positions or is too short for a pair.
    """
    facts, shape, tokenizer = read_checkpoint(folder)
    weights = {} if config.from_scratch else read_weights(folder)
    # Another task's head has other classes, or the same in another order.
    unused = [name for name in weights if is_classifier(name)]
    pooling = _pick_pooling(config, facts, weights) if pools else None
    pooler = [name for name in weights if is_pooler(name)]
    if pooling == "cls" and not config.from_scratch and not has_trained_pooler(weights):
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


class Checkpoint(NamedTuple):
    """A model folder without its weights.

    Attributes:
        facts: its manifest; empty for folders of other libraries.
        shape: the model's.
        tokenizer: the model's.
    """

    facts: dict[str, Any]
    shape: ModelFolder
    tokenizer: Tokenizer


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read and check a checkpoint, a fine-tuned model or a Hugging Face BERT, without its weights.

    Raises:
        DataFormatError: the folder is of another kind, or a file differs from its manifest.
        CheckpointError: the tokenizer has more entries than the word embedding has rows. Fewer are
            fine: other libraries pad.
    """
    facts = read_model_manifest(folder) if (folder / MANIFEST).is_file() else {}
    shape = read_model_config(folder)
    tokenizer = Tokenizer.load(folder)
    if tokenizer.vocab_size > shape.vocab_size:
        raise CheckpointError(
            f"{folder}: its vocabulary has {tokenizer.vocab_size:,} entries, "
            f"its model only {shape.vocab_size:,}",
            "copy the tokenizer files that the model was trained with into the folder",
        )
    return Checkpoint(facts, shape, tokenizer)


def place_training(config: Finetune) -> Placement:
    """Choose device and precision for training; see `bertpre.training.device.pick_precision`.

    fp16 is replaced by fp32: its loss scaling is not worth the trouble for minutes of training.
    """
    placement = place_inference(config.device, config.precision)
    return placement._replace(precision="fp32") if placement.precision == "fp16" else placement


def default_learning_rate(hidden_size: int, *, task: Task) -> float:
    """Return the peak learning rate for an encoder of this width.

    Narrow encoders need far more than the 2e-5 to 5e-5 of BERT-base, or they only predict the
    majority class. Source: measured on 128, 256; Devlin et al. 2018, appendix A.3 for 768.
    """
    return min(task.rate_factor * 3e-5 * (768 / hidden_size) ** 2, 1e-3)


def _modules_of(names: Sequence[str]) -> list[str]:
    """Return weights, or if they are many, the modules that they are in."""
    found = list(names)
    while len(found) > _MOST_WEIGHTS:
        deepest = max(name.count(".") for name in found)
        cut = (name.rpartition(".")[0] if name.count(".") == deepest else name for name in found)
        found = list(dict.fromkeys(cut))
    return found


def _fingerprint(folder: Path) -> str:
    names = ("config.json", "model.safetensors", "pytorch_model.bin")
    paths = [folder / name for name in names]
    return fingerprint({path.name: fingerprint_file(path) for path in paths if path.is_file()})


def _pick_pooling(
    config: Finetune, facts: dict[str, Any], weights: dict[str, torch.Tensor]
) -> Pooling:
    if config.pooling != "auto":
        return config.pooling
    averaged: Pooling = "mean" if config.pair_column is None else "compare"
    if config.from_scratch:
        return averaged  # an untrained pooler only makes the start harder
    if facts.get("kind") == "model":
        return "cls" if facts["pooling"] == "cls" else averaged
    return "cls" if has_trained_pooler(weights) else averaged


def _pick_length(config: Finetune, facts: dict[str, Any], num_positions: int) -> int:
    seen = facts.get("max_seq_length", min(PLAIN_LENGTH, num_positions))
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
