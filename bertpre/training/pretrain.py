"""The pretrain stage: the training loop on one page."""

import logging
import os
from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import replace
from math import exp, isfinite
from pathlib import Path
from typing import NamedTuple

from bertpre.artefacts import faults_named, locked
from bertpre.config.schema import Config
from bertpre.data.dataset import PretrainingData
from bertpre.model.weights import load_hugging_face, read_weights
from bertpre.training.alarms import Alarms
from bertpre.training.checkpoint import (
    TrainerState,
    save_checkpoint,
    save_final,
    warn_of_full_disk,
)
from bertpre.training.checks import RunPlan, check_pretraining
from bertpre.training.device import matmul_peak
from bertpre.training.distributed import leave_ranks
from bertpre.training.metrics import Meter, Metrics, MetricsLog, draw_curves, read_metrics
from bertpre.training.run_folder import (
    checkpoint_folder,
    is_whole,
    remove_old_checkpoints,
    reopen_run,
    start_run_folder,
)
from bertpre.training.schedule import DEFAULT_STEPS
from bertpre.training.setup import Setup, restore, set_up
from bertpre.training.step import Losses
from bertpre.training.summary import summarize
from bertpre.training.trial import largest_micro_batch, steps_within

log = logging.getLogger(__name__)

_LARGEST_EXPONENT = 700  # of which a float holds the exponential


class Progress(NamedTuple):
    """Sent after every update."""

    step: int
    max_steps: int
    mlm_loss: float


# What a run tells: its summary once, then an update or a line of metrics at a time.
Event = dict[str, str] | Progress | Metrics


class PretrainResult(NamedTuple):
    """How a call ended.

    Attributes:
        model: the folder with the newest weights: ``final``, or a checkpoint of a stopped run.
        step: updates done in all.
        is_finished: whether the run is complete.
        was_finished: whether it was so before the call, which then did nothing.
        held_out: the last evaluation of this call.
    """

    model: Path | None
    step: int
    is_finished: bool
    was_finished: bool = False
    held_out: Metrics | None = None


def pretrain(
    data: str | Path,
    *,
    output: str | Path,
    config: Config | None = None,
    overwrite: bool = False,
    extend_to: int | None = None,
    dry_run: bool = False,
    should_stop: Callable[[], bool] = lambda: False,
    on_event: Callable[[Event], None] = lambda event: None,
) -> PretrainResult:
    """Train a BERT on a data folder, or go on with a run exactly where its last checkpoint is.

    Args:
        data: written by make-data.
        output: the run folder.
        config: the experiment; the sections model and pretrain and the seed are used.
        overwrite: start an existing run again from nothing.
        extend_to: go on with a run, finished or not, to so many steps; its schedule must be
            constant, or wsd, of which the fall is done again.
        dry_run: check everything, send the summary, and write nothing.
        should_stop: asked after each update and, by a process that is alone, after each held-out
            batch; when true, a checkpoint is saved and the call ends.
        on_event: is sent the summary, the progress and the metrics.

    Raises:
        BertpreError: options contradict each other, the data or the run; or the loss diverges.
    """
    config, output = config or Config(), Path(output)
    plan = check_pretraining(
        data, output=output, config=config, overwrite=overwrite, extend_to=extend_to
    )
    if plan.is_finished:
        # An early end is not at the last step that was planned.
        last_step = max((row["step"] for row in read_metrics(output)), default=plan.max_steps or 0)
        return PretrainResult(output / "final", last_step, True, was_finished=True)
    try:
        # torchrun gives each process its rank; one of them reads every byte of the data for all.
        checks_content = os.environ.get("RANK", "0") == "0"
        loaded = PretrainingData(data, check_content=checks_content)
        setup = _set_up(loaded, config, plan, should_stop)
        if setup is None:
            return PretrainResult(None, 0, False)
        is_first = setup.ranks.is_first
        if is_first:
            on_event(summarize(setup, config))
        if dry_run:
            return PretrainResult(None, 0, False)
        output.mkdir(parents=True, exist_ok=True)
        lock = output / ".lock"
        with faults_named(output), locked(lock, str(output)) if is_first else nullcontext():
            if is_first:
                if plan.reopened_after is not None:
                    reopen_run(output, after_step=plan.reopened_after)
                resolved = {**plan.resolved, "decided": setup.decided()}
                start_run_folder(output, resolved, lock=lock, overwrite=overwrite)
            setup.ranks.wait()
            return _train(output, setup, should_stop, on_event if is_first else lambda event: None)
    finally:
        leave_ranks()


def _set_up(
    data: PretrainingData, config: Config, plan: RunPlan, should_stop: Callable[[], bool]
) -> Setup | None:
    """Prepare a run, by trying its speed where hours decide; None if told to stop meanwhile."""
    options = config.pretrain
    # Where hours decide, any length will do for the trial.
    setup = set_up(data, config, plan, max_steps=plan.max_steps or DEFAULT_STEPS)
    if options.micro_batch_size == "auto" and setup.device.type == "cuda" and not plan.decided:
        setup = replace(setup, micro_batch_size=largest_micro_batch(setup))
    if plan.max_steps is None and options.max_hours is not None:
        micro_batch_size = setup.micro_batch_size
        max_steps = steps_within(options.max_hours, setup, should_stop)
        if max_steps is None:
            return None
        log.info("%g hours are enough for %d updates at this speed", options.max_hours, max_steps)
        fresh = set_up(data, config, plan, max_steps=max_steps)
        setup = replace(fresh, micro_batch_size=micro_batch_size)
    return setup


def _train(
    run: Path, setup: Setup, should_stop: Callable[[], bool], on_event: Callable[[Event], None]
) -> PretrainResult:
    """Update, log, evaluate and save until the last step, or until told to stop."""
    options, data, ranks = setup.options, setup.data, setup.ranks
    state = restore(run, setup)
    metrics_log = None
    if ranks.is_first:
        step, with_events = state.cursor.step, options.tensorboard
        metrics_log = MetricsLog(run, step=step, tensorboard=with_events)
        warn_of_full_disk(run, model=setup.model, keep=options.keep_checkpoints)
    peak = matmul_peak(setup.device, setup.precision)
    meter = Meter(state.seconds, matmul_peak=peak)
    alarms = Alarms(warmup_steps=setup.warmup_steps, max_steps=setup.max_steps)
    held_out, saved, stopping, done = None, None, False, _is_done(state, setup)

    def tell(line: Metrics) -> None:
        if metrics_log is not None:
            metrics_log.write(line)
            on_event(line)
            alarms.look(line)

    with closing(setup.batches(state.cursor)) as batches:
        while not done and not stopping:
            # A call that was stopped before or in an evaluation left it to this one.
            if not state.awaits_evaluation:
                learning_rate = setup.learning_rate(state.cursor.step)
                num_examples = setup.batch_size(state.cursor.step)
                batch = meter.wait_for(batches)
                result = setup.update(batch, state)
                meter.add(result.num_tokens, setup.operations(batch))
                cursor = state.cursor.advance(num_examples, size=len(data.records))
                state = replace(
                    state,
                    cursor=cursor,
                    tokens_seen=state.tokens_seen + result.num_tokens,
                    seconds=meter.seconds,
                    loss_scale=result.loss_scale,
                    awaits_evaluation=_wants_evaluation(cursor.step, setup),
                )
                on_event(Progress(cursor.step, setup.max_steps, result.losses.mlm_loss))
                hours = options.stop_after_hours or float("inf")
                wants_stop = should_stop() or meter.seconds_of_call > 3600 * hours
                stopping = ranks.sum_numbers([wants_stop], setup.device) != [0]
                if _wants_line(cursor.step, setup):
                    rates = meter.rates()
                    line = replace(
                        _line(state, setup, result.losses),
                        learning_rate=learning_rate,
                        # An fp16 update that was left out has none.
                        grad_norm=result.grad_norm if isfinite(result.grad_norm) else None,
                        **rates._asdict(),
                    )
                    tell(line)
            if state.awaits_evaluation and not stopping:
                with meter.away():
                    measured = _evaluate(state, setup, should_stop)
                    stopping = measured is None
                    if measured is not None:
                        held_out, state = measured, state.after_evaluation(measured.mlm_loss)
                        tell(held_out)
                        if ranks.is_first:
                            draw_curves(run)
            done = _is_done(state, setup)
            if done or stopping or _is_worth_saving(state, setup):
                if held_out is not None and held_out.step == state.cursor.step:
                    state = state.with_candidate(held_out.mlm_loss)
                with meter.away():
                    saved = _save(run, setup, state)
    if ranks.is_first:
        draw_curves(run)
        saved = _finish(run, setup, state) if done else saved
    return PretrainResult(saved, state.cursor.step, done, held_out=held_out)


def _wants_line(step: int, setup: Setup) -> bool:
    return step in (1, setup.max_steps) or step % setup.options.log_every_steps == 0


def _wants_evaluation(step: int, setup: Setup) -> bool:
    is_time = step == setup.max_steps or step % setup.options.eval_every_steps == 0
    return is_time and len(setup.data.held_out) > 0


def _is_done(state: TrainerState, setup: Setup) -> bool:
    patience = setup.options.early_stopping_evals or setup.max_steps
    is_over = state.cursor.step == setup.max_steps or state.evals_without_gain >= patience
    return is_over and not state.awaits_evaluation


def _is_worth_saving(state: TrainerState, setup: Setup) -> bool:
    """Tell whether it is time, or early stopping or a longer run may come back to this step."""
    step, options = state.cursor.step, setup.options
    can_stop_early = options.early_stopping_evals is not None
    is_evaluation = step % options.eval_every_steps == 0
    is_best = can_stop_early and is_evaluation and state.evals_without_gain == 0
    return step % options.save_every_steps == 0 or is_best or step == setup.branch_step


def _finish(run: Path, setup: Setup, state: TrainerState) -> Path:
    step = state.cursor.step
    if setup.options.early_stopping_evals is not None and state.best_step not in (None, step):
        assert state.best_step is not None
        best = checkpoint_folder(run, state.best_step)
        if is_whole(best):
            step = state.best_step
            load_hugging_face(setup.model, read_weights(best))
            log.info("the weights are those of step %d, where the held-out loss was lowest", step)
        else:
            log.warning("so the weights are those of step %d, the last", step)
    return save_final(
        run, model=setup.model, tokenizer=setup.data.tokenizer, step=step, facts=setup.facts
    )


def _line(state: TrainerState, setup: Setup, losses: Losses) -> Metrics:
    epochs = state.cursor.epoch + state.cursor.example / len(setup.data.records)
    values = losses._asdict()
    if setup.data.objective == "mlm-sop":
        values |= {f"sop_{what}": values.pop(f"nsp_{what}") for what in ("loss", "accuracy")}
    return Metrics(
        step=state.cursor.step,
        split="train",
        **values,
        epoch=round(epochs, 4),
        tokens_seen=state.tokens_seen,
        seconds=round(state.seconds, 3),
    )


def _evaluate(state: TrainerState, setup: Setup, should_stop: Callable[[], bool]) -> Metrics | None:
    losses = setup.evaluate(should_stop)
    if losses is None:
        return None
    line = _line(state, setup, losses)
    perplexity = exp(line.mlm_loss) if line.mlm_loss < _LARGEST_EXPONENT else None
    return replace(line, split="eval", mlm_perplexity=perplexity, unigram_loss=setup.unigram_loss)


def _save(run: Path, setup: Setup, state: TrainerState) -> Path:
    folder = checkpoint_folder(run, state.cursor.step)
    if setup.ranks.is_first:
        save_checkpoint(
            run,
            model=setup.model,
            optimizer=setup.optimizer,
            state=state,
            tokenizer=setup.data.tokenizer,
            facts=setup.facts,
        )
        remove_old_checkpoints(
            run,
            keep=setup.options.keep_checkpoints,
            kept_steps=(state.best_step, setup.branch_step),
        )
    setup.ranks.wait()
    return folder
