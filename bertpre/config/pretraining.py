"""Options of pretraining: optimizer, schedule and run."""

from typing import Annotated, Literal

from annotated_types import Ge

from bertpre.config.fields import Bool, Float, Int, option, section


@section
class Optimizer:
    """The optimizer; weight decay never applies to layer norms and biases."""

    name: Literal["adamw", "muon"] = option(
        "adamw",
        "adamw: for all parameters. muon: for the encoder's matrices, with AdamW for the rest.",
    )
    learning_rate: Float = option(1e-4, "Peak learning rate.", gt=0)
    weight_decay: Float = option(0.01, "Decoupled weight decay, scaled by the learning rate.", ge=0)
    beta1: Float = option(0.9, "Decay of AdamW's first moment.", ge=0, lt=1)
    beta2: Float = option(0.999, "Decay of AdamW's second moment.", ge=0, lt=1)
    eps: Float = option(1e-6, "Added to the square root of AdamW's second moment.", gt=0)
    momentum: Float = option(0.95, "Decay of Muon's momentum.", ge=0, lt=1)
    max_grad_norm: Float = option(1.0, "Clip gradients to this global norm.", gt=0)


@section
class Schedule:
    """The learning rate during the run."""

    name: Literal["linear", "cosine", "constant", "wsd"] = option(
        "linear",
        "Learning rate after the warm-up. linear, cosine: decay to 0. constant: no decay. wsd: "
        "constant, then linear decay over the last decay_ratio of the run.",
    )
    warmup_ratio: Float = option(
        0.06, "Share of the steps used for the warm-up from 0.", ge=0, lt=1
    )
    decay_ratio: Float = option(0.2, "Share of the steps in which wsd decays.", gt=0, le=1)


@section
class Pretrain:
    """From a data folder to a run folder."""

    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    max_steps: Int | None = option(
        None,
        "Updates in the run; default: 10,000, or derived from max_epochs, max_tokens or max_hours.",
        ge=1,
    )
    max_epochs: Float | None = option(None, "Passes over the examples, instead of max_steps.", gt=0)
    max_tokens: Float | None = option(
        None, "Tokens to train on, without padding, such as 1e9, instead of max_steps.", gt=0
    )
    max_hours: Float | None = option(
        None,
        "Hours that the run should take, instead of max_steps: the speed is measured before the "
        "first update and sets the number of steps.",
        gt=0,
    )
    stop_after_hours: Float | None = option(
        None,
        "Save and stop after this many hours, for machines with a time limit; the same command "
        "resumes.",
        identity=False,
        gt=0,
    )
    early_stopping_evals: Int | None = option(
        None,
        "Stop after this many evaluations without a lower held-out MLM loss, and keep the best "
        "weights.",
        ge=1,
    )
    global_batch_size: Int = option(256, "Examples in each update.", ge=1, le=10_000_000)
    initial_global_batch_size: Int | None = option(
        None,
        "Examples in each of the first updates; grows to global_batch_size.",
        ge=1,
        le=10_000_000,
    )
    batch_ramp_ratio: Float = option(
        0.1, "Share of the steps in which the batch grows.", gt=0, le=1
    )
    # The limit belongs to the number: pydantic would apply one of the option to "auto" too.
    micro_batch_size: Annotated[Int, Ge(1)] | Literal["auto"] | None = option(
        None,
        "Examples in each forward pass; default: the global batch, at most 16,384 tokens. "
        "auto: as many as fit on the GPU.",
        identity=False,
    )
    mlm_probability: Float | None = option(
        None,
        "Share of tokens to predict in training; default: as in the data folder. Held-out "
        "examples always use 15 %.",
        gt=0,
        le=0.8,
    )
    final_mlm_probability: Float | None = option(
        None, "Share of tokens to predict at the end; it changes linearly.", gt=0, le=0.8
    )
    init_from: str | None = option(
        None,
        "Checkpoint, run or Hugging Face BERT folder with the initial weights; embeddings are "
        "matched by token.",
        identity=False,  # a path; the fingerprint of the weights is compared
    )
    reset_embeddings: Bool = option(
        False, "With init_from: initialize all token embeddings randomly."
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = option(
        "auto", "Device to train on; auto: cuda if available, else cpu.", identity=False
    )
    precision: Literal["auto", "fp32", "bf16", "fp16"] = option(
        "auto",
        "auto: bf16 where the hardware supports it, fp16 on older GPUs, else fp32.",
        identity=False,
    )
    gradient_checkpointing: Bool = option(
        False,
        "Recompute layers in the backward pass: less memory, a third more time, the same results.",
        identity=False,  # a run must be able to resume on a smaller GPU
    )
    compile: Bool = option(
        False,
        "Compile the layers with torch.compile: faster on a GPU after a minute; no gain on a CPU.",
        identity=False,
    )
    deterministic: Bool = option(
        False, "Make results bit-exact on a GPU too; slower.", identity=False
    )
    log_every_steps: Int = option(10, "Steps between logged metrics.", identity=False, ge=1)
    eval_every_steps: Int = option(500, "Steps between held-out evaluations.", identity=False, ge=1)
    save_every_steps: Int = option(500, "Steps between checkpoints.", identity=False, ge=1)
    keep_checkpoints: Int = option(
        3, "Newest checkpoints to keep, besides the best.", identity=False, ge=1
    )
    tensorboard: Bool = option(
        False,
        "Also write metrics for TensorBoard to RUN/tensorboard; needs the package tensorboard.",
        identity=False,
    )
