"""What the tasks with a label per text have in common: a linear head with C outputs per text."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from bertpre.errors import ConfigError
from bertpre.finetuning.labels import OWN_COLUMNS, probability_columns
from bertpre.finetuning.outputs import Baseline, Outputs, PredictionFile
from bertpre.finetuning.tables import InputRow, LabelledTable, Rows, read_texts
from bertpre.finetuning.task import Task

if TYPE_CHECKING:
    from bertpre.config.schema import Finetune, Model
    from bertpre.finetuning.batches import EncodedTexts, Encoder
    from bertpre.finetuning.running import Placement, Run
    from bertpre.model.heads import BertForSequenceClassification, Pooling

# Options of labels on tokens, with their default values.
_OF_TOKENS = {"crf": False, "constrained": True}


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

    def settle(self, config: "Finetune") -> "Finetune":
        _refuse_token_options(config)
        return super(TextTask, self).settle(config)

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

    def for_prediction(self, config: "Finetune") -> Self:
        _refuse_token_options(config)
        return self

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
        return _TextFile(self, path, config, way_out=way_out)

    def write_predictions(
        self, folder: Path, part: str, table: LabelledTable, outputs: Outputs
    ) -> None:
        # The first columns are those of `predict`; the true label and the line come last.
        lines = self.prediction_lines(outputs)
        path = folder / f"{part}_predictions.tsv"
        with path.open("w", encoding="utf-8", newline="\n") as file:
            file.write("\t".join([*self.prediction_columns(), *OWN_COLUMNS[1:]]) + "\n")
            for shown, label, line in zip(lines, table.labels, table.lines, strict=True):
                file.write(f"{shown}\t{label}\t{line}\n")


class _TextFile(PredictionFile):
    """A table of texts, and the TSV of their predictions."""

    def __init__(self, task: TextTask, path: Path, config: "Finetune", *, way_out: str) -> None:
        self._task, self._path, self._config, self._way_out = task, path, config, way_out

    def header(self) -> str:
        return "\t".join(self._task.prediction_columns()) + "\n"

    def rows(self) -> Iterator[InputRow]:
        skips = self._config.on_bad_rows == "skip"
        return read_texts(self._path, self._config, skips_bad_rows=skips, way_out=self._way_out)

    def write(self, rows: Sequence[InputRow], outputs: Outputs | None) -> Iterator[str]:
        lines = iter(()) if outputs is None else self._task.prediction_lines(outputs)
        empty = "\t" * (len(self._task.prediction_columns()) - 1)
        for row in rows:
            yield (empty if row.cells is None else next(lines)) + "\n"


def _refuse_token_options(config: "Finetune") -> None:
    for name, idle in _OF_TOKENS.items():
        if getattr(config, name) != idle:
            raise ConfigError(
                f"{name}: is for labels on tokens, but here each text has a label",
                "leave it out, or pass --task tagging",
            )
