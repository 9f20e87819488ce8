"""The result of fine-tuning, and the events that it reports on the way."""

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bertpre.finetuning.outputs import ClassRow, Outputs, Scores
from bertpre.finetuning.task import Task


class Progress(NamedTuple):
    """The progress of a stage ("tokenising" or "training"), in units such as "rows"."""

    stage: str
    unit: str
    done: int
    total: int


class MemberStart(NamedTuple):
    """The start of one of several training runs: the name of its folder, its number from 1."""

    name: str
    number: int
    total: int


class EpochReport(NamedTuple):
    """The losses and scores of one epoch.

    Attributes:
        epoch: from 1.
        train_loss: mean loss over the training rows, with dropout.
        dev: scores on the dev rows after the epoch.
    """

    epoch: int
    train_loss: float
    dev: Scores


# The summary at the start is a dict.
Event = dict[str, Any] | Progress | MemberStart | EpochReport


@dataclass(frozen=True, kw_only=True, slots=True)
class MemberResult:
    """The result of one training run.

    Args:
        name: its folder, if there are several runs.
        seed: its seed.
        best_epoch: the epoch whose weights were kept, from 1.
        history: every epoch.
        task: calibrated on its dev rows.
        outputs: by "dev", and "test" if there are test rows.
        scores: of these outputs.
    """

    name: str
    seed: int
    best_epoch: int
    history: tuple[EpochReport, ...]
    task: Task
    outputs: dict[str, Outputs]
    scores: dict[str, Scores]


@dataclass(frozen=True, kw_only=True, slots=True)
class FinetuneResult:
    """The result of fine-tuning, as it is in the model folder.

    Args:
        output: the model folder.
        task: calibrated on the dev rows, whose scores are slightly optimistic for that reason.
        dev: scores on the dev rows; with several models, of their mean prediction; with folds, on
            all training rows, each predicted by models not trained on it.
        test: scores on the test rows, if there are any.
        outputs: the outputs that were scored, by "dev" and "test".
        class_rows: precision, recall and F1 of each class, by "dev" and "test".
        members: every training run.
        baselines: by the baseline's name, its scores by "dev" and "test".
    """

    output: Path
    task: Task
    dev: Scores
    test: Scores | None
    outputs: dict[str, Outputs]
    class_rows: dict[str, list[ClassRow]]
    members: tuple[MemberResult, ...]
    baselines: dict[str, dict[str, Scores]]

    @property
    def scores(self) -> dict[str, Scores]:
        """The scores by "dev" and "test"."""
        return {"dev": self.dev} | ({} if self.test is None else {"test": self.test})

    def spread(self) -> dict[str, dict[str, tuple[float, float]]]:
        """Return mean and standard deviation over the training runs, by part and score."""

        def of_members(part: str, name: str) -> tuple[float, float]:
            values = [member.scores[part][name] for member in self.members]
            return statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0.0

        return {
            part: {name: of_members(part, name) for name in scores}
            for part, scores in self.scores.items()
        }
