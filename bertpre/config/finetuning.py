"""The options of fine-tuning and prediction."""

from typing import Literal

from bertpre.config.fields import Bool, Float, Int, option, section


@section
class Finetune:
    """Checkpoint and labelled table to classifier."""

    format: Literal["auto", "jsonl", "csv", "tsv"] = option(
        "auto", "Form of the tables; auto goes by the file name, before .gz."
    )
    text_column: str | Int = option("text", "Column with the text: name, or number from 1.")
    label_column: str | Int = option("label", "Column with the label: name, or number from 1.")
    header: Bool = option(True, "Whether csv and tsv tables start with a line of column names.")
    dev_fraction: Float = option(
        0.1, "Share of the training rows kept for choosing the epoch, without --dev.", gt=0, lt=1
    )
    max_seq_length: Int | None = option(
        None, "Most tokens of a text; default: the longest that pretraining saw.", ge=3
    )
    learning_rate: Float | None = option(
        None, "Peak rate; default: by width, 3e-5 at 768, about 1e-3 at 128.", gt=0
    )
    num_epochs: Int | None = option(
        None, "Passes over the rows; default: 3, or as many as make 300 updates.", ge=1
    )
    batch_size: Int = option(32, "Rows in one update.", ge=1)
    warmup_ratio: Float = option(0.1, "Share of the updates that warm up from 0.", ge=0, lt=1)
    weight_decay: Float = option(0.01, "Decoupled decay, times the learning rate.", ge=0)
    max_grad_norm: Float = option(1.0, "Global norm that gradients are clipped to.", gt=0)
    hidden_dropout_prob: Float = option(
        0.1, "Dropout while fine-tuning, whatever pretraining used.", ge=0, lt=1
    )
    pooling: Literal["auto", "cls", "mean"] = option(
        "auto", "What the head sees: the CLS pooler or the mean; auto: cls if NSP trained it."
    )
    from_scratch: Bool = option(
        False, "Start from random weights of the same shape, to see what pretraining gives."
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = option("auto", "Where to train.")
    precision: Literal["auto", "fp32", "bf16"] = option("auto", "As in pretrain.")
