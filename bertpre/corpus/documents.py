"""Stream records and documents from files and folders.

A record is a non-blank line or sentence; a document is consecutive records that belong together.
Duplicates are removed and lines are split into sentences if the options say so.
"""

import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Self, cast

from bertpre.config.fields import Kmer
from bertpre.config.schema import TextOptions
from bertpre.corpus.decoding import Decoding
from bertpre.corpus.files import read_lines
from bertpre.corpus.inputs import InputFile, TableFormat, find_files
from bertpre.corpus.records import count_and_cut, group_by_document, sentences_of, txt_records
from bertpre.corpus.report import CorpusReport, Statistics, warn_of_duplicates
from bertpre.corpus.sentences import Record
from bertpre.corpus.spans import Span, find_spans, read_span
from bertpre.corpus.tables import read_rows
from bertpre.errors import ConfigError, CorpusError

log = logging.getLogger(__name__)

# If none of this many records is usable, the options are wrong, not the data.
_RECORDS_BEFORE_GIVING_UP = 1000
_WARNINGS_SHOWN = 3
# Up to this many unusable records are only counted, even if they are most of a small corpus.
_BAD_RECORDS_PASSED_OVER = 10
_HINT = "check the files, and --format and --text-column"


class Document(NamedTuple):
    """Consecutive sentences, at least one."""

    sentences: tuple[str, ...]
    source: str
    line: int  # of the first sentence, from 1

    @classmethod
    def of(cls, records: Sequence[Record]) -> Self:
        """Join the records of a document."""
        return cls(sentences_of(records), records[0].source, records[0].line)


def read_documents(
    inputs: Sequence[str | Path],
    options: TextOptions,
    *,
    kmer: Kmer | None = None,
    report: CorpusReport | None = None,
    on_progress: Callable[[int, int | None], None] | None = None,
    is_quiet: bool = False,
) -> Iterator[Document]:
    """Read complete documents in the order of the inputs.

    Args:
        inputs, kmer, report, on_progress, is_quiet: see `read_records`.
        options: how to read them, such as `load_config(...).build_vocab.text`.

    Raises:
        ConfigError, CorpusError: see `read_records`.
    """
    records = read_records(
        inputs, options, kmer=kmer, report=report, on_progress=on_progress, is_quiet=is_quiet
    )
    return map(Document.of, group_by_document(records))


def read_records(
    inputs: Sequence[str | Path],
    options: TextOptions,
    *,
    kmer: Kmer | None = None,
    report: CorpusReport | None = None,
    on_progress: Callable[[int, int | None], None] | None = None,
    is_quiet: bool = False,
) -> Iterator[Record]:
    r"""Read all non-blank lines in the order of the inputs.

    Only "\n" ends a line. In txt, blank lines end a document if ``options.document`` says so. In
    tables and jsonl, the lines of a cell are the records of one document; in tables of pairs, each
    of the two cells is one record. In conll, a mark starts a document of sentences; without marks,
    each sentence is a document.

    Args:
        inputs: files, folders, patterns, or "-"; see `bertpre.corpus.inputs.find_files`.
        options: how to read them.
        kmer: how sequences will be cut, for windows of tokens.
        report: counts what is read and skipped.
        on_progress: called with the bytes read from disk so far, and the total.
        is_quiet: do not log warnings, as on a second pass.

    Raises:
        ConfigError: immediately, if the files or options do not allow pairs.
        CorpusError: immediately, if an input is missing or a pipe would be read twice; while
            reading, if a file cannot be read; at the end, if there was no text or most records
            were unusable.
    """
    corpus = Corpus(
        inputs, options, kmer=kmer, report=report, on_progress=on_progress, is_quiet=is_quiet
    )
    return corpus.records()


class Corpus:
    """Files of text that have been found and checked, and are read in parts or in one go.

    Args:
        inputs, options, kmer, report, on_progress, is_quiet: see `read_records`.

    Raises:
        ConfigError, CorpusError: see `read_records`.
    """

    def __init__(
        self,
        inputs: Sequence[str | Path],
        options: TextOptions,
        *,
        kmer: Kmer | None = None,
        report: CorpusReport | None = None,
        on_progress: Callable[[int, int | None], None] | None = None,
        is_quiet: bool = False,
    ) -> None:
        self.files = find_files(inputs, options.format, is_quiet=is_quiet)
        self.options, self.kmer = options, kmer
        if options.pair_column is not None:
            _check_pairs(self.files, options)
        sizes = [file.size() for file in self.files]
        num_readings = 1 if options.dedup == "none" else 2
        for file, size in zip(self.files, sizes, strict=True):
            if size is None and num_readings == 2:
                raise CorpusError(
                    f"{file.path}: a pipe can only be read once, but --dedup reads the text twice",
                    "write the text to a file first",
                )
        self._total = None if None in sizes else num_readings * sum(size or 0 for size in sizes)
        self._done = 0
        self._on_progress = on_progress
        self.report = report or CorpusReport()
        # Apart, as each part of a corpus reads all of the first and its own share of the others.
        self.in_order, self.in_spans = Statistics(self.report), Statistics(CorpusReport())
        decoding = Decoding(encoding=options.encoding, on_bad_bytes=options.on_bad_bytes)
        self._reading = _Reading(options, decoding, self.report, self._count_bytes, [], is_quiet)

    def records(self) -> Iterator[Record]:
        """Read everything in order."""
        yield from self._read(self.files)
        self.finish()

    def parts(self) -> Iterator[Span | Iterator[tuple[str, ...]]]:
        """Yield spans to be read anywhere, and documents where files must be read in order.

        What was counted in spans comes back by `add`, and `finish` must follow.
        """
        pieces = (piece for file in self.files for piece in find_spans(file, self.options))
        for is_span, group in itertools.groupby(pieces, lambda piece: isinstance(piece, Span)):
            if is_span:
                yield from cast(Iterator[Span], group)
            else:
                records = self._read(cast(list[InputFile], list(group)))
                yield map(sentences_of, group_by_document(records))

    def documents(self) -> Iterator[tuple[str, ...]]:
        """Read everything in order, each document as its sentences; faster than `records`."""
        for part in self.parts():
            if isinstance(part, Span):
                found, statistics = read_span(part, self.options, kmer=self.kmer)
                self.add(part, statistics)
                yield from found
            else:
                yield from part
        self.finish()

    def add(self, span: Span, statistics: Statistics) -> None:
        """Add what was counted in a span."""
        self.in_spans.add(statistics)
        self._count_bytes(span.end - span.start)

    def _count_bytes(self, count: int) -> None:
        self._done += count
        if self._on_progress is not None:
            self._on_progress(self._done, self._total)

    def _read(self, files: Sequence[InputFile]) -> Iterator[Record]:
        reading, dedup = self._reading, self.options.dedup
        lines = _read_lines_of(files, reading)
        first_lines = None
        if dedup != "none":
            first = reading._replace(report=CorpusReport(), last_bad=[], is_quiet=True)
            first_lines = _read_lines_of(files, first)
        return count_and_cut(lines, first_lines, self.in_order, self.options, kmer=self.kmer)

    def finish(self) -> None:
        """Complete the report, once all of the text has been read.

        Raises:
            CorpusError: there was no text, or most records were unusable.
        """
        self.in_order.add(self.in_spans)
        self.in_order.finish()
        report = self.report
        if report.documents == 0:
            names = [str(file.path) for file in self.files]
            shown = ", ".join(names[:3]) + (", …" if names[3:] else "")
            bad = ""
            if report.bad_records:
                last = self._reading.last_bad[0]
                bad = f", {report.bad_records:,} unusable records (the last: {last})"
            raise CorpusError(f"no text in the input: only blank lines{bad} in {shown}", _HINT)
        self.check_records()
        if not self._reading.is_quiet:
            warn_of_duplicates(report, self.options)

    def check_records(self) -> None:
        """Refuse tables whose rows are mostly unusable.

        Raises:
            CorpusError: they are.
        """
        report = self.report
        usable = report.documents + report.removed_documents + report.empty_documents
        if report.bad_records > max(usable, _BAD_RECORDS_PASSED_OVER):
            raise CorpusError(
                f"most records are unusable: {report.bad_records:,}, against "
                f"{report.documents:,} usable ones; the last: {self._reading.last_bad[0]}",
                _HINT,
            )


def _check_pairs(files: Sequence[InputFile], options: TextOptions) -> None:
    for file in files:
        if file.format in ("txt", "conll"):
            has = "no columns" if file.format == "txt" else "single texts"
            raise ConfigError(
                f"{file.path}: read as {file.format}, which has {has}, but --pair-column names one",
                "set --format to that of the table, or omit --pair-column",
            )
    if options.pair_column == options.text_column:
        raise ConfigError(
            f"--pair-column {options.pair_column}: is also the text column",
            "choose the column of the second text",
        )
    for name, value in (("sentences", options.sentences), ("dedup", options.dedup)):
        if value not in ("line", "none", "documents"):
            raise ConfigError(
                f"--{name} {value} would split the pairs of --pair-column",
                f"omit one of the two{', or use --dedup documents' * (name == 'dedup')}",
            )


class _Reading(NamedTuple):
    """What is needed to read any file."""

    options: TextOptions
    decoding: Decoding
    report: CorpusReport
    on_bytes: Callable[[int], None]
    last_bad: list[CorpusError]  # at most one: the error of the last unusable record
    is_quiet: bool  # whether to suppress warnings, as on a second pass

    def count_bad_bytes(self, count: int) -> None:
        self.report.bad_bytes += count


def _read_lines_of(files: Sequence[InputFile], reading: _Reading) -> Iterator[Record]:
    for file in files:
        read = _txt_records if file.format == "txt" else _table_records
        yield from read(file, reading)


def _txt_records(file: InputFile, reading: _Reading) -> Iterator[Record]:
    lines = read_lines(
        file.path,
        decoding=reading.decoding,
        on_bytes=reading.on_bytes,
        on_bad_bytes=reading.count_bad_bytes,
    )
    unit = reading.options.document
    starts = True
    for record in txt_records(lines, str(file.path), unit):
        yield record
        starts = False
    if unit == "file" and starts:
        reading.report.empty_documents += 1


def _table_records(file: InputFile, reading: _Reading) -> Iterator[Record]:
    options, report = reading.options, reading.report
    found_text = report.longest_record > 0  # in an earlier file

    def skip(error: CorpusError) -> None:
        report.bad_records += 1
        reading.last_bad[:] = [error]
        if not found_text and report.bad_records >= _RECORDS_BEFORE_GIVING_UP:
            raise CorpusError(
                f"none of the first {report.bad_records:,} records is usable; the last: {error}",
                "check --format and --text-column",
            )
        if report.bad_records <= _WARNINGS_SHOWN and not reading.is_quiet:
            log.warning("skipped: %s", error)

    columns = [options.text_column]
    if options.pair_column is not None:
        columns.append(options.pair_column)
    rows = read_rows(
        file.path,
        format=cast(TableFormat, file.format),
        header=options.header,
        columns=columns,
        quoting=options.quoting,
        decoding=reading.decoding,
        on_bytes=reading.on_bytes,
        on_bad_bytes=reading.count_bad_bytes,
        on_bad_row=skip,
    )
    name = str(file.path)
    starts = False
    for line, cells, starts_document in rows:
        found_text = True
        report.empty_documents += starts and starts_document  # the one before
        starts = starts or starts_document
        if options.pair_column is None:
            sentences = cells[0].split("\n")
        else:  # each text of a pair is one sentence, whatever its lines
            sentences = [cell.replace("\n", " ") for cell in cells]
        for sentence in sentences:
            if sentence and not sentence.isspace():
                yield Record(sentence.removesuffix("\r"), name, line, starts)
                starts = False
    report.empty_documents += starts
