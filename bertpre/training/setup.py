"""What stands before the first update: model, optimizer, device, and where a run had got to."""

import logging
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from bertpre.config.schema import Config, Pretrain
from bertpre.data.dataset import PretrainingData
from bertpre.data.loader import Cursor
from bertpre.data.masking import MaskSpec
from bertpre.data.random64 import derive
from bertpre.model.bert import initialize
from bertpre.model.heads import BertForPreTraining
from bertpre.training.checkpoint import TrainerState, load_checkpoint
from bertpre.training.devices import Precision, pick_device, pick_precision
from bertpre.training.memory import keep_freed_memory
from bertpre.training.metrics import unigram_loss
from bertpre.training.optim import build_optimizer
from bertpre.training.run_folder import newest_whole_checkpoint

log = logging.getLogger(__name__)

# What a micro-batch holds when nobody says: enough to fill a device, little enough to fit.
_MICRO_BATCH_TOKENS = 16_384


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """Everything the loop uses that stays as it is while it runs.

    Attributes:
        options: the pretrain section.
        mask_spec: how training masks are drawn.
        micro_batch_size: examples in one forward pass.
        unigram_loss: what guessing by word frequency reaches on the held-out examples.
        facts: what a checkpoint's manifest says of the model.
    """

    data: PretrainingData
    model: BertForPreTraining
    optimizer: torch.optim.Optimizer
    options: Pretrain
    seed: int
    device: torch.device
    precision: Precision
    mask_spec: MaskSpec
    micro_batch_size: int
    unigram_loss: float | None
    facts: dict[str, object]

    def execution(self) -> dict[str, Any]:
        """Return what the bits of a result depend on beyond the options."""
        return {
            "device": self.device.type,
            "precision": self.precision,
            "micro_batch_size": self.micro_batch_size,
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
        }


def set_up(data: PretrainingData, config: Config) -> Setup:
    """Build the model with fresh weights, and its optimizer, on the device."""
    options = config.pretrain
    device = pick_device(options.device)
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
    model.to(device)
    optimizer = build_optimizer(
        model,
        learning_rate=options.optimizer.learning_rate,
        weight_decay=options.optimizer.weight_decay,
        betas=(options.optimizer.beta1, options.optimizer.beta2),
        eps=options.optimizer.eps,
    )
    mask_spec = data.mask_spec
    if options.mlm_probability is not None:
        mask_spec = replace(mask_spec, probability=options.mlm_probability)
    fitting = max(1, _MICRO_BATCH_TOKENS // data.max_seq_length)
    return Setup(
        data=data,
        model=model,
        optimizer=optimizer,
        options=options,
        seed=config.seed,
        device=device,
        precision=pick_precision(options.precision, device),
        mask_spec=mask_spec,
        micro_batch_size=options.micro_batch_size or min(options.global_batch_size, fitting),
        unigram_loss=unigram_loss(data),
        facts={
            "data": data.manifest["fingerprint"],
            "objective": data.objective,
            "max_seq_length": data.max_seq_length,
            "max_steps": options.max_steps,
            "seed": config.seed,
        },
    )


def restore(run: Path, setup: Setup) -> TrainerState:
    """Go back to the newest whole checkpoint of a run, or to step 0 if there is none."""
    folder = newest_whole_checkpoint(run)
    now = setup.execution()
    if folder is None:
        if (run / "checkpoints").is_dir() and any((run / "checkpoints").glob("step-*")):
            log.warning("the run starts again at step 0")
        return TrainerState(
            cursor=Cursor(),
            tokens_seen=0,
            seconds=0.0,
            best_step=None,
            best_loss=None,
            execution=now,
        )
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
    return replace(state, execution=now)


def summarize(setup: Setup, config: Config) -> dict[str, str]:
    """Describe a run before it starts, name by name, for people."""
    data, options = setup.data, setup.options
    report = data.manifest["report"]
    examples = options.max_steps * options.global_batch_size
    epochs = examples / len(data.records)
    micro_batches = -(-options.global_batch_size // setup.micro_batch_size)
    parameters = sum(parameter.numel() for parameter in setup.model.parameters())
    shape = config.model
    return {
        "model": f"{shape.num_hidden_layers} layers x {shape.hidden_size}, "
        f"{shape.num_attention_heads} heads, {parameters / 1e6:.1f} M parameters",
        "vocabulary": f"{data.tokenizer.vocab_size:,}",
        "objective": f"{data.objective}, {setup.mask_spec.probability:.0%} predicted, "
        f"{'static' if data.static_masks else 'dynamic'} masks",
        "examples": f"{len(data.records):,} of up to {data.max_seq_length} tokens "
        f"({data.manifest['report']['mean_length']:.0f} on average), "
        f"{len(data.held_out):,} held out",
        "updates": f"{options.max_steps:,} of {options.global_batch_size} examples "
        f"({_count(micro_batches, 'forward pass', 'forward passes')} each)",
        "epochs": f"{epochs:.1f}, {epochs * report['tokens_per_epoch'] / 1e6:,.1f} M tokens",
        "learning rate": f"{options.optimizer.learning_rate:g}, "
        f"{options.schedule.warmup_ratio:.0%} warm-up, then linear to 0",
        "device": f"{setup.device.type}, {setup.precision}"
        + (f", {_count(torch.get_num_threads(), 'thread')}" if setup.device.type == "cpu" else ""),
        "word frequencies alone": "nothing is held out"
        if setup.unigram_loss is None
        else f"held-out MLM loss {setup.unigram_loss:.3f}",
    }


def _count(number: int, one: str, several: str | None = None) -> str:
    return f"{number} {one}" if number == 1 else f"{number} {several or one + 's'}"
