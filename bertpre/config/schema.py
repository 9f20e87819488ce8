"""Every option of bertpre on one page: name, default, range, and what it means.

One YAML file describes an experiment, one section a stage; the command line takes its help texts
and defaults from here. Sizes that an earlier stage decided live in that stage's manifest.
"""

import re
from typing import Annotated, Any, Literal

from annotated_types import Le
from pydantic import AfterValidator, AllowInfNan, Field, Strict
from pydantic.dataclasses import dataclass

from bertpre.config.token_mode import parse_kmer

# Each section may be given in part; what is absent takes the default below.
_section: Any = dataclass(frozen=True, kw_only=True, config={"extra": "forbid"})

# Strict, or pydantic would take True for 1 and "8" for 8.
# Beyond 32 bits is a slip, and more than what libraries take.
Int = Annotated[int, Strict(), Le(2**31 - 1)]
Float = Annotated[float, Strict(), AllowInfNan(False)]
Bool = Annotated[bool, Strict()]


def _check_token_mode(mode: str) -> str:
    parse_kmer(mode)
    return mode


TokenMode = Annotated[str, Strict(), AfterValidator(_check_token_mode)]


def _option(default: Any, description: str, *, identity: bool = True, **limits: Any) -> Any:
    """Declare an option.

    Args:
        default: the value when nobody states one; None means "derived", as described.
        description: the help text.
        identity: whether a resumed run must have the same value, as its result depends on it.
        limits: pydantic's ge, gt, le, lt.
    """
    extra: Any = {"identity": identity}
    return Field(default, description=description, json_schema_extra=extra, **limits)


def _check_language(value: str) -> str:
    if not re.fullmatch(r"[a-z]{2,3}(-[a-z0-9]+)*", value):
        raise ValueError("expected a language code in lower case, such as en, zh or zh-hant")
    return value


def _check_sentences(value: str) -> str:
    if not re.fullmatch(r"line|split|window:[1-9][0-9]{0,8}", value):
        raise ValueError("expected line, split or window:N with a number of words")
    return value


@_section
class TextOptions:
    """How text files are read; the same in build_vocab and make_data."""

    format: Literal["auto", "txt", "jsonl", "csv", "tsv", "parquet"] = _option(
        "auto", "Form of the input files; auto goes by the file name, before .gz, .bz2, .xz, .zst."
    )
    text_column: str | Int = _option(
        "text",
        "Column (or jsonl field) with the text: its name, or its number from 1; "
        "a.b is field b inside field a.",
    )
    pair_column: str | Int | None = _option(
        None,
        "Second column with text, for tables of pairs: each row becomes one example, as it is.",
    )
    header: Bool = _option(True, "Whether csv and tsv files start with a line of column names.")
    quoting: Literal["auto", "none", "csv"] = _option(
        "auto",
        "What a quote means in csv and tsv. csv: cells in quotes, quotes inside doubled. "
        "none: a quote is text. auto: csv for csv files and for tsv files that are quoted so.",
    )
    encoding: str = _option("utf-8", "Encoding of text files, by any name that Python knows.")
    on_bad_bytes: Literal["error", "replace", "skip"] = _option(
        "error",
        "What bytes that are not of the encoding do. error: stop, naming the place. "
        "replace: U+FFFD instead. skip: nothing instead. Both count them.",
    )
    document: Literal["auto", "blank-line", "line", "file"] = _option(
        "auto",
        "What ends a document in txt: a blank line, each line, or the file. "
        "auto: a blank line. A row of a table or of jsonl is a document.",
    )
    sentences: Annotated[str, AfterValidator(_check_sentences)] = _option(
        "line",
        "What a sentence is. line: a line. split: the sentences of a line, found by --language. "
        "window:N: each N words of a document, for text without sentences.",
    )
    language: Annotated[str, AfterValidator(_check_language)] = _option(
        "en",
        "Language code for splitting sentences, such as en or zh; text of a language without rules "
        "of its own is split as English.",
    )
    dedup: Literal["none", "documents", "lines"] = _option(
        "none", "Whether documents or lines that repeat an earlier one exactly are removed."
    )


@_section
class BuildVocab:
    """Text to tokenizer folder."""

    text: TextOptions = TextOptions()
    vocab_size: Int = _option(30_000, "Most entries in the vocabulary, a cap.", ge=6)
    min_frequency: Int = _option(
        2, "Fewest occurrences of a pair of pieces (or of a whole token) to enter.", ge=1
    )
    token_mode: TokenMode = _option(
        "wordpiece",
        "wordpiece cuts words into pieces; whole keeps each white-space token as one entry, "
        "for anonymised tokens; kmer:K[:STRIDE] cuts sequences such as DNA to pieces of K "
        "characters, one at every STRIDE-th (1 if not stated).",
    )
    lowercase: Bool = _option(False, "Lowercase the text.")
    strip_accents: Bool = _option(
        False, "Remove combining marks. Harmful to Hindi, Arabic, Korean and others."
    )
    max_unknown_share: Float = _option(
        0.05, "Share of [UNK] among the words beyond which the vocabulary is refused.", ge=0, le=1
    )
    extra_tokens: str | None = _option(
        None, "File of words to keep whole whatever their frequency, one a line."
    )
    vocab_file: str | None = _option(
        None,
        "A ready vocab.txt, one entry a line: makes the folder without training. Text is then only "
        "read, if any is given, to see how well the vocabulary fits.",
    )
    sample_bytes: Int = _option(
        2_000_000_000,
        "Most bytes of text to count words in; of a larger corpus, documents drawn by the hash of "
        "their text and the seed.",
        ge=1,
    )


@_section
class MakeData:
    """Text and tokenizer to examples."""

    text: TextOptions = TextOptions()
    max_seq_length: Int = _option(
        128, "Most tokens in an example, [CLS] and [SEP] included.", ge=8, le=32_768
    )
    objective: Literal["mlm-nsp", "mlm"] = _option(
        "mlm-nsp",
        "mlm-nsp: sentence pairs, next-sentence prediction. mlm: packed sentences, "
        "for text without sentences.",
    )
    dupe_factor: Int | None = _option(
        None, "Passes over the corpus, each with new pairs; default 5 with NSP, 1 without.", ge=1
    )
    short_seq_prob: Float = _option(
        0.1, "Share of documents whose pairs get a random shorter length.", ge=0, le=1
    )
    masking: Literal["dynamic", "static"] = _option(
        "dynamic", "dynamic: new masks each epoch. static: one mask for each pass, as in BERT."
    )
    mlm_probability: Float = _option(0.15, "Share of tokens that are predicted.", gt=0, le=0.8)
    whole_word_masking: Bool = _option(False, "Mask all pieces of a word together.")
    max_predictions_per_seq: Int | None = _option(
        None, "Most predicted tokens in an example; default: as many as the rate asks for.", ge=1
    )
    eval_fraction: Float = _option(0.02, "Share of documents held out.", ge=0, le=0.5)
    max_unknown_share: Float = _option(
        0.05, "Share of [UNK] among the tokens beyond which the text is refused.", ge=0, le=1
    )
    workers: Int | None = _option(
        None, "Tokenising processes; default: one a core.", identity=False, ge=1
    )


@_section
class Model:
    """The encoder. The names are those of BERT's bert_config.json."""

    vocab_size: Int | None = _option(None, "Must equal the tokenizer's if stated.", ge=6)
    hidden_size: Int = _option(768, "Width of the encoder.", ge=1, le=65_536)
    num_hidden_layers: Int = _option(12, "Encoder layers.", ge=1)
    num_attention_heads: Int = _option(12, "Attention heads; must divide hidden_size.", ge=1)
    intermediate_size: Int = _option(3072, "Width of the feed-forward network.", ge=1, le=1_000_000)
    hidden_act: Literal["gelu", "gelu_new", "relu"] = _option(
        "gelu", "Activation: gelu (erf form), gelu_new (tanh form), relu."
    )
    hidden_dropout_prob: Float = _option(0.1, "Dropout on hidden states.", ge=0, lt=1)
    attention_probs_dropout_prob: Float = _option(
        0.1, "Dropout on attention probabilities.", ge=0, lt=1
    )
    max_position_embeddings: Int = _option(512, "Longest sequence.", ge=8, le=1_000_000)
    type_vocab_size: Int = _option(2, "Segments.", ge=2)
    layer_norm_eps: Float = _option(1e-12, "Added to the variance in layer norm.", gt=0)
    initializer_range: Float = _option(0.02, "Standard deviation of the initial weights.", gt=0)
    norm: Literal["post", "pre"] = _option(
        "post", "Layer norm after each residual sum (BERT) or before each sublayer (tutorials)."
    )
    position_embeddings: Literal["learned", "sinusoidal"] = _option(
        "learned", "Learned positions (BERT) or sines and cosines (the Transformer)."
    )


@_section
class Optimizer:
    """AdamW with decoupled decay; layer norms and biases are not decayed."""

    learning_rate: Float = _option(1e-4, "Peak learning rate.", gt=0)
    weight_decay: Float = _option(0.01, "Decoupled decay, times the learning rate.", ge=0)
    beta1: Float = _option(0.9, "Decay of the first moment.", ge=0, lt=1)
    beta2: Float = _option(0.999, "Decay of the second moment.", ge=0, lt=1)
    eps: Float = _option(1e-6, "Added to the root of the second moment.", gt=0)
    max_grad_norm: Float = _option(1.0, "Global norm that gradients are clipped to.", gt=0)


@_section
class Schedule:
    """Learning rate over the run."""

    warmup_ratio: Float = _option(0.06, "Share of the steps that warm up from 0.", ge=0, lt=1)


@_section
class Pretrain:
    """Data folder to run folder."""

    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    max_steps: Int = _option(10_000, "Updates in the run; the rate reaches 0 there.", ge=1)
    global_batch_size: Int = _option(256, "Examples in one update.", ge=1, le=10_000_000)
    micro_batch_size: Int | None = _option(
        None,
        "Examples in one forward pass; default: the global batch, or what makes 16,384 tokens.",
        identity=False,
        ge=1,
    )
    mlm_probability: Float | None = _option(
        None,
        "Share predicted in training; default: the data folder's. Held-out masks stay at 15 %.",
        gt=0,
        le=0.8,
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = _option(
        "auto", "Where to train; auto: cuda if there is one, else cpu.", identity=False
    )
    precision: Literal["auto", "fp32", "bf16"] = _option(
        "auto", "auto: bf16 where the hardware has it, else fp32.", identity=False
    )
    deterministic: Bool = _option(False, "Bit-exact on a GPU too, at some cost.", identity=False)
    log_every_steps: Int = _option(10, "Steps between lines of metrics.", identity=False, ge=1)
    eval_every_steps: Int = _option(
        500, "Steps between held-out evaluations.", identity=False, ge=1
    )
    save_every_steps: Int = _option(500, "Steps between checkpoints.", identity=False, ge=1)
    keep_checkpoints: Int = _option(
        3, "Newest checkpoints that stay, beside the best.", identity=False, ge=1
    )


@_section
class Finetune:
    """Checkpoint and labelled table to classifier."""

    format: Literal["auto", "jsonl", "csv", "tsv"] = _option(
        "auto", "Form of the tables; auto goes by the file name, before .gz."
    )
    text_column: str | Int = _option("text", "Column with the text: name, or number from 1.")
    label_column: str | Int = _option("label", "Column with the label: name, or number from 1.")
    header: Bool = _option(True, "Whether csv and tsv tables start with a line of column names.")
    dev_fraction: Float = _option(
        0.1, "Share of the training rows kept for choosing the epoch, without --dev.", gt=0, lt=1
    )
    max_seq_length: Int | None = _option(
        None, "Most tokens of a text; default: the longest that pretraining saw.", ge=3
    )
    learning_rate: Float | None = _option(
        None, "Peak rate; default: by width, 3e-5 at 768, about 1e-3 at 128.", gt=0
    )
    num_epochs: Int | None = _option(
        None, "Passes over the rows; default: 3, or as many as make 300 updates.", ge=1
    )
    batch_size: Int = _option(32, "Rows in one update.", ge=1)
    warmup_ratio: Float = _option(0.1, "Share of the updates that warm up from 0.", ge=0, lt=1)
    weight_decay: Float = _option(0.01, "Decoupled decay, times the learning rate.", ge=0)
    max_grad_norm: Float = _option(1.0, "Global norm that gradients are clipped to.", gt=0)
    hidden_dropout_prob: Float = _option(
        0.1, "Dropout while fine-tuning, whatever pretraining used.", ge=0, lt=1
    )
    pooling: Literal["auto", "cls", "mean"] = _option(
        "auto", "What the head sees: the CLS pooler or the mean; auto: cls if NSP trained it."
    )
    from_scratch: Bool = _option(
        False, "Start from random weights of the same shape, to see what pretraining gives."
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = _option("auto", "Where to train.")
    precision: Literal["auto", "fp32", "bf16"] = _option("auto", "As in pretrain.")


@_section
class Config:
    """A whole experiment."""

    seed: Int = _option(0, "Decides pairs, order, masks, initial weights and dropout.", ge=0)
    build_vocab: BuildVocab = BuildVocab()
    make_data: MakeData = MakeData()
    model: Model = Model()
    pretrain: Pretrain = Pretrain()
    finetune: Finetune = Finetune()
