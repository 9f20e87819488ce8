"""The regression task: each row has a number."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np
import numpy.typing as npt

from bertpre.config.schema import Finetune
from bertpre.corpus.tables import ListCell
from bertpre.errors import CorpusError, shorten
from bertpre.finetuning.labels import count_rows, is_real, name_some_quoted
from bertpre.finetuning.outputs import LogitObjective, Outputs, Scores, Targets
from bertpre.finetuning.tables import LabelledTable, Rows
from bertpre.finetuning.text_task import TextTask

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from bertpre.model.heads import BertForSequenceClassification
    from bertpre.model.names import Finetuned


# More distinct values than this, some of them not integers, are measurements, not class names.
_MOST_FRACTIONS = 20
_FEWEST_NUMBERS = 0.8  # share of the cells, since a few may be at fault
_LARGEST = 1e18  # squares of larger numbers overflow in single precision


@dataclass(frozen=True, kw_only=True, slots=True)
class Regression(TextTask):
    """One number per row. Outputs and targets are (rows, 1).

    Args:
        names: the name of the number, alone.
    """

    name: ClassVar[str] = "regression"
    baseline_names: ClassVar[Mapping[str, str]] = {
        **TextTask.baseline_names,
        "majority": "mean label",
    }
    unused_options: ClassVar[Mapping[str, object]] = {
        "label_separator": ",",
        "label_smoothing": 0.0,
        "class_weights": "none",
        "focal_gamma": 0.0,
    }
    unused_reason: ClassVar[tuple[str, str]] = (
        "applies to classes only, but the labels are numbers to predict",
        "leave it out, or pass --task classification if the numbers are class names",
    )
    fault_hint: ClassVar[str] = "or pass --task classification if the labels are class names"
    problem_type: ClassVar[str] = "regression"

    @property
    def metrics(self) -> tuple[str, ...]:
        return ("spearman", "pearson", "loss")

    @property
    def columns(self) -> Mapping[str, str]:
        return {
            "spearman": "Spearman",
            "pearson": "Pearson",
            "rmse": "RMSE",
        }

    @classmethod
    def claims(cls, cells: Sequence[str], *, separator: str) -> str | None:
        """Return why cells look like measurements: many values, some of them not integers."""
        if any(isinstance(cell, ListCell) for cell in cells):
            return None
        filled = [cell for cell in cells if cell.strip()]
        numbers = [float(cell) for cell in filled if is_real(cell)]
        values = {value for value in numbers if math.isfinite(value)}
        if len(numbers) <= _FEWEST_NUMBERS * len(filled):
            return None
        has_fractions = any(not value.is_integer() for value in values)
        if has_fractions and len(values) > min(_MOST_FRACTIONS, len(cells) / 2):
            return f"{len(values):,} distinct numbers, not all integers"
        return None

    @classmethod
    def cell_fault(cls, cell: str, *, separator: str) -> str | None:
        if not cell.strip():
            return "the label is empty"
        if not is_real(cell) or not math.isfinite(float(cell)):
            return f"the label {shorten(cell)} is not a number"
        if abs(float(cell)) > _LARGEST:
            return f"the label {shorten(cell)} is larger than {_LARGEST:g}"
        return None

    @classmethod
    def learn(cls, table: LabelledTable, *, config: Finetune) -> Self:
        """Name the number after its column.

        Raises:
            CorpusError: all numbers are equal.
        """
        cells = table.labels
        if len({float(cell) for cell in cells}) < 2:
            raise CorpusError(
                f"{table.name}: {count_rows(cells)} the value {cells[0]}; "
                "expected different values",
                "choose the right column with --label-column",
            )
        column = config.label_column
        return cls(names=(column if isinstance(column, str) else "value",))

    def unknown(self, cells: Sequence[str]) -> list[list[str]]:
        return [[] for _ in cells]

    def targets(self, cells: Sequence[str]) -> Targets:
        return np.array([[float(cell)] for cell in cells], dtype=np.float32)

    def strata(self, cells: Sequence[str]) -> Rows:
        """Group rows by deciles of the numbers."""
        order = np.argsort(self.targets(cells)[:, 0], kind="stable")
        strata = np.empty(len(cells), dtype=np.int64)
        strata[order] = np.arange(len(cells)) * 10 // len(cells)
        return strata

    def objective(
        self, targets: Targets, *, config: Finetune, device: "torch.device"
    ) -> "SquaredError":
        center, scale = float(targets.mean(dtype=np.float64)), float(targets.std(dtype=np.float64))
        return SquaredError(center=center, scale=scale or 1.0)

    def read_logits(self, logits: npt.NDArray[np.float32]) -> Outputs:
        return logits.astype(np.float64)

    def scores(self, outputs: Outputs, targets: Targets) -> Scores:
        from scipy.stats import rankdata

        found, true = outputs[:, 0], targets[:, 0].astype(np.float64)
        return {
            "spearman": correlation(rankdata(found), rankdata(true)),
            "pearson": correlation(found, true),
            "rmse": float(np.sqrt(np.mean((found - true) ** 2))),
        }

    def loss(self, outputs: Outputs, targets: Targets) -> float:
        return float(np.mean((outputs - targets) ** 2))

    def commonest(self, cells: Sequence[str]) -> Outputs:
        return np.asarray(self.targets(cells).mean(axis=0, dtype=np.float64))

    def fit_linear(self, features: Any, cells: Sequence[str]) -> Callable[[Any], Outputs]:
        from sklearn.linear_model import Ridge

        model = Ridge(random_state=0).fit(features, self.targets(cells)[:, 0])
        return lambda features: np.asarray(model.predict(features))[:, None]

    def prediction_columns(self) -> list[str]:
        return ["prediction"]

    def prediction_lines(self, outputs: Outputs) -> Iterator[str]:
        yield from (f"{value:.6g}" for value in outputs[:, 0])

    def draw_mistakes(
        self, folder: Path, table: LabelledTable, outputs: Outputs, scores: Scores
    ) -> None:
        from bertpre.finetuning.pictures import draw_numbers

        title = f"dev rows: Spearman {scores['spearman']:.3f}, Pearson {scores['pearson']:.3f}"
        true = self.targets(table.labels)[:, 0].astype(np.float64)
        draw_numbers(folder / "predicted_numbers.png", outputs[:, 0], true, title=title)

    def describe(self) -> str:
        return "a number"

    def label_facts(self) -> dict[str, str]:
        return {"number": self.names[0]}

    def card_text(self, texts: str) -> str:
        return f"Predicting the number {name_some_quoted(self.names)} of {texts}."


def correlation(first: npt.NDArray[np.float64], second: npt.NDArray[np.float64]) -> float:
    """Return Pearson's correlation, or 0 where a series is constant (scipy returns nan)."""
    first, second = first - first.mean(), second - second.mean()
    size = float(np.sqrt((first**2).sum() * (second**2).sum()))
    return float((first * second).sum()) / size if size > 0 else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class SquaredError(LogitObjective):
    """Squared error of standardized numbers, so that one learning rate suits any unit.

    Args:
        center: mean of the training numbers.
        scale: their standard deviation.
    """

    center: float = 0.0
    scale: float = 1.0

    def of_logits(self, logits: "Tensor", targets: "Tensor") -> "Tensor":
        import torch.nn.functional as F

        return F.mse_loss(logits.float(), (targets - self.center) / self.scale)

    def in_units(self, outputs: Outputs) -> Outputs:
        """Convert predictions to the unit of the labels, in the precision of the head."""
        numbers = outputs.astype(np.float32) * np.float32(self.scale) + np.float32(self.center)
        return np.asarray(numbers, dtype=np.float64)

    def finish(self, model: "Finetuned") -> None:
        import torch

        head = cast("BertForSequenceClassification", model).classifier
        with torch.no_grad():
            head.weight.mul_(self.scale)
            head.bias.mul_(self.scale).add_(self.center)
