"""Options of fine-tuning and prediction."""

from collections.abc import Mapping
from typing import Annotated, Literal

from bertpre.config.fields import Bool, Float, Int, matching, option, section
from bertpre.config.reading import TableOptions

Separator = Annotated[
    str,
    matching(r"(?=.*\S)[^\t\r\n]{1,4}", "one to four characters, not only white space"),
]

Metric = Literal[
    "auto",
    "accuracy",
    "macro_f1",
    "micro_f1",
    "matthews",
    "spearman",
    "pearson",
    "f1",
    "lenient_f1",
    "bleu",
    "chrf",
    "rouge_l",
    "cider_d",
    "exact_match",
    "loss",
]


# The options that have an effect in one task only.
TASK_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "tagging": ("crf", "constrained"),
    "generation": (
        *("decoder", "num_decoder_layers", "num_beams", "length_penalty", "max_target_length"),
        *("min_target_length", "no_repeat_ngram", "num_best", "cider_sigma"),
    ),
}


@section
class Finetune(TableOptions):
    """From a checkpoint and a labelled table to a fine-tuned model."""

    label_column: str | Int = option(
        "label", "Column with the label: its name, or its number from 1."
    )
    task: Literal[
        "auto", "classification", "multi-label", "regression", "tagging", "generation"
    ] = option(
        "auto",
        "What a label is. classification: one class. multi-label: any number of classes. "
        "regression: a number. tagging: a tag for each token. generation: a text to write. auto: "
        "detected from the file and the labels, and logged; never generation.",
    )
    label_separator: Separator = option(",", "Separator between the labels in a multi-label cell.")
    on_bad_rows: Literal["error", "skip"] = option(
        "error",
        "How to handle rows without text, without a valid label, or with too few or too many "
        "cells. error: stop and list them all. skip: leave them out with a warning.",
    )
    dev_fraction: Float = option(
        0.1,
        "Share of the training rows held out to choose the best epoch, without --dev.",
        gt=0,
        lt=1,
    )
    folds: Int | None = option(
        None,
        "Cross-validation: train this many models, each scored on the part of the training rows "
        "that it did not see. Predictions are averaged.",
        ge=2,
        le=100,
    )
    seeds: Int = option(
        1,
        "Train this many models with consecutive seeds, and report the mean and standard "
        "deviation of their scores. Predictions are averaged.",
        ge=1,
        le=100,
    )
    max_seq_length: Int | None = option(
        None, "Maximum tokens in a text; default: as in pretraining.", ge=3
    )
    long_texts: Literal["head", "tail", "head-tail", "windows"] = option(
        "head",
        "How to shorten a longer text. head: keep its start. tail: keep its end. head-tail: a "
        "quarter from the start, the rest from the end. windows: overlapping windows, a random one "
        "in each epoch, all averaged in prediction.",
    )
    window_overlap: Float = option(
        0.25, "Overlap of consecutive windows, as a share, with --long-texts windows.", ge=0, lt=1
    )
    learning_rate: Float | None = option(
        None,
        "Peak learning rate; default: depends on the width, 3e-5 at 768, about 1e-3 at 128; four "
        "times as much to write texts, at most 1e-3.",
        gt=0,
    )
    layer_decay: Float = option(
        1.0,
        "Factor on the learning rate from each layer to the one below it; 1: none. "
        "Values below 1 change the pretrained lower layers less.",
        gt=0,
        le=1,
    )
    num_epochs: Int | None = option(
        None,
        "Passes over the rows; default: 3, or more to reach 300 updates; to write texts 8, or more "
        "to reach 500.",
        ge=1,
    )
    batch_size: Int = option(32, "Rows in each update.", ge=1)
    micro_batch_size: Int | None = option(
        None,
        "Rows in each forward pass; a smaller number accumulates gradients to save memory; "
        "default: the batch size.",
        ge=1,
    )
    warmup_ratio: Float = option(
        0.1, "Share of the updates used for the warm-up from 0.", ge=0, lt=1
    )
    weight_decay: Float = option(0.01, "Decoupled weight decay, scaled by the learning rate.", ge=0)
    max_grad_norm: Float = option(1.0, "Clip gradients to this global norm.", gt=0)
    hidden_dropout_prob: Float = option(
        0.1,
        "Dropout of hidden states and attention during fine-tuning, independent of pretraining.",
        ge=0,
        lt=1,
    )
    mask_probability: Float = option(
        0.0,
        "Share of tokens to replace with [MASK], drawn anew in each update (word dropout). 0.3 "
        "reduces overfitting on small tables.",
        ge=0,
        lt=1,
    )
    label_smoothing: Float = option(
        0.0,
        "Share of each target to spread over all classes, or over the vocabulary.",
        ge=0,
        lt=1,
    )
    class_weights: Literal["none", "balanced"] = option(
        "none", "balanced: weight rows inversely to the frequency of their class."
    )
    focal_gamma: Float = option(
        0.0, "Focal loss: larger values give well-classified rows less weight. 0: off; 2 is usual.",
        ge=0,
    )  # fmt: skip
    adversarial_epsilon: Float = option(
        0.0,
        "Adversarial training (FGM): also train on word embeddings moved this far to raise the "
        "loss. 0: off; about 1 is usual; doubles the time.",
        ge=0,
    )
    ema_decay: Float = option(
        0.0,
        "Score and keep a moving average of the weights with this decay, such as 0.99; 0: off.",
        ge=0,
        lt=1,
    )
    metric: Metric = option(
        "auto",
        "Dev score that selects the best epoch. auto: accuracy for classification and parts of "
        "speech, micro_f1 for multi-label, spearman for regression, f1 (of entities) for tagging, "
        "bleu for generation.",
    )
    early_stopping: Int | None = option(
        None,
        "Stop after this many epochs without a better dev score, or the same score with a lower "
        "dev loss; default: never.",
        ge=1,
    )
    pooling: Literal["auto", "cls", "mean", "compare"] = option(
        "auto",
        "Input of the head. cls: the CLS pooler. mean: the mean of all tokens. compare, for pairs: "
        "the means of both texts, their difference and product, and the means of the tokens that "
        "only one of them has. auto: cls after NSP, else compare for pairs and mean for texts.",
    )
    crf: Bool = option(
        False,
        "For tagging: a conditional random field over the tags of a sentence, in place of "
        "independent tags. Only bertpre can load such a model.",
    )
    constrained: Bool = option(
        True,
        "For tagging: predict only sequences that the tag scheme allows, such as no I-PER after "
        "B-LOC.",
    )
    decoder: Literal["copied", "random", "shared", "prefix"] = option(
        "copied",
        "For generation: what writes. copied: a decoder that starts as a copy of the encoder. "
        "random: a decoder of random weights. shared: the encoder's layers with attention to the "
        "source added. prefix: the encoder alone, which reads source and target in one pass; only "
        "bertpre can load such a model.",
    )
    num_decoder_layers: Int | None = option(
        None, "For generation: layers of a decoder; default: as many as the encoder has.", ge=1
    )
    num_beams: Int = option(
        1, "For generation: hypotheses of beam search; 1: the best token at each step.", ge=1, le=64
    )
    length_penalty: Float = option(
        1.0,
        "For generation: a hypothesis is ranked by its log probability, divided by its length to "
        "this power; larger values favour longer texts.",
        ge=-10,
        le=10,
    )
    max_target_length: Int | None = option(
        None,
        "For generation: maximum tokens of a target, [SEP] not counted; default: twice the longest "
        "training target, at most what there are positions for.",
        ge=1,
    )
    min_target_length: Int = option(0, "For generation: minimum tokens of a written text.", ge=0)
    no_repeat_ngram: Int = option(
        0, "For generation: never write the same N tokens in a row twice; 0: no limit.", ge=0
    )
    num_best: Int = option(
        1, "For generation: write this many texts for each row, best first; needs as many beams.",
        ge=1,
        le=64,
    )  # fmt: skip
    cider_sigma: Float = option(
        6.0, "For generation: tolerance of CIDEr-D for other lengths, in tokens.", gt=0
    )
    from_scratch: Bool = option(
        False, "Start from random weights of the same shape, to measure the gain from pretraining."
    )
    baseline: Bool | None = option(
        None,
        "Also score a linear model on TF-IDF features, or for generation the target of the nearest "
        "training source; default: for up to 50,000 rows, and for generation always.",
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = option(
        "auto", "Device to train and predict on."
    )
    precision: Literal["auto", "fp32", "bf16"] = option(
        "auto", "auto: bf16 where the hardware supports it, else fp32."
    )
