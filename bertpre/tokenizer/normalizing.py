"""What happens to text before it is looked up in a vocabulary, as tokenizer.json stores it.

Our own pipeline deviates from BERT's in what `make_backend` says; a foreign BERT tokenizer keeps
its own.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from bertpre.config.fields import Kmer
from bertpre.corpus.sentences import cut_sequence
from bertpre.tokenizer.chunks import Cutter, Splitter

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
CONTINUATION = "##"
LONGEST_WORD = 100  # characters; the library turns longer words into [UNK]

# BERT's cleaning removes these without leaving a space, which would glue two words together:
# vertical tab, form feed, information separators, next line, zero width space, direction marks.
_SPACES = r"[\x0B\x0C\x1C-\x1F\x{85}\x{200B}\x{200E}\x{200F}]"

# Scripts written without spaces: Thai, Lao, Burmese, Khmer, kana, Han. A word of theirs has no
# white space around it.
UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
    r"\U00020000-\U000323af]"
)

_HAN = re.compile(r"[一-龥]")
_OWN_CHUNKS = re.compile(r"[一-龥]|[^\s一-龥]+")

# The library takes some 50 bytes a character at once, so a chromosome in one line is cut before it.
LONGEST_RUN = 500 * LONGEST_WORD
# To BERT, printable ASCII that is neither letter nor digit is punctuation, each a word of its own.
_OWN_PARTS = re.compile(rf"[A-Za-z0-9]{{1,{LONGEST_RUN}}}|[^A-Za-z0-9]")
_BERT_PARTS = re.compile(r"[A-Za-z0-9]+|[^A-Za-z0-9]")


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """How a tokenizer of our own treats text."""

    whole: bool  # one entry for each white-space token, or for each of its k-mers
    lowercase: bool
    strip_accents: bool
    kmer: Kmer | None = None  # cut each white-space token so; needs whole
    kept_whole: tuple[str, ...] = ()  # entries to look for in text before it is cut to words


def make_normalizer(rules: Rules) -> normalizers.Normalizer:
    """Build the normalizer: spaces, BERT's cleaning, then composed characters (NFC).

    NFC makes é one character however it was typed, and Korean syllables whole again after accents
    were stripped.
    """
    return normalizers.Sequence(
        [
            normalizers.Replace(Regex(_SPACES), " "),
            normalizers.BertNormalizer(
                clean_text=True,
                handle_chinese_chars=not rules.whole,
                strip_accents=rules.strip_accents,
                lowercase=rules.lowercase,
            ),
            normalizers.NFC(),
        ]
    )


def make_pre_tokenizer(rules: Rules) -> pre_tokenizers.PreTokenizer:
    """Build what splits normalised text into words: at white space, and around punctuation.

    K-mers side by side are cut by it too. It cannot express those that overlap: the tokenizers
    library needs text in which `cut_text` cut them.
    """
    if rules.kmer is not None and rules.kmer.stride == rules.kmer.length:
        cut = pre_tokenizers.Split(Regex(f".{{{rules.kmer.length}}}"), "isolated")
        return pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), cut])
    if rules.whole:
        return pre_tokenizers.WhitespaceSplit()
    cut = pre_tokenizers.Split(Regex(f".{{{LONGEST_WORD}}}"), "isolated")
    return pre_tokenizers.Sequence([pre_tokenizers.BertPreTokenizer(), cut])


def make_backend(tokens: Sequence[str], rules: Rules) -> Tokenizer:
    """Build the library's tokenizer for a finished vocabulary of our own.

    Deviates from the reference on purpose: more characters count as spaces, words over 100
    characters are cut instead of unknown, text is composed (NFC), and lowercasing does not imply
    stripping accents.

    Args:
        tokens: every entry in the order of its id, `SPECIAL_TOKENS` among them.
        rules: how text is treated.
    """
    vocab = {token: i for i, token in enumerate(tokens)}
    if rules.whole:
        backend = Tokenizer(models.WordLevel(vocab, unk_token="[UNK]"))
    else:
        backend = Tokenizer(
            models.WordPiece(vocab, unk_token="[UNK]", max_input_chars_per_word=LONGEST_WORD)
        )
        backend.decoder = decoders.WordPiece(prefix=CONTINUATION)
    backend.normalizer = make_normalizer(rules)
    backend.pre_tokenizer = make_pre_tokenizer(rules)
    backend.post_processor = processors.BertProcessing(
        ("[SEP]", vocab["[SEP]"]), ("[CLS]", vocab["[CLS]"])
    )
    backend.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS]
    )
    backend.add_tokens(
        [
            AddedToken(word, single_word=UNSPACED.search(word) is None, normalized=True)
            for word in rules.kept_whole
        ]
    )
    return backend


def make_foreign_backend(
    tokens: Sequence[str], settings: Mapping[str, Any], *, unk_token: str
) -> Tokenizer:
    """Build the tokenizer that the transformers library makes of a vocab.txt.

    Args:
        tokens: the lines of vocab.txt.
        settings: its tokenizer_config.json.
        unk_token: what a word without a parse becomes.
    """
    vocab = {token: i for i, token in enumerate(tokens)}
    backend = Tokenizer(models.WordPiece(vocab, unk_token=unk_token))
    backend.normalizer = foreign_normalizer(settings)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return backend


def foreign_normalizer(settings: Mapping[str, Any]) -> normalizers.Normalizer:
    """Build BERT's normalizer from the settings that Hugging Face folders store."""
    return normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
        strip_accents=settings.get("strip_accents"),  # None: as lowercase says
        lowercase=settings.get("do_lower_case", True),
    )


def find_cutter(backend: Tokenizer, kmer: Kmer | None = None) -> Cutter:
    """Choose how to cut text into chunks that can be encoded one by one.

    The ids of the chunks, in order, are those of the whole text. Where a foreign pipeline does not
    allow that, the whole text is the one chunk.

    Args:
        backend: the library's tokenizer.
        kmer: how its sequences are cut, if they are.
    """
    stored = json.loads(backend.to_str())
    normalizer = stored["normalizer"] or {}
    steps = normalizer.get("normalizers", [normalizer])
    bert = [step for step in steps if step.get("type") == "BertNormalizer"]
    plain_additions = not all(token["special"] for token in stored["added_tokens"])
    if kmer is not None:
        return Cutter(split=kmer_splitter(kmer, backend.normalizer, lowercase=bert[0]["lowercase"]))
    if steps and steps[0].get("pattern") == {"Regex": _SPACES}:
        # A word that is kept whole may hold Han or punctuation, but no white space.
        if plain_additions or not bert[0]["handle_chinese_chars"]:
            return Cutter(split=str.split)
        return Cutter(cuts_han=True, parts=_OWN_PARTS)
    splits_at_spaces = (stored["pre_tokenizer"] or {}).get("type") == "BertPreTokenizer"
    # A foreign added token that is no control token may hold a space.
    if steps != bert or not splits_at_spaces or plain_additions:
        return Cutter(split=lambda text: [text])
    return Cutter(cuts_han=bert[0]["handle_chinese_chars"], all_spaces=False, parts=_BERT_PARTS)


def own_splitter(*, whole: bool) -> Splitter:
    """Return how a tokenizer of our own cuts text to chunks; ``whole``: at white space only.

    Chunks may be of any length: see `cut_run`.
    """
    return str.split if whole else _split_own


def kmer_splitter(kmer: Kmer, normalizer: normalizers.Normalizer, *, lowercase: bool) -> Splitter:
    """Return how a tokenizer of k-mers cuts text: into these."""
    return lambda text: cut_text(text, kmer, normalizer, lowercase=lowercase)


def cut_run(chunk: str) -> Sequence[str]:
    """Cut a chunk that is too long for the library, if the words in it stay the same."""
    # Exact where nothing but the cut at 100 characters can happen to the run.
    if len(chunk) <= LONGEST_RUN or not (chunk.isascii() and chunk.isalnum()):
        return (chunk,)
    return [chunk[i : i + LONGEST_RUN] for i in range(0, len(chunk), LONGEST_RUN)]


def _split_own(text: str) -> list[str]:
    # Cutting at white space alone is several times faster.
    has_han = not text.isascii() and _HAN.search(text) is not None
    return _OWN_CHUNKS.findall(text) if has_han else text.split()


def cut_text(
    text: str, kmer: Kmer, normalizer: normalizers.Normalizer, *, lowercase: bool
) -> Iterator[str]:
    """Normalise a text and cut each of its sequences.

    Args:
        text: sequences between white space, of any length.
        kmer: how to cut.
        normalizer: the tokenizer's.
        lowercase: whether this normalizer lowercases.
    """
    for chunk in text.split():
        # The library takes some 50 bytes a character, too much for a chromosome in one line; on
        # plain letters it does nothing but lowercase.
        if chunk.isascii() and chunk.isprintable():
            yield from cut_sequence(chunk.lower() if lowercase else chunk, kmer)
            continue
        for sequence in normalizer.normalize_str(chunk).split():
            yield from cut_sequence(sequence, kmer)
