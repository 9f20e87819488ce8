"""Statistics of a corpus for the manifest, and warnings about duplicates."""

import hashlib
import logging
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from bertpre.config.schema import TextOptions
from bertpre.corpus.sentences import Record

log = logging.getLogger(__name__)

_DUPLICATES_WARNED = 0.2
# From this length on, only three digits are counted, so that memory is bounded.
_EXACT_LENGTH = 1000
_COUNTED_TOGETHER = 1000
_SKETCH_HASHES = 1 << 16
_HASHES_COUNTED_TOGETHER = 1 << 12
HASH_BYTES = 16
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
# Excludes white space inside lines and marks of text direction.
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


@dataclass(kw_only=True, slots=True)
class CorpusReport:
    """Statistics of a corpus. Shares and quantiles are set once everything is read.

    Attributes:
        documents, sentences, characters: passed on to the next stage.
        one_sentence_documents: among ``documents``.
        empty_documents: skipped table rows and files without text.
        bad_records: skipped jsonl lines and parquet rows that are unusable.
        bad_bytes: sequences that are invalid in the encoding, replaced or dropped.
        control_characters: in the text; normalising removes them.
        longest_record: characters in the longest line.
        duplicate_line_share, duplicate_document_share: share of the input that exactly repeats an
            earlier line or document; estimated if there are over 65,536 different ones.
        removed_lines, removed_documents: removed by ``dedup``.
        cut_documents: how often a document over eight million characters was cut.
        sentence_length_quantiles: characters at 5, 25, 50, 75, 95 and 99 %, to three digits.
        document_length_quantiles: the same for sentences per document.
    """

    documents: int = 0
    sentences: int = 0
    characters: int = 0
    one_sentence_documents: int = 0
    empty_documents: int = 0
    bad_records: int = 0
    bad_bytes: int = 0
    control_characters: int = 0
    longest_record: int = 0
    duplicate_line_share: float = 0.0
    duplicate_document_share: float = 0.0
    removed_lines: int = 0
    removed_documents: int = 0
    cut_documents: int = 0
    sentence_length_quantiles: tuple[int, ...] = ()
    document_length_quantiles: tuple[int, ...] = ()


def hash_text(text: str) -> bytes:
    """Return a hash of `HASH_BYTES` bytes."""
    # JSON can contain half of a surrogate pair.
    return _hash_bytes(text.encode("utf-8", "surrogatepass"))


def _hash_bytes(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=HASH_BYTES).digest()


class DistinctSketch:
    """Estimates the share of values that repeat an earlier one; exact up to 65,536 distinct ones.

    Keeps the hashes that end in a number of zero bits, which grows when they are too many.

    Source: Wegman's adaptive sampling, Flajolet 1990.
    """

    def __init__(self) -> None:
        self._kept: set[int] = set()
        self._mask = 0
        self._total = 0
        self._waiting: list[bytes] = []

    def add(self, digests: Iterable[bytes]) -> None:
        """Add values by their hashes."""
        self._waiting.extend(digests)
        if len(self._waiting) >= _HASHES_COUNTED_TOGETHER:
            self._count()

    def _count(self) -> None:
        numbers = np.frombuffer(b"".join(self._waiting), "<u8")[::2]
        self._total += len(numbers)
        self._waiting.clear()
        self._kept.update(numbers[numbers & np.uint64(self._mask) == 0].tolist())
        while len(self._kept) > _SKETCH_HASHES:
            self._mask = 2 * self._mask + 1
            self._kept = {number for number in self._kept if not number & self._mask}

    def repeated_share(self) -> float:
        """Return the share of values that repeat an earlier one."""
        self._count()
        distinct = len(self._kept) * (self._mask + 1)
        return max(0.0, 1 - distinct / self._total) if self._total else 0.0


class LineCounter:
    """Counts lines as they are in the files, in blocks for speed."""

    def __init__(self, report: CorpusReport) -> None:
        self._report = report
        self._lines, self._documents = DistinctSketch(), DistinctSketch()
        self._document = b""  # the hash of its lines' hashes
        self._waiting: list[str] = []

    def add(self, record: Record) -> None:
        """Count a line."""
        if record.starts_document:
            self._close_document()
        elif len(self._waiting) == _COUNTED_TOGETHER:
            self._count()
        self._waiting.append(record.text)

    def finish(self) -> None:
        """Write the shares into the report."""
        self._close_document()
        self._report.duplicate_line_share = round(self._lines.repeated_share(), 6)
        self._report.duplicate_document_share = round(self._documents.repeated_share(), 6)

    def _count(self) -> None:
        texts, report = self._waiting, self._report
        report.longest_record = max(report.longest_record, max(map(len, texts)))
        for text in texts:
            if not text.isprintable():
                report.control_characters += len(_CONTROLS.findall(text))
        digests = list(map(hash_text, texts))
        self._lines.add(digests)
        self._document = _hash_bytes(self._document + b"".join(digests))
        texts.clear()

    def _close_document(self) -> None:
        if self._waiting:
            self._count()
        if self._document:
            self._documents.add([self._document])
        self._document = b""


class SentenceCounter:
    """Counts sentences as passed on to later stages."""

    def __init__(self, report: CorpusReport) -> None:
        self._report = report
        self._lengths: Counter[int] = Counter()
        self._sizes: Counter[int] = Counter()
        self._size = 0  # sentences of the document so far, including waiting ones
        self._waiting: list[int] = []  # their characters

    def add(self, record: Record) -> None:
        """Count a sentence."""
        if record.starts_document:
            self._close_document()
            self._report.documents += 1
        elif len(self._waiting) == _COUNTED_TOGETHER:
            self._count()
        self._size += 1
        self._waiting.append(len(record.text))

    def finish(self) -> None:
        """Write the quantiles into the report."""
        self._close_document()
        self._report.sentence_length_quantiles = quantiles(self._lengths)
        self._report.document_length_quantiles = quantiles(self._sizes)

    def _count(self) -> None:
        self._report.sentences += len(self._waiting)
        self._report.characters += sum(self._waiting)
        self._lengths.update(map(_round_down, self._waiting))
        self._waiting.clear()

    def _close_document(self) -> None:
        self._count()
        if self._size:
            self._sizes[_round_down(self._size)] += 1
            self._report.one_sentence_documents += self._size == 1
        self._size = 0


def warn_of_duplicates(report: CorpusReport, options: TextOptions) -> None:
    """Warn of repeated text, which a model memorises, unless it was removed."""
    dedup = options.dedup
    if dedup == "none" and report.duplicate_document_share > _DUPLICATES_WARNED:
        what, share = "documents", report.duplicate_document_share
    elif (
        dedup != "lines"
        # In a table of pairs, the same text may occur in several pairs.
        and options.pair_column is None
        and report.duplicate_line_share > _DUPLICATES_WARNED
    ):
        what, share = "lines", report.duplicate_line_share
    else:
        return
    log.warning(
        "%.0f %% of the %s exactly repeat an earlier one, which a model memorises; "
        "--dedup %s removes them",
        100 * share,
        what,
        what,
    )


def _round_down(length: int) -> int:
    if length < _EXACT_LENGTH:
        return length
    unit: int = 10 ** (len(str(length)) - 3)
    return length // unit * unit


def quantiles(counts: Counter[int]) -> tuple[int, ...]:
    """Return the smallest value at each of `QUANTILES`; 0 without values.

    Args:
        counts: the number of occurrences of each value.
    """
    if not counts:
        return (0,) * len(QUANTILES)
    values, times = zip(*sorted(counts.items()), strict=True)
    places = np.searchsorted(np.cumsum(times), np.array(QUANTILES) * sum(times))
    return tuple(values[place] for place in places)
