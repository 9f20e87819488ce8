"""Build the tokenizers library's pipelines, and split text before them for speed.

`make_backend` builds the pipeline of our own vocabularies and documents how it differs from BERT's;
tokenizers from elsewhere keep theirs. `find_cutter` and the functions after it split text in ways
that do not change the result.
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
from bertpre.corpus.sentences import WORD_OR_HAN, cut_sequence
from bertpre.tokenizer.chunks import HAN, Cutter, Splitter

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
CONTINUATION = "##"
LONGEST_WORD = 100  # characters; the library turns longer words into [UNK]

# BERT's cleaning deletes these characters, which would join words: vertical tab, form feed,
# information separators, next line, zero width space, direction marks.
_SPACES = r"[\x0B\x0C\x1C-\x1F\x{85}\x{200B}\x{200E}\x{200F}]"

# Scripts without spaces between words: Thai, Lao, Burmese, Khmer, kana, Han.
UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
    r"\U00020000-\U000323af]"
)

# The library takes about 50 bytes per character, so long lines, such as chromosomes, are cut.
LONGEST_RUN = 500 * LONGEST_WORD
# In BERT, each printable ASCII character other than letters and digits is a word.
_OWN_PARTS = re.compile(rf"[A-Za-z0-9]{{1,{LONGEST_RUN}}}|[^A-Za-z0-9]")
_BERT_PARTS = re.compile(r"[A-Za-z0-9]+|[^A-Za-z0-9]")


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """How one of our own tokenizers processes text."""

    whole: bool  # one entry per white-space token, or per k-mer
    lowercase: bool
    strip_accents: bool
    kmer: Kmer | None = None  # how to cut white-space tokens; requires whole
    kept_whole: tuple[str, ...] = ()  # entries to find before splitting text


def make_normalizer(rules: Rules) -> normalizers.Normalizer:
    """Build the normalizer: spaces, BERT's cleaning, then composition (NFC).

    NFC makes é one character however it was typed, and restores Korean syllables after accents were
    stripped.
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
    """Build the pre-tokenizer, which splits normalised text at white space and punctuation.

    It also cuts k-mers unless they overlap; those must be cut by `cut_text` before.
    """
    if rules.kmer is not None and rules.kmer.stride == rules.kmer.length:
        cut = pre_tokenizers.Split(Regex(f".{{{rules.kmer.length}}}"), "isolated")
        return pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), cut])
    if rules.whole:
        return pre_tokenizers.WhitespaceSplit()
    cut = pre_tokenizers.Split(Regex(f".{{{LONGEST_WORD}}}"), "isolated")
    return pre_tokenizers.Sequence([pre_tokenizers.BertPreTokenizer(), cut])


def make_backend(tokens: Sequence[str], rules: Rules) -> Tokenizer:
    """Build the library's tokenizer for one of our own vocabularies.

    Differs from the reference on purpose: more characters count as spaces, words over 100
    characters are cut instead of unknown, text is composed (NFC), and lowercasing does not imply
    stripping accents.

    Args:
        tokens: all entries in the order of their ids, including `SPECIAL_TOKENS`.
        rules: how text is processed.
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


def make_bert_backend(
    tokens: Sequence[str], settings: Mapping[str, Any], *, unk_token: str
) -> Tokenizer:
    """Build the tokenizer that the transformers library creates from a vocab.txt.

    Args:
        tokens: the lines of vocab.txt.
        settings: the content of tokenizer_config.json.
        unk_token: replaces words that cannot be encoded.
    """
    vocab = {token: i for i, token in enumerate(tokens)}
    backend = Tokenizer(models.WordPiece(vocab, unk_token=unk_token))
    backend.normalizer = make_bert_normalizer(settings)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return backend


def make_bert_normalizer(settings: Mapping[str, Any]) -> normalizers.Normalizer:
    """Build BERT's normalizer from the settings in a Hugging Face folder."""
    return normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
        strip_accents=settings.get("strip_accents"),  # None: same as lowercase
        lowercase=settings.get("do_lower_case", True),
    )


def find_cutter(backend: Tokenizer, kmer: Kmer | None = None) -> Cutter:
    """Choose how to split text into chunks that can be encoded one by one.

    The ids of the chunks together equal those of the whole text. If a pipeline from elsewhere does
    not allow that, the whole text is one chunk.

    Args:
        backend: the library's tokenizer.
        kmer: how sequences are cut, if at all.
    """
    stored = json.loads(backend.to_str())
    normalizer = stored["normalizer"] or {}
    steps = normalizer.get("normalizers", [normalizer])
    bert = [step for step in steps if step.get("type") == "BertNormalizer"]
    plain_additions = not all(token["special"] for token in stored["added_tokens"])
    if kmer is not None:
        return Cutter(
            split=_split_to_kmers(kmer, backend.normalizer, lowercase=bert[0]["lowercase"])
        )
    if steps and steps[0].get("pattern") == {"Regex": _SPACES}:
        # A word that is kept whole may contain Han or punctuation, but no white space.
        if plain_additions or not bert[0]["handle_chinese_chars"]:
            return Cutter(split=str.split)
        return Cutter(cuts_han=True, parts=_OWN_PARTS)
    splits_at_spaces = (stored["pre_tokenizer"] or {}).get("type") == "BertPreTokenizer"
    # Here an added token that is not special may contain a space.
    if steps != bert or not splits_at_spaces or plain_additions:
        return Cutter(split=lambda text: [text])
    return Cutter(cuts_han=bert[0]["handle_chinese_chars"], all_spaces=False, parts=_BERT_PARTS)


def make_splitter(rules: Rules, normalizer: normalizers.Normalizer) -> Splitter:
    """Return a function that splits text at white space and Han, or into k-mers.

    Chunks may be of any length; see `cut_run`.
    """
    if rules.kmer is not None:
        return _split_to_kmers(rules.kmer, normalizer, lowercase=rules.lowercase)
    return str.split if rules.whole else _split_at_spaces_and_han


def _split_to_kmers(kmer: Kmer, normalizer: normalizers.Normalizer, *, lowercase: bool) -> Splitter:
    return lambda text: cut_text(text, kmer, normalizer, lowercase=lowercase)


def _split_at_spaces_and_han(text: str) -> list[str]:
    # Splitting at white space alone is several times faster.
    has_han = not text.isascii() and HAN.search(text) is not None
    return WORD_OR_HAN.findall(text) if has_han else text.split()


def cut_run(chunk: str) -> Sequence[str]:
    """Split a chunk that is too long for the library, if that does not change its words."""
    # Exact only if the pipeline does nothing but cut the run at 100 characters.
    if len(chunk) <= LONGEST_RUN or not (chunk.isascii() and chunk.isalnum()):
        return (chunk,)
    return [chunk[i : i + LONGEST_RUN] for i in range(0, len(chunk), LONGEST_RUN)]


def cut_text(
    text: str, kmer: Kmer, normalizer: normalizers.Normalizer, *, lowercase: bool
) -> Iterator[str]:
    """Normalise a text and cut its sequences into k-mers.

    Args:
        text: sequences of any length, separated by white space.
        kmer: how to cut them.
        normalizer: the tokenizer's normalizer.
        lowercase: whether the normalizer lowercases.
    """
    for chunk in text.split():
        # Saves the library's memory: for plain ASCII, it would only lowercase.
        if chunk.isascii() and chunk.isprintable():
            yield from cut_sequence(chunk.lower() if lowercase else chunk, kmer)
            continue
        for sequence in normalizer.normalize_str(chunk).split():
            yield from cut_sequence(sequence, kmer)
