"""What can only be tried before a run: how fast it is, and how much fits on the device."""

import itertools
import logging
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from bertpre.data.loader import Cursor, collate, held_out_batches, training_batches
from bertpre.errors import ConfigError
from bertpre.training.checkpoint import save_checkpoint
from bertpre.training.metrics import draw_curves
from bertpre.training.setup import Setup, first_state
from bertpre.training.step import accumulate_gradients, evaluate

log = logging.getLogger(__name__)

_UNTIMED_UPDATES, _TIMED_UPDATES = 3, 20
# Of the hours: after it, a trial of slow updates ends with those that it has.
_LONGEST_TRIAL = 0.05


def steps_within(hours: float, setup: Setup, should_stop: Callable[[], bool]) -> int | None:
    """Return how many updates fit in a time, with evaluations and saves, by trying some.

    Leaves the model trained a little: set it up again afterwards.

    Args:
        hours: for the whole run, with this trial.
        setup: of a run that is longer than the trial.
        should_stop: asked after each update.

    Returns:
        The number of updates; None if told to stop.

    Raises:
        ConfigError: not even one update fits.
    """
    batches = training_batches(
        setup.data,
        Cursor(),
        seed=setup.seed,
        batch_size=lambda step: setup.options.global_batch_size,
        micro_batch_size=setup.micro_batch_size,
        spec=lambda step: setup.base_spec,
        rank=setup.ranks.rank,
        num_ranks=setup.ranks.size,
    )
    most = _UNTIMED_UPDATES + _TIMED_UPDATES
    log.info("measuring the speed: up to %d updates, which do not count", most)
    state, trial_start = first_state(setup), time.monotonic()
    taken: list[float] = []  # seconds of each update
    with closing(batches):
        while len(taken) < most:
            start = time.monotonic()
            setup.update(next(batches), replace(state, cursor=Cursor(step=len(taken))))
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
            f"pretrain.max_hours: {hours:g}, but one update takes {_short(seconds)} seconds, after "
            f"{_short(sum(taken))} that measuring it took",
            "raise it, or make the batch or the model smaller",
        )
    return steps


def _short(seconds: float) -> str:
    return f"{seconds:.2g}" if seconds < 10 else f"{seconds:,.0f}"


def _evaluation_seconds(setup: Setup) -> float:
    if not len(setup.data.held_out):
        return 0.0
    size, start = setup.micro_batch_size, time.monotonic()
    first = itertools.islice(held_out_batches(setup.data, batch_size=size), 1)
    evaluate(setup.model, first, device=setup.device, precision=setup.precision)
    num_batches = len(setup.data.held_out) / size / setup.ranks.size
    evaluating = (time.monotonic() - start) * max(1.0, num_batches)
    with tempfile.TemporaryDirectory() as run:
        draw_curves(Path(run))  # imports what draws
        start = time.monotonic()
        draw_curves(Path(run))
    return evaluating + time.monotonic() - start


def _save_seconds(setup: Setup) -> float:
    with tempfile.TemporaryDirectory() as run:
        start = time.monotonic()
        save_checkpoint(
            Path(run),
            model=setup.model,
            optimizer=setup.optimizer,
            state=first_state(setup),
            tokenizer=setup.data.tokenizer,
            facts=setup.facts,
        )
        return time.monotonic() - start


def largest_micro_batch(setup: Setup) -> int:
    """Return how many of the longest examples fit on a GPU in one pass, a power of two or all."""
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
    # The process with the least room decides for all.
    room = [0.0] * setup.ranks.size
    room[setup.ranks.rank] = float(fitting)
    return int(min(setup.ranks.sum_numbers(room, setup.device)))
