"""From a checkpoint to a classifier to be trained, from a model folder to a trained one."""

import dataclasses
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
import torch

from bertpre.artefacts import (
    MANIFEST,
    check_files,
    fingerprint,
    fingerprint_file,
    read_manifest,
)
from bertpre.config.schema import Finetune
from bertpre.data.random64 import derive
from bertpre.errors import CheckpointError, ConfigError, DataFormatError
from bertpre.finetuning.batches import EncodedTexts, batches_by_length
from bertpre.model.bert import initialize
from bertpre.model.heads import BertForSequenceClassification
from bertpre.model.weights import load_hugging_face, read_model_config, read_weights
from bertpre.text.tokenizer import Tokenizer
from bertpre.training.devices import Precision, autocast

log = logging.getLogger(__name__)

Pooling = Literal["cls", "mean"]

_MOST_TOKENS = 16_384  # in one forward pass without gradients
# Of what does not come from a checkpoint, whatever pretraining started from: the larger weights
# that help a narrow model there make one that starts from scratch on few rows worse.
_FRESH_STD = 0.02
_PLAIN_LENGTH = 512  # what BERT was trained to, for folders that do not say


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """A classifier before training, and what its checkpoint said.

    Args:
        model: on the CPU.
        tokenizer: the checkpoint's.
        max_seq_length: most tokens of a row, [CLS] and [SEP] included.
        pooling: what the head sees.
        fingerprint: of the checkpoint's files.
    """

    model: BertForSequenceClassification
    tokenizer: Tokenizer
    max_seq_length: int
    pooling: Pooling
    fingerprint: str

    @property
    def hidden_size(self) -> int:
        """Width of the encoder."""
        return self.model.bert.config.hidden_size


def start_classifier(folder: Path, *, num_classes: int, config: Finetune, seed: int) -> Start:
    """Build a classifier on the encoder of a checkpoint.

    Args:
        folder: a checkpoint, a fine-tuned model (its head is dropped), or a Hugging Face BERT.
        num_classes: outputs of the new head.
        config: pooling, length, dropout, and whether to keep the shape alone.
        seed: decides the weights that do not come from the checkpoint.

    Raises:
        CheckpointError: the folder's weights, shape and vocabulary do not fit each other.
        ConfigError: a longer sequence is asked for than the encoder has positions.
    """
    facts = read_facts(folder)
    shape = read_model_config(folder)
    tokenizer = Tokenizer.load(folder)
    check_vocabulary(folder, tokenizer, shape.vocab_size)
    weights = {} if config.from_scratch else read_weights(folder)
    # Another task's head has other classes, or the same in another order.
    old_head = [name for name in weights if name.startswith("classifier.")]
    weights = {name: value for name, value in weights.items() if name not in old_head}
    pooling = _pick_pooling(config, facts, weights)
    model = BertForSequenceClassification(
        dataclasses.replace(
            cast(Any, shape.config),
            hidden_dropout_prob=config.hidden_dropout_prob,
            attention_probs_dropout_prob=config.hidden_dropout_prob,
        ),
        vocab_size=shape.vocab_size,
        num_labels=num_classes,
        pooling=pooling,
    )
    generator = torch.Generator().manual_seed(derive(seed, "init"))
    initialize(model, _FRESH_STD, generator)
    if config.from_scratch:
        log.info("%s: only the shape and the vocabulary are used; all weights are random", folder)
    else:
        report = load_hugging_face(model, weights, source=folder)
        log.info(
            "%s: %d weights loaded; new, random: %s; not used: %s",
            folder,
            len(report.loaded),
            ", ".join(report.new) or "none",
            ", ".join([*old_head, *report.unused]) or "none",
        )
    return Start(
        model=model,
        tokenizer=tokenizer,
        max_seq_length=_pick_length(config, facts, shape.config.max_position_embeddings),
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


def default_learning_rate(hidden_size: int) -> float:
    """Give the peak learning rate for an encoder of that width.

    Narrow encoders need far more than the 2e-5 to 5e-5 of BERT-base, or they stay at the majority
    class. Source: measured on 128, 256; Devlin et al. 2018, appendix A.3 for 768.
    """
    return min(3e-5 * (768 / hidden_size) ** 2, 1e-3)


def log_probabilities(
    model: BertForSequenceClassification,
    texts: EncodedTexts,
    *,
    device: torch.device,
    precision: Precision,
) -> npt.NDArray[np.float32]:
    """Run a classifier without dropout.

    Args:
        model: on ``device``.
        texts: rows in any order of length.
        device: where to run.
        precision: of the forward pass.

    Returns:
        (rows, classes) float32, in the order of the rows.
    """
    model.eval()
    result: npt.NDArray[np.float32] | None = None
    with torch.inference_mode():
        for rows in batches_by_length(texts.lengths, most_tokens=_MOST_TOKENS):
            with autocast(device, precision):
                logits = model(texts.batch(rows, device))
            found = torch.log_softmax(logits.float(), dim=1).cpu().numpy()
            if result is None:
                result = np.empty((len(texts), found.shape[1]), dtype=np.float32)
            result[rows] = found
    assert result is not None  # tables without rows are refused before
    return result


@dataclass(frozen=True, kw_only=True, slots=True)
class Classifier:
    """A fine-tuned model, ready to predict.

    Args:
        model: on ``device``.
        tokenizer: its own.
        classes: the labels, in the order of the outputs.
        max_seq_length: most tokens of a row.
        device: where the model is.
        precision: of the forward pass.
    """

    model: BertForSequenceClassification
    tokenizer: Tokenizer
    classes: tuple[str, ...]
    max_seq_length: int
    device: torch.device
    precision: Precision

    @classmethod
    def load(cls, folder: Path, *, device: torch.device, precision: Precision) -> "Classifier":
        """Load a folder that fine-tuning wrote.

        Raises:
            DataFormatError: it is not one, or it is damaged.
            CheckpointError: its weights do not fit its shape.
        """
        manifest = read_manifest(folder, "model")
        check_files(folder, manifest, content=True)
        shape = read_model_config(folder)
        classes = tuple(manifest["classes"])
        model = BertForSequenceClassification(
            shape.config,
            vocab_size=shape.vocab_size,
            num_labels=len(classes),
            pooling=manifest["pooling"],
        )
        load_hugging_face(model, read_weights(folder), source=folder)
        return cls(
            model=model.to(device),
            tokenizer=Tokenizer.load(folder),
            classes=classes,
            max_seq_length=manifest["max_seq_length"],
            device=device,
            precision=precision,
        )

    def log_probabilities(self, texts: EncodedTexts) -> npt.NDArray[np.float32]:
        """Give the log-probability of each class, (rows, classes) float32, rows in order."""
        return log_probabilities(self.model, texts, device=self.device, precision=self.precision)


def read_facts(folder: Path) -> dict[str, Any]:
    """Read what a folder's manifest says; nothing if it has none, as other libraries' folders.

    Raises:
        DataFormatError: the folder is of another kind, or a file is not what the manifest says.
    """
    if not (folder / MANIFEST).is_file():
        return {}
    try:
        manifest = read_manifest(folder, "checkpoint")
    except DataFormatError:
        manifest = read_manifest(folder, "model")
    check_files(folder, manifest, content=True)
    return manifest


def _fingerprint(folder: Path) -> str:
    names = ("config.json", "model.safetensors", "pytorch_model.bin")
    paths = [folder / name for name in names]
    return fingerprint({path.name: fingerprint_file(path) for path in paths if path.is_file()})


def _pick_pooling(
    config: Finetune, facts: dict[str, Any], weights: dict[str, torch.Tensor]
) -> Pooling:
    if config.pooling != "auto":
        return config.pooling
    if config.from_scratch:
        return "mean"  # a random pooler is the harder start: nothing has trained it
    if facts.get("kind") == "model":
        return "cls" if facts["pooling"] == "cls" else "mean"
    names = {name.removeprefix("bert.") for name in weights}
    is_trained = {"pooler.dense.weight", "cls.seq_relationship.weight"} <= names
    return "cls" if is_trained else "mean"


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
    if asked > seen:
        log.warning(
            "max_seq_length %d: the checkpoint saw %d at most, so later positions are untrained",
            asked,
            seen,
        )
    return asked
