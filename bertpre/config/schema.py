"""Every option of bertpre: name, default, range, and what it means.

One YAML file describes an experiment, one section a stage; the command line takes its help texts
and defaults from here. Sizes that an earlier stage decided live in that stage's manifest. What
reading text, pretraining and fine-tuning take stands in `reading`, `pretraining` and `finetuning`
beside this page.
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
    """Text to tokenizer folder."""

    text: TextOptions = TextOptions()
    vocab_size: Int = option(30_000, "Most entries in the vocabulary, a cap.", ge=6)
    min_frequency: Int = option(
        2, "Fewest occurrences of a pair of pieces (or of a whole token) to enter.", ge=1
    )
    token_mode: TokenMode = option(
        "wordpiece",
        "wordpiece cuts words into pieces; whole keeps each white-space token as one entry, "
        "for anonymised tokens; kmer:K[:STRIDE] cuts sequences such as DNA to pieces of K "
        "characters, one at every STRIDE-th (1 if not stated).",
    )
    lowercase: Bool = option(False, "Lowercase the text.")
    strip_accents: Bool = option(
        False, "Remove combining marks. Harmful to Hindi, Arabic, Korean and others."
    )
    max_unknown_share: Float = option(
        0.05, "Share of [UNK] among the words beyond which the vocabulary is refused.", ge=0, le=1
    )
    extra_tokens: str | None = option(
        None, "File of words to keep whole whatever their frequency, one a line."
    )
    vocab_file: str | None = option(
        None,
        "A ready vocab.txt, one entry a line: makes the folder without training. Text is then only "
        "read, if any is given, to see how well the vocabulary fits.",
    )
    sample_bytes: Int = option(
        2_000_000_000,
        "Most bytes of text to count words in; of a larger corpus, documents drawn by the hash of "
        "their text and the seed.",
        ge=1,
    )


@section
class MakeData:
    """Text and tokenizer to examples."""

    text: TextOptions = TextOptions()
    max_seq_length: Int = option(
        128, "Most tokens in an example, [CLS] and [SEP] included.", ge=8, le=32_768
    )
    objective: Literal["mlm-nsp", "mlm-sop", "mlm"] = option(
        "mlm-nsp",
        "mlm-nsp: sentence pairs, next-sentence prediction. mlm-sop: consecutive pairs, half of "
        "them swapped, whose order is predicted. mlm: packed sentences, for text without "
        "sentences.",
    )
    dupe_factor: Int | None = option(
        None,
        "Passes over the corpus, each with new pairs; default 5 with pairs, 1 without.",
        ge=1,
        le=10_000,
    )
    balance_nsp: Bool = option(
        False, "Make half of the pairs random; BERT's own procedure makes more than half so."
    )
    short_seq_prob: Float = option(
        0.1, "Share of documents whose pairs get a random shorter length.", ge=0, le=1
    )
    masking: Literal["dynamic", "static"] = option(
        "dynamic", "dynamic: new masks each epoch. static: one mask for each pass, as in BERT."
    )
    mlm_probability: Float = option(0.15, "Share of tokens that are predicted.", gt=0, le=0.8)
    whole_word_masking: Bool = option(False, "Mask all pieces of a word together.")
    mask_spans: Literal["none", "geometric", "ngrams"] = option(
        "none",
        "Mask neighbours together. geometric: whole words, as many as span_stop_prob says "
        "(SpanBERT). ngrams: tokens (whole words with whole_word_masking) by ngram_weights.",
    )
    span_stop_prob: Float = option(
        0.2, "Probability that a geometric span ends after each word.", gt=0, lt=1
    )
    span_max_words: Int = option(10, "Most words in a geometric span.", ge=1, le=100)
    ngram_weights: NgramWeights = option(
        "6 3 2", "How often 1, 2, 3 and more neighbours are masked together, in proportion."
    )
    mask_token_share: Float = option(
        0.8, "Share of the predicted tokens that are replaced by [MASK].", ge=0, le=1
    )
    random_token_share: Float = option(
        0.1, "Share of the predicted tokens that become a random one; the rest stays.", ge=0, le=1
    )
    word_segmenter: Literal["none", "jieba"] = option(
        "none",
        "jieba: find Chinese words, which are written without spaces, for masks of whole words; "
        "needs the package jieba.",
    )
    max_predictions_per_seq: Int | None = option(
        None, "Most predicted tokens in an example; default: as many as the rate asks for.", ge=1
    )
    eval_fraction: Float = option(0.02, "Share of documents held out.", ge=0, le=0.5)
    max_unknown_share: Float = option(
        0.05, "Share of [UNK] among the tokens beyond which the text is refused.", ge=0, le=1
    )
    workers: Int | None = option(
        None, "Tokenising processes; default: one a core.", identity=False, ge=1
    )


@section
class Model:
    """The encoder. The names are those of BERT's bert_config.json."""

    vocab_size: Int | None = option(None, "Must equal the tokenizer's if stated.", ge=6)
    hidden_size: Int = option(768, "Width of the encoder.", ge=1, le=65_536)
    num_hidden_layers: Int = option(12, "Encoder layers.", ge=1)
    num_attention_heads: Int = option(12, "Attention heads; must divide hidden_size.", ge=1)
    intermediate_size: Int = option(3072, "Width of the feed-forward network.", ge=1, le=1_000_000)
    hidden_act: Literal["gelu", "gelu_new", "relu"] = option(
        "gelu", "Activation: gelu (erf form), gelu_new (tanh form), relu."
    )
    hidden_dropout_prob: Float = option(0.1, "Dropout on hidden states.", ge=0, lt=1)
    attention_probs_dropout_prob: Float = option(
        0.1, "Dropout on attention probabilities.", ge=0, lt=1
    )
    max_position_embeddings: Int = option(512, "Longest sequence.", ge=8, le=1_000_000)
    type_vocab_size: Int = option(2, "Segments.", ge=2)
    layer_norm_eps: Float = option(1e-12, "Added to the variance in layer norm.", gt=0)
    initializer_range: Float = option(0.02, "Standard deviation of the initial weights.", gt=0)
    norm: Literal["post", "pre"] = option(
        "post", "Layer norm after each residual sum (BERT) or before each sublayer (tutorials)."
    )
    position_embeddings: Literal["learned", "sinusoidal"] = option(
        "learned", "Learned positions (BERT) or sines and cosines (the Transformer)."
    )


@section
class Embed(TableOptions):
    """Checkpoint and table to one vector a row."""

    pooling: Literal["mean", "cls"] = option(
        "mean", "mean of the hidden states of all tokens, or cls: the first one's, of [CLS]."
    )
    normalize: Bool = option(False, "Scale each vector to length 1, as cosines want it.")
    max_seq_length: Int | None = option(
        None, "Most tokens of a row; default: the longest that training saw.", ge=3
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = option("auto", "Where to compute.")
    precision: Literal["auto", "fp32", "bf16"] = option("fp32", "As in pretrain.")


@section
class Config:
    """A whole experiment."""

    seed: Int = option(0, "Decides pairs, order, masks, initial weights and dropout.", ge=0)
    build_vocab: BuildVocab = BuildVocab()
    make_data: MakeData = MakeData()
    model: Model = Model()
    pretrain: Pretrain = Pretrain()
    finetune: Finetune = Finetune()
    embed: Embed = Embed()
