"""Tokenise documents into shards; the bytes do not depend on the number of processes."""

import hashlib
import itertools
import logging
import multiprocessing
import os
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import forkserver
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from bertpre.config.schema import TextOptions
from bertpre.corpus.documents import Corpus
from bertpre.corpus.inputs import InputFile
from bertpre.corpus.report import Statistics
from bertpre.corpus.spans import SPAN_BYTES, Span, read_span
from bertpre.data.tokens import ShardWriter, TokenizedDocuments, shard_counts
from bertpre.errors import ConfigError, CorpusError, TokenizerError
from bertpre.tokenizer.tokenizer import Segmenter, Tokenizer, load_segmenter

log = logging.getLogger(__name__)

# Large enough that sending work to a process costs little, small enough to keep several busy.
_BLOCK_CHARACTERS = 500_000
_LONGEST_SHOWN = 30
_FEWEST_FOR_WORKERS = 4_000_000  # bytes or characters

# Where a shard ends depends on the text alone, so that any process can make any shard. What can be
# read in spans counts by its bytes, so that nobody has to read it; other text by its characters.
SHARD_SIZE = 32 * 2**20


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


class Task(NamedTuple):
    """Consecutive documents that are tokenised together.

    Attributes:
        shard: the number of their shard.
        documents: each as its sentences, or spans of files to read them from.
        is_wanted: whether their tokens are wanted; if not, they are only read.
    """

    shard: int
    documents: list[tuple[str, ...]] | list[Span]
    is_wanted: bool


class Done(NamedTuple):
    """What came of a task.

    Attributes:
        shard: the number of the shard.
        tokenized: the documents, in blocks.
        spans: what was read, with what was counted there.
    """

    shard: int
    tokenized: list[TokenizedDocuments]
    spans: list[tuple[Span, Statistics]]


class Worker(NamedTuple):
    """What a process needs for its tasks."""

    tokenizer: Tokenizer
    segment: Segmenter | None
    options: TextOptions

    def do(self, task: Task) -> Done:
        """Read and tokenise documents.

        Raises:
            CorpusError: a file cannot be read.
        """
        documents, spans = [], []
        for item in task.documents:
            if isinstance(item, Span):
                found, statistics = read_span(item, self.options, kmer=self.tokenizer.kmer)
                documents += found
                spans.append((item, statistics))
            else:
                documents.append(item)
        blocks = _in_blocks(documents) if task.is_wanted else ()
        tokenized = [
            tokenize_documents(block, self.tokenizer, segment=self.segment) for block in blocks
        ]
        return Done(task.shard, tokenized, spans)


def tokenize_corpus(
    corpus: Corpus,
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
        corpus: the text; what was counted has been added to it afterwards.
        tokenizer: decides the ids and where words start.
        tokenizer_folder: where other processes load it from.
        folder: where the shards go.
        workers: processes that read and tokenise; 1 stays in this one.
        segmenter: the option ``word_segmenter``.
        part: make only the shards of this share.

    Returns:
        How many shards the corpus has, those of other shares included.

    Raises:
        ConfigError: the segmenter is not installed.
        CorpusError: the text cannot be read.
        TokenizerError: the tokenizer does not split at Han characters, as a segmenter requires.
    """
    worker = Worker(tokenizer, _segmenter_for(tokenizer, segmenter), corpus.options)
    num_shards, kept = 0, set()

    def tasks() -> Iterator[Task]:
        nonlocal num_shards
        for shard, documents in _divide(corpus):
            # Checked before this run writes to the shard.
            if shard == num_shards and shard_counts(folder, shard).is_file():
                kept.add(shard)
            num_shards = shard + 1
            is_kept = shard in kept
            # What is kept has to be read again for the report; documents are read already.
            if part.has(shard) and (isinstance(documents[0], Span) or not is_kept):
                yield Task(shard, documents, is_wanted=not is_kept)

    waiting: Iterator[Task] = tasks()
    first = _take(waiting, _FEWEST_FOR_WORKERS)
    is_small = sum(_size_of(task.documents) for task in first) < _FEWEST_FOR_WORKERS
    waiting = itertools.chain(first, waiting)
    results: Iterator[Done]
    if workers == 1 or is_small:  # done before a process has started
        results = map(worker.do, waiting)
    else:
        setting = _Setting(tokenizer_folder, segmenter, corpus.options)
        results = _do_in_workers(waiting, workers, setting)
    with ShardWriter(folder) as writer:
        for done in results:
            for span, statistics in done.spans:
                corpus.add(span, statistics)
            for tokenized in done.tokenized:
                writer.add(tokenized, shard=done.shard)
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


def _divide(corpus: Corpus) -> Iterator[tuple[int, list[tuple[str, ...]] | list[Span]]]:
    """Divide a corpus into lists of spans or documents of similar size, with their shards."""
    shard = in_shard = 0
    for is_span, parts in itertools.groupby(corpus.parts(), lambda part: isinstance(part, Span)):
        groups: Iterable[list[Any]]
        if is_span:
            groups = _group(cast(Iterator[Span], parts), _span_size, SPAN_BYTES // 2)
        else:
            groups = _in_blocks(itertools.chain.from_iterable(cast(Any, parts)))
        for group in groups:
            yield shard, group
            in_shard += _size_of(group)
            if in_shard >= SHARD_SIZE:
                shard, in_shard = shard + 1, 0


def _in_blocks(documents: Iterable[tuple[str, ...]]) -> Iterator[list[tuple[str, ...]]]:
    return _group(documents, _document_size, _BLOCK_CHARACTERS)


_Item = TypeVar("_Item")


def _group(
    items: Iterable[_Item], size: Callable[[_Item], int], least: int
) -> Iterator[list[_Item]]:
    """Yield consecutive items together, as soon as they have at least this size."""
    group: list[_Item] = []
    in_group = 0
    for item in items:
        group.append(item)
        in_group += size(item)
        if in_group >= least:
            yield group
            group, in_group = [], 0
    if group:
        yield group


def _document_size(document: tuple[str, ...]) -> int:
    return sum(map(len, document))


def _span_size(span: Span) -> int:
    return span.end - span.start


def _size_of(documents: Sequence[tuple[str, ...]] | Sequence[Span]) -> int:
    """Return the bytes of spans, or the characters of documents."""
    return sum(
        _span_size(item) if isinstance(item, Span) else _document_size(item) for item in documents
    )


def _take(tasks: Iterator[Task], size: int) -> list[Task]:
    """Take tasks up to this size."""
    taken = []
    while size > 0 and (task := next(tasks, None)) is not None:
        taken.append(task)
        size -= _size_of(task.documents)
    return taken


class _Setting(NamedTuple):
    """What a process makes its `Worker` from."""

    tokenizer_folder: Path
    segmenter: str
    options: TextOptions


def prepare_workers(files: Sequence[InputFile], workers: int | None) -> None:
    """Let the process that workers are forked from import its libraries in the meantime."""
    size = sum(file.size() or 0 for file in files)
    is_parallel = (workers or os.cpu_count() or 1) > 1 and size >= _FEWEST_FOR_WORKERS
    if is_parallel and _context().get_start_method() == "forkserver":
        forkserver.ensure_running()


def _context() -> BaseContext:
    # Not forked from this one: the tokenizers library and numpy have threads, which do not survive.
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def _do_in_workers(tasks: Iterable[Task], workers: int, setting: _Setting) -> Iterator[Done]:
    """Do tasks in other processes, at most two per process at a time, to bound memory.

    Yields:
        The results in order.
    """
    with ProcessPoolExecutor(
        workers, mp_context=_context(), initializer=_start_worker, initargs=(setting,)
    ) as pool:
        waiting: deque[Future[Done]] = deque()
        todo, error = iter(tasks), None
        try:
            while error is None:
                try:
                    task = next(todo, None)
                except CorpusError as found:  # what comes earlier in the text is named first
                    task, error = None, found
                if task is None:
                    break
                waiting.append(pool.submit(_do_in_worker, task))
                if len(waiting) >= 2 * workers:
                    yield waiting.popleft().result()
            for future in waiting:
                yield future.result()
            if error is not None:
                raise error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


_worker: Worker


def _start_worker(setting: _Setting) -> None:
    global _worker
    # Ctrl-C goes to every process of the terminal; the parent decides what happens.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    tokenizer = Tokenizer.load(setting.tokenizer_folder)
    _worker = Worker(tokenizer, load_segmenter(setting.segmenter), setting.options)


def _end_with_parent() -> None:
    """End this process when its parent is gone, as a killed parent cannot end it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


def _do_in_worker(task: Task) -> Done:
    return _worker.do(task)
