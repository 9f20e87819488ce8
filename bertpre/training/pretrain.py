"""The pretrain stage: the training loop on one page."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from bertpre.artefacts import locked
from bertpre.config.schema import Config
from bertpre.data.dataset import PretrainingData
from bertpre.data.loader import held_out_batches, training_batches
from bertpre.training.checkpoint import (
    TrainerState,
    save_checkpoint,
    save_final,
)
from bertpre.training.checks import check_pretraining
from bertpre.training.metrics import Meter, Metrics, MetricsLog, draw_curves
from bertpre.training.optim import set_learning_rate
from bertpre.training.run_folder import remove_old_checkpoints, start_run_folder
from bertpre.training.schedule import linear_warmup_decay
from bertpre.training.setup import Setup, restore, set_up, summarize
from bertpre.training.step import Losses, evaluate, train_step


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
        dry_run: check everything, send the summary, and write nothing.
        should_stop: asked after each update; when true, a checkpoint is saved and the call ends.
        on_event: is sent the summary, the progress and the metrics.

    Raises:
        BertpreError: options contradict each other, the data or the run; or the loss diverges.
    """
    config, output = config or Config(), Path(output)
    plan = check_pretraining(data, output=output, config=config, overwrite=overwrite)
    if plan.is_finished:
        return PretrainResult(output / "final", config.pretrain.max_steps, True, was_finished=True)
    setup = set_up(PretrainingData(data), config)
    on_event(summarize(setup, config))
    if dry_run:
        return PretrainResult(None, 0, False)
    output.mkdir(parents=True, exist_ok=True)
    lock = output / ".lock"
    with locked(lock, str(output)):
        start_run_folder(output, plan.resolved, lock=lock, overwrite=overwrite)
        return _train(output, setup, should_stop, on_event)


def _train(
    run: Path, setup: Setup, should_stop: Callable[[], bool], on_event: Callable[[Event], None]
) -> PretrainResult:
    """Update, log, evaluate and save until the last step, or until told to stop."""
    options, data, optimizer = setup.options, setup.data, setup.optimizer
    state = restore(run, setup)
    metrics_log, meter = MetricsLog(run, step=state.cursor.step), Meter(state.seconds)
    held_out, saved, stopping = None, None, False
    batches = training_batches(
        data,
        state.cursor,
        seed=setup.seed,
        global_batch_size=options.global_batch_size,
        micro_batch_size=setup.micro_batch_size,
        spec=setup.mask_spec,
        pin=setup.device.type == "cuda",
    )
    with closing(batches):
        while state.cursor.step < options.max_steps and not stopping:
            learning_rate = options.optimizer.learning_rate * linear_warmup_decay(
                state.cursor.step,
                warmup_steps=round(options.schedule.warmup_ratio * options.max_steps),
                max_steps=options.max_steps,
            )
            set_learning_rate(optimizer, learning_rate)
            result = train_step(
                setup.model,
                optimizer,
                meter.wait_for(batches),
                max_grad_norm=options.optimizer.max_grad_norm,
                device=setup.device,
                precision=setup.precision,
                seed=setup.seed,
                step=state.cursor.step,
            )
            state = replace(
                state,
                cursor=state.cursor.advance(options.global_batch_size, size=len(data.records)),
                tokens_seen=state.tokens_seen + result.num_tokens,
                seconds=meter.seconds,
            )
            step, is_last = state.cursor.step, state.cursor.step == options.max_steps
            on_event(Progress(step, options.max_steps, result.losses.mlm_loss))
            stopping = should_stop()
            if step == 1 or is_last or step % options.log_every_steps == 0:
                rates = meter.rates()
                line = replace(
                    _line(state, setup, result.losses),
                    learning_rate=learning_rate,
                    grad_norm=result.grad_norm,
                    tokens_per_second=rates.tokens_per_second,
                    data_wait_share=rates.data_wait_share,
                )
                metrics_log.write(line)
                on_event(line)
            if len(data.held_out) and (is_last or step % options.eval_every_steps == 0):
                with meter.away():
                    held_out = _evaluate(state, setup)
                    metrics_log.write(held_out)
                    on_event(held_out)
                    draw_curves(run)
            if is_last or stopping or step % options.save_every_steps == 0:
                if held_out is not None and held_out.step == step:
                    state = state.with_candidate(held_out.mlm_loss)
                with meter.away():
                    saved = _save(run, setup, state)
    draw_curves(run)
    if state.cursor.step == options.max_steps:
        saved = save_final(
            run,
            model=setup.model,
            tokenizer=data.tokenizer,
            step=state.cursor.step,
            facts=setup.facts,
        )
    is_finished = state.cursor.step == options.max_steps
    return PretrainResult(saved, state.cursor.step, is_finished, held_out=held_out)


def _line(state: TrainerState, setup: Setup, losses: Losses) -> Metrics:
    epochs = state.cursor.epoch + state.cursor.example / len(setup.data.records)
    return Metrics(
        step=state.cursor.step,
        split="train",
        **losses._asdict(),
        epoch=round(epochs, 4),
        tokens_seen=state.tokens_seen,
        seconds=round(state.seconds, 3),
    )


def _evaluate(state: TrainerState, setup: Setup) -> Metrics:
    losses = evaluate(
        setup.model,
        held_out_batches(setup.data, batch_size=setup.micro_batch_size),
        device=setup.device,
        precision=setup.precision,
    )
    line = _line(state, setup, losses)
    return replace(line, split="eval", unigram_loss=setup.unigram_loss)


def _save(run: Path, setup: Setup, state: TrainerState) -> Path:
    folder = save_checkpoint(
        run,
        model=setup.model,
        optimizer=setup.optimizer,
        state=state,
        tokenizer=setup.data.tokenizer,
        facts=setup.facts,
    )
    keep = setup.options.keep_checkpoints
    remove_old_checkpoints(run, keep=keep, best_step=state.best_step)
    return folder
