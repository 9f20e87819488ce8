"""Documents to token shards, in several processes, with the same bytes whatever their number."""

import hashlib
import itertools
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path

import numpy as np

from bertpre.data.tokens import (
    ShardWriter,
    TokenizedDocuments,
    finished_shards,
    id_dtype,
)
from bertpre.errors import CorpusError
from bertpre.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)

# Large enough that sending work to a process costs little, small enough to keep several busy.
_BLOCK_CHARACTERS = 500_000
_LONGEST_SHOWN = 30

Block = list[tuple[str, ...]]  # documents as sentences


def tokenize_corpus(
    documents: Iterable[tuple[str, ...]],
    *,
    tokenizer_folder: Path,
    folder: Path,
    workers: int,
) -> None:
    """Tokenise documents into shards; shards that are whole already are not made again.

    Args:
        documents: the corpus, each document as its sentences, the same at each call.
        tokenizer_folder: what each process loads.
        folder: where the shards go.
        workers: processes that tokenise; 1 stays in this one.

    Raises:
        CorpusError: no document has a token.
    """
    finished = finished_shards(folder)
    done = sum(counts["documents"] + counts["empty_documents"] for counts in finished)
    if finished:
        log.info("%d finished shards are kept from an earlier run", len(finished))
    writer = ShardWriter(folder, first=len(finished))
    rest = itertools.islice(documents, done, None)
    for part in _tokenize_blocks(_blocks(rest), tokenizer_folder, workers):
        writer.add(part)
        done += len(part.document_lengths) + part.empty_documents
    writer.close()
    if sum(counts["tokens"] for counts in finished_shards(folder)) == 0:
        raise CorpusError(
            f"no token is left of {done:,} documents after normalising",
            "check that --text-column names the text and that the vocabulary fits it",
        )


def tokenize_documents(documents: Block, tokenizer: Tokenizer) -> TokenizedDocuments:
    """Tokenise documents; sentences without a token, and documents without one, are left out.

    Args:
        documents: each as its sentences.
        tokenizer: decides the ids and where words start.
    """
    ids, starts, sentence_lengths, document_lengths, hashes = [], [], [], [], []
    text_bytes = empty_sentences = empty_documents = 0
    unknown: Counter[str] = Counter()
    for sentences in documents:
        text = "\n".join(sentences).encode()
        text_bytes += len(text)
        kept = 0
        for sentence in sentences:
            encoding = tokenizer.encode(sentence)
            if len(encoding.ids) == 0:
                empty_sentences += 1
                continue
            if tokenizer.unk_id in encoding.ids:
                unknown.update(_unknown_parts(sentence, tokenizer))
            ids.append(encoding.ids)
            starts.append(encoding.word_starts)
            sentence_lengths.append(len(encoding.ids))
            kept += 1
        if kept == 0:
            empty_documents += 1
            continue
        document_lengths.append(kept)
        hashes.append(int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little"))
    dtype = id_dtype(tokenizer.vocab_size)
    return TokenizedDocuments(
        ids=np.concatenate([*ids, np.zeros(0, dtype)]).astype(dtype),
        starts=np.concatenate([*starts, np.zeros(0, bool)]).astype(bool),
        sentence_lengths=np.array(sentence_lengths, np.int64),
        document_lengths=np.array(document_lengths, np.int64),
        hashes=np.array(hashes, np.uint64),
        text_bytes=text_bytes,
        empty_sentences=empty_sentences,
        empty_documents=empty_documents,
        unknown=unknown,
    )


def _unknown_parts(sentence: str, tokenizer: Tokenizer) -> Iterator[str]:
    """Find what makes a sentence hold [UNK]: characters, or whole tokens where those are looked up.

    A word whose characters are all known, but not inside a word, is given as a whole.
    """

    def is_unknown(text: str) -> bool:
        return tokenizer.unk_id in tokenizer.encode(text).ids

    for word in sentence.split():
        if is_unknown(word):
            parts = [] if tokenizer.is_whole else [part for part in word if is_unknown(part)]
            yield from parts or [word[:_LONGEST_SHOWN]]


def _blocks(documents: Iterable[tuple[str, ...]]) -> Iterator[Block]:
    block: Block = []
    characters = 0
    for sentences in documents:
        block.append(sentences)
        characters += sum(map(len, sentences))
        if characters >= _BLOCK_CHARACTERS:
            yield block
            block, characters = [], 0
    if block:
        yield block


def _tokenize_blocks(
    blocks: Iterator[Block], tokenizer_folder: Path, workers: int
) -> Iterator[TokenizedDocuments]:
    """Tokenise blocks in order; at most two a process are under way, so memory is bounded."""
    first = list(itertools.islice(blocks, 2))
    blocks = itertools.chain(first, blocks)
    if workers == 1 or len(first) < 2:  # a small corpus is done before a process has started
        tokenizer = Tokenizer.load(tokenizer_folder)
        for block in blocks:
            yield tokenize_documents(block, tokenizer)
        return
    # Not forked: the tokenizers library and numpy have threads, which do not survive a fork.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        workers,
        mp_context=context,
        initializer=_start_worker,
        initargs=(tokenizer_folder, os.getpid()),
    ) as pool:
        waiting: deque[Future[TokenizedDocuments]] = deque()
        try:
            for block in blocks:
                waiting.append(pool.submit(_tokenize_in_worker, block))
                if len(waiting) >= 2 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


_worker_tokenizer: Tokenizer


def _start_worker(tokenizer_folder: Path, parent: int) -> None:
    global _worker_tokenizer
    # Ctrl-C goes to every process of the terminal; the parent decides what happens.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    _worker_tokenizer = Tokenizer.load(tokenizer_folder)


def _end_with(parent: int) -> None:
    """End this process when its parent has ended, which a killed parent cannot ask for."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _tokenize_in_worker(block: Block) -> TokenizedDocuments:
    return tokenize_documents(block, _worker_tokenizer)
