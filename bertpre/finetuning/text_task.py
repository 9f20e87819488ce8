"""What the tasks with a label per text have in common: a linear head with C outputs per text."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from bertpre.finetuning.labels import probability_columns
from bertpre.finetuning.outputs import Baseline, Outputs, PredictionFile
from bertpre.finetuning.tables import LabelledTable, Rows
from bertpre.finetuning.task import Task
from bertpre.finetuning.text_predictions import TextPredictions, write_beside_labels

if TYPE_CHECKING:
    from bertpre.config.schema import Finetune, Model
    from bertpre.finetuning.batches import EncodedTexts, Encoder
    from bertpre.finetuning.running import Placement, Run
    from bertpre.model.heads import BertForSequenceClassification, Pooling


@dataclass(frozen=True, kw_only=True, slots=True)
class TextTask(Task):
    """A task with one label, number or set of names per text."""

    baseline_names: ClassVar[Mapping[str, str]] = {
        "majority": "most common label",
        "tfidf_linear": "TF-IDF + linear",
    }
    # The task's name in config.json, from the transformers library.
    problem_type: ClassVar[str]

    @classmethod
    @abstractmethod
    def cell_fault(cls, cell: str, *, separator: str) -> str | None:
        """Return what is wrong with a label cell, or None."""

    @classmethod
    def row_faults(cls, table: LabelledTable, row: int, config: "Finetune") -> list[str]:
        problems = [cls.cell_fault(table.labels[row], separator=config.label_separator)]
        if table.pairs is None:
            problems.append("the text is empty" if not table.texts[row].strip() else None)
        elif not table.texts[row].strip() and not table.pairs[row].strip():
            problems.append("both texts are empty")
        return [problem for problem in problems if problem is not None]

    def encode(
        self,
        encoder: "Encoder",
        texts: Iterable[str],
        pairs: Iterable[str] | None = None,
        *,
        on_rows: Callable[[int], None] = lambda rows: None,
    ) -> "EncodedTexts":
        return encoder.texts(texts, pairs, on_rows=on_rows)

    def build_model(
        self, shape: "Model", *, vocab_size: int, pooling: "Pooling | None"
    ) -> "BertForSequenceClassification":
        from bertpre.model.heads import BertForSequenceClassification

        assert pooling is not None
        return BertForSequenceClassification(
            shape, vocab_size=vocab_size, num_labels=len(self.names), pooling=pooling
        )

    def config_entries(self) -> dict[str, Any]:
        entries = super(TextTask, self).config_entries()
        return {**entries, "problem_type": self.problem_type}

    @abstractmethod
    def read_logits(self, logits: npt.NDArray[np.float32]) -> Outputs:
        """Convert a finished model's logits (rows, C) to outputs, in double precision."""

    def predict(
        self, runs: Sequence["Run"], rows: Rows | None = None, *, placement: "Placement"
    ) -> Outputs:
        """Return the mean of the models' outputs."""
        from bertpre.finetuning.running import run_model

        outputs = [self.read_logits(run_model(run, rows, placement=placement)) for run in runs]
        return np.asarray(np.mean(outputs, axis=0))

    def baselines(self, train: LabelledTable, config: "Finetune") -> dict[str, Baseline]:
        from bertpre.finetuning.baselines import text_baselines

        return text_baselines(self, train, config)

    @abstractmethod
    def commonest(self, cells: Sequence[str]) -> Outputs:
        """Return the outputs, (C,), that predict the most common training label."""

    @abstractmethod
    def fit_linear(self, features: Any, cells: Sequence[str]) -> Callable[[Any], Outputs]:
        """Fit a linear model to a sparse matrix (rows, terms); return its prediction function."""

    def prediction_columns(self) -> list[str]:
        """Return the header of a prediction table; the names are distinct."""
        return probability_columns(self.names)

    @abstractmethod
    def prediction_lines(self, outputs: Outputs) -> Iterator[str]:
        """Yield a line of that table for each row."""

    def open(
        self, path: Path, config: "Finetune", *, layout: Mapping[str, Any], way_out: str
    ) -> PredictionFile:
        columns = self.prediction_columns()
        return TextPredictions(path, config, columns, self.prediction_lines, way_out=way_out)

    def write_predictions(
        self, folder: Path, part: str, table: LabelledTable, outputs: Outputs
    ) -> None:
        lines = self.prediction_lines(outputs)
        write_beside_labels(folder, part, table, self.prediction_columns(), lines)
