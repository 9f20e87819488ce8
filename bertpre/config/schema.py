"""Every option of bertpre: name, default, range, and what it means.

One YAML file describes an experiment, with one section per stage. The command line takes its help
texts and defaults from here. Sizes decided by an earlier stage are read from its manifest. Options
for reading text, pretraining and fine-tuning are in `reading`, `pretraining` and `finetuning`.
"""

from typing import Annotated, Literal

from pydantic import Strict

from bertpre.config.fields import (
    Bool,
    Float,
    Int,
    option,
    parse_kmer,
    parse_weights,
    readable,
    section,
)
from bertpre.config.finetuning import Finetune as Finetune
from bertpre.config.pretraining import Optimizer as Optimizer
from bertpre.config.pretraining import Pretrain as Pretrain
from bertpre.config.pretraining import Schedule as Schedule
from bertpre.config.reading import TableOptions
from bertpre.config.reading import TextOptions as TextOptions

TokenMode = Annotated[str, Strict(), readable(parse_kmer)]
NgramWeights = Annotated[str, Strict(), readable(parse_weights)]


@section
class BuildVocab:
    """From text to a tokenizer folder."""

    text: TextOptions = TextOptions()
    vocab_size: Int = option(30_000, "Maximum entries in the vocabulary.", ge=6)
    min_frequency: Int = option(
        2,
        "Minimum occurrences of a pair of pieces (or a whole token) to enter the vocabulary.",
        ge=1,
    )
    token_mode: TokenMode = option(
        "wordpiece",
        "wordpiece: split words into pieces. whole: keep each white-space token as one entry, for "
        "anonymised tokens. kmer:K[:STRIDE]: cut sequences such as DNA to pieces of K characters, "
        "STRIDE apart (default 1).",
    )
    lowercase: Bool = option(False, "Lowercase the text.")
    strip_accents: Bool = option(
        False, "Remove combining marks. Harmful for Hindi, Arabic, Korean and others."
    )
    max_unknown_share: Float = option(
        0.05,
        "Maximum share of [UNK] among the words; beyond it, the vocabulary is refused.",
        ge=0,
        le=1,
    )
    extra_tokens: str | None = option(
        None, "File of words to keep whole whatever their frequency, one per line."
    )
    vocab_file: str | None = option(
        None,
        "An existing vocab.txt, one entry per line, to use without training. Text is optional "
        "then, and only shows how well the vocabulary fits.",
    )
    sample_bytes: Int = option(
        2_000_000_000,
        "Maximum bytes of text to count words in; a larger corpus is sampled by document, by hash "
        "of the text and the seed.",
        ge=1,
    )


@section
class MakeData:
    """From text and a tokenizer to training examples."""

    text: TextOptions = TextOptions()
    max_seq_length: Int = option(
        128, "Maximum tokens in an example, including [CLS] and [SEP].", ge=8, le=32_768
    )
    objective: Literal["mlm-nsp", "mlm-sop", "mlm"] = option(
        "mlm-nsp",
        "mlm-nsp: sentence pairs with next-sentence prediction. mlm-sop: consecutive pairs, half "
        "of them swapped, with sentence-order prediction. mlm: packed sentences, for text without "
        "sentences.",
    )
    dupe_factor: Int | None = option(
        None,
        "Passes over the corpus, each with new pairs; default 5 with pairs, 1 without.",
        ge=1,
        le=10_000,
    )
    balance_nsp: Bool = option(
        False, "Make half of the pairs random; in BERT it is more than half."
    )
    short_seq_prob: Float = option(
        0.1, "Share of documents whose pairs get a random, shorter length.", ge=0, le=1
    )
    masking: Literal["dynamic", "static"] = option(
        "dynamic",
        "dynamic: new masks in each epoch. static: fixed masks for each pass, as in BERT.",
    )
    mlm_probability: Float = option(0.15, "Share of tokens to predict.", gt=0, le=0.8)
    whole_word_masking: Bool = option(False, "Mask all pieces of a word together.")
    mask_spans: Literal["none", "geometric", "ngrams"] = option(
        "none",
        "Mask adjacent tokens together. geometric: spans of whole words, of lengths set by "
        "span_stop_prob (SpanBERT). ngrams: spans of tokens (of words with whole_word_masking), of "
        "lengths drawn by ngram_weights.",
    )
    span_stop_prob: Float = option(
        0.2, "Probability that a geometric span ends after a word.", gt=0, lt=1
    )
    span_max_words: Int = option(10, "Maximum words in a geometric span.", ge=1, le=100)
    ngram_weights: NgramWeights = option(
        "6 3 2", "Relative frequency of spans of 1, 2, 3 and more tokens."
    )
    mask_token_share: Float = option(
        0.8, "Share of the predicted tokens to replace with [MASK].", ge=0, le=1
    )
    random_token_share: Float = option(
        0.1, "Share of the predicted tokens to replace with random ones; the rest stay.", ge=0, le=1
    )
    word_segmenter: Literal["none", "jieba"] = option(
        "none",
        "jieba: segment Chinese words for whole word masking; needs the package jieba.",
    )
    max_predictions_per_seq: Int | None = option(
        None, "Maximum predicted tokens in an example; default: as many as the rate gives.", ge=1
    )
    eval_fraction: Float = option(
        0.02, "Share of documents to hold out for evaluation.", ge=0, le=0.5
    )
    max_unknown_share: Float = option(
        0.05, "Maximum share of [UNK] among the tokens; beyond it, the text is refused.", ge=0, le=1
    )
    workers: Int | None = option(
        None, "Tokenising processes; default: one per core.", identity=False, ge=1
    )


@section
class Model:
    """The encoder, with the names of BERT's bert_config.json."""

    vocab_size: Int | None = option(None, "Set from the tokenizer; must match it if given.", ge=6)
    hidden_size: Int = option(768, "Width of the hidden states.", ge=1, le=65_536)
    num_hidden_layers: Int = option(12, "Number of encoder layers.", ge=1)
    num_attention_heads: Int = option(
        12, "Number of attention heads; must divide hidden_size.", ge=1
    )
    intermediate_size: Int = option(3072, "Width of the feed-forward network.", ge=1, le=1_000_000)
    hidden_act: Literal["gelu", "gelu_new", "relu"] = option(
        "gelu", "Activation: gelu (erf form), gelu_new (tanh form), relu."
    )
    hidden_dropout_prob: Float = option(0.1, "Dropout on hidden states.", ge=0, lt=1)
    attention_probs_dropout_prob: Float = option(
        0.1, "Dropout on attention probabilities.", ge=0, lt=1
    )
    max_position_embeddings: Int = option(512, "Maximum tokens in a sequence.", ge=8, le=1_000_000)
    type_vocab_size: Int = option(2, "Number of segments.", ge=2)
    layer_norm_eps: Float = option(1e-12, "Epsilon of layer norms.", gt=0)
    initializer_range: Float = option(0.02, "Standard deviation of the initial weights.", gt=0)
    norm: Literal["post", "pre"] = option(
        "post", "Layer norm after each residual sum (post, BERT) or before each sublayer (pre)."
    )
    position_embeddings: Literal["learned", "sinusoidal"] = option(
        "learned", "Learned (BERT) or sinusoidal (the Transformer) position embeddings."
    )


@section
class Embed(TableOptions):
    """From a checkpoint and a table to one vector per row."""

    on_bad_rows: Literal["error", "skip"] = option(
        "error",
        "How to handle unreadable rows. error: stop and list them all. skip: output a vector of "
        "nan.",
    )
    pooling: Literal["mean", "cls"] = option(
        "mean", "mean: the mean of the hidden states of all tokens. cls: the hidden state of [CLS]."
    )
    normalize: Bool = option(False, "Scale each vector to length 1, for cosine similarity.")
    max_seq_length: Int | None = option(
        None, "Maximum tokens in a row; default: as in training.", ge=3
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = option("auto", "Device to run on.")
    precision: Literal["auto", "fp32", "bf16"] = option(
        "fp32", "auto: bf16 where supported, else fp32."
    )


@section
class Config:
    """A complete experiment."""

    seed: Int = option(0, "Seed of pairs, order, masks, initial weights and dropout.", ge=0)
    build_vocab: BuildVocab = BuildVocab()
    make_data: MakeData = MakeData()
    model: Model = Model()
    pretrain: Pretrain = Pretrain()
    finetune: Finetune = Finetune()
    embed: Embed = Embed()
