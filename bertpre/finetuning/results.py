"""What fine-tuning came to, and the events that it tells on the way."""

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bertpre.finetuning.labels import Labels
from bertpre.finetuning.scores import ClassRow, EpochReport, Readings, Scores
from bertpre.finetuning.tasks import Task


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
        readings: probabilities or numbers of its rows by "dev", and "test" if there is one.
        scores: of the same.
        thresholds: for several names, see `FinetuneResult`.
    """

    name: str
    seed: int
    best_epoch: int
    history: tuple[EpochReport, ...]
    readings: dict[str, Readings]
    scores: dict[str, Scores]
    thresholds: npt.NDArray[np.float64] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class FinetuneResult:
    """What fine-tuning came to; the same is in the model folder.

    Args:
        output: the model folder.
        labels: what the outputs stand for.
        dev: scores on the dev rows; of several trainings, of their mean prediction; with folds,
            of all training rows, each by models that were not trained on it.
        test: scores on the test rows, if there are any.
        readings: the probabilities or numbers that these scores are of, by "dev" and "test".
        class_rows: precision, recall and F1 of each class, by "dev" and "test".
        thresholds: for several names, above which probability each is given, chosen on the dev
            rows, whose scores are a little too good for that; else None.
        members: every training.
        baselines: by the baseline's name, its scores by "dev" and "test".
    """

    output: Path
    labels: Labels
    dev: Scores
    test: Scores | None
    readings: dict[str, Readings]
    class_rows: dict[str, list[ClassRow]]
    thresholds: npt.NDArray[np.float64] | None
    members: tuple[MemberResult, ...]
    baselines: dict[str, dict[str, Scores]]

    @property
    def scores(self) -> dict[str, Scores]:
        """The scores by "dev" and "test"."""
        return {"dev": self.dev} | ({} if self.test is None else {"test": self.test})

    def spread(self) -> dict[str, dict[str, tuple[float, float]]]:
        """Give mean and standard deviation over the trainings, by part and score."""
        return {
            part: {
                name: (
                    statistics.mean(values),
                    statistics.stdev(values) if len(values) > 1 else 0.0,
                )
                for name in self.scores[part]
                for values in [[member.scores[part][name] for member in self.members]]
            }
            for part in self.scores
        }


def mean_readings(task: Task, members: tuple[MemberResult, ...], part: str) -> Readings:
    """Average what several trainings give; with folds, for dev rows those that did not see them."""
    if part != "dev" or not task.with_folds:
        return np.asarray(np.mean([member.readings[part] for member in members], axis=0))
    shape = (len(task.train), members[0].readings["dev"].shape[1])
    sums, counts = np.zeros(shape), np.zeros((len(task.train), 1))
    for planned, member in zip(task.members, members, strict=True):
        sums[planned.dev_rows] += member.readings["dev"]
        counts[planned.dev_rows] += 1
    return np.asarray(sums / counts)
