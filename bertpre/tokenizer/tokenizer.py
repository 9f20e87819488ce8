"""Text to ids: one tokenizer folder, loaded; the same class for vocabularies of any origin."""

import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import tokenizers

from bertpre.artefacts import fingerprint
from bertpre.config.fields import Kmer
from bertpre.tokenizer.chunks import Segmenter, find_inside_words
from bertpre.tokenizer.folder import SpecialTokens, read_tokenizer_folder
from bertpre.tokenizer.normalizing import find_cutter
from bertpre.tokenizer.piece_cache import PieceMemo, Pieces

_UNUSED = re.compile(r"\[unused\d+\]")


class Encoding(NamedTuple):
    """The pieces of a text, without [CLS] and [SEP]."""

    ids: npt.NDArray[np.int64]  # (T,)
    word_starts: npt.NDArray[np.bool_]  # (T,) True where a word begins


class Encodings(NamedTuple):
    """The pieces of several texts, one text after another, without [CLS] and [SEP]."""

    ids: npt.NDArray[np.int32]  # (N,)
    word_starts: npt.NDArray[np.bool_]  # (N,) True where a word begins
    lengths: npt.NDArray[np.int64]  # (texts,) pieces of each


class Tokenizer:
    """A vocabulary and its rules; immutable after `load`.

    Attributes:
        tokens: the piece of each id.
        special_ids: control tokens, which text never encodes to (but [UNK]).
        ordinary_ids: what a random replacement may be: no special token, no "[unused1]" row.
        kmer: how sequences are cut, if they are.
        fingerprint: tokenizers in which it is equal give equal ids.
        files: what a folder needs to hold this tokenizer.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        special: SpecialTokens,
        kmer: Kmer | None = None,
        files: Sequence[Path] = (),
    ) -> None:
        backend.no_truncation()
        backend.no_padding()
        # Without this, a literal "[SEP]" in text would become the control token.
        backend.encode_special_tokens = True
        self._backend = backend
        self.kmer = kmer
        self._cutter = find_cutter(backend, kmer)
        self._memo = PieceMemo(self._cutter, self._encode_new)

        self.files = tuple(files)
        by_id = sorted(backend.get_vocab(with_added_tokens=True).items(), key=lambda item: item[1])
        self.tokens = tuple(token for token, _ in by_id)
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
        # Whole-token mode looks "[SEP]" up as it looks up any other token.
        self._as_text = np.arange(len(self.tokens), dtype=np.int32)
        self._as_text[sorted(self.special_ids)] = self.unk_id
        # In a whole-token vocabulary "##ing" is a word like any other.
        self._prefix: str | None = getattr(backend.model, "continuing_subword_prefix", None)
        self._starts_word = np.array([not self._continues(id) for id in range(len(self.tokens))])
        identity = [backend.to_str(), *special]
        self.fingerprint = fingerprint(identity if kmer is None else [*identity, *kmer])

    @classmethod
    def load(cls, folder: str | Path) -> "Tokenizer":
        """Load a tokenizer folder of ours, a checkpoint, or a Hugging Face folder of the BERT kind.

        Raises:
            TokenizerError: files are missing, damaged, contradict each other or are of another
                kind; a special token is missing.
        """
        found = read_tokenizer_folder(Path(folder))
        return cls(found.backend, special=found.special, kmer=found.kmer, files=found.files)

    @property
    def is_whole(self) -> bool:
        """Whether a white-space token is looked up as a whole, never cut into pieces."""
        return self._prefix is None

    @property
    def cuts_han(self) -> bool:
        """Whether each Han character is a word of its own, as BERT has it."""
        return self._cutter.cuts_han

    @property
    def vocab_size(self) -> int:
        return len(self.tokens)

    def encode(self, text: str) -> Encoding:
        """Encode text; "[SEP]" and its like in it are plain text.

        The ids are those that the tokenizers library gives for the whole text; for overlapping
        k-mers, for the text with these cut.
        """
        found = self.encode_all([text])
        return Encoding(found.ids.astype(np.int64), found.word_starts)

    def encode_all(self, texts: Sequence[str], *, segment: Segmenter | None = None) -> Encodings:
        """Encode texts, each as `encode` does; many at once take far less time.

        Args:
            texts: any texts.
            segment: finds the words of Han characters, of which each begins one otherwise.
        """
        numbers, counts, is_han = self._memo.number(texts)
        found = self._memo.pieces(numbers)
        ends = np.concatenate([[0], np.cumsum(found.lengths, dtype=np.int64)])
        lengths = np.diff(ends[np.cumsum(counts)], prepend=0)
        word_starts = self._starts_word[found.ids]
        if segment is not None and is_han is not None:
            # A Han character is always one piece.
            places = ends[:-1][is_han]
            word_starts[places[find_inside_words(texts, segment)]] = False
        return Encodings(found.ids, word_starts, lengths)

    def unknown_chunks(self, texts: Sequence[str]) -> list[tuple[str, int]]:
        """Return the words (or longer stretches) in texts that hold [UNK], with their counts."""
        numbers, _, _ = self._memo.number(texts)
        return self._memo.chunks_with(self.unk_id, numbers)

    def encode_with_mask(self, text: str) -> list[int]:
        """Encode text in which a literal mask token is the mask, as fill-mask needs it."""
        ids: list[int] = []
        for i, part in enumerate(text.split(self.tokens[self.mask_id])):
            if i > 0:
                ids.append(self.mask_id)
            ids += self.encode(part).ids.tolist()
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """Join pieces to text that people can read; special tokens are shown as they are."""
        words: list[str] = []
        for id in ids:
            if words and self._continues(id):
                words[-1] += self.tokens[id].removeprefix(self._prefix or "")
            else:
                words.append(self.tokens[id])
        return " ".join(words)

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
        # One call for all: each chunk is a "word" to the library, whose number tells ids apart.
        encoding = self._backend.encode(chunks, is_pretokenized=True, add_special_tokens=False)
        # Only added special tokens belong to no word, and none are added here.
        owners = np.array(encoding.word_ids, np.int64)
        ids = self._as_text[np.array(encoding.ids, np.int64)]
        return Pieces(ids, np.bincount(owners, minlength=len(chunks)))
