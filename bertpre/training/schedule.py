"""Learning rate, batch size and mask rate as functions of the step."""

import math

from bertpre.config.schema import Schedule


def learning_rate_factor(
    step: int, *, schedule: Schedule, warmup_steps: int, max_steps: int
) -> float:
    """Factor for the peak learning rate of the update that follows ``step`` updates.

    The rise ends at 1 on the update number ``warmup_steps``. A fall would reach 0 on the update
    after the last, so that no update is wasted on a rate of 0.

    Args:
        step: updates done so far, 0 ≤ step < max_steps.
        schedule: which curve.
        warmup_steps: updates of linear rise; 0 disables it.
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
    """Return how many updates at the end of a run wsd falls in."""
    return max(1, round(schedule.decay_ratio * max_steps))


def linear_warmup_decay(step: int, *, warmup_steps: int, max_steps: int) -> float:
    """Factor of a linear rise and a linear fall; see `learning_rate_factor`.

    Source: Devlin et al. 2018, appendix A.2. The reference implementation decays from step 0, so
        its rate jumps down at the end of the warm-up; ours is continuous.
    """
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    return (max_steps - step) / (max_steps - warmup_steps)


def ramp(step: int, start: float, end: float, *, num_steps: int) -> float:
    """Go from ``start`` at step 0 to ``end`` at step ``num_steps`` in a line, and stay there."""
    return start + (end - start) * min(1.0, step / num_steps)
