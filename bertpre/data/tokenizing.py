"""Tokenise documents into shards; the bytes do not depend on the number of processes."""

import hashlib
import itertools
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bertpre.data.tokens import ShardWriter, TokenizedDocuments, shard_counts
from bertpre.errors import ConfigError, TokenizerError
from bertpre.tokenizer.tokenizer import Segmenter, Tokenizer, load_segmenter

log = logging.getLogger(__name__)

# Large enough that sending work to a process costs little, small enough to keep several busy.
_BLOCK_CHARACTERS = 500_000
_LONGEST_SHOWN = 30
_FEWEST_BLOCKS_FOR_WORKERS = 8

# Where a shard ends depends on the text alone, so that any process can make any shard.
SHARD_CHARACTERS = 32 * 2**20


class Part(NamedTuple):
    """One share of a corpus; shares are numbered from 1."""

    number: int
    of: int

    def has(self, shard: int) -> bool:
        """Whether a shard belongs to this share."""
        return shard % self.of == self.number - 1

    @classmethod
    def parse(cls, text: str) -> "Part":
        """Read ``2/8``.

        Raises:
            ConfigError: it is something else.
        """
        number, _, of = text.partition("/")
        if not (_is_number(number) and _is_number(of) and 1 <= int(number) <= int(of)):
            raise ConfigError(
                f"--part {text}: expected I/N, part I of N parts, with I from 1 to N",
                "for instance --part 1/4, 2/4, 3/4 and 4/4 on four machines",
            )
        return cls(int(number), int(of))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


class Block(NamedTuple):
    """Whole documents that are tokenised together, and the number of their shard."""

    shard: int
    documents: list[tuple[str, ...]]


def tokenize_corpus(
    documents: Iterable[tuple[str, ...]],
    tokenizer: Tokenizer,
    *,
    tokenizer_folder: Path,
    folder: Path,
    workers: int,
    segmenter: str = "none",
    part: Part = Part(1, 1),  # noqa: B008
) -> int:
    """Tokenise documents into shards, keeping those that are finished already.

    Args:
        documents: the corpus, each document as its sentences, the same at each call.
        tokenizer: decides the ids and where words start.
        tokenizer_folder: where other processes load it from.
        folder: where the shards go.
        workers: processes that tokenise; 1 stays in this one.
        segmenter: the option ``word_segmenter``.
        part: make only the shards of this share.

    Returns:
        How many shards the corpus has, those of other shares included.

    Raises:
        ConfigError: the segmenter is not installed.
        TokenizerError: the tokenizer does not split at Han characters, as a segmenter requires.
    """
    segment = _segmenter_for(tokenizer, segmenter)
    num_shards = 0
    kept: set[int] = set()

    def wanted() -> Iterator[Block]:
        nonlocal num_shards
        for block in _blocks(documents):
            is_first = block.shard == num_shards
            num_shards = block.shard + 1
            # Checked before this run writes to the shard.
            if is_first and shard_counts(folder, block.shard).is_file():
                kept.add(block.shard)
            if part.has(block.shard) and block.shard not in kept:
                yield block

    blocks: Iterator[Block] = wanted()
    first = list(itertools.islice(blocks, _FEWEST_BLOCKS_FOR_WORKERS))
    blocks = itertools.chain(first, blocks)
    tokenized: Iterator[tuple[int, TokenizedDocuments]]
    # A small corpus is done before a process has started.
    if workers == 1 or len(first) < _FEWEST_BLOCKS_FOR_WORKERS:
        tokenized = (
            (block.shard, tokenize_documents(block.documents, tokenizer, segment=segment))
            for block in blocks
        )
    else:
        tokenized = _tokenize_in_workers(blocks, workers, tokenizer_folder, segmenter)
    with ShardWriter(folder) as writer:
        for shard, of_block in tokenized:
            writer.add(of_block, shard=shard)
    if kept:
        log.info("kept from an earlier run: %d of %d shards", len(kept), num_shards)
    return num_shards


def _segmenter_for(tokenizer: Tokenizer, segmenter: str) -> Segmenter | None:
    segment = load_segmenter(segmenter)
    if segment is not None and not tokenizer.cuts_han:
        raise TokenizerError(
            f"make_data.word_segmenter {segmenter}: this tokenizer does not split text at each Han "
            "character, so it cannot mask words of several",
            "leave word_segmenter out, or make a wordpiece tokenizer without --extra-tokens",
        )
    return segment


def tokenize_documents(
    documents: Sequence[tuple[str, ...]], tokenizer: Tokenizer, *, segment: Segmenter | None = None
) -> TokenizedDocuments:
    """Tokenise documents, leaving out sentences and documents without a token.

    Args:
        documents: each as its sentences.
        tokenizer: decides the ids and where words start.
        segment: finds the words of Chinese text.
    """
    sentences = [sentence for document in documents for sentence in document]
    found = tokenizer.encode_all(sentences, segment=segment)
    ends = np.cumsum([len(document) for document in documents], dtype=np.int64)
    texts = ["\n".join(document).encode() for document in documents]
    hashes = [
        int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") for text in texts
    ]
    has_token = found.lengths > 0
    kept = np.diff(np.concatenate([[0], np.cumsum(has_token)])[ends], prepend=0)
    unknown: Counter[str] = Counter()
    is_unknown = found.ids == tokenizer.unk_id
    if is_unknown.any():
        places = np.unique(
            np.searchsorted(np.cumsum(found.lengths), np.flatnonzero(is_unknown), side="right")
        )
        unknown = _count_unknown(tokenizer, [sentences[place] for place in places])
    return TokenizedDocuments(
        ids=found.ids.astype(id_dtype(tokenizer.vocab_size)),
        starts=found.word_starts,
        sentence_lengths=found.lengths[has_token],
        document_lengths=kept[kept > 0],
        hashes=np.array(hashes, np.uint64)[kept > 0],
        text_bytes=sum(map(len, texts)),
        empty_sentences=int((~has_token).sum()),
        empty_documents=int((kept == 0).sum()),
        unknown=unknown,
    )


def id_dtype(vocab_size: int) -> type[np.uint16] | type[np.uint32]:
    """Return the narrowest type that holds every id of a vocabulary."""
    return np.uint16 if vocab_size <= 2**16 else np.uint32


def _count_unknown(tokenizer: Tokenizer, texts: Sequence[str]) -> Counter[str]:
    """Count what becomes [UNK]: characters, or whole tokens if the vocabulary consists of those.

    A word that is unknown although each of its characters is known is counted whole.
    """
    words: Counter[str] = Counter()
    for chunk, count in tokenizer.unknown_chunks(texts):
        for word in chunk.split():
            words[word] += count
    unknown = _find_unknown(tokenizer, list(words))
    characters = set().union(*unknown)
    unknown_characters = _find_unknown(tokenizer, [] if tokenizer.is_whole else list(characters))
    found: Counter[str] = Counter()
    for word in unknown:
        parts = [part for part in word if part in unknown_characters]
        for part, times in Counter(parts or [word[:_LONGEST_SHOWN]]).items():
            found[part] += times * words[word]
    return found


def _find_unknown(tokenizer: Tokenizer, texts: Sequence[str]) -> set[str]:
    """Return the texts that have an unknown token."""
    found = tokenizer.encode_all(texts)
    places = np.flatnonzero(found.ids == tokenizer.unk_id)
    owners = np.unique(np.searchsorted(np.cumsum(found.lengths), places, side="right"))
    return {texts[owner] for owner in owners}


def _blocks(documents: Iterable[tuple[str, ...]]) -> Iterator[Block]:
    block = Block(0, [])
    in_block = in_shard = 0  # characters
    for document in documents:
        block.documents.append(document)
        in_block += sum(map(len, document))
        if in_block >= _BLOCK_CHARACTERS:
            yield block
            in_shard += in_block
            is_full = in_shard >= SHARD_CHARACTERS
            block = Block(block.shard + is_full, [])
            in_block, in_shard = 0, 0 if is_full else in_shard
    if any(block.documents):
        yield block


def _tokenize_in_workers(
    blocks: Iterable[Block], workers: int, tokenizer_folder: Path, segmenter: str
) -> Iterator[tuple[int, TokenizedDocuments]]:
    """Tokenise blocks in order, at most two per process at a time, to bound memory."""
    # Not forked: the tokenizers library and numpy have threads, which do not survive a fork.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        workers,
        mp_context=context,
        initializer=_start_worker,
        initargs=(tokenizer_folder, segmenter, os.getpid()),
    ) as pool:
        waiting: deque[tuple[int, Future[TokenizedDocuments]]] = deque()
        try:
            for block in blocks:
                waiting.append((block.shard, pool.submit(_tokenize_in_worker, block.documents)))
                if len(waiting) >= 2 * workers:
                    shard, future = waiting.popleft()
                    yield shard, future.result()
            for shard, future in waiting:
                yield shard, future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


_worker_tokenizer: Tokenizer
_worker_segment: Segmenter | None


def _start_worker(tokenizer_folder: Path, segmenter: str, parent: int) -> None:
    global _worker_tokenizer, _worker_segment
    # Ctrl-C goes to every process of the terminal; the parent decides what happens.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    _worker_tokenizer, _worker_segment = Tokenizer.load(tokenizer_folder), load_segmenter(segmenter)


def _end_with(parent: int) -> None:
    """End this process when its parent is gone, as a killed parent cannot end it."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _tokenize_in_worker(documents: list[tuple[str, ...]]) -> TokenizedDocuments:
    return tokenize_documents(documents, _worker_tokenizer, segment=_worker_segment)
