"""Running classifiers without gradients: in training on the dev rows, and from model folders."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from bertpre.artefacts import check_files, read_manifest
from bertpre.finetuning.batches import EncodedTexts, Encoder, batches_by_length
from bertpre.finetuning.labels import Labels, labels_of
from bertpre.finetuning.objective import read_logits
from bertpre.model.folder import read_model_config
from bertpre.model.heads import BertForSequenceClassification
from bertpre.model.weights import load_hugging_face, read_weights
from bertpre.tokenizer.tokenizer import Tokenizer
from bertpre.training.device import Precision, autocast

_MOST_TOKENS = 16_384  # in one forward pass


def run_model(
    model: BertForSequenceClassification,
    texts: EncodedTexts,
    rows: npt.NDArray[np.int64] | None = None,
    *,
    device: torch.device,
    precision: Precision,
) -> npt.NDArray[np.float32]:
    """Run a classifier without dropout.

    Args:
        model: on ``device``.
        texts: in any order of length.
        rows: which of them; default: all.
        device: where to run.
        precision: of the forward pass.

    Returns:
        Logits (rows, C) float32, in the order of the rows; of a text in windows, their mean.
    """
    model.eval()
    wanted = np.arange(len(texts)) if rows is None else rows
    sequences, firsts = texts.sequences(wanted)
    logits = np.empty((len(sequences), model.classifier.out_features), dtype=np.float32)
    with torch.inference_mode():
        for places in batches_by_length(texts.lengths[sequences], most_tokens=_MOST_TOKENS):
            with autocast(device, precision):
                found = model(texts.batch(sequences[places], device))
            logits[places] = found.float().cpu().numpy()
    if len(sequences) == len(wanted):
        return logits
    counts = np.diff(firsts, append=len(sequences))
    means = np.add.reduceat(logits, firsts, axis=0) / counts[:, None]
    return np.asarray(means, dtype=np.float32)


@dataclass(frozen=True, kw_only=True, slots=True)
class Classifier:
    """A fine-tuned model, ready to predict.

    Args:
        model: on ``device``.
        labels: what its outputs stand for.
        encoder: how texts become its tokens.
        device: where the model is.
        precision: of the forward pass.
    """

    model: BertForSequenceClassification
    labels: Labels
    encoder: Encoder
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
        labels = labels_of(folder, manifest)
        shape = read_model_config(folder)
        model = BertForSequenceClassification(
            shape.config,
            vocab_size=shape.vocab_size,
            num_labels=len(labels.names),
            pooling=manifest["pooling"],
        )
        load_hugging_face(model, read_weights(folder), source=folder)
        return cls(
            model=model.to(device),
            labels=labels,
            encoder=Encoder(
                tokenizer=Tokenizer.load(folder),
                max_seq_length=manifest["max_seq_length"],
                long_texts=manifest["options"]["long_texts"],
                window_overlap=manifest["options"]["window_overlap"],
            ),
            device=device,
            precision=precision,
        )

    def logits(self, texts: EncodedTexts) -> npt.NDArray[np.float32]:
        """Give the logits of each row, (rows, C) float32; see `run_model`."""
        return run_model(self.model, texts, device=self.device, precision=self.precision)

    def readings(self, texts: EncodedTexts) -> npt.NDArray[np.float64]:
        """Give the probabilities (rows, C) or the numbers (rows, 1)."""
        return read_logits(self.labels.kind, self.logits(texts))
