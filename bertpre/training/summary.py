"""The summary of a run before it starts."""

import logging

import torch

from bertpre.config.schema import Config
from bertpre.model.attention import suits_flash_attention
from bertpre.model.flat import has_flash_attention
from bertpre.training.setup import Setup

log = logging.getLogger(__name__)

_FALLS = {
    "linear": "then linear to 0",
    "cosine": "then a cosine to 0",
    "constant": "then constant",
    "wsd": "then constant, linear to 0 over the last {decay:.0%}",
}


def summarize(setup: Setup, config: Config) -> dict[str, str]:
    """Describe a run in named rows, and warn if its early stopping cannot take effect."""
    _warn_of_idle_stopping(setup)
    data, options, shape = setup.data, setup.options, config.model
    report = data.manifest["report"]
    examples = setup.max_steps * options.global_batch_size
    if options.initial_global_batch_size is not None:
        examples = sum(map(setup.batch_size, range(setup.max_steps)))
    epochs = examples / len(data.records)
    share = -(-options.global_batch_size // setup.ranks.size)
    micro_batches = -(-share // setup.decided.micro_batch_size)
    parameters = sum(parameter.numel() for parameter in setup.model.parameters())
    moments = 1 if options.optimizer.name == "muon" else 2
    size = f"{options.global_batch_size} examples"
    if options.initial_global_batch_size is not None:
        size = f"{options.initial_global_batch_size} to {size}"
    rate = f"{setup.base_spec.probability:.0%}"
    if options.final_mlm_probability is not None:
        rate += f" to {options.final_mlm_probability:.0%}"
    fall = _FALLS[options.schedule.name].format(decay=options.schedule.decay_ratio)
    rows = {
        "model": f"{shape.num_hidden_layers} layers x {shape.hidden_size}, "
        f"{shape.num_attention_heads} heads, {_amount(parameters)} parameters",
        "vocabulary": f"{data.tokenizer.vocab_size:,}",
        "objective": f"{data.objective}, {rate} predicted, "
        f"{'static' if data.static_masks else 'dynamic'} masks",
        "examples": f"{len(data.records):,} of up to {data.max_seq_length} tokens "
        f"({report['mean_length']:.0f} on average), {len(data.held_out):,} held out",
        "updates": f"{setup.max_steps:,} of {size} "
        f"({_count(micro_batches, 'forward pass', 'forward passes')} each)",
        "epochs": (f"{epochs:.1f}, " if epochs >= 1 else f"{epochs:.2g}, ")
        + f"{_amount(epochs * report['tokens_per_epoch'])} tokens",
        "optimizer": f"{options.optimizer.name}, rate {options.optimizer.learning_rate:g}, "
        f"{setup.decided.warmup_steps:,} steps of warm-up, {fall}",
        "device": f"{setup.device.type}, {setup.precision}"
        + (f", {_count(torch.get_num_threads(), 'thread')}" if setup.device.type == "cpu" else "")
        + (f", {setup.ranks.size} processes" if setup.ranks.size > 1 else ""),
        "attention": _attention(setup, shape.attention_probs_dropout_prob),
        # fp32 weights, gradients and moments; a checkpoint has no gradients.
        "memory": f"{parameters * 4 * (2 + moments) / 1e6:,.0f} MB, plus activations; "
        f"{parameters * 4 * (1 + moments) / 1e6:,.0f} MB of disk per checkpoint",
        "word frequencies alone": "nothing is held out"
        if setup.unigram_loss is None
        else f"held-out MLM loss {setup.unigram_loss:.3f}",
    }
    if options.init_from is not None:
        rows["starts from"] = str(options.init_from)
    return rows


def _warn_of_idle_stopping(setup: Setup) -> None:
    patience, every = setup.options.early_stopping_evals, setup.options.eval_every_steps
    if patience is None:
        return
    num_evals = -(-setup.max_steps // every)
    if num_evals < patience + 2:  # the first is a gain, and after the last nothing is left
        log.warning(
            "pretrain.early_stopping_evals: %d evaluations without a gain cannot end a run early "
            "that has %d in all; set pretrain.eval_every_steps, now %d of %d steps, to at most %d",
            patience,
            num_evals,
            every,
            setup.max_steps,
            max(1, (setup.max_steps - 1) // (patience + 1)),
        )


def _attention(setup: Setup, dropout_p: float) -> str:
    if setup.device.type == "cpu":
        return "written out, padded to the longest sequence of a batch"
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(setup.precision, torch.float32)
    has_flash = has_flash_attention(setup.device)
    if has_flash and suits_flash_attention(dtype, dropout_p):
        return "flash attention without padding"
    reason = ""
    if has_flash and suits_flash_attention(dtype, 0.0):
        reason = "; flash attention needs model.attention_probs_dropout_prob 0"
    return f"PyTorch's, padded to the longest sequence of a batch{reason}"


def _amount(number: float) -> str:
    return f"{number / 1e6:,.1f} M" if number >= 1e6 else f"{number:,.0f}"


def _count(number: int, noun: str, plural: str | None = None) -> str:
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
