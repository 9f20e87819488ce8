"""The options of fine-tuning and prediction."""

from typing import Annotated, Literal

from bertpre.config.fields import Bool, Float, Int, matching, option, section
from bertpre.config.reading import TableOptions

Separator = Annotated[
    str,
    matching(r"(?=.*\S)[^\t\r\n]{1,4}", "one to four characters, and no white space alone"),
]


@section
class Finetune(TableOptions):
    """Checkpoint and labelled table to classifier."""

    label_column: str | Int = option("label", "Column with the label: name, or number from 1.")
    task: Literal["auto", "classification", "multi-label", "regression"] = option(
        "auto",
        "What a label is. classification: the name of one class. multi-label: any number of names. "
        "regression: a number. auto: found from the labels, and said.",
    )
    label_separator: Separator = option(",", "What stands between the names in a multi-label cell.")
    on_bad_rows: Literal["error", "skip"] = option(
        "error",
        "What rows without a text or a usable label, or of too few or too many cells, do. "
        "error: stop, naming them all. skip: leave them out, and say so.",
    )
    dev_fraction: Float = option(
        0.1, "Share of the training rows kept for choosing the epoch, without --dev.", gt=0, lt=1
    )
    folds: Int | None = option(
        None,
        "Train this many models, each on all training rows but a part that scores it; "
        "predictions are their mean.",
        ge=2,
        le=100,
    )
    seeds: Int = option(
        1,
        "Train this many models from --seed on, and report the mean and the spread; "
        "predictions are their mean.",
        ge=1,
        le=100,
    )
    max_seq_length: Int | None = option(
        None, "Most tokens of a text; default: the longest that pretraining saw.", ge=3
    )
    long_texts: Literal["head", "tail", "head-tail", "windows"] = option(
        "head",
        "What is read of a longer text: its start, its end, a quarter from the start and the rest "
        "from the end, or overlapping windows, one drawn each epoch, all averaged in prediction.",
    )
    window_overlap: Float = option(
        0.25, "Share of a window that the next one repeats, with --long-texts windows.", ge=0, lt=1
    )
    learning_rate: Float | None = option(
        None, "Peak rate; default: by width, 3e-5 at 768, about 1e-3 at 128.", gt=0
    )
    layer_decay: Float = option(
        1.0,
        "Factor on the rate from each layer to the one below it; 1: all alike. "
        "Below 1 keeps more of what pretraining taught the lower layers.",
        gt=0,
        le=1,
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
    mask_probability: Float = option(
        0.0,
        "Share of the tokens that training replaces with [MASK], drawn anew in each update (word "
        "dropout); 0.3 keeps a small table from being learnt by heart.",
        ge=0,
        lt=1,
    )
    label_smoothing: Float = option(
        0.0, "Share of each target that is spread over all classes.", ge=0, lt=1
    )
    class_weights: Literal["none", "balanced"] = option(
        "none", "balanced: rows weigh inversely to how common their class is."
    )
    focal_gamma: Float = option(
        0.0, "Focal loss: how much less rows weigh that are right already; 0: none; 2 is usual.",
        ge=0,
    )  # fmt: skip
    adversarial_epsilon: Float = option(
        0.0,
        "Train on word embeddings moved this far against the model too (FGM); 0: not; "
        "about 1 is usual; doubles the time.",
        ge=0,
    )
    ema_decay: Float = option(
        0.0,
        "Score and keep a running average of the weights with this decay, such as 0.99; 0: not.",
        ge=0,
        lt=1,
    )
    metric: Literal[
        "auto", "accuracy", "macro_f1", "micro_f1", "matthews", "spearman", "pearson", "loss"
    ] = option(
        "auto",
        "Dev score that chooses the epoch. auto: accuracy, for multi-label micro_f1, for "
        "regression spearman.",
    )
    early_stopping: Int | None = option(
        None,
        "Stop after this many epochs without a better dev score, or an equal one with a lower dev "
        "loss; default: never.",
        ge=1,
    )
    pooling: Literal["auto", "cls", "mean", "compare"] = option(
        "auto",
        "What the head sees: the CLS pooler; the mean of the tokens; or, of pairs, the means of "
        "both texts, their difference and product, and of the tokens that only one of them has. "
        "auto: cls if NSP trained it, else compare for pairs and mean for single texts.",
    )
    from_scratch: Bool = option(
        False, "Start from random weights of the same shape, to see what pretraining gives."
    )
    baseline: Bool | None = option(
        None, "Score TF-IDF with a linear model beside the network; default: up to 50,000 rows."
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = option("auto", "Where to train and predict.")
    precision: Literal["auto", "fp32", "bf16"] = option(
        "auto", "auto: bf16 where the hardware has it, else fp32."
    )
