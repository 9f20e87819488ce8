"""What fine-tuning came to, and the events that it tells on the way."""

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bertpre.finetuning.task import ClassRow, Outputs, Scores, Task


class Progress(NamedTuple):
    """How far a stage of fine-tuning is.

    Attributes:
        stage: "tokenising" or "training".
        unit: what is counted.
        done: how many so far.
        total: how many in all.
    """

    stage: str
    unit: str
    done: int
    total: int


class MemberStart(NamedTuple):
    """Another of several trainings begins.

    Attributes:
        name: of its folder.
        number: from 1.
        total: how many there are.
    """

    name: str
    number: int
    total: int


class EpochReport(NamedTuple):
    """What one epoch of training came to.

    Attributes:
        epoch: from 1.
        train_loss: mean loss over the epoch's rows, with dropout.
        dev: scores on the dev rows after the epoch.
    """

    epoch: int
    train_loss: float
    dev: Scores


# The start's summary; progress; the next of several trainings; an epoch's end.
Event = dict[str, Any] | Progress | MemberStart | EpochReport


@dataclass(frozen=True, kw_only=True, slots=True)
class MemberResult:
    """What one training came to.

    Args:
        name: of its folder, where there are several.
        seed: its seed.
        best_epoch: the epoch whose weights were kept, from 1.
        history: every epoch.
        task: with what was chosen by its dev rows.
        outputs: of its rows by "dev", and "test" if there is one.
        scores: of the same.
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
    """What fine-tuning came to; the same is in the model folder.

    Args:
        output: the model folder.
        task: what the outputs stand for, and what was chosen by the dev rows, whose scores are a
            little too good for that.
        dev: scores on the dev rows; of several trainings, of their mean prediction; with folds,
            of all training rows, each by models that were not trained on it.
        test: scores on the test rows, if there are any.
        outputs: probabilities or numbers that these scores are of, by "dev" and "test".
        class_rows: precision, recall and F1 of each class, by "dev" and "test".
        members: every training.
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
        """Give mean and standard deviation over the trainings, by part and score."""

        def of_members(part: str, name: str) -> tuple[float, float]:
            values = [member.scores[part][name] for member in self.members]
            return statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0.0

        return {
            part: {name: of_members(part, name) for name in scores}
            for part, scores in self.scores.items()
        }
