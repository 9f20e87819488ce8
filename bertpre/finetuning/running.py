"""Running fine-tuned models over encoded rows, during training and from their folders."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from bertpre.artefacts import check_files, read_manifest
from bertpre.finetuning.batches import EncodedTexts, Encoder, batches_by_length
from bertpre.finetuning.registry import task_of
from bertpre.finetuning.tables import Rows
from bertpre.model.folder import read_model_config
from bertpre.model.heads import BertForSequenceClassification
from bertpre.model.names import Finetuned
from bertpre.model.weights import load_hugging_face, read_weights
from bertpre.tokenizer.tokenizer import Tokenizer
from bertpre.training.device import (
    DeviceName,
    Precision,
    PrecisionName,
    autocast,
    keep_freed_memory,
    pick_device,
    pick_precision,
)

MOST_TOKENS = 16_384  # in one forward pass


class Placement(NamedTuple):
    """The device of models, and the precision of their forward pass."""

    device: torch.device
    precision: Precision


def place_inference(device: DeviceName, precision: PrecisionName) -> Placement:
    """Choose device and precision for finished models."""
    placed = pick_device(device)
    if placed.type == "cpu":
        keep_freed_memory()
    return Placement(placed, pick_precision(precision, placed))


class Run(NamedTuple):
    """A model, on the device of its `Placement`, and rows encoded for it."""

    model: Finetuned
    texts: EncodedTexts


def run_model(
    run: Run, rows: Rows | None = None, *, placement: Placement
) -> npt.NDArray[np.float32]:
    """Run a model without dropout.

    Args:
        run: the model and its texts.
        rows: which rows; default: all.
        placement: where to run.

    Returns:
        Logits (rows, C) float32, in the order of the rows; for a text in windows, their mean.
    """
    model, texts = run
    assert isinstance(model, BertForSequenceClassification)
    model.eval()
    wanted = np.arange(len(texts)) if rows is None else rows
    sequences, firsts = texts.sequences(wanted)
    logits = np.empty((len(sequences), model.classifier.out_features), dtype=np.float32)
    with torch.inference_mode():
        for places in batches_by_length(texts.lengths[sequences], most_tokens=MOST_TOKENS):
            with autocast(*placement):
                found = model(texts.batch(sequences[places], placement.device))
            logits[places] = found.float().cpu().numpy()
    if len(sequences) == len(wanted):
        return logits
    counts = np.diff(firsts, append=len(sequences))
    means = np.add.reduceat(logits, firsts, axis=0) / counts[:, None]
    return np.asarray(means, dtype=np.float32)


@dataclass(frozen=True, kw_only=True, slots=True)
class FinetunedModel:
    """A fine-tuned model on its device, and the encoder that turns texts into its tokens."""

    model: Finetuned
    encoder: Encoder


def load_finetuned(folder: Path, device: torch.device) -> FinetunedModel:
    """Load a folder written by fine-tuning.

    Raises:
        DataFormatError: it is another kind of folder, or damaged.
        CheckpointError: its weights do not match its shape.
    """
    manifest = read_manifest(folder, "model")
    check_files(folder, manifest, content=True)
    shape = read_model_config(folder)
    model = task_of(folder, manifest).build_model(
        shape.config, vocab_size=shape.vocab_size, pooling=manifest["pooling"]
    )
    load_hugging_face(model, read_weights(folder), source=folder)
    return FinetunedModel(
        model=model.to(device),
        encoder=Encoder(
            tokenizer=Tokenizer.load(folder),
            max_seq_length=manifest["max_seq_length"],
            long_texts=manifest["options"]["long_texts"],
            window_overlap=manifest["options"]["window_overlap"],
        ),
    )
