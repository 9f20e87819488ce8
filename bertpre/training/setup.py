"""The parts of a run before its first update: model, optimizer, device, and what a step does."""

import os
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass, replace

import torch

from bertpre.config.schema import Config, Model, Pretrain
from bertpre.data.dataset import PretrainingData
from bertpre.data.loader import Cursor, held_out_batches, training_batches
from bertpre.data.masking import MaskSpec
from bertpre.data.random64 import derive
from bertpre.errors import ConfigError
from bertpre.model.bert import initialize
from bertpre.model.flat import Batch
from bertpre.model.heads import BertForPreTraining
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
from bertpre.training.init_from import load_initial_weights
from bertpre.training.metrics import unigram_loss
from bertpre.training.optim import PretrainingOptimizer
from bertpre.training.schedule import decay_steps, learning_rate_factor, ramp
from bertpre.training.step import Losses, LossScale, StepResult, evaluate, train_step

# The default size of a micro-batch: enough to keep a device busy, and small enough to fit.
_MICRO_BATCH_TOKENS = 16_384


@dataclass(frozen=True, kw_only=True, slots=True)
class Decided:
    """What is settled when a run starts and then stays.

    Attributes:
        max_steps, warmup_steps: updates in the run and in its warm-up.
        batch_ramp_steps: updates over which a growing batch grows.
        micro_batch_size: examples in one forward pass.
    """

    max_steps: int
    warmup_steps: int
    batch_ramp_steps: int
    micro_batch_size: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """Everything that the training loop uses and does not change.

    Attributes:
        options: the pretrain section.
        base_spec: how training masks are drawn, apart from a changing rate.
        decided: steps and sizes.
        ranks: the processes that train together.
        unigram_loss: the held-out loss of guessing by word frequency.
        init_from: fingerprint of the initial weights; None if they were random.
    """

    data: PretrainingData
    model: BertForPreTraining
    optimizer: PretrainingOptimizer
    options: Pretrain
    seed: int
    device: torch.device
    precision: Precision
    base_spec: MaskSpec
    decided: Decided
    ranks: Ranks
    unigram_loss: float | None
    init_from: str | None

    @property
    def max_steps(self) -> int:
        """Updates in the run."""
        return self.decided.max_steps

    def learning_rate(self, step: int) -> float:
        """Return the rate of the update that follows ``step`` updates."""
        factor = learning_rate_factor(
            step,
            schedule=self.options.schedule,
            warmup_steps=self.decided.warmup_steps,
            max_steps=self.max_steps,
        )
        return self.options.optimizer.learning_rate * factor

    def batches(self, cursor: Cursor) -> Generator[list[Batch]]:
        """Yield this process's micro-batches, update by update, starting at the cursor."""
        return training_batches(
            self.data,
            cursor,
            seed=self.seed,
            batch_size=self.batch_size,
            micro_batch_size=self.decided.micro_batch_size,
            spec=self.mask_spec,
            rank=self.ranks.rank,
            num_ranks=self.ranks.size,
            pin=self.device.type == "cuda",
        )

    def update(
        self, batch: Sequence[Batch], *, step: int, loss_scale: LossScale | None
    ) -> StepResult:
        """Do the update that follows ``step`` updates."""
        self.optimizer.set_learning_rate(self.learning_rate(step))
        return train_step(
            self.model,
            self.optimizer,
            batch,
            max_grad_norm=self.options.optimizer.max_grad_norm,
            device=self.device,
            precision=self.precision,
            seed=self.seed,
            step=step,
            ranks=self.ranks,
            loss_scale=loss_scale,
        )

    def operations(self, batch: list[Batch]) -> float:
        """Count the operations in this process's matrix products of an update."""
        vocab_size = self.data.tokenizer.vocab_size
        return matmul_operations(self.model.bert.config, batch, vocab_size=vocab_size)

    def evaluate(self, should_stop: Callable[[], bool]) -> Losses | None:
        """Evaluate the model on the held-out examples; None if stopped meanwhile."""
        batches = held_out_batches(
            self.data,
            batch_size=self.decided.micro_batch_size,
            rank=self.ranks.rank,
            num_ranks=self.ranks.size,
        )
        return evaluate(
            self.model,
            batches,
            device=self.device,
            precision=self.precision,
            ranks=self.ranks,
            should_stop=should_stop,
        )

    @property
    def branch_step(self) -> int | None:
        """The last step before wsd decays, from which a longer run can continue."""
        if self.options.schedule.name != "wsd":
            return None
        return self.max_steps - decay_steps(self.options.schedule, self.max_steps)

    def batch_size(self, step: int) -> int:
        """Return the examples of the update that follows ``step`` updates, over all ranks."""
        final = self.options.global_batch_size
        initial = self.options.initial_global_batch_size or final
        return round(ramp(step, initial, final, num_steps=self.decided.batch_ramp_steps))

    def mask_spec(self, step: int) -> MaskSpec:
        """Return how masks are drawn in the update that follows ``step`` updates."""
        final = self.options.final_mlm_probability
        if final is None:
            return self.base_spec
        rate = ramp(step, self.base_spec.probability, final, num_steps=self.max_steps)
        return replace(self.base_spec, probability=rate)


def set_up(data: PretrainingData, config: Config, plan: RunPlan, *, max_steps: int) -> Setup:
    """Build the model, its optimizer and everything else that the loop needs.

    Args:
        data: the training data.
        config: the experiment.
        plan: result of the checks; on resume it holds what was decided before.
        max_steps: updates in the run.

    Raises:
        BertpreError: the device is missing, or the initial weights do not fit.
    """
    options = config.pretrain
    device = pick_device(options.device)
    ranks = _join_ranks(device, options)
    _prepare(device, options)
    model = _build_model(data, config.model, config.seed)
    if plan.init_from is not None:
        reset = options.reset_embeddings
        load_initial_weights(plan.init_from, model, data.tokenizer, reset_embeddings=reset)
    model.bert.encoder.is_checkpointed = options.gradient_checkpointing
    model.to(device)
    if options.compile:
        compile_layers(model.bert.encoder)
    base_spec = data.mask_spec
    if options.mlm_probability is not None:
        base_spec = replace(base_spec, probability=options.mlm_probability)
    return Setup(
        data=data,
        model=model,
        optimizer=PretrainingOptimizer(model, options.optimizer),
        options=options,
        seed=config.seed,
        device=device,
        precision=pick_precision(options.precision, device),
        base_spec=base_spec,
        decided=_decide(options, data, plan.config.decided, max_steps),
        ranks=ranks,
        unigram_loss=unigram_loss(data),
        init_from=plan.config.init_from,
    )


def _join_ranks(device: torch.device, options: Pretrain) -> Ranks:
    ranks = join_ranks(device)
    smallest = min(options.global_batch_size, options.initial_global_batch_size or 2**31)
    if ranks.size > smallest:
        raise ConfigError(
            f"{ranks.size} processes, but a global batch of only {smallest} examples",
            "start fewer, or raise pretrain.global_batch_size",
        )
    return ranks


def _prepare(device: torch.device, options: Pretrain) -> None:
    if device.type == "cpu":
        keep_freed_memory()
    if options.deterministic:
        # cuBLAS reads this when it starts, before the first matrix product.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)


def _build_model(data: PretrainingData, shape: Model, seed: int) -> BertForPreTraining:
    model = BertForPreTraining(shape, vocab_size=data.tokenizer.vocab_size, with_nsp=data.with_nsp)
    # A generator of its own, so that nothing else can change the initial weights.
    generator = torch.Generator().manual_seed(derive(seed, "init"))
    initialize(model, shape.initializer_range, generator)
    return model


def _decide(
    options: Pretrain, data: PretrainingData, before: dict[str, int] | None, max_steps: int
) -> Decided:
    """Settle steps and sizes; a resumed run keeps all but its length and a stated size.

    What an older version has not stored follows from the options.
    """
    fitting = max(1, _MICRO_BATCH_TOKENS // data.max_seq_length)
    decided = Decided(
        max_steps=max_steps,
        warmup_steps=round(options.schedule.warmup_ratio * max_steps),
        batch_ramp_steps=max(1, round(options.batch_ramp_ratio * max_steps)),
        micro_batch_size=min(options.global_batch_size, fitting),
    )
    before = before or {}
    kept = {name: before.get(name, value) for name, value in asdict(decided).items()}
    kept["max_steps"] = max_steps
    if isinstance(options.micro_batch_size, int):
        kept["micro_batch_size"] = options.micro_batch_size
    return Decided(**kept)
