"""Encode text to ids with a tokenizer folder of any origin."""

import logging
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bertpre.artefacts import fingerprint
from bertpre.errors import ConfigError
from bertpre.tokenizer.chunks import find_han
from bertpre.tokenizer.folder import TokenizerFolder, read_tokenizer_folder
from bertpre.tokenizer.normalizing import find_cutter
from bertpre.tokenizer.piece_cache import PieceCache, Pieces

Segmenter = Callable[[str], list[str]]  # splits a text into words that join to the text
_UNUSED = re.compile(r"\[unused\d+\]")


class Encoding(NamedTuple):
    """The ids of a text, without [CLS] and [SEP]."""

    ids: npt.NDArray[np.int64]  # (T,)
    word_starts: npt.NDArray[np.bool_]  # (T,) True where a word starts


class Encodings(NamedTuple):
    """The concatenated ids of several texts, without [CLS] and [SEP]."""

    ids: npt.NDArray[np.int32]  # (N,)
    word_starts: npt.NDArray[np.bool_]  # (N,) True where a word starts
    lengths: npt.NDArray[np.int64]  # (texts,) number of ids of each


class Tokenizer:
    """A vocabulary with its rules for processing text; immutable.

    Attributes:
        tokens: the piece of each id.
        special_ids: special tokens; text never encodes to them, except to [UNK].
        ordinary_ids: ids for random replacement: no special tokens, no "[unused1]" and the like.
        kmer: how sequences are cut, if at all.
        fingerprint: equal for tokenizers that give equal ids.
        files: the files of the tokenizer folder.
    """

    def __init__(self, found: TokenizerFolder) -> None:
        backend, special, kmer = found.backend, found.special, found.kmer
        backend.no_truncation()
        backend.no_padding()
        # Otherwise a literal "[SEP]" in text would become the special token.
        backend.encode_special_tokens = True
        self._backend = backend
        self.kmer = kmer
        self._cutter = find_cutter(backend, kmer)
        self._cache = PieceCache(self._cutter, self._encode_new)

        self.files = found.files
        self.tokens = found.tokens
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (
            self.tokens.index(token) for token in special
        )
        more_special = [
            id for id, token in backend.get_added_tokens_decoder().items() if token.special
        ]
        self.special_ids = frozenset(
            [self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id, *more_special]
        )
        self.ordinary_ids: npt.NDArray[np.int64] = np.array(
            [
                id
                for id, token in enumerate(self.tokens)
                if id not in self.special_ids and not _UNUSED.fullmatch(token)
            ],
            np.int64,
        )
        # In whole-token mode, a literal "[SEP]" would be looked up like any token.
        self._as_text = np.arange(len(self.tokens), dtype=np.int32)
        self._as_text[sorted(self.special_ids)] = self.unk_id
        # In a whole-token vocabulary, "##ing" is an ordinary word.
        self._prefix: str | None = getattr(backend.model, "continuing_subword_prefix", None)
        self._starts_word = np.array([not self._continues(id) for id in range(len(self.tokens))])
        identity = [backend.to_str(), *special]
        self.fingerprint = fingerprint(identity if kmer is None else [*identity, *kmer])

    @classmethod
    def load(cls, folder: str | Path) -> "Tokenizer":
        """Load a tokenizer folder, a checkpoint, or a Hugging Face folder with a BERT tokenizer.

        Raises:
            TokenizerError: a file or special token is missing, or files are damaged, contradict
                each other or are of another kind.
        """
        return cls(read_tokenizer_folder(Path(folder)))

    @property
    def is_whole(self) -> bool:
        """Whether white-space tokens are looked up whole, not split into pieces."""
        return self._prefix is None

    @property
    def cuts_han(self) -> bool:
        """Whether each Han character is a word, as in BERT."""
        return self._cutter.cuts_han

    @property
    def vocab_size(self) -> int:
        return len(self.tokens)

    def encode(self, text: str) -> Encoding:
        """Encode a text; a literal "[SEP]" or the like is ordinary text.

        The ids equal those of the tokenizers library, after cutting if k-mers overlap.
        """
        found = self.encode_all([text])
        return Encoding(found.ids.astype(np.int64), found.word_starts)

    def encode_all(self, texts: Sequence[str], *, segment: Segmenter | None = None) -> Encodings:
        """Encode many texts, which is much faster than one by one.

        Args:
            texts: any texts.
            segment: finds words of Han characters; without it, each character starts a word.
        """
        numbers, counts, is_han = self._cache.number(texts)
        found = self._cache.pieces(numbers)
        ends = np.concatenate([[0], np.cumsum(found.lengths, dtype=np.int64)])
        lengths = np.diff(ends[np.cumsum(counts)], prepend=0)
        word_starts = self._starts_word[found.ids]
        if segment is not None and is_han is not None:
            # A Han character is always a single piece.
            places = ends[:-1][is_han]
            word_starts[places[_find_inside_words(texts, segment)]] = False
        return Encodings(found.ids, word_starts, lengths)

    def unknown_chunks(self, texts: Sequence[str]) -> list[tuple[str, int]]:
        """Return the words (or longer chunks) in texts that contain [UNK], with their counts."""
        numbers, _, _ = self._cache.number(texts)
        return self._cache.chunks_with(self.unk_id, numbers)

    def encode_with_mask(self, text: str) -> list[int]:
        """Encode a text where the literal mask token is the mask, for fill-mask."""
        ids: list[int] = []
        for i, part in enumerate(text.split(self.tokens[self.mask_id])):
            if i > 0:
                ids.append(self.mask_id)
            ids += self.encode(part).ids.tolist()
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """Join pieces to words, and these with spaces, including special tokens."""
        return " ".join(self._words(ids))

    def words(self, ids: Iterable[int]) -> list[str]:
        """Join pieces to words, without special tokens except [UNK]."""
        left_out = self.special_ids - {self.unk_id}
        return self._words(id for id in ids if id not in left_out)

    def normalize(self, text: str) -> str:
        """Return a text as it is before it is cut, such as lowercased."""
        normalizer = self._backend.normalizer
        return text if normalizer is None else str(normalizer.normalize_str(text))

    def _words(self, ids: Iterable[int]) -> list[str]:
        words: list[str] = []
        for id in ids:
            if words and self._continues(id):
                words[-1] += self.tokens[id].removeprefix(self._prefix or "")
            else:
                words.append(self.tokens[id])
        return words

    def save_files(self, folder: Path) -> None:
        """Copy what `load` needs into a folder."""
        for path in self.files:
            shutil.copyfile(path, folder / path.name)

    def _continues(self, id: int) -> bool:
        return (
            self._prefix is not None
            and id not in self.special_ids
            and self.tokens[id].startswith(self._prefix)
        )

    def _encode_new(self, chunks: list[str]) -> Pieces:
        # One call for all: each chunk is a pre-tokenized word, whose index identifies its ids.
        encoding = self._backend.encode(chunks, is_pretokenized=True, add_special_tokens=False)
        # All ids belong to a word, as no special tokens are added.
        owners = np.array(encoding.word_ids, np.int64)
        ids = self._as_text[np.array(encoding.ids, np.int64)]
        return Pieces(ids, np.bincount(owners, minlength=len(chunks)))


def _find_inside_words(texts: Sequence[str], segment: Segmenter) -> npt.NDArray[np.bool_]:
    """Return for each Han character in all texts whether it continues a word."""
    joined = "\n".join(texts)
    words = list(chain.from_iterable([*segment(text), "\n"] for text in texts))
    assert "".join(words) == joined + "\n"
    _, is_han = find_han(joined)
    follows = np.zeros(len(joined), bool)
    follows[1:] = is_han[1:] & is_han[:-1]
    ends = np.cumsum(np.fromiter(map(len, words), np.int64, len(words)))
    follows[ends[ends < len(joined)]] = False
    found: npt.NDArray[np.bool_] = follows[is_han]
    return found


def load_segmenter(name: str) -> Segmenter | None:
    """Load a word segmenter, or return None for "none".

    Raises:
        ConfigError: the package is not installed.
    """
    if name == "none":
        return None
    try:
        import jieba
    except ImportError as error:
        raise ConfigError(
            "make_data.word_segmenter jieba: the package jieba is not installed",
            "pip install 'bertpre[zh]'",
        ) from error
    jieba.setLogLevel(logging.WARNING)  # otherwise it logs how long its dictionary took
    words: Segmenter = jieba.lcut
    return words
