"""What goes into and comes out of models: targets, outputs, the loss and scores."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bertpre.finetuning.tables import InputRow, LabelledTable

if TYPE_CHECKING:
    from torch import Tensor

    from bertpre.model.names import Finetuned

Outputs = npt.NDArray[Any]
"""Model outputs for some rows, (rows, ...); only the task looks inside."""

Targets = npt.NDArray[Any]
"""Training targets of some rows, (rows, ...); only the task looks inside."""

Scores = dict[str, float]
"""Scores by name, ``loss`` among them."""

# Takes the training rows and other tables; returns the outputs for each of these tables.
Baseline = Callable[[LabelledTable, Sequence[LabelledTable]], list[Outputs]]


class ClassRow(NamedTuple):
    """The scores of one class.

    Attributes:
        name: the class.
        precision: share of the rows predicted as this class that have it.
        recall: share of the rows with this class that are predicted as it.
        f1: the harmonic mean of both.
        rows: number of rows with this class; for labels on tokens, of entities or tokens.
    """

    name: str
    precision: float
    recall: float
    f1: float
    rows: int


class TaggedSentence(NamedTuple):
    """The output for a sentence.

    Attributes:
        decided: (T,) int64, the predicted tags.
        probabilities: (T, C) float32.
    """

    decided: npt.NDArray[np.int64]
    probabilities: npt.NDArray[np.float32]


class GeneratedText(NamedTuple):
    """The output for a text to write.

    Attributes:
        text: the best one.
        score: its mean log probability, [SEP] included; NaN without one.
        others: the next best texts with theirs, best first.
        target_log_probability: of the true target, given its own tokens; 0 without one.
        num_target_tokens: its tokens, [SEP] included; 0 without one.
        is_full: whether the text has the maximum length, so that its end may be missing.
        repeats: whether it has the same three tokens twice.
    """

    text: str
    score: float = math.nan
    others: tuple[tuple[str, float], ...] = ()
    target_log_probability: float = 0.0
    num_target_tokens: int = 0
    is_full: bool = False
    repeats: bool = False


class Objective(ABC):
    """The loss of one training run; its weights or scale come from the training rows."""

    @abstractmethod
    def loss(self, model: "Finetuned", batch: Any, targets: Targets) -> "Tensor":
        """Run the model and return the mean loss over its units, a 0-dimensional fp32 tensor.

        Args:
            model: the model in training.
            batch: from `bertpre.finetuning.batches.EncodedTexts.draw_batch`.
            targets: of its rows.
        """

    def count_units(self, targets: Targets) -> int:
        """Return the number of units whose mean the loss is: rows, or tokens with a label."""
        return len(targets)

    def in_units(self, outputs: Outputs) -> Outputs:
        """Convert the outputs of a model in training to the unit of the labels."""
        return outputs

    def finish(self, model: "Finetuned") -> None:
        """Fold the unit of the labels into a trained head."""
        return


class LogitObjective(Objective):
    """A loss of logits (B, C), a row of them for each label."""

    def loss(self, model: "Finetuned", batch: Any, targets: Targets) -> "Tensor":
        import torch

        logits = model(batch)
        return self.of_logits(logits, torch.from_numpy(targets).to(logits.device))

    @abstractmethod
    def of_logits(self, logits: "Tensor", targets: "Tensor") -> "Tensor":
        """Return the mean loss of logits (B, C), of any precision."""


class PredictionFile(ABC):
    """Reads the rows to predict, and writes their predictions."""

    @property
    def form(self) -> str:
        """The format of what is written: "tsv", "csv", "jsonl" or "columns"."""
        return "tsv"

    def header(self) -> str:
        """Return what comes before the first prediction."""
        return ""

    @abstractmethod
    def rows(self) -> Iterator[InputRow]:
        """Yield the rows.

        Raises:
            CorpusError: the file cannot be read, or has bad rows that are not to be skipped.
        """

    def remarks(self) -> list[str]:
        """Return what is odd about all that was written."""
        return []

    @abstractmethod
    def write(self, rows: Sequence[InputRow], outputs: Outputs | None) -> Iterator[str]:
        """Yield the text of each row's prediction.

        Args:
            rows: some rows.
            outputs: of those that have cells; None if none has.
        """


def as_rows(items: Sequence[Any]) -> npt.NDArray[Any]:
    """Return an array of objects, one per row; for outputs and targets of unequal length."""
    rows = np.empty(len(items), dtype=object)
    for number, item in enumerate(items):
        rows[number] = item
    return rows
