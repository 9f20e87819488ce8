"""The classification task: each row has one class."""

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from bertpre.config.schema import Finetune
from bertpre.errors import CorpusError
from bertpre.finetuning.labels import (
    break_fault,
    count_rows,
    is_real,
    name_some_quoted,
    sort_labels,
    unknown_names,
    warn_of_look_alikes,
)
from bertpre.finetuning.outputs import ClassRow, LogitObjective, Outputs, Scores, Targets
from bertpre.finetuning.scores import (
    SMALLEST_PROBABILITY,
    count_confusions,
    f1_scores,
    matthews,
    score_each_class,
)
from bertpre.finetuning.tables import LabelledTable, Rows
from bertpre.finetuning.text_task import TextTask

if TYPE_CHECKING:
    import torch
    from torch import Tensor


log = logging.getLogger(__name__)

_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")
# From so many rows on, a larger share of different labels shows that they are no classes.
_FEWEST_ROWS, _MOST_DIFFERENT = 20, 0.8
_LONG_NAME = 20  # characters


@dataclass(frozen=True, kw_only=True, slots=True)
class Classification(TextTask):
    """One class per row. Outputs: probabilities (rows, C); targets: class numbers (rows,) int64.

    Args:
        names: the classes, in the order of the outputs.
    """

    name: ClassVar[str] = "classification"
    problem_type: ClassVar[str] = "single_label_classification"

    @property
    def metrics(self) -> tuple[str, ...]:
        return ("accuracy", "macro_f1", "micro_f1", "matthews", "loss")

    @property
    def columns(self) -> Mapping[str, str]:
        return {
            "accuracy": "accuracy",
            "macro_f1": "macro-F1",
            "matthews": "Matthews",
        }

    @classmethod
    def claims(cls, cells: Sequence[str], *, separator: str) -> str | None:
        """Return why cells look like class names; any cells may."""
        filled = [cell for cell in cells if cell.strip()]
        if filled and all(map(is_real, filled)):
            return "numbers used as class names"
        return "one class name per cell"

    @classmethod
    def cell_fault(cls, cell: str, *, separator: str) -> str | None:
        return break_fault(cell) if cell.strip() else "the label is empty"

    @classmethod
    def learn(cls, table: LabelledTable, *, config: Finetune) -> Self:
        """Collect the classes.

        Raises:
            CorpusError: there are fewer than two, or, unless the task was asked for, nearly as many
                as rows.
        """
        separator, cells = config.label_separator, table.labels
        several = [cell for cell in cells if separator in cell]
        if several and config.task == "auto":
            ways_out = "if they are lists of names, pass --task multi-label"
            if all(_DECIMAL_COMMA.fullmatch(cell) for cell in several):
                ways_out = "if they are numbers, replace the decimal commas by points"
            log.warning(
                "%s: each label that contains %r, such as %r, is taken as the name of one class; "
                "%s; if that is right, pass --task classification",
                table.name,
                separator,
                min(several),
                ways_out,
            )
        names = sort_labels(cells)
        if len(names) < 2:
            raise CorpusError(
                f"{table.name}: {count_rows(cells)} the label {names[0]!r}; expected at least two "
                "classes",
                "choose the right column with --label-column",
            )
        if config.task == "auto" and _are_texts(cells, names):
            raise CorpusError(
                f"{table.name}: {len(names):,} different labels in {len(cells):,} rows; expected "
                "classes that occur several times",
                "if each label is a text to write, pass --task generation; if it is a class, pass "
                "--task classification; or choose another column with --label-column",
            )
        warn_of_look_alikes(names, table.name)
        return cls(names=names)

    def unknown(self, cells: Sequence[str]) -> list[list[str]]:
        return unknown_names([[cell] for cell in cells], self.names)

    def targets(self, cells: Sequence[str]) -> Targets:
        numbers = {name: number for number, name in enumerate(self.names)}
        return np.array([numbers[cell] for cell in cells], dtype=np.int64)

    def strata(self, cells: Sequence[str]) -> Rows:
        return self.targets(cells).astype(np.int64)

    def rare_labels(self, cells: Sequence[str], *, fewest: int) -> tuple[str, ...]:
        counts = Counter(cells)
        return sort_labels(name for name, count in counts.items() if count < fewest)

    def count_labels(self, cells: Sequence[str]) -> dict[str, int]:
        return dict(Counter(cells))

    def objective(
        self, targets: Targets, *, config: Finetune, device: "torch.device"
    ) -> "CrossEntropy":
        return make_cross_entropy(targets, len(self.names), config=config, device=device)

    def read_logits(self, logits: npt.NDArray[np.float32]) -> Outputs:
        """Apply the softmax."""
        values = logits.astype(np.float64)
        powers = np.exp(values - values.max(axis=1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))

    def scores(self, outputs: Outputs, targets: Targets) -> Scores:
        """Score the most likely classes.

        ``macro_f1`` averages over all training classes; one that is neither in these rows nor
        predicted counts as 0. ``micro_f1`` equals the accuracy.
        """
        decided = outputs.argmax(axis=1)
        return {
            "accuracy": float((decided == targets).mean()),
            **f1_scores(decided, targets, len(self.names)),
            "matthews": matthews(decided, targets),
        }

    def loss(self, outputs: Outputs, targets: Targets) -> float:
        """Return the mean cross-entropy, in nats."""
        share = outputs[np.arange(len(outputs)), targets]
        return float(-np.log(np.maximum(share, SMALLEST_PROBABILITY)).mean())

    def class_rows(self, outputs: Outputs, targets: Targets) -> list[ClassRow]:
        return score_each_class(self.names, outputs.argmax(axis=1), targets)

    def commonest(self, cells: Sequence[str]) -> Outputs:
        """Predict the most common class; of equally common ones, the first."""
        counts = Counter(cells)
        answer = np.zeros(len(self.names))
        answer[max(range(len(self.names)), key=lambda number: counts[self.names[number]])] = 1.0
        return answer

    def fit_linear(self, features: Any, cells: Sequence[str]) -> Callable[[Any], Outputs]:
        """Fit a linear support vector machine; its outputs are distances, not probabilities."""
        from sklearn.svm import LinearSVC

        targets = self.targets(cells)
        if len(np.unique(targets)) == 1:  # a fold of a rare class
            return lambda features: np.tile(self.commonest(cells), (features.shape[0], 1))
        model = LinearSVC(random_state=0).fit(features, targets)

        def answer(features: Any) -> Outputs:
            found = np.asarray(model.decision_function(features))
            if found.ndim == 1:  # two classes
                found = np.stack([-found, found], axis=1)
            # A class that the fold lacks is never predicted.
            full = np.full((len(found), len(self.names)), found.min() - 1)
            full[:, model.classes_] = found
            return full

        return answer

    def prediction_lines(self, outputs: Outputs) -> Iterator[str]:
        for row in outputs:
            shares = (f"{probability:.6f}" for probability in row)
            yield "\t".join([self.names[int(row.argmax())], *shares])

    def draw_mistakes(
        self, folder: Path, table: LabelledTable, outputs: Outputs, scores: Scores
    ) -> None:
        from bertpre.finetuning.pictures import draw_confusions

        targets = self.targets(table.labels)
        draw_confusions(
            folder / "confusion_matrix.png",
            count_confusions(outputs.argmax(axis=1), targets, len(self.names)),
            self.names,
            title=f"dev rows: accuracy {scores['accuracy']:.3f}, macro-F1 {scores['macro_f1']:.3f}",
        )

    def describe(self) -> str:
        return f"{len(self.names):,} classes"

    def card_text(self, texts: str) -> str:
        return f"Classifying {texts}, into {name_some_quoted(self.names)}."


@dataclass(frozen=True, kw_only=True, slots=True)
class CrossEntropy(LogitObjective):
    """Cross-entropy with optional class weights, label smoothing and focal loss.

    Args:
        weights: one per class, (C,); their mean over the training rows is 1.
        label_smoothing: share of a target that is spread over all classes.
        focal_gamma: exponent of the factor 1 - p on a row's loss, p being that of its class.

    Source: Szegedy et al. 2016, section 7 (label smoothing); Lin et al. 2017 (focal loss).
    """

    weights: "Tensor | None" = None
    label_smoothing: float = 0.0
    focal_gamma: float = 0.0

    def of_logits(self, logits: "Tensor", targets: "Tensor") -> "Tensor":
        import torch.nn.functional as F

        logits = logits.float()
        losses = F.cross_entropy(
            logits, targets, reduction="none", label_smoothing=self.label_smoothing
        )
        if self.focal_gamma > 0:
            share = logits.softmax(dim=1).gather(1, targets[:, None])[:, 0]  # (B, C) -> (B,)
            losses = losses * (1 - share) ** self.focal_gamma
        if self.weights is not None:
            losses = losses * self.weights[targets]
        return losses.mean()


def make_cross_entropy(
    targets: npt.NDArray[np.int64], num_classes: int, *, config: Finetune, device: "torch.device"
) -> CrossEntropy:
    """Build the loss for training targets, (rows,) class numbers."""
    import torch

    weights = None
    if config.class_weights == "balanced":
        # A class without training rows (all in another fold) has no loss to weight.
        counts = np.bincount(targets, minlength=num_classes)
        balanced = len(targets) / (np.count_nonzero(counts) * np.maximum(counts, 1))
        weights = torch.from_numpy(balanced.astype(np.float32)).to(device)
    return CrossEntropy(
        weights=weights, label_smoothing=config.label_smoothing, focal_gamma=config.focal_gamma
    )


def _are_texts(cells: Sequence[str], names: Sequence[str]) -> bool:
    """Return whether labels seem to be texts to write: nearly all different, and not short."""
    if len(cells) < _FEWEST_ROWS or len(names) <= _MOST_DIFFERENT * len(cells):
        return False
    return 2 * sum(" " in name.strip() or len(name) > _LONG_NAME for name in names) > len(names)
