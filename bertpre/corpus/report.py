"""What reading a corpus found: counts for the manifest, and warnings with the way out."""

import logging
import re
from collections import Counter
from dataclasses import dataclass

from bertpre.config.schema import TextOptions
from bertpre.corpus.duplicates import DistinctSketch, hash_bytes, hash_text
from bertpre.corpus.sentences import Record

log = logging.getLogger(__name__)

_DUPLICATES_WARNED = 0.2
# Lengths from here on are counted by their first three digits, so that memory is bounded.
_EXACT_LENGTH = 1000
_COUNTED_TOGETHER = 1000
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
# White space of a line is no control character; the marks that give text a direction are none.
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


@dataclass(kw_only=True, slots=True)
class CorpusReport:
    """What reading found. Counts up while records are read; shares and quantiles at the end.

    Attributes:
        documents, sentences, characters: what is read on from here.
        one_sentence_documents: among ``documents``.
        empty_documents: rows of tables and whole files without text; they are skipped.
        bad_records: jsonl lines and parquet rows that cannot be used; they are skipped.
        bad_bytes: sequences that are not of the encoding, replaced or skipped.
        control_characters: in the text; normalising removes them.
        longest_record: characters of the longest line or cell's line.
        duplicate_line_share, duplicate_document_share: of what is in the files, the share that
            repeats an earlier line or document exactly; estimated where over 65,536 differ.
        removed_lines, removed_documents: by ``dedup``; documents of which no line is left.
        cut_documents: cuts of documents over eight million characters into several.
        sentence_length_quantiles: characters, at 5, 25, 50, 75, 95 and 99 %; three digits.
        document_length_quantiles: sentences, likewise.
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


class LineCounter:
    """Looks at each line as the files hold it.

    At a document's lines together, or at some of a long one's, which takes half of the time.
    """

    def __init__(self, report: CorpusReport) -> None:
        self._report = report
        self._lines, self._documents = DistinctSketch(), DistinctSketch()
        self._document = b""  # the hash of those of its lines
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
        self._document = hash_bytes(self._document + b"".join(digests))
        texts.clear()

    def _close_document(self) -> None:
        if self._waiting:
            self._count()
        if self._document:
            self._documents.add([self._document])
        self._document = b""


class SentenceCounter:
    """Looks at each sentence as later stages get it."""

    def __init__(self, report: CorpusReport) -> None:
        self._report = report
        self._lengths: Counter[int] = Counter()
        self._sizes: Counter[int] = Counter()
        self._size = 0  # sentences of the document so far, those that wait included
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
        self._lengths.update(map(_rounded, self._waiting))
        self._waiting.clear()

    def _close_document(self) -> None:
        self._count()
        if self._size:
            self._sizes[_rounded(self._size)] += 1
            self._report.one_sentence_documents += self._size == 1
        self._size = 0


def warn_of_duplicates(report: CorpusReport, options: TextOptions) -> None:
    """Say that a model would learn repeated text by heart, unless it is removed already."""
    dedup = options.dedup
    if dedup == "none" and report.duplicate_document_share > _DUPLICATES_WARNED:
        what, share = "documents", report.duplicate_document_share
    elif (
        dedup != "lines"
        # In a table of pairs a side meets several others, and its line is no example of its own.
        and options.pair_column is None
        and report.duplicate_line_share > _DUPLICATES_WARNED
    ):
        what, share = "lines", report.duplicate_line_share
    else:
        return
    log.warning(
        "%.0f %% of the %s repeat an earlier one exactly, which a model learns by heart; "
        "--dedup %s removes them",
        100 * share,
        what,
        what,
    )


def _rounded(length: int) -> int:
    if length < _EXACT_LENGTH:
        return length
    unit: int = 10 ** (len(str(length)) - 3)
    return length // unit * unit


def quantiles(counts: Counter[int]) -> tuple[int, ...]:
    total, found = counts.total(), []
    seen, lengths = 0, iter(sorted(counts.items()))
    length = 0
    for quantile in QUANTILES:
        while seen < quantile * total:
            length, count = next(lengths)
            seen += count
        found.append(length)
    return tuple(found)
