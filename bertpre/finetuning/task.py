"""What a fine-tuning task decides.

A task is one file with all that depends on what a label is: what its cells mean and what is wrong
with them, its model and its loss, what the outputs mean, scores, baselines, prediction columns,
pictures, and the words that describe it. Task files import torch inside functions only, as wrong
tables are found before torch is imported.
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
"""What models give for some rows, (rows, ...); only the task looks inside."""

Targets = npt.NDArray[Any]
"""What is to be learnt, (rows, ...); only the task looks inside."""

Rows = npt.NDArray[np.int64]

Scores = dict[str, float]
"""Score by name, ``loss`` among them."""


class ClassRow(NamedTuple):
    """How well one class is found.

    Attributes:
        name: the class.
        precision: the share of the rows given it that are right.
        recall: the share of the rows that have it that are found.
        f1: the harmonic mean of both.
        rows: how many have it.
    """

    name: str
    precision: float
    recall: float
    f1: float
    rows: int


class Objective(ABC):
    """The loss of one training, settled by its rows."""

    def loss(
        self, model: "BertForSequenceClassification", tokens: "FlatTokens", targets: Targets
    ) -> "Tensor":
        """Run the model and return the mean loss of some rows, 0-dimensional, in fp32."""
        import torch

        logits = model(tokens)
        return self.of_logits(logits, torch.from_numpy(targets).to(logits.device))

    @abstractmethod
    def of_logits(self, logits: "Tensor", targets: "Tensor") -> "Tensor":
        """Return the mean loss of logits (B, C), of any precision."""

    def in_units(self, outputs: Outputs) -> Outputs:
        """Give the outputs of a model in training the unit that those of a finished one have."""
        return outputs

    def finish(self, head: "nn.Linear") -> None:
        """Give a trained head's outputs the unit of the labels."""
        return


@dataclass(frozen=True, kw_only=True, slots=True)
class Task(ABC):
    """What a fine-tuned model's outputs stand for, and all that follows from it.

    What is not abstract is for tasks whose models give each text C outputs, on a linear head.

    Args:
        names: what the outputs are called, in order.
    """

    names: tuple[str, ...]

    # In the schema and in manifests.
    name: ClassVar[str]
    # Dev scores that may choose the epoch; the first is the default.
    metrics: ClassVar[tuple[str, ...]]
    # Scores that a table of results shows, and what they are called there.
    columns: ClassVar[Mapping[str, str]]
    # What the baselines are called for people.
    baseline_names: ClassVar[Mapping[str, str]] = {
        "majority": "always the commonest",
        "tfidf_linear": "TF-IDF + linear",
    }
    # Options that do nothing here, and the values at which they may stay; why, and the way out.
    unused_options: ClassVar[Mapping[str, object]] = {}
    unused_reason: ClassVar[tuple[str, str]] = ("", "")
    # One more way out where label cells are at fault.
    fault_hint: ClassVar[str] = ""
    # In config.json, as the transformers library knows the task.
    problem_type: ClassVar[str]

    # Labels

    @classmethod
    @abstractmethod
    def claims(cls, cells: Sequence[str], *, separator: str) -> str | None:
        """Tell why cells look like labels of this task; None if they do not."""

    @classmethod
    @abstractmethod
    def cell_fault(cls, cell: str, *, separator: str) -> str | None:
        """Say what is wrong with a label cell by itself; None if nothing is."""

    @classmethod
    @abstractmethod
    def learn(cls, cells: Sequence[str], *, config: "Finetune", table: str) -> Self:
        """Collect what the labels of a training table name.

        Args:
            cells: none with a fault.
            config: label column and separator.
            table: the file, for messages.

        Raises:
            CorpusError: nothing can be learnt from them.
        """

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> Self:
        """Read what a model folder's manifest says."""
        return cls(names=tuple(manifest["classes"]))

    @abstractmethod
    def unknown(self, cells: Sequence[str]) -> list[list[str]]:
        """Give the names in each cell that the model has no output for."""

    @abstractmethod
    def targets(self, cells: Sequence[str]) -> Targets:
        """Turn cells without a fault into what is learnt."""

    @abstractmethod
    def strata(self, cells: Sequence[str]) -> Rows:
        """Sort rows into groups, (rows,) int64, of which every split should have its share."""

    def rare_labels(self, cells: Sequence[str], *, fewest: int) -> tuple[str, ...]:
        """Give the labels with fewer rows than that, where a split can lack a label."""
        return ()

    def count_labels(self, cells: Sequence[str]) -> dict[str, int]:
        """Count the rows of each label; nothing if labels have no names."""
        return {}

    # Model and learning

    def build_model(
        self, shape: "Model", *, vocab_size: int, pooling: "Pooling"
    ) -> "BertForSequenceClassification":
        """Build the encoder and its head, not initialised."""
        from bertpre.model.heads import BertForSequenceClassification

        return BertForSequenceClassification(
            shape, vocab_size=vocab_size, num_labels=len(self.names), pooling=pooling
        )

    def config_entries(self) -> dict[str, Any]:
        """Give what config.json says of the outputs, as the transformers library reads it."""
        return {
            "id2label": {str(number): name for number, name in enumerate(self.names)},
            "label2id": {name: number for number, name in enumerate(self.names)},
            "problem_type": self.problem_type,
        }

    @abstractmethod
    def objective(
        self, targets: Targets, *, config: "Finetune", device: "torch.device"
    ) -> Objective:
        """Settle the loss by the training rows.

        Args:
            targets: of these rows.
            config: weights, smoothing and focus.
            device: where the model is.
        """

    # Outputs

    @abstractmethod
    def read_logits(self, logits: npt.NDArray[np.float32]) -> Outputs:
        """Turn a finished model's logits (rows, C) into outputs, in double precision."""

    def predict(
        self, runs: Sequence["Run"], rows: Rows | None = None, *, placement: "Placement"
    ) -> Outputs:
        """Predict some rows with one model, or with several together: the mean of their outputs.

        Args:
            runs: each model with the rows as it reads them.
            rows: which of them; default: all.
            placement: where the models are.
        """
        from bertpre.finetuning.running import run_model

        outputs = [self.read_logits(run_model(run, rows, placement=placement)) for run in runs]
        return np.asarray(np.mean(outputs, axis=0))

    def calibrated(self, outputs: Outputs, targets: Targets) -> Self:
        """Choose by dev rows what turns outputs into decisions, if anything is to be chosen."""
        return self

    def chosen_facts(self) -> dict[str, Any]:
        """Give what `calibrated` chose, for a manifest."""
        return {}

    def together(self, others: Sequence[Self]) -> Self:
        """Give the task of several models of the same labels: the mean of what each has chosen."""
        return self

    @abstractmethod
    def scores(self, outputs: Outputs, targets: Targets) -> Scores:
        """Score decisions: all scores but the loss."""

    @abstractmethod
    def loss(self, outputs: Outputs, targets: Targets) -> float:
        """Give the mean loss of outputs."""

    def class_rows(self, outputs: Outputs, targets: Targets) -> list[ClassRow]:
        """Score each class by itself, where there are classes."""
        return []

    # Baselines

    @abstractmethod
    def commonest(self, cells: Sequence[str]) -> Outputs:
        """Give the outputs of one row that answer what is commonest in training, (C,)."""

    @abstractmethod
    def fit_linear(self, features: Any, cells: Sequence[str]) -> Callable[[Any], Outputs]:
        """Fit a linear model to a sparse matrix (rows, terms); return what answers for another."""

    # What people see

    def prediction_columns(self) -> list[str]:
        """Give the header of a table of predictions; each column has a name of its own."""
        return probability_columns(self.names)

    @abstractmethod
    def prediction_lines(self, outputs: Outputs) -> Iterator[str]:
        """Give a line of that table for each row."""

    def draw_mistakes(
        self, folder: Path, outputs: Outputs, targets: Targets, scores: Scores
    ) -> None:
        """Draw what the model gets wrong on the dev rows, if there is a picture for it."""
        return

    @abstractmethod
    def describe(self) -> str:
        """Say what a row has, for the summary of a training."""

    def label_facts(self) -> dict[str, str]:
        """Say what the outputs are, for a description of the model folder."""
        return {"labels": f"{len(self.names):,}"}

    @abstractmethod
    def card_text(self, texts: str) -> str:
        """Say what the model answers about texts, which that phrase names, for its model card."""


def score(task: Task, outputs: Outputs, targets: Targets) -> Scores:
    """Give all scores of some outputs, the loss last."""
    return {**task.scores(outputs, targets), "loss": task.loss(outputs, targets)}
