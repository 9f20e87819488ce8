"""What only a trial can tell before a run: its speed, and how much fits on the device."""

import itertools
import logging
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from bertpre.config.schema import Config
from bertpre.data.dataset import PretrainingData
from bertpre.data.loader import Cursor, collate, held_out_batches
from bertpre.errors import ConfigError
from bertpre.training.checkpoint import first_state, save_checkpoint
from bertpre.training.checks import RunPlan
from bertpre.training.metrics import draw_curves
from bertpre.training.schedule import DEFAULT_STEPS
from bertpre.training.setup import Setup, set_up
from bertpre.training.step import accumulate_gradients, evaluate

log = logging.getLogger(__name__)

_UNTIMED_UPDATES, _TIMED_UPDATES = 3, 20
# Share of the hours after which a trial of slow updates ends early.
_LONGEST_TRIAL = 0.05


def set_up_by_trial(
    data: PretrainingData, config: Config, plan: RunPlan, should_stop: Callable[[], bool]
) -> Setup | None:
    """Set a run up; for a new one, measure what its options leave to the machine.

    Args:
        data, config, plan: see `set_up`.
        should_stop: called during the trial.

    Returns:
        None if stopped meanwhile.
    """
    options = config.pretrain
    # If hours decide, any length will do for the trial.
    setup = set_up(data, config, plan, max_steps=plan.max_steps or DEFAULT_STEPS)
    if plan.config.decided is not None:
        return setup
    size = setup.decided.micro_batch_size
    if options.micro_batch_size == "auto" and setup.device.type == "cuda":
        size = largest_micro_batch(setup)
        setup = _with_micro_batches(setup, size)
    if options.max_hours is None:
        return setup
    max_steps = steps_within(options.max_hours, setup, should_stop)
    if max_steps is None:
        return None
    log.info("%g hours are enough for %d updates at this speed", options.max_hours, max_steps)
    return _with_micro_batches(set_up(data, config, plan, max_steps=max_steps), size)


def _with_micro_batches(setup: Setup, size: int) -> Setup:
    return replace(setup, decided=replace(setup.decided, micro_batch_size=size))


def steps_within(hours: float, setup: Setup, should_stop: Callable[[], bool]) -> int | None:
    """Return how many updates, with evaluations and saves, fit in a time, by timing some.

    Trains the model a little: set it up again afterwards.

    Args:
        hours: for the whole run, including this trial.
        setup: of a run that is longer than the trial.
        should_stop: called after each update.

    Returns:
        The number of updates; None if stopped.

    Raises:
        ConfigError: not even one update fits.
    """
    # What grows during the run is timed at its full size.
    options = replace(
        cast(Any, setup.options), initial_global_batch_size=None, final_mlm_probability=None
    )
    batches = replace(setup, options=options).batches(Cursor())
    most = _UNTIMED_UPDATES + _TIMED_UPDATES
    log.info("measuring the speed with up to %d updates, which are then discarded", most)
    scale, trial_start = first_state(setup).loss_scale, time.monotonic()
    taken: list[float] = []  # seconds of each update
    with closing(batches):
        while len(taken) < most:
            start = time.monotonic()
            setup.update(next(batches), step=len(taken), loss_scale=scale)
            taken.append(time.monotonic() - start)
            is_late = sum(taken) > _LONGEST_TRIAL * hours * 3600
            # All processes must decide the same.
            stopped, late = setup.ranks.sum_numbers([should_stop(), is_late], setup.device)
            if stopped:
                return None
            if late and len(taken) > 1:
                break
    timed = taken[_UNTIMED_UPDATES:] or taken[-1:]
    seconds = sum(timed) / len(timed)
    seconds += _evaluation_seconds(setup) / setup.options.eval_every_steps
    seconds += _save_seconds(setup) / setup.options.save_every_steps
    left = hours * 3600 - (time.monotonic() - trial_start)
    total, left_of_all = setup.ranks.sum_numbers([seconds, left], setup.device)
    seconds = total / setup.ranks.size
    steps = int(left_of_all / setup.ranks.size / seconds)
    if steps < 1:
        raise ConfigError(
            f"pretrain.max_hours: {hours:g}, but one update takes {_short(seconds)} seconds, and "
            f"measuring that took {_short(sum(taken))}",
            "raise it, or make the batch or the model smaller",
        )
    return steps


def _short(seconds: float) -> str:
    return f"{seconds:.2g}" if seconds < 10 else f"{seconds:,.0f}"


def _evaluation_seconds(setup: Setup) -> float:
    if not len(setup.data.held_out):
        return 0.0
    size, start = setup.decided.micro_batch_size, time.monotonic()
    first = itertools.islice(held_out_batches(setup.data, batch_size=size), 1)
    evaluate(setup.model, first, device=setup.device, precision=setup.precision)
    num_batches = len(setup.data.held_out) / size / setup.ranks.size
    evaluating = (time.monotonic() - start) * max(1.0, num_batches)
    with tempfile.TemporaryDirectory() as run:
        draw_curves(Path(run))  # imports matplotlib
        start = time.monotonic()
        draw_curves(Path(run))
    return evaluating + time.monotonic() - start


def _save_seconds(setup: Setup) -> float:
    with tempfile.TemporaryDirectory() as run:
        start = time.monotonic()
        save_checkpoint(Path(run), setup, first_state(setup))
        return time.monotonic() - start


def largest_micro_batch(setup: Setup) -> int:
    """Return how many of the longest examples fit in one pass: a power of two, or all."""
    data = setup.data
    share = -(-setup.options.global_batch_size // setup.ranks.size)
    by_length = np.argsort(
        data.records["a_length"].astype(np.int64) + data.records["b_length"], kind="stable"
    )
    fitting, size = 1, 1
    while size < 2 * share:
        tried = min(size, share)
        longest = by_length[-tried:]
        examples = data.training_examples(
            longest, epochs=np.zeros_like(longest), seed=setup.seed, spec=setup.base_spec
        )
        try:
            accumulate_gradients(
                setup.model,
                [collate(examples)],
                device=setup.device,
                precision=setup.precision,
                seed=setup.seed,
                step=0,
            )
        except torch.OutOfMemoryError:
            setup.model.zero_grad(set_to_none=True)
            torch.cuda.empty_cache()
            break
        fitting, size = tried, 2 * size
    # The process with the least memory decides for all.
    room = [0.0] * setup.ranks.size
    room[setup.ranks.rank] = float(fitting)
    return int(min(setup.ranks.sum_numbers(room, setup.device)))
