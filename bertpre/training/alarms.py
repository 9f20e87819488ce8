"""Warnings about runs that go wrong without failing."""

import logging

from bertpre.training.metrics import Metrics

log = logging.getLogger(__name__)

_STUCK_AFTER = 0.2  # of the run
_SPIKE = 1.0  # nats above the recent losses
_MEMORY = 0.8  # of the recent losses at each line


class Alarms:
    """Looks at each line of metrics of one call.

    Args:
        warmup_steps, max_steps: of the run.
    """

    def __init__(self, *, warmup_steps: int, max_steps: int) -> None:
        self._warmup_steps = warmup_steps
        self._stuck_from = _STUCK_AFTER * max_steps
        self._recent: float | None = None
        self._said_stuck = False

    def look(self, line: Metrics) -> None:
        """Warn if the loss has jumped, or if nothing beyond word frequency is being learnt."""
        if line.split == "train":
            self._look_for_spike(line)
        elif (
            line.unigram_loss is not None
            and line.step >= self._stuck_from
            and line.mlm_loss >= line.unigram_loss
            and not self._said_stuck
        ):
            self._said_stuck = True
            log.warning(
                "step %d: the held-out MLM loss is %.3f, no better than %.3f of guessing by word "
                "frequency; a lower or higher learning_rate, a smaller batch (more updates) or "
                "another initializer_range may help",
                line.step,
                line.mlm_loss,
                line.unigram_loss,
            )

    def _look_for_spike(self, line: Metrics) -> None:
        recent = self._recent
        if recent is not None and line.mlm_loss > recent + _SPIKE:
            log.warning(
                "step %d: the MLM loss jumped from %.3f to %.3f; a lower learning_rate or "
                "max_grad_norm makes training steadier",
                line.step,
                recent,
                line.mlm_loss,
            )
        # The losses of the warm-up fall too fast to be compared with.
        if line.step > self._warmup_steps:
            start = line.mlm_loss if recent is None else recent
            self._recent = _MEMORY * start + (1 - _MEMORY) * line.mlm_loss
