"""What stands before the first update: model, optimizer, device, and where a run had got to."""

import logging
import os
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from bertpre.config.load import identity_options
from bertpre.config.schema import Config, Pretrain
from bertpre.data.dataset import PretrainingData
from bertpre.data.loader import Cursor, held_out_batches, training_batches
from bertpre.data.masking import MaskSpec
from bertpre.data.random64 import derive
from bertpre.errors import ConfigError
from bertpre.model.bert import initialize
from bertpre.model.flat import Batch
from bertpre.model.heads import BertForPreTraining
from bertpre.training.checkpoint import TrainerState, load_checkpoint
from bertpre.training.checks import RunPlan
from bertpre.training.device import (
    Precision,
    compile_layers,
    keep_freed_memory,
    matmul_operations,
    pick_device,
    pick_precision,
)
from bertpre.training.distributed import Ranks, join_ranks
from bertpre.training.initial_weights import start_from
from bertpre.training.metrics import unigram_loss
from bertpre.training.optim import PretrainingOptimizer
from bertpre.training.run_folder import newest_whole_checkpoint
from bertpre.training.schedule import decay_steps, learning_rate_factor, ramp
from bertpre.training.step import Losses, LossScale, StepResult, evaluate, train_step

log = logging.getLogger(__name__)

# What a micro-batch holds when nobody says: enough to fill a device, little enough to fit.
_MICRO_BATCH_TOKENS = 16_384


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """Everything the loop uses that stays as it is while it runs.

    Attributes:
        options: the pretrain section.
        base_spec: how training masks are drawn, but for a rate that moves.
        micro_batch_size: examples in one forward pass.
        max_steps, warmup_steps: of the run.
        batch_ramp_steps: over which the batch grows, if it does.
        ranks: the processes that train together.
        unigram_loss: what guessing by word frequency reaches on the held-out examples.
        facts: what a checkpoint's manifest says of the model.
    """

    data: PretrainingData
    model: BertForPreTraining
    optimizer: PretrainingOptimizer
    options: Pretrain
    seed: int
    device: torch.device
    precision: Precision
    base_spec: MaskSpec
    micro_batch_size: int
    max_steps: int
    warmup_steps: int
    batch_ramp_steps: int
    ranks: Ranks
    unigram_loss: float | None
    facts: dict[str, object]

    def execution(self) -> dict[str, Any]:
        """Return what the bits of a result depend on beyond the options."""
        return {
            "device": self.device.type,
            "precision": self.precision,
            "micro_batch_size": self.micro_batch_size,
            "threads": torch.get_num_threads(),
            "ranks": self.ranks.size,
            "compile": self.options.compile,
            "torch": torch.__version__,
        }

    def decided(self) -> dict[str, int]:
        """Return what is settled when a run starts, and stays."""
        return {
            "max_steps": self.max_steps,
            "warmup_steps": self.warmup_steps,
            "batch_ramp_steps": self.batch_ramp_steps,
            "micro_batch_size": self.micro_batch_size,
        }

    def learning_rate(self, step: int) -> float:
        """Return the rate of the update that follows ``step`` updates."""
        factor = learning_rate_factor(
            step,
            schedule=self.options.schedule,
            warmup_steps=self.warmup_steps,
            max_steps=self.max_steps,
        )
        return self.options.optimizer.learning_rate * factor

    def batches(self, cursor: Cursor) -> Generator[list[Batch]]:
        """Yield this process's micro-batches of one update after another, from the cursor on."""
        return training_batches(
            self.data,
            cursor,
            seed=self.seed,
            batch_size=self.batch_size,
            micro_batch_size=self.micro_batch_size,
            spec=self.mask_spec,
            rank=self.ranks.rank,
            num_ranks=self.ranks.size,
            pin=self.device.type == "cuda",
        )

    def update(self, batch: Sequence[Batch], state: TrainerState) -> StepResult:
        """Do the update that follows a state."""
        self.optimizer.set_learning_rate(self.learning_rate(state.cursor.step))
        return train_step(
            self.model,
            self.optimizer,
            batch,
            max_grad_norm=self.options.optimizer.max_grad_norm,
            device=self.device,
            precision=self.precision,
            seed=self.seed,
            step=state.cursor.step,
            ranks=self.ranks,
            loss_scale=state.loss_scale,
        )

    def operations(self, batch: list[Batch]) -> float:
        """Count the operations of an update's matrix products in this process."""
        vocab_size = self.data.tokenizer.vocab_size
        return matmul_operations(self.model.bert.config, batch, vocab_size=vocab_size)

    def evaluate(self, should_stop: Callable[[], bool]) -> Losses | None:
        """Measure the model on the held-out examples; None if told to stop meanwhile."""
        return evaluate(
            self.model,
            held_out_batches(
                self.data,
                batch_size=self.micro_batch_size,
                rank=self.ranks.rank,
                num_ranks=self.ranks.size,
            ),
            device=self.device,
            precision=self.precision,
            ranks=self.ranks,
            should_stop=should_stop,
        )

    @property
    def branch_step(self) -> int | None:
        """The last step before wsd falls, from which a longer run can go on."""
        if self.options.schedule.name != "wsd":
            return None
        return self.max_steps - decay_steps(self.options.schedule, self.max_steps)

    def batch_size(self, step: int) -> int:
        """Return the examples of the update that follows ``step`` updates, over all ranks."""
        options = self.options
        initial = options.initial_global_batch_size or options.global_batch_size
        final, num_steps = options.global_batch_size, self.batch_ramp_steps
        return round(ramp(step, initial, final, num_steps=num_steps))

    def mask_spec(self, step: int) -> MaskSpec:
        """Return how masks are drawn in the update that follows ``step`` updates."""
        final = self.options.final_mlm_probability
        if final is None:
            return self.base_spec
        rate = ramp(step, self.base_spec.probability, final, num_steps=self.max_steps)
        return replace(self.base_spec, probability=rate)


def set_up(data: PretrainingData, config: Config, plan: RunPlan, *, max_steps: int) -> Setup:
    """Build the model, its optimizer and all that the loop needs, on the device.

    Args:
        data: what will be trained on.
        config: the experiment.
        plan: what the checks found; on resume it holds what was decided before.
        max_steps: updates in the run.

    Raises:
        BertpreError: the device is not there, or the initial weights do not fit.
    """
    options = config.pretrain
    device = pick_device(options.device)
    ranks = join_ranks(device)
    smallest = min(options.global_batch_size, options.initial_global_batch_size or 2**31)
    if ranks.size > smallest:
        raise ConfigError(
            f"{ranks.size} processes, but a global batch of {smallest} examples",
            "start fewer, or raise pretrain.global_batch_size",
        )
    if device.type == "cpu":
        keep_freed_memory()
    if options.deterministic:
        # cuBLAS reads this when it starts, so before the first matrix product.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    model = BertForPreTraining(
        config.model, vocab_size=data.tokenizer.vocab_size, with_nsp=data.with_nsp
    )
    # A generator of its own, so that nothing else can change the initial weights.
    generator = torch.Generator().manual_seed(derive(config.seed, "init"))
    initialize(model, config.model.initializer_range, generator)
    if plan.init_from is not None:
        start_from(plan.init_from, model, data.tokenizer, reset_embeddings=options.reset_embeddings)
    model.bert.encoder.is_checkpointed = options.gradient_checkpointing
    model.to(device)
    if options.compile:
        compile_layers(model.bert.encoder)
    base_spec = data.mask_spec
    if options.mlm_probability is not None:
        base_spec = replace(base_spec, probability=options.mlm_probability)
    decided = plan.decided or {}
    warmup_steps = round(options.schedule.warmup_ratio * max_steps)
    batch_ramp_steps = max(1, round(options.batch_ramp_ratio * max_steps))
    return Setup(
        data=data,
        model=model,
        optimizer=PretrainingOptimizer(model, options.optimizer),
        options=options,
        seed=config.seed,
        device=device,
        precision=pick_precision(options.precision, device),
        base_spec=base_spec,
        micro_batch_size=_micro_batch_size(options, data, decided.get("micro_batch_size")),
        max_steps=max_steps,
        warmup_steps=decided.get("warmup_steps", warmup_steps),
        batch_ramp_steps=decided.get("batch_ramp_steps", batch_ramp_steps),
        ranks=ranks,
        unigram_loss=unigram_loss(data),
        facts={
            "data": data.manifest["fingerprint"],
            "init_from": plan.resolved["init_from"],
            "data_report": data.manifest["report"],
            "data_options": data.index_manifest["options"],
            "pretrain": identity_options(options),
            "objective": data.objective,
            "max_seq_length": data.max_seq_length,
            "max_steps": max_steps,
            "seed": config.seed,
        },
    )


def first_state(setup: Setup) -> TrainerState:
    """Return where training stands before the first update."""
    return TrainerState(
        cursor=Cursor(),
        tokens_seen=0,
        seconds=0.0,
        best_step=None,
        best_loss=None,
        lowest_loss=None,
        evals_without_gain=0,
        awaits_evaluation=False,
        loss_scale=LossScale() if setup.precision == "fp16" else None,
        execution=setup.execution(),
    )


def restore(run: Path, setup: Setup) -> TrainerState:
    """Go back to the newest whole checkpoint of a run, or to step 0 if there is none."""
    folder = newest_whole_checkpoint(run)
    now = setup.execution()
    if folder is None:
        if (run / "checkpoints").is_dir() and any((run / "checkpoints").glob("step-*")):
            log.warning("the run starts again at step 0")
        return first_state(setup)
    state = load_checkpoint(folder, model=setup.model, optimizer=setup.optimizer)
    if setup.device.type == "cpu" and state.execution["device"] == "cpu":
        # Sums over threads are rounded differently for another number of them.
        torch.set_num_threads(state.execution["threads"])
        now = setup.execution()
    log.info("going on from %s", folder)
    for name, before in state.execution.items():
        if now[name] != before:
            log.warning(
                "%s was %s before and is %s now: the result may differ in its last bits",
                name,
                before,
                now[name],
            )
    loss_scale = (state.loss_scale or LossScale()) if setup.precision == "fp16" else None
    return replace(state, execution=now, loss_scale=loss_scale)


def _micro_batch_size(options: Pretrain, data: PretrainingData, decided: int | None) -> int:
    fitting = max(1, _MICRO_BATCH_TOKENS // data.max_seq_length)
    if isinstance(options.micro_batch_size, int):
        return options.micro_batch_size
    return decided or min(options.global_batch_size, fitting)
