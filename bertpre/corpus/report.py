"""Statistics of a corpus for the manifest, and warnings about duplicates."""

import hashlib
import itertools
import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

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
_ASCII_CONTROLS = bytes({*range(32), 127} - set(b"\t\n\r"))


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


# What two parts of a text have together is the sum, but for the other fields.
_SUMS = (
    *("documents", "sentences", "characters", "one_sentence_documents", "empty_documents"),
    *("bad_records", "bad_bytes", "control_characters", "cut_documents"),
    *("removed_lines", "removed_documents"),
)


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

    def merge(self, other: "DistinctSketch") -> None:
        """Add the values of another sketch."""
        self._count()
        other._count()
        self._total += other._total
        if other._mask > self._mask:
            self._use(other._mask)
        more = other._kept
        if other._mask < self._mask:
            more = {number for number in more if not number & self._mask}
        self._kept |= more
        self._shrink()

    def state(self) -> dict[str, Any]:
        """Return what `restore` needs, as JSON can hold it."""
        self._count()
        return {"kept": sorted(self._kept), "mask": self._mask, "total": self._total}

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> Self:
        """Return the sketch of a state."""
        sketch = cls()
        sketch._kept, sketch._mask = set(state["kept"]), state["mask"]
        sketch._total = state["total"]
        return sketch

    def _count(self) -> None:
        numbers = np.frombuffer(b"".join(self._waiting), "<u8")[::2]
        self._total += len(numbers)
        self._waiting.clear()
        self._kept.update(numbers[numbers & np.uint64(self._mask) == 0].tolist())
        self._shrink()

    def _shrink(self) -> None:
        while len(self._kept) > _SKETCH_HASHES:
            self._use(2 * self._mask + 1)

    def _use(self, mask: int) -> None:
        self._mask = mask
        self._kept = {number for number in self._kept if not number & mask}

    def repeated_share(self) -> float:
        """Return the share of values that repeat an earlier one."""
        self._count()
        distinct = len(self._kept) * (self._mask + 1)
        return max(0.0, 1 - distinct / self._total) if self._total else 0.0


class Statistics:
    """What a `CorpusReport` is made from; that of a part of the text can be added to another.

    Args:
        report: gets the counts at once, and shares and quantiles from `finish`.
    """

    def __init__(self, report: CorpusReport) -> None:
        self.report = report
        self.lines, self.documents = DistinctSketch(), DistinctSketch()
        self.sentence_lengths: Counter[int] = Counter()
        self.document_lengths: Counter[int] = Counter()
        self.text_hash = b""  # of all lines, and where documents start

    def add_documents(self, hashes: Sequence[bytes]) -> None:
        """Count documents by the hashes of their lines."""
        self.documents.add(hashes)
        self.text_hash = _hash_bytes(self.text_hash + b"".join(hashes))

    def add(self, other: "Statistics") -> None:
        """Add what was counted in a later part of the text."""
        for name in _SUMS:
            total = getattr(self.report, name) + getattr(other.report, name)
            setattr(self.report, name, total)
        longest = max(self.report.longest_record, other.report.longest_record)
        self.report.longest_record = longest
        self.lines.merge(other.lines)
        self.documents.merge(other.documents)
        self.text_hash = _hash_bytes(self.text_hash + other.text_hash)
        self.sentence_lengths.update(other.sentence_lengths)
        self.document_lengths.update(other.document_lengths)

    def state(self) -> dict[str, Any]:
        """Return what `restore` needs, as JSON can hold it."""
        return {
            "report": asdict(self.report),
            "lines": self.lines.state(),
            "documents": self.documents.state(),
            "sentence_lengths": sorted(self.sentence_lengths.items()),
            "document_lengths": sorted(self.document_lengths.items()),
            "text_hash": self.text_hash.hex(),
        }

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> Self:
        """Return the statistics of a state."""
        statistics = cls(CorpusReport(**state["report"]))
        for name in ("lines", "documents"):
            setattr(statistics, name, DistinctSketch.restore(state[name]))
        for name in ("sentence_lengths", "document_lengths"):
            setattr(statistics, name, Counter(dict(state[name])))
        statistics.text_hash = bytes.fromhex(state["text_hash"])
        return statistics

    def finish(self) -> None:
        """Write shares and quantiles into the report."""
        self.report.duplicate_line_share = round(self.lines.repeated_share(), 6)
        self.report.duplicate_document_share = round(self.documents.repeated_share(), 6)
        self.report.sentence_length_quantiles = quantiles(self.sentence_lengths)
        self.report.document_length_quantiles = quantiles(self.document_lengths)

    def count(self, documents: Sequence[Sequence[str]]) -> None:
        """Count whole documents whose lines are their sentences."""
        lines = list(itertools.chain.from_iterable(documents))
        if not lines:
            return
        lengths, sizes = list(map(len, lines)), list(map(len, documents))
        report = self.report
        report.documents += len(documents)
        report.sentences += len(lines)
        report.characters += sum(lengths)
        report.longest_record = max(report.longest_record, max(lengths))
        report.one_sentence_documents += sizes.count(1)
        report.control_characters += _count_controls("\n".join(lines))
        _count_rounded(self.sentence_lengths, lengths)
        _count_rounded(self.document_lengths, sizes)
        digests = list(map(hash_text, lines))
        self.lines.add(digests)
        ends = itertools.accumulate(sizes)
        spans = zip(ends, sizes, strict=True)
        self.add_documents([hash_document(digests[end - size : end]) for end, size in spans])


def _count_controls(text: str) -> int:
    encoded = text.encode("utf-8", "surrogatepass")
    if b"\xc2" in encoded:  # the first byte of the controls beyond ASCII, and of others
        return len(_CONTROLS.findall(text))
    return len(encoded) - len(encoded.translate(None, _ASCII_CONTROLS))


def hash_document(digests: Sequence[bytes]) -> bytes:
    """Return the hash of a document, given those of its lines."""
    document = b""
    for start in range(0, len(digests), _COUNTED_TOGETHER):
        document = _hash_bytes(document + b"".join(digests[start : start + _COUNTED_TOGETHER]))
    return document


class LineCounter:
    """Counts lines as they are in the files, in blocks for speed."""

    def __init__(self, statistics: Statistics) -> None:
        self._statistics = statistics
        self._document = b""  # the hash of its lines' hashes
        self._waiting: list[str] = []

    def add(self, record: Record) -> None:
        """Count a line."""
        if record.starts_document:
            self.finish()
        elif len(self._waiting) == _COUNTED_TOGETHER:
            self._count()
        self._waiting.append(record.text)

    def finish(self) -> None:
        """Count the last document."""
        if self._waiting:
            self._count()
        if self._document:
            self._statistics.add_documents([self._document])
        self._document = b""

    def _count(self) -> None:
        texts, report = self._waiting, self._statistics.report
        report.longest_record = max(report.longest_record, max(map(len, texts)))
        for text in texts:
            if not text.isprintable():
                report.control_characters += len(_CONTROLS.findall(text))
        digests = list(map(hash_text, texts))
        self._statistics.lines.add(digests)
        self._document = _hash_bytes(self._document + b"".join(digests))
        texts.clear()


class SentenceCounter:
    """Counts sentences as passed on to later stages."""

    def __init__(self, statistics: Statistics) -> None:
        self._statistics = statistics
        self._size = 0  # sentences of the document so far, including waiting ones
        self._waiting: list[int] = []  # their characters

    def add(self, record: Record) -> None:
        """Count a sentence."""
        if record.starts_document:
            self.finish()
            self._statistics.report.documents += 1
        elif len(self._waiting) == _COUNTED_TOGETHER:
            self._count()
        self._size += 1
        self._waiting.append(len(record.text))

    def finish(self) -> None:
        """Count the last document."""
        self._count()
        if self._size:
            self._statistics.document_lengths[_round_down(self._size)] += 1
            self._statistics.report.one_sentence_documents += self._size == 1
        self._size = 0

    def _count(self) -> None:
        self._statistics.report.sentences += len(self._waiting)
        self._statistics.report.characters += sum(self._waiting)
        _count_rounded(self._statistics.sentence_lengths, self._waiting)
        self._waiting.clear()


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


def _count_rounded(counts: Counter[int], lengths: Sequence[int]) -> None:
    for length, times in Counter(lengths).items():
        counts[_round_down(length)] += times


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
