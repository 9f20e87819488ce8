"""The multi-label task: each row has any number of names."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from bertpre.config.schema import Finetune
from bertpre.corpus.tables import ListCell
from bertpre.errors import CorpusError
from bertpre.finetuning.labels import (
    break_fault,
    group_by_rarest,
    is_real,
    name_some_quoted,
    sort_labels,
    unknown_names,
    warn_of_look_alikes,
)
from bertpre.finetuning.outputs import ClassRow, LogitObjective, Outputs, Scores, Targets
from bertpre.finetuning.scores import SMALLEST_PROBABILITY, f1_scores, score_each_class
from bertpre.finetuning.tables import LabelledTable, Rows
from bertpre.finetuning.text_task import TextTask

if TYPE_CHECKING:
    import torch
    from torch import Tensor


_FEWEST_FOR_OWN_THRESHOLD = 20  # rows with a name; a threshold chosen on fewer would be noise


@dataclass(frozen=True, kw_only=True, slots=True)
class MultiLabel(TextTask):
    """Any number of names per row. Outputs: probabilities; targets: 0 or 1; both (rows, C).

    Args:
        names: in the order of the outputs.
        separator: between the names in a cell.
        thresholds: probability from which each name is predicted, (C,); if None, scores use the
            best thresholds for the scored rows.
    """

    separator: str = ","
    thresholds: tuple[float, ...] | None = None

    name: ClassVar[str] = "multi-label"
    problem_type: ClassVar[str] = "multi_label_classification"

    @property
    def metrics(self) -> tuple[str, ...]:
        return ("micro_f1", "macro_f1", "accuracy", "loss")

    @property
    def columns(self) -> Mapping[str, str]:
        return {
            "micro_f1": "micro-F1",
            "macro_f1": "macro-F1",
            "accuracy": "exact match",
        }

    @classmethod
    def claims(cls, cells: Sequence[str], *, separator: str) -> str | None:
        """Return why cells look like lists of names: they are lists, or have parts in common."""
        if any(isinstance(cell, ListCell) for cell in cells):
            return "lists of names"
        distinct = {cell for cell in cells if cell.strip()}
        several = [cell for cell in distinct if separator in cell]
        if not several or all(map(is_real, distinct)):
            return None
        names = {name for cell in distinct for name in split_names(cell, separator)}
        # "Paris, France" has a comma too, but such cells have more distinct parts than cells.
        if "" in names or len(names) >= len(distinct):
            return None
        return f"cells such as {min(several)!r}"

    @classmethod
    def cell_fault(cls, cell: str, *, separator: str) -> str | None:
        """Return what is wrong with a cell; an empty cell is fine and has no names."""
        if fault := break_fault(cell):
            return fault
        if "" in split_names(cell, separator):
            return f"the label has an empty name before or after a {separator!r}"
        return None

    @classmethod
    def learn(cls, table: LabelledTable, *, config: Finetune) -> Self:
        """Collect the names.

        Raises:
            CorpusError: there are none.
        """
        separator, cells = config.label_separator, table.labels
        names = sort_labels(name for cell in cells for name in split_names(cell, separator))
        if not names:
            raise CorpusError(
                f"{table.name}: none of the {len(cells):,} rows has a label",
                "choose the right column with --label-column",
            )
        warn_of_look_alikes(names, table.name)
        return cls(names=names, separator=separator)

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> Self:
        thresholds = manifest.get("thresholds")
        return cls(
            names=tuple(manifest["classes"]),
            separator=manifest["options"].get("label_separator", ","),
            thresholds=None if thresholds is None else tuple(thresholds),
        )

    def _split(self, cells: Sequence[str]) -> list[list[str]]:
        return [split_names(cell, self.separator) for cell in cells]

    def unknown(self, cells: Sequence[str]) -> list[list[str]]:
        return unknown_names(self._split(cells), self.names)

    def targets(self, cells: Sequence[str]) -> Targets:
        numbers = {name: number for number, name in enumerate(self.names)}
        targets = np.zeros((len(cells), len(self.names)), dtype=np.float32)
        for row, names in enumerate(self._split(cells)):
            targets[row, [numbers[name] for name in names]] = 1
        return targets

    def strata(self, cells: Sequence[str]) -> Rows:
        """Group rows by their rarest name."""
        return group_by_rarest(self._split(cells), self.names)

    def count_labels(self, cells: Sequence[str]) -> dict[str, int]:
        return dict(Counter(name for names in self._split(cells) for name in names))

    def objective(
        self, targets: Targets, *, config: Finetune, device: "torch.device"
    ) -> "BinaryCrossEntropy":
        import torch

        weights = None
        if config.class_weights == "balanced":
            with_name = targets.astype(np.float64).sum(axis=0)
            counts = np.stack([len(targets) - with_name, with_name])
            balanced = len(targets) / (2 * np.maximum(counts, 1))
            weights = torch.from_numpy(balanced.astype(np.float32)).to(device)
        return BinaryCrossEntropy(
            weights=weights,
            label_smoothing=config.label_smoothing,
            focal_gamma=config.focal_gamma,
        )

    def read_logits(self, logits: npt.NDArray[np.float32]) -> Outputs:
        """Apply the sigmoid, in a form without overflow."""
        return np.asarray(0.5 * (1 + np.tanh(logits.astype(np.float64) / 2)))

    def calibrated(self, outputs: Outputs, targets: Targets) -> Self:
        """Choose the best thresholds for these rows."""
        return dataclasses.replace(self, thresholds=tuple(choose_thresholds(outputs, targets)))

    def own_facts(self) -> dict[str, Any]:
        return {} if self.thresholds is None else {"thresholds": list(self.thresholds)}

    def together(self, others: Sequence[Self]) -> Self:
        """Average the thresholds."""
        chosen = [task.thresholds for task in (self, *others) if task.thresholds is not None]
        thresholds = tuple(np.mean(chosen, axis=0).tolist()) if chosen else None
        return dataclasses.replace(self, thresholds=thresholds)

    def _decide(self, outputs: Outputs, targets: Targets | None = None) -> npt.NDArray[np.int64]:
        thresholds: Sequence[float] | None = self.thresholds
        if thresholds is None:
            assert targets is not None
            thresholds = choose_thresholds(outputs, targets)
        return (outputs >= np.asarray(thresholds)).astype(np.int64)

    def scores(self, outputs: Outputs, targets: Targets) -> Scores:
        """Score the predicted names; ``accuracy`` is the share of rows with every name right."""
        decided = self._decide(outputs, targets)
        return {
            "accuracy": float((decided == targets).all(axis=1).mean()),
            **f1_scores(decided, targets, len(self.names)),
        }

    def loss(self, outputs: Outputs, targets: Targets) -> float:
        """Return the mean binary cross-entropy, in nats."""
        share = np.where(targets > 0, outputs, 1 - outputs)
        return float(-np.log(np.maximum(share, SMALLEST_PROBABILITY)).mean())

    def class_rows(self, outputs: Outputs, targets: Targets) -> list[ClassRow]:
        return score_each_class(self.names, self._decide(outputs, targets), targets)

    def commonest(self, cells: Sequence[str]) -> Outputs:
        counts = Counter(cells)
        cell = max(sorted(counts), key=lambda cell: counts[cell])
        answer = np.zeros(len(self.names))
        answer[[self.names.index(name) for name in split_names(cell, self.separator)]] = 1.0
        return answer

    def fit_linear(self, features: Any, cells: Sequence[str]) -> Callable[[Any], Outputs]:
        """Fit a linear support vector machine for each name."""
        import warnings

        from sklearn.multiclass import OneVsRestClassifier
        from sklearn.svm import LinearSVC

        with warnings.catch_warnings():
            # A name that every row or no row has needs no model.
            warnings.filterwarnings("ignore", message="Label .* is present in all|Label not")
            model = OneVsRestClassifier(LinearSVC(random_state=0))
            model.fit(features, self.targets(cells))

        def answer(features: Any) -> Outputs:
            found = np.asarray(model.decision_function(features))
            return found.reshape(len(found), -1)  # a single name has one dimension

        return answer

    def prediction_lines(self, outputs: Outputs) -> Iterator[str]:
        for given, row in zip(self._decide(outputs), outputs, strict=True):
            names = self.separator.join(self.names[place] for place in np.flatnonzero(given))
            yield "\t".join([names, *(f"{probability:.6f}" for probability in row)])

    def describe(self) -> str:
        return f"{len(self.names):,} names, any number per row"

    def card_text(self, texts: str) -> str:
        return (
            f"Saying which of these labels apply to {texts}, any number of them: "
            f"{name_some_quoted(self.names)}."
        )


def split_names(cell: str, separator: str) -> list[str]:
    """Return the names in a cell, stripped; an empty cell has none."""
    return [name.strip() for name in cell.split(separator)] if cell.strip() else []


def choose_thresholds(outputs: Outputs, targets: Targets) -> list[float]:
    """Choose the threshold of each name, (C,), for the best F1 on these rows.

    Names with few rows share the best threshold for all names together.
    """
    shared = _best_threshold(outputs.ravel(), targets.ravel())
    return [
        _best_threshold(outputs[:, column], targets[:, column])
        if count >= _FEWEST_FOR_OWN_THRESHOLD
        else shared
        for column, count in enumerate(targets.sum(axis=0))
    ]


def _best_threshold(found: npt.NDArray[np.float64], true: npt.NDArray[Any]) -> float:
    """Maximize F1 = 2 hits / (predicted + true); cut halfway to the next lower value."""
    order = np.argsort(-found, kind="stable")
    values = found[order]
    hits = np.cumsum(true[order])
    f1 = 2 * hits / (np.arange(1, len(values) + 1) + true.sum())
    # Rows with equal values get the name together or not at all.
    f1[:-1][values[:-1] == values[1:]] = -1
    if true.sum() == 0:
        return 0.5
    best = int(f1.argmax())
    below = values[best + 1] if best + 1 < len(values) else 0.0
    return float((values[best] + below) / 2)


@dataclass(frozen=True, kw_only=True, slots=True)
class BinaryCrossEntropy(LogitObjective):
    """Binary cross-entropy with optional class weights, label smoothing and focal loss.

    Args:
        weights: for rows without (0) and with (1) each name, (2, C); their mean over the training
            rows is 1.
        label_smoothing: how far a target moves towards 0.5.
        focal_gamma: exponent of the factor 1 - p on a loss, p being that of the right answer.

    Source: Szegedy et al. 2016, section 7 (label smoothing); Lin et al. 2017 (focal loss).
    """

    weights: "Tensor | None" = None
    label_smoothing: float = 0.0
    focal_gamma: float = 0.0

    def of_logits(self, logits: "Tensor", targets: "Tensor") -> "Tensor":
        import torch
        import torch.nn.functional as F

        logits = logits.float()
        smooth = targets * (1 - self.label_smoothing) + self.label_smoothing / 2
        losses = F.binary_cross_entropy_with_logits(logits, smooth, reduction="none")
        if self.focal_gamma > 0:
            found = logits.sigmoid()
            share = torch.where(targets > 0, found, 1 - found)
            losses = losses * (1 - share) ** self.focal_gamma
        if self.weights is not None:
            losses = losses * torch.where(targets > 0, self.weights[1], self.weights[0])
        return losses.mean()
