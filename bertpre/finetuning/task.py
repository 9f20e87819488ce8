"""The interface of a fine-tuning task.

Everything that depends on the kind of label is in one file per task: files and their faults, model,
loss, outputs, scores, baselines, predictions, plots and descriptions. Task files import torch only
inside functions, so that bad tables are reported before torch is imported.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from bertpre.config.finetuning import TASK_OPTIONS
from bertpre.config.schema import Finetune
from bertpre.errors import ConfigError
from bertpre.finetuning.outputs import (
    Baseline,
    ClassRow,
    Objective,
    Outputs,
    PredictionFile,
    Scores,
    Targets,
)
from bertpre.finetuning.tables import Fault, LabelledTable, Rows, read_labelled

if TYPE_CHECKING:
    import torch

    from bertpre.config.schema import Model
    from bertpre.finetuning.batches import EncodedTexts, Encoder
    from bertpre.finetuning.running import Placement, Run
    from bertpre.model.heads import Pooling
    from bertpre.model.names import Finetuned
    from bertpre.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True, slots=True)
class Task(ABC):
    """What the outputs of a fine-tuned model mean, and all that follows from it.

    Args:
        names: the name of each output, in order.
    """

    names: tuple[str, ...]

    # As in the schema and in manifests.
    name: ClassVar[str]
    # Display names of the baselines.
    baseline_names: ClassVar[Mapping[str, str]]
    # Options without effect here, with their default values; the reason and the hint.
    unused_options: ClassVar[Mapping[str, object]] = {}
    unused_reason: ClassVar[tuple[str, str]] = ("", "")
    # Added to the hint about bad label cells.
    fault_hint: ClassVar[str] = ""
    # Whether the head sees one vector per text.
    pools: ClassVar[bool] = True
    # Whether a test table may have labels that training lacks.
    scores_unknown_labels: ClassVar[bool] = False
    # On the default learning rate, and what the default number of epochs reaches at least.
    rate_factor: ClassVar[float] = 1.0
    fewest_epochs: ClassVar[int] = 3
    fewest_updates: ClassVar[int] = 300
    # What `ClassRow.rows` counts.
    class_unit: ClassVar[str] = "rows"

    @property
    @abstractmethod
    def metrics(self) -> tuple[str, ...]:
        """Dev scores that may choose the epoch; the first is the default."""

    @property
    @abstractmethod
    def columns(self) -> Mapping[str, str]:
        """Scores in a table of results, with their column titles."""

    # Files and labels

    @classmethod
    def claims_file(cls, path: Path, config: Finetune) -> str | None:
        """Return why a file is of this task, whatever its labels, or None."""
        return None

    @classmethod
    def claims(cls, cells: Sequence[str], *, separator: str) -> str | None:
        """Return why these cells look like labels of this task, or None if they do not."""
        return None

    @classmethod
    def read(cls, path: str | Path, config: Finetune) -> tuple[LabelledTable, list[Fault]]:
        """Read a labelled file; return its rows, and the faults of those that cannot be read.

        Raises:
            ConfigError: options contradict each other.
            CorpusError: the file cannot be read, or has no rows.
        """
        return read_labelled(path, config)

    @classmethod
    def row_faults(cls, table: LabelledTable, row: int, config: Finetune) -> list[str]:
        """Return what is wrong with a row that can be read."""
        return []

    @classmethod
    @abstractmethod
    def learn(cls, table: LabelledTable, *, config: Finetune) -> Self:
        """Learn the names of the outputs from a training table.

        Args:
            table: its rows have no faults.
            config: label column and separator.

        Raises:
            CorpusError: the labels do not differ.
        """

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> Self:
        """Rebuild the task from the manifest of a model folder."""
        return cls(names=tuple(manifest["classes"]))

    def check_scored(self, table: LabelledTable, *, train_name: str) -> None:
        """Check the labels of a table to score as a whole.

        Raises:
            CorpusError: they are of another kind than those of the training table.
        """
        return

    @abstractmethod
    def unknown(self, cells: Sequence[Any]) -> list[list[str]]:
        """Return the labels in each cell that the model cannot predict."""

    def known_labels(self) -> tuple[str, ...]:
        """Return the labels that it can predict, for messages."""
        return self.names

    @abstractmethod
    def targets(self, cells: Sequence[Any]) -> Targets:
        """Convert cells without faults to training targets."""

    @abstractmethod
    def strata(self, cells: Sequence[Any]) -> Rows:
        """Return a group for each row, (rows,) int64; every split gets its share of each."""

    def rare_labels(self, cells: Sequence[Any], *, fewest: int) -> tuple[str, ...]:
        """Return the labels with fewer than ``fewest`` rows, which a split may lack."""
        return ()

    def count_labels(self, cells: Sequence[Any]) -> dict[str, int]:
        """Count the rows of each label; empty if labels have no names."""
        return {}

    # Model and learning

    def settle(self, config: Finetune) -> Finetune:
        """Check the options against the labels, and set those that the task decides.

        Raises:
            ConfigError: an option has no effect here.
        """
        refuse_options_of_others(self.name, config)
        for name, idle in self.unused_options.items():
            if getattr(config, name) != idle:
                reason, way_out = self.unused_reason
                raise ConfigError(f"{name}: {reason}", way_out)
        if config.long_texts != "windows" and config.window_overlap != Finetune().window_overlap:
            raise ConfigError(
                "window_overlap: has no effect without windows", "pass --long-texts windows too"
            )
        return config

    def prepared(self, encoder: "Encoder", shape: "Model", train: LabelledTable) -> Self:
        """Learn what depends on the tokenizer from the training table.

        Raises:
            CorpusError: the labels cannot be learnt with this tokenizer.
        """
        return self

    def facts(self) -> dict[str, str]:
        """Return what `prepared` has found, for display."""
        return {}

    @abstractmethod
    def encode(
        self,
        encoder: "Encoder",
        texts: Iterable[Any],
        pairs: Iterable[str] | None = None,
        *,
        on_rows: Callable[[int], None] = lambda rows: None,
    ) -> "EncodedTexts":
        """Encode rows; ``on_rows`` is called with the number of rows done."""

    def encode_table(
        self, encoder: "Encoder", table: LabelledTable, *, on_rows: Callable[[int], None]
    ) -> tuple["EncodedTexts", Targets]:
        """Encode a labelled table."""
        texts = self.encode(encoder, table.texts, table.pairs, on_rows=on_rows)
        return texts, self.targets(table.labels)

    @abstractmethod
    def build_model(
        self, shape: "Model", *, vocab_size: int, pooling: "Pooling | None"
    ) -> "Finetuned":
        """Build the encoder and its head, uninitialized."""

    def complete(self, model: "Finetuned", new: Sequence[str]) -> Sequence[str]:
        """Initialize what a checkpoint lacks from what it has.

        Args:
            model: with the weights of a checkpoint.
            new: the names of the weights that were not in it.

        Returns:
            Those that remain random.
        """
        return new

    def config_entries(self) -> dict[str, Any]:
        """Return the entries of config.json that describe the outputs to other libraries."""
        return {
            "id2label": {str(number): name for number, name in enumerate(self.names)},
            "label2id": {name: number for number, name in enumerate(self.names)},
        }

    def generation_config(self, tokenizer: "Tokenizer") -> dict[str, Any] | None:
        """Return the content of generation_config.json, if the model writes text."""
        return None

    @abstractmethod
    def objective(self, targets: Targets, *, config: Finetune, device: "torch.device") -> Objective:
        """Build the loss for a training run.

        Args:
            targets: those of the training rows.
            config: class weights, label smoothing and focal loss.
            device: the device of the model.
        """

    # Outputs

    @abstractmethod
    def predict(
        self, runs: Sequence["Run"], rows: Rows | None = None, *, placement: "Placement"
    ) -> Outputs:
        """Predict rows with one model, or with several together.

        Args:
            runs: each model with its own encoding of the rows.
            rows: which rows; default: all.
            placement: where the models are.
        """

    def calibrated(self, outputs: Outputs, targets: Targets) -> Self:
        """Choose what turns outputs into decisions, such as thresholds, on the dev rows."""
        return self

    def own_facts(self) -> dict[str, Any]:
        """Return what `from_manifest` needs besides the names, for a manifest."""
        return {}

    def for_prediction(self, config: Finetune) -> Self:
        """Return the task with the options of prediction.

        Raises:
            ConfigError: an option has no effect here.
        """
        refuse_options_of_others(self.name, config)
        return self

    def during_training(self, metric: str) -> Self:
        """Return the task with which epochs are scored, which may save time.

        Args:
            metric: the dev score that chooses the epoch.
        """
        return self

    def together(self, others: Sequence[Self]) -> Self:
        """Return the task of several models of the same labels, averaging what each one chose."""
        return self

    @abstractmethod
    def scores(self, outputs: Outputs, targets: Targets) -> Scores:
        """Return all scores but the loss."""

    @abstractmethod
    def loss(self, outputs: Outputs, targets: Targets) -> float:
        """Return the mean loss."""

    def is_perfect(self, scores: Scores, metric: str) -> bool:
        """Return whether nothing could be better, by the score of that name."""
        return scores[metric] == 1.0

    def class_rows(self, outputs: Outputs, targets: Targets) -> list[ClassRow]:
        """Score each class separately, if there are classes."""
        return []

    def remarks(self, outputs: Outputs) -> list[str]:
        """Return what is odd about the outputs for the dev rows."""
        return []

    @abstractmethod
    def baselines(self, train: LabelledTable, config: Finetune) -> dict[str, Baseline]:
        """Return the baselines to score beside the model, by the names of `baseline_names`."""

    # Predictions and display

    @abstractmethod
    def open(
        self, path: Path, config: Finetune, *, layout: Mapping[str, Any], way_out: str
    ) -> PredictionFile:
        """Open a file to predict.

        Args:
            path: the file, or `STDIN`.
            config: how to read it, and whether to skip bad rows.
            layout: that of the training table.
            way_out: another way to deal with bad rows, for the hint.
        """

    @abstractmethod
    def write_predictions(
        self, folder: Path, part: str, table: LabelledTable, outputs: Outputs
    ) -> None:
        """Write the predictions for a labelled table beside its labels."""

    def draw_mistakes(
        self, folder: Path, table: LabelledTable, outputs: Outputs, scores: Scores
    ) -> None:
        """Show the errors on the dev rows, if the task has a way to."""
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


_WHAT_FOR = {"tagging": "labels on tokens", "generation": "texts to write"}


def refuse_options_of_others(name: str, config: Finetune) -> None:
    """Refuse options that have an effect in another task only.

    Args:
        name: of the task.
        config: the options.

    Raises:
        ConfigError: there is one.
    """
    defaults = Finetune()
    for other, options in TASK_OPTIONS.items():
        for option in options:
            if other != name and getattr(config, option) != getattr(defaults, option):
                raise ConfigError(
                    f"{option}: is for {_WHAT_FOR[other]}, but this is {name}",
                    f"leave it out, or pass --task {other}",
                )


def score(task: Task, outputs: Outputs, targets: Targets) -> Scores:
    """Return all scores, the loss last."""
    return {**task.scores(outputs, targets), "loss": task.loss(outputs, targets)}
