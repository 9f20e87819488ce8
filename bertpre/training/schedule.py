"""Learning rate as a function of the step, and how many steps a run has."""

import math
from collections.abc import Mapping
from typing import Any

from bertpre.config.schema import Pretrain, Schedule
from bertpre.errors import ConfigError


def learning_rate_factor(
    step: int, *, schedule: Schedule, warmup_steps: int, max_steps: int
) -> float:
    """Return the factor for the peak learning rate of the update that follows ``step`` updates.

    The warm-up reaches 1 at update number ``warmup_steps``. A decay would reach 0 one update after
    the last, so that no update is wasted on a rate of 0.

    Args:
        step: updates done so far, 0 ≤ step < max_steps.
        schedule: which curve.
        warmup_steps: updates of linear warm-up; 0 disables it.
        max_steps: updates in the run.

    Returns:
        A factor in (0, 1].

    Source: Loshchilov and Hutter 2017, equation 5 (cosine, one period); Hu et al. 2024, section 4
        (wsd).
    """
    if step < warmup_steps or schedule.name == "linear":
        return linear_warmup_decay(step, warmup_steps=warmup_steps, max_steps=max_steps)
    if schedule.name == "cosine":
        share = (step - warmup_steps) / (max_steps - warmup_steps)
        return (1 + math.cos(math.pi * share)) / 2
    if schedule.name == "constant":
        return 1.0
    return min(1.0, (max_steps - step) / decay_steps(schedule, max_steps))


def decay_steps(schedule: Schedule, max_steps: int) -> int:
    """Return the number of updates in the decay at the end of a wsd run."""
    return max(1, round(schedule.decay_ratio * max_steps))


def linear_warmup_decay(step: int, *, warmup_steps: int, max_steps: int) -> float:
    """Return the factor of a linear warm-up and a linear decay; see `learning_rate_factor`.

    Source: Devlin et al. 2018, appendix A.2. The reference implementation decays from step 0, so
        its rate jumps down at the end of the warm-up; ours is continuous.
    """
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    return (max_steps - step) / (max_steps - warmup_steps)


def ramp(step: int, start: float, end: float, *, num_steps: int) -> float:
    """Interpolate linearly from ``start`` at step 0 to ``end`` at step ``num_steps``, and stay."""
    return start + (end - start) * min(1.0, step / num_steps)


DEFAULT_STEPS = 10_000


def planned_steps(options: Pretrain, report: Mapping[str, Any]) -> int | None:
    """Return the number of updates; None if hours decide, so that the speed must be measured.

    Args:
        options: the pretrain section.
        report: of the data folder: its examples and the tokens of an epoch.

    Raises:
        ConfigError: more than one length is given.
    """
    names = ("max_steps", "max_epochs", "max_tokens", "max_hours")
    stated = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    if len(stated) > 1:
        shown = ", ".join(f"pretrain.{name}: {value:g}" for name, value in stated.items())
        raise ConfigError(f"a run has one length, found {shown}", "set only one of them")
    if options.max_hours is not None:
        return None
    num_examples = report["training_examples"]
    if options.max_epochs is not None:
        return _steps_for(options.max_epochs * num_examples, options)
    if options.max_tokens is not None:
        return _steps_for(options.max_tokens / report["mean_length"], options)
    return options.max_steps or DEFAULT_STEPS


def _steps_for(examples: float, options: Pretrain) -> int:
    missing = options.global_batch_size - (
        options.initial_global_batch_size or options.global_batch_size
    )
    # While the batch grows linearly, half of its growth is missing on average.
    mean_batch = options.global_batch_size - missing * options.batch_ramp_ratio / 2
    return max(1, math.ceil(examples / mean_batch - 1e-9))
