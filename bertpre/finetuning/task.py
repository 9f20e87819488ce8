"""The interface of a fine-tuning task.

Everything that depends on the kind of label is in one file per task: label cells and their faults,
model, loss, outputs, scores, baselines, prediction columns, plots and descriptions. Task files
import torch only inside functions, so that bad tables are reported before torch is imported.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from bertpre.finetuning.labels import probability_columns

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from bertpre.config.schema import Finetune, Model
    from bertpre.finetuning.running import Placement, Run
    from bertpre.model.flat import FlatTokens
    from bertpre.model.heads import BertForSequenceClassification, Pooling

Outputs = npt.NDArray[Any]
"""Model outputs for some rows, (rows, ...); only the task looks inside."""

Targets = npt.NDArray[Any]
"""Training targets of some rows, (rows, ...); only the task looks inside."""

Rows = npt.NDArray[np.int64]

Scores = dict[str, float]
"""Scores by name, ``loss`` among them."""


class ClassRow(NamedTuple):
    """The scores of one class.

    Attributes:
        name: the class.
        precision: share of the rows predicted as this class that have it.
        recall: share of the rows with this class that are predicted as it.
        f1: the harmonic mean of both.
        rows: number of rows with this class.
    """

    name: str
    precision: float
    recall: float
    f1: float
    rows: int


class Objective(ABC):
    """The loss of one training run; its weights or scale come from the training rows."""

    def loss(
        self, model: "BertForSequenceClassification", tokens: "FlatTokens", targets: Targets
    ) -> "Tensor":
        """Run the model and return the mean loss over some rows, a 0-dimensional fp32 tensor."""
        import torch

        logits = model(tokens)
        return self.of_logits(logits, torch.from_numpy(targets).to(logits.device))

    @abstractmethod
    def of_logits(self, logits: "Tensor", targets: "Tensor") -> "Tensor":
        """Return the mean loss of logits (B, C), of any precision."""

    def in_units(self, outputs: Outputs) -> Outputs:
        """Convert the outputs of a model in training to the unit of the labels."""
        return outputs

    def finish(self, head: "nn.Linear") -> None:
        """Fold the unit of the labels into a trained head."""
        return


@dataclass(frozen=True, kw_only=True, slots=True)
class Task(ABC):
    """What the outputs of a fine-tuned model mean, and all that follows from it.

    The methods that are not abstract suit models with a linear head and C outputs per text.

    Args:
        names: the name of each output, in order.
    """

    names: tuple[str, ...]

    # As in the schema and in manifests.
    name: ClassVar[str]
    # Dev scores that may choose the epoch; the first is the default.
    metrics: ClassVar[tuple[str, ...]]
    # Scores in a table of results, with their column titles.
    columns: ClassVar[Mapping[str, str]]
    # Display names of the baselines.
    baseline_names: ClassVar[Mapping[str, str]] = {
        "majority": "most common label",
        "tfidf_linear": "TF-IDF + linear",
    }
    # Options without effect here, with their default values; the reason and the hint.
    unused_options: ClassVar[Mapping[str, object]] = {}
    unused_reason: ClassVar[tuple[str, str]] = ("", "")
    # Added to the hint about bad label cells.
    fault_hint: ClassVar[str] = ""
    # The task's name in config.json, from the transformers library.
    problem_type: ClassVar[str]

    # Labels

    @classmethod
    @abstractmethod
    def claims(cls, cells: Sequence[str], *, separator: str) -> str | None:
        """Return why these cells look like labels of this task, or None if they do not."""

    @classmethod
    @abstractmethod
    def cell_fault(cls, cell: str, *, separator: str) -> str | None:
        """Return what is wrong with a label cell, or None."""

    @classmethod
    @abstractmethod
    def learn(cls, cells: Sequence[str], *, config: "Finetune", table: str) -> Self:
        """Learn the names of the outputs from the labels of a training table.

        Args:
            cells: labels without faults.
            config: label column and separator.
            table: the file, for messages.

        Raises:
            CorpusError: the labels do not differ.
        """

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> Self:
        """Rebuild the task from the manifest of a model folder."""
        return cls(names=tuple(manifest["classes"]))

    @abstractmethod
    def unknown(self, cells: Sequence[str]) -> list[list[str]]:
        """Return the names in each cell for which the model has no output."""

    @abstractmethod
    def targets(self, cells: Sequence[str]) -> Targets:
        """Convert cells without faults to training targets."""

    @abstractmethod
    def strata(self, cells: Sequence[str]) -> Rows:
        """Return a group for each row, (rows,) int64; every split gets its share of each."""

    def rare_labels(self, cells: Sequence[str], *, fewest: int) -> tuple[str, ...]:
        """Return the labels with fewer than ``fewest`` rows, which a split may lack."""
        return ()

    def count_labels(self, cells: Sequence[str]) -> dict[str, int]:
        """Count the rows of each label; empty if labels have no names."""
        return {}

    # Model and learning

    def build_model(
        self, shape: "Model", *, vocab_size: int, pooling: "Pooling"
    ) -> "BertForSequenceClassification":
        """Build the encoder and its head, uninitialized."""
        from bertpre.model.heads import BertForSequenceClassification

        return BertForSequenceClassification(
            shape, vocab_size=vocab_size, num_labels=len(self.names), pooling=pooling
        )

    def config_entries(self) -> dict[str, Any]:
        """Return the entries of config.json that describe the outputs to other libraries."""
        return {
            "id2label": {str(number): name for number, name in enumerate(self.names)},
            "label2id": {name: number for number, name in enumerate(self.names)},
            "problem_type": self.problem_type,
        }

    @abstractmethod
    def objective(
        self, targets: Targets, *, config: "Finetune", device: "torch.device"
    ) -> Objective:
        """Build the loss for a training run.

        Args:
            targets: those of the training rows.
            config: class weights, label smoothing and focal loss.
            device: the device of the model.
        """

    # Outputs

    @abstractmethod
    def read_logits(self, logits: npt.NDArray[np.float32]) -> Outputs:
        """Convert a finished model's logits (rows, C) to outputs, in double precision."""

    def predict(
        self, runs: Sequence["Run"], rows: Rows | None = None, *, placement: "Placement"
    ) -> Outputs:
        """Predict rows with one model, or with several by the mean of their outputs.

        Args:
            runs: each model with its own encoding of the rows.
            rows: which rows; default: all.
            placement: where the models are.
        """
        from bertpre.finetuning.running import run_model

        outputs = [self.read_logits(run_model(run, rows, placement=placement)) for run in runs]
        return np.asarray(np.mean(outputs, axis=0))

    def calibrated(self, outputs: Outputs, targets: Targets) -> Self:
        """Choose what turns outputs into decisions, such as thresholds, on the dev rows."""
        return self

    def chosen_facts(self) -> dict[str, Any]:
        """Return what `calibrated` chose, for a manifest."""
        return {}

    def together(self, others: Sequence[Self]) -> Self:
        """Return the task of several models of the same labels, averaging what each one chose."""
        return self

    @abstractmethod
    def scores(self, outputs: Outputs, targets: Targets) -> Scores:
        """Return all scores but the loss."""

    @abstractmethod
    def loss(self, outputs: Outputs, targets: Targets) -> float:
        """Return the mean loss."""

    def class_rows(self, outputs: Outputs, targets: Targets) -> list[ClassRow]:
        """Score each class separately, if there are classes."""
        return []

    # Baselines

    @abstractmethod
    def commonest(self, cells: Sequence[str]) -> Outputs:
        """Return the outputs, (C,), that predict the most common training label."""

    @abstractmethod
    def fit_linear(self, features: Any, cells: Sequence[str]) -> Callable[[Any], Outputs]:
        """Fit a linear model to a sparse matrix (rows, terms); return its prediction function."""

    # Display

    def prediction_columns(self) -> list[str]:
        """Return the header of a prediction table; the names are distinct."""
        return probability_columns(self.names)

    @abstractmethod
    def prediction_lines(self, outputs: Outputs) -> Iterator[str]:
        """Yield a line of that table for each row."""

    def draw_mistakes(
        self, folder: Path, outputs: Outputs, targets: Targets, scores: Scores
    ) -> None:
        """Plot the errors on the dev rows, if the task has such a plot."""
        return

    @abstractmethod
    def describe(self) -> str:
        """Describe the labels in the summary of a training run."""

    def label_facts(self) -> dict[str, str]:
        """Describe the outputs for `bertpre inspect`."""
        return {"labels": f"{len(self.names):,}"}

    @abstractmethod
    def card_text(self, texts: str) -> str:
        """Describe in a model card what the model predicts; ``texts`` says for which texts."""


def score(task: Task, outputs: Outputs, targets: Targets) -> Scores:
    """Return all scores, the loss last."""
    return {**task.scores(outputs, targets), "loss": task.loss(outputs, targets)}
