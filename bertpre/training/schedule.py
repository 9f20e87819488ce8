"""Learning rate as a function of the step."""


def linear_warmup_decay(step: int, *, warmup_steps: int, max_steps: int) -> float:
    """Factor for the peak learning rate of the update that follows ``step`` updates.

    The rise ends at 1 on the update number ``warmup_steps``; the fall starts there and would reach
    0 on the update after the last, so that no update is wasted on a rate of 0.

    Args:
        step: updates done so far, 0 ≤ step < max_steps.
        warmup_steps: updates of linear rise; 0 disables it.
        max_steps: updates in the run.

    Returns:
        A factor in (0, 1].

    Source: Devlin et al. 2018, appendix A.2. The reference implementation decays from step 0, so
        its rate jumps down at the end of the warm-up; ours is continuous.
    """
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    return (max_steps - step) / (max_steps - warmup_steps)
