"""The options of pretraining: optimizer, schedule, and the run."""

from typing import Annotated, Literal

from annotated_types import Ge

from bertpre.config.fields import Bool, Float, Int, option, section


@section
class Optimizer:
    """How gradients become updates; layer norms and biases are never decayed."""

    name: Literal["adamw", "muon"] = option(
        "adamw",
        "adamw: for all parameters. muon: for the encoder's matrices, AdamW for the rest.",
    )
    learning_rate: Float = option(1e-4, "Peak learning rate.", gt=0)
    weight_decay: Float = option(0.01, "Decoupled decay, times the learning rate.", ge=0)
    beta1: Float = option(0.9, "Decay of AdamW's first moment.", ge=0, lt=1)
    beta2: Float = option(0.999, "Decay of AdamW's second moment.", ge=0, lt=1)
    eps: Float = option(1e-6, "Added to the root of AdamW's second moment.", gt=0)
    momentum: Float = option(0.95, "Decay of Muon's momentum.", ge=0, lt=1)
    max_grad_norm: Float = option(1.0, "Global norm that gradients are clipped to.", gt=0)


@section
class Schedule:
    """Learning rate over the run."""

    name: Literal["linear", "cosine", "constant", "wsd"] = option(
        "linear",
        "After the warm-up: linear or cosine fall to 0 at the end, constant, or wsd (constant, "
        "then a linear fall over decay_ratio of the run).",
    )
    warmup_ratio: Float = option(0.06, "Share of the steps that warm up from 0.", ge=0, lt=1)
    decay_ratio: Float = option(0.2, "Share of the steps that wsd falls in.", gt=0, le=1)


@section
class Pretrain:
    """Data folder to run folder."""

    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    max_steps: Int | None = option(
        None,
        "Updates in the run; default: 10,000, or what max_epochs, max_tokens or max_hours makes.",
        ge=1,
    )
    max_epochs: Float | None = option(None, "Passes over the examples, in place of steps.", gt=0)
    max_tokens: Float | None = option(
        None, "Real tokens to train on, in place of steps, such as 1e9.", gt=0
    )
    max_hours: Float | None = option(
        None,
        "Hours that the run should take, in place of steps: its speed is measured before the first "
        "update, and the number of steps kept.",
        gt=0,
    )
    stop_after_hours: Float | None = option(
        None,
        "Save and stop after so many hours of this call, for machines that end; the same command "
        "goes on.",
        identity=False,
        gt=0,
    )
    early_stopping_evals: Int | None = option(
        None,
        "End the run with its best weights after so many evaluations without a lower held-out MLM "
        "loss.",
        ge=1,
    )
    global_batch_size: Int = option(256, "Examples in one update.", ge=1, le=10_000_000)
    initial_global_batch_size: Int | None = option(
        None, "Examples in the first updates; grows to global_batch_size.", ge=1, le=10_000_000
    )
    batch_ramp_ratio: Float = option(
        0.1, "Share of the steps over which the batch grows, if it does.", gt=0, le=1
    )
    # The limit belongs to the number: pydantic would apply one of the option to "auto" too.
    micro_batch_size: Annotated[Int, Ge(1)] | Literal["auto"] | None = option(
        None,
        "Examples in one forward pass; default: the global batch, or what makes 16,384 tokens. "
        "auto: on a GPU, the most that fit.",
        identity=False,
    )
    mlm_probability: Float | None = option(
        None,
        "Share predicted in training; default: the data folder's. Held-out masks stay at 15 %.",
        gt=0,
        le=0.8,
    )
    final_mlm_probability: Float | None = option(
        None, "Share predicted at the end, which the share moves to step by step.", gt=0, le=0.8
    )
    init_from: str | None = option(
        None,
        "Checkpoint, run or Hugging Face BERT folder whose weights the run starts from; embeddings "
        "are matched by token.",
        identity=False,  # a path; what the weights are is compared by their fingerprint
    )
    reset_embeddings: Bool = option(
        False, "With init_from: draw fresh token embeddings, whatever matches."
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = option(
        "auto", "Where to train; auto: cuda if there is one, else cpu.", identity=False
    )
    precision: Literal["auto", "fp32", "bf16", "fp16"] = option(
        "auto",
        "auto: bf16 where the hardware has it, fp16 on older GPUs, else fp32.",
        identity=False,
    )
    gradient_checkpointing: Bool = option(
        False,
        "Compute layers again in the backward pass: less memory, a third more time, the same bits.",
        identity=False,  # a run that met a smaller GPU must be able to go on
    )
    compile: Bool = option(
        False,
        "Compile the layers with torch.compile: faster on a GPU after a minute; on a CPU it gains "
        "nothing.",
        identity=False,
    )
    deterministic: Bool = option(False, "Bit-exact on a GPU too, at some cost.", identity=False)
    log_every_steps: Int = option(10, "Steps between lines of metrics.", identity=False, ge=1)
    eval_every_steps: Int = option(500, "Steps between held-out evaluations.", identity=False, ge=1)
    save_every_steps: Int = option(500, "Steps between checkpoints.", identity=False, ge=1)
    keep_checkpoints: Int = option(
        3, "Newest checkpoints that stay, beside the best.", identity=False, ge=1
    )
    tensorboard: Bool = option(
        False,
        "Write the metrics for TensorBoard, too, into the run's folder tensorboard; needs the "
        "package.",
        identity=False,
    )
