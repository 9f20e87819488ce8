"""The pretrain stage: the training loop on one page."""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from dataclasses import asdict, replace
from math import exp, isfinite
from pathlib import Path
from typing import NamedTuple

from bertpre.artefacts import faults_named, locked
from bertpre.config.schema import Config
from bertpre.data.dataset import PretrainingData
from bertpre.model.flat import Batch
from bertpre.model.weights import load_hugging_face, read_weights
from bertpre.training.checkpoint import restore, save_checkpoint, save_final, warn_of_full_disk
from bertpre.training.checks import check_pretraining
from bertpre.training.device import matmul_peak
from bertpre.training.distributed import leave_ranks
from bertpre.training.metrics import Alarms, Meter, Metrics, MetricsLog, draw_curves, read_metrics
from bertpre.training.run_folder import (
    checkpoint_folder,
    is_whole,
    remove_old_checkpoints,
    reopen_run,
    start_run_folder,
)
from bertpre.training.setup import Setup
from bertpre.training.step import Losses
from bertpre.training.summary import summarize
from bertpre.training.trial import set_up_by_trial

log = logging.getLogger(__name__)

_LARGEST_EXPONENT = 700  # whose exponential a float can hold


class Progress(NamedTuple):
    """Reported after every update."""

    step: int
    max_steps: int
    mlm_loss: float


# What a run reports: its summary once, then each update and each line of metrics.
Event = dict[str, str] | Progress | Metrics


class PretrainResult(NamedTuple):
    """How a call ended.

    Attributes:
        model: the folder with the newest weights: ``final``, or a checkpoint of a stopped run.
        step: updates done in all.
        is_finished: whether the run is complete.
        was_finished: whether it was complete before the call, which then did nothing.
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
    """Train a BERT on a data folder, or resume a run exactly at its last checkpoint.

    Args:
        data: written by make-data.
        output: the run folder.
        config: the experiment; its model and pretrain sections and its seed are used.
        overwrite: start an existing run again from scratch.
        extend_to: continue a run, finished or not, to this many steps; its schedule must be
            constant, or wsd, whose decay is then repeated.
        dry_run: check everything, report the summary, and write nothing.
        should_stop: called after each update and, in a single process, after each held-out batch;
            once it returns true, a checkpoint is saved and the call ends.
        on_event: called with the summary, the progress and the metrics.

    Raises:
        BertpreError: options contradict each other, the data or the run, or the loss diverges.
    """
    config, output = config or Config(), Path(output)
    plan = check_pretraining(
        data, output=output, config=config, overwrite=overwrite, extend_to=extend_to
    )
    if plan.is_finished:
        # After early stopping the last step is not the planned one.
        last_step = max((row["step"] for row in read_metrics(output)), default=plan.max_steps or 0)
        return PretrainResult(output / "final", last_step, True, was_finished=True)
    try:
        # torchrun gives each process its rank; only the first reads every byte of the data.
        loaded = PretrainingData(data, check_content=os.environ.get("RANK", "0") == "0")
        setup = set_up_by_trial(loaded, config, plan, should_stop)
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
                started = replace(plan.config, decided=asdict(setup.decided))
                start_run_folder(output, started, lock=lock, overwrite=overwrite)
            setup.ranks.wait()
            tell = on_event if is_first else lambda event: None
            return _train(_Loop(output, setup, should_stop, tell))
    finally:
        leave_ranks()


def _train(loop: "_Loop") -> PretrainResult:
    """Update, log, evaluate and save until the last step or a request to stop."""
    with closing(loop.setup.batches(loop.state.cursor)) as batches:
        while not loop.is_done and not loop.is_stopping:
            # An earlier call may have stopped before or during this step's evaluation.
            if not loop.state.awaits_evaluation:
                loop.update(batches)
            if loop.state.awaits_evaluation and not loop.is_stopping:
                loop.evaluate()
            if loop.is_done or loop.is_stopping or loop.is_worth_saving:
                loop.save()
    return loop.finish()


class _Loop:
    """The actions and the state of the training loop.

    Args:
        run: the run folder; training resumes at its newest complete checkpoint.
        setup: of the run.
        should_stop: see `pretrain`.
        on_event: see `pretrain`; does nothing except in the first process.
    """

    def __init__(
        self,
        run: Path,
        setup: Setup,
        should_stop: Callable[[], bool],
        on_event: Callable[[Event], None],
    ) -> None:
        self.run, self.setup, self.should_stop, self.on_event = run, setup, should_stop, on_event
        self.state = restore(run, setup)
        self.metrics_log: MetricsLog | None = None
        if setup.ranks.is_first:
            step, with_events = self.state.cursor.step, setup.options.tensorboard
            self.metrics_log = MetricsLog(run, step=step, tensorboard=with_events)
            warn_of_full_disk(run, setup)
        peak = matmul_peak(setup.device, setup.precision)
        self.meter = Meter(self.state.seconds, matmul_peak=peak)
        self.alarms = Alarms(warmup_steps=setup.decided.warmup_steps, max_steps=setup.max_steps)
        self.held_out: Metrics | None = None
        self.saved: Path | None = None
        self.is_stopping = False

    @property
    def is_done(self) -> bool:
        """Whether the run is complete, including its last evaluation."""
        state, setup = self.state, self.setup
        patience = setup.options.early_stopping_evals or setup.max_steps
        is_over = state.cursor.step == setup.max_steps or state.evals_without_gain >= patience
        return is_over and not state.awaits_evaluation

    @property
    def is_worth_saving(self) -> bool:
        """Whether a save is due, or early stopping or a longer run may return to this step."""
        step, options = self.state.cursor.step, self.setup.options
        can_stop_early = options.early_stopping_evals is not None
        is_evaluation = step % options.eval_every_steps == 0
        is_best = can_stop_early and is_evaluation and self.state.evals_without_gain == 0
        return step % options.save_every_steps == 0 or is_best or step == self.setup.branch_step

    def update(self, batches: Iterator[list[Batch]]) -> None:
        """Do the next update and log it."""
        state, setup, meter = self.state, self.setup, self.meter
        step = state.cursor.step
        batch = meter.wait_for(batches)
        result = setup.update(batch, step=step, loss_scale=state.loss_scale)
        meter.add(result.num_tokens, setup.operations(batch))
        self.state = replace(
            state,
            cursor=state.cursor.advance(setup.batch_size(step), size=len(setup.data.records)),
            tokens_seen=state.tokens_seen + result.num_tokens,
            seconds=meter.seconds,
            loss_scale=result.loss_scale,
            awaits_evaluation=self._is_time(step + 1, setup.options.eval_every_steps)
            and len(setup.data.held_out) > 0,
        )
        self.on_event(Progress(step + 1, setup.max_steps, result.losses.mlm_loss))
        hours = setup.options.stop_after_hours or float("inf")
        wants_stop = self.should_stop() or meter.seconds_of_call > 3600 * hours
        self.is_stopping = setup.ranks.sum_numbers([wants_stop], setup.device) != [0]
        if step == 0 or self._is_time(step + 1, setup.options.log_every_steps):
            line = replace(
                self._line(result.losses),
                learning_rate=setup.learning_rate(step),
                # None for an fp16 update that was skipped.
                grad_norm=result.grad_norm if isfinite(result.grad_norm) else None,
                **meter.rates()._asdict(),
            )
            self._record(line)

    def evaluate(self) -> None:
        """Measure the held-out loss, unless stopped meanwhile."""
        with self.meter.rates_paused():
            losses = self.setup.evaluate(self.should_stop)
            if losses is None:
                self.is_stopping = True
                return
            likely = losses.mlm_loss < _LARGEST_EXPONENT
            self.held_out = replace(
                self._line(losses),
                split="eval",
                mlm_perplexity=exp(losses.mlm_loss) if likely else None,
                unigram_loss=self.setup.unigram_loss,
            )
            self.state = self.state.after_evaluation(losses.mlm_loss)
            self._record(self.held_out)
            if self.setup.ranks.is_first:
                draw_curves(self.run)

    def save(self) -> None:
        """Save a checkpoint, and remove those that are no longer needed."""
        setup, step = self.setup, self.state.cursor.step
        if self.held_out is not None and self.held_out.step == step:
            self.state = self.state.with_candidate(self.held_out.mlm_loss)
        self.saved = checkpoint_folder(self.run, step)
        with self.meter.rates_paused():
            if setup.ranks.is_first:
                save_checkpoint(self.run, setup, self.state)
                kept_steps = (self.state.best_step, setup.branch_step)
                keep = setup.options.keep_checkpoints
                remove_old_checkpoints(self.run, keep=keep, kept_steps=kept_steps)
            setup.ranks.wait()

    def finish(self) -> PretrainResult:
        """Draw the curves and, if the run is complete, write its model."""
        if self.setup.ranks.is_first:
            draw_curves(self.run)
            if self.is_done:
                self.saved = save_final(self.run, self.setup, step=self._take_best_weights())
        step = self.state.cursor.step
        return PretrainResult(self.saved, step, self.is_done, held_out=self.held_out)

    def _take_best_weights(self) -> int:
        """Return to the best weights if the run may stop early; return their step."""
        step, best_step = self.state.cursor.step, self.state.best_step
        if self.setup.options.early_stopping_evals is None or best_step in (None, step):
            return step
        assert best_step is not None
        best = checkpoint_folder(self.run, best_step)
        if not is_whole(best):
            log.warning("using the weights of step %d, the last one, instead", step)
            return step
        load_hugging_face(self.setup.model, read_weights(best))
        log.info("using the weights of step %d, where the held-out loss was lowest", best_step)
        return best_step

    def _is_time(self, step: int, every: int) -> bool:
        return step == self.setup.max_steps or step % every == 0

    def _line(self, losses: Losses) -> Metrics:
        state, data = self.state, self.setup.data
        values = losses._asdict()
        if data.objective == "mlm-sop":
            values |= {f"sop_{what}": values.pop(f"nsp_{what}") for what in ("loss", "accuracy")}
        return Metrics(
            step=state.cursor.step,
            split="train",
            **values,
            epoch=round(state.cursor.epoch + state.cursor.example / len(data.records), 4),
            tokens_seen=state.tokens_seen,
            seconds=round(state.seconds, 3),
        )

    def _record(self, line: Metrics) -> None:
        if self.metrics_log is not None:
            self.metrics_log.write(line)
            self.on_event(line)
            self.alarms.look(line)
