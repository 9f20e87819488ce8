"""Files and folders to records and documents, streaming.

A record is one line or sentence that holds text; a document is consecutive records that belong
together. From the files to there: lines, without duplicates if so asked, cut into sentences.
"""

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, cast

from bertpre.config.fields import Kmer
from bertpre.config.schema import TextOptions
from bertpre.corpus.duplicates import Repeats, hash_text, temporary_folder
from bertpre.corpus.files import Decoding, read_lines
from bertpre.corpus.inputs import InputFile, find_files
from bertpre.corpus.report import (
    CorpusReport,
    LineCounter,
    SentenceCounter,
    warn_of_duplicates,
)
from bertpre.corpus.sentences import Record, cut_sentences
from bertpre.corpus.tables import TableFormat, read_rows
from bertpre.errors import ConfigError, CorpusError

log = logging.getLogger(__name__)

# If none of so many records of the corpus can be used, the option is wrong, not the data.
_RECORDS_BEFORE_GIVING_UP = 1000
_WARNINGS_SHOWN = 3
# Up to so many unusable records are only counted, even if they are most of a small corpus.
_BAD_RECORDS_PASSED_OVER = 10
# A document is held in memory as a whole, so a file without a blank line is cut into several.
_LONGEST_DOCUMENT = 8_000_000


class Document(NamedTuple):
    """Consecutive sentences, at least one."""

    sentences: tuple[str, ...]
    source: str
    line: int  # of the first sentence, from 1


def read_documents(
    inputs: Sequence[str | Path],
    options: TextOptions,
    *,
    kmer: Kmer | None = None,
    report: CorpusReport | None = None,
    on_progress: Callable[[int, int | None], None] | None = None,
    is_quiet: bool = False,
) -> Iterator[Document]:
    """Read documents, each whole, in the order of the inputs.

    Args:
        inputs: files, folders, patterns, or "-".
        options: how they are read: `load_config(...).build_vocab.text`, for one.
        kmer: see `read_records`.
        report: counts what is read and what is skipped.
        on_progress: told the bytes read on disk so far, and in all.
        is_quiet: see `read_records`.

    Raises:
        ConfigError, CorpusError: as `read_records`.
    """
    records = read_records(
        inputs, options, kmer=kmer, report=report, on_progress=on_progress, is_quiet=is_quiet
    )
    return _group(records)


def read_records(
    inputs: Sequence[str | Path],
    options: TextOptions,
    *,
    kmer: Kmer | None = None,
    report: CorpusReport | None = None,
    on_progress: Callable[[int, int | None], None] | None = None,
    is_quiet: bool = False,
) -> Iterator[Record]:
    r"""Read every line that holds text, in the order of the inputs.

    Lines end at "\n" only. Lines of nothing but white space are not records; in txt they end a
    document, as ``options.document`` says. The lines of a table's cell or of a jsonl field are the
    records of one document; those of a table of pairs are its two sides, each as one record.

    Args:
        inputs: files, folders, patterns, or "-"; see `bertpre.corpus.inputs.find_files`.
        options: format, column, encoding, what a document is and a sentence, what is removed.
        kmer: how sequences will be cut, which windows of tokens must know.
        report: counts what is read and what is skipped.
        on_progress: told the bytes read on disk so far, and in all.
        is_quiet: do not warn, as when the text has been read before.

    Raises:
        ConfigError: at once if pairs are asked for that these files or options cannot give.
        CorpusError: at once if an input is missing, or would have to be read twice and cannot be;
            while reading if a file cannot be read; at the end if there was no text at all, or if
            most records were unusable.
    """
    files = find_files(inputs, options.format, is_quiet=is_quiet)
    if options.pair_column is not None:
        _check_pairs(files, options)
    decoding = Decoding(encoding=options.encoding, on_bad_bytes=options.on_bad_bytes)
    sizes = [file.size() for file in files]
    readings = 1 if options.dedup == "none" else 2
    for file, size in zip(files, sizes, strict=True):
        if size is None and readings == 2:
            raise CorpusError(
                f"{file.path}: a pipe can be read once only, and --dedup reads the text twice",
                "write the text to a file first",
            )
    total = None if None in sizes else readings * sum(size or 0 for size in sizes)
    meter = _Meter(total, on_progress)
    report = report or CorpusReport()
    return _read(files, _Source(options, decoding, report, meter, [], quiet=is_quiet), kmer)


def _check_pairs(files: Sequence[InputFile], options: TextOptions) -> None:
    for file in files:
        if file.format == "txt":
            raise ConfigError(
                f"{file.path}: is read as txt, which has no columns, but --pair-column names one",
                "state the --format of the table, or leave --pair-column out",
            )
    if options.pair_column == options.text_column:
        raise ConfigError(
            f"--pair-column {options.pair_column}: is the text column too",
            "name the column of the other side",
        )
    for name, value in (("sentences", options.sentences), ("dedup", options.dedup)):
        if value not in ("line", "none", "documents"):
            raise ConfigError(
                f"--{name} {value} would take pairs apart, which --pair-column asks for",
                f"leave one of the two out{', or use --dedup documents' * (name == 'dedup')}",
            )


class _Source(NamedTuple):
    """What reading any file needs."""

    options: TextOptions
    decoding: Decoding
    report: CorpusReport
    meter: "_Meter"
    last_bad: list[CorpusError]  # at most one: why the last unusable record was so
    quiet: bool  # whether warnings would repeat those of another reading

    def count_bad_bytes(self, count: int) -> None:
        self.report.bad_bytes += count


class _Meter:
    """Adds up the bytes read over all files."""

    def __init__(
        self, total: int | None, on_progress: Callable[[int, int | None], None] | None
    ) -> None:
        self._done = 0
        self._total = total
        self._on_progress = on_progress

    def add(self, count: int) -> None:
        self._done += count
        if self._on_progress is not None:
            self._on_progress(self._done, self._total)


def _read(files: Sequence[InputFile], source: _Source, kmer: Kmer | None) -> Iterator[Record]:
    options, report = source.options, source.report
    counter = SentenceCounter(report)
    with contextlib.ExitStack() as stack:
        repeats = None
        if options.dedup != "none":
            folder = Path(stack.enter_context(temporary_folder()))
            first = source._replace(report=CorpusReport(), last_bad=[], quiet=True)
            lines = _lines(files, first)
            is_of_lines = options.dedup == "lines"
            repeats = Repeats(_line_hashes(lines) if is_of_lines else _hashes(lines), folder)
        lines = _counted(_lines(files, source), report)
        if repeats is not None:
            lines = _without(repeats, lines, options.dedup, report)
        sentences = cut_sentences(lines, options.sentences, language=options.language, kmer=kmer)
        for record in _cut_long_documents(sentences, report):
            counter.add(record)
            yield record
    counter.finish()
    hint = "check the files, and --format and --text-column"
    if report.documents == 0:
        shown = ", ".join(str(file.path) for file in files[:3]) + (", …" if files[3:] else "")
        bad = ""
        if report.bad_records:
            bad = f", {report.bad_records:,} unusable records (the last: {source.last_bad[0]})"
        raise CorpusError(f"no text in the input: found only blank lines{bad} in {shown}", hint)
    usable = report.documents + report.removed_documents + report.empty_documents
    if report.bad_records > max(usable, _BAD_RECORDS_PASSED_OVER):
        raise CorpusError(
            f"most records cannot be used: {report.bad_records:,}, beside {report.documents:,} "
            f"that can; the last: {source.last_bad[0]}",
            hint,
        )
    if not source.quiet:
        warn_of_duplicates(report, options)


def _lines(files: Sequence[InputFile], source: _Source) -> Iterator[Record]:
    for file in files:
        read = _txt_records if file.format == "txt" else _table_records
        yield from read(file, source)


def _counted(lines: Iterable[Record], report: CorpusReport) -> Iterator[Record]:
    counter = LineCounter(report)
    for line in lines:
        counter.add(line)
        yield line
    counter.finish()


def _line_hashes(lines: Iterable[Record]) -> Iterator[bytes]:
    return (hash_text(line.text) for line in lines)


def _hashes(lines: Iterable[Record]) -> Iterator[bytes]:
    """Hash each document: the hashes of its lines, one after another."""
    digest = b""
    for line in lines:
        if line.starts_document and digest:
            yield digest
            digest = b""
        digest = hash_text(f"{digest.hex()} {line.text}")
    if digest:
        yield digest


def _without(
    repeats: Repeats, lines: Iterable[Record], dedup: str, report: CorpusReport
) -> Iterator[Record]:
    document, starts = -1, False
    for place, line in enumerate(lines):
        document += line.starts_document
        report.removed_documents += starts and line.starts_document  # of which no line stayed
        starts = starts or line.starts_document  # the first line that stays starts the document
        if repeats[place if dedup == "lines" else document]:
            report.removed_lines += 1
        else:
            yield line._replace(starts_document=starts)
            starts = False
    report.removed_documents += starts


def _cut_long_documents(records: Iterable[Record], report: CorpusReport) -> Iterator[Record]:
    characters = 0
    for record in records:
        characters = 0 if record.starts_document else characters
        if characters > _LONGEST_DOCUMENT:
            report.cut_documents += 1
            record = record._replace(starts_document=True)
            characters = 0
        characters += len(record.text)
        yield record


def _txt_records(file: InputFile, source: _Source) -> Iterator[Record]:
    options = source.options
    name = str(file.path)
    starts = True
    lines = read_lines(
        file.path,
        decoding=source.decoding,
        on_bytes=source.meter.add,
        on_bad_bytes=source.count_bad_bytes,
    )
    for number, line in enumerate(lines, start=1):
        if line.isspace():
            starts = starts or options.document != "file"
            continue
        yield Record(line.removesuffix("\n").removesuffix("\r"), name, number, starts)
        starts = options.document == "line"
    if options.document == "file" and starts:
        source.report.empty_documents += 1


def _table_records(file: InputFile, source: _Source) -> Iterator[Record]:
    options, report = source.options, source.report
    found_text = report.longest_record > 0  # in an earlier file

    def skip(error: CorpusError) -> None:
        report.bad_records += 1
        source.last_bad[:] = [error]
        if not found_text and report.bad_records >= _RECORDS_BEFORE_GIVING_UP:
            raise CorpusError(
                f"none of the first {report.bad_records:,} records can be used; the last: {error}",
                "check --format and --text-column",
            )
        if report.bad_records <= _WARNINGS_SHOWN and not source.quiet:
            log.warning("skipped: %s", error)

    name = str(file.path)
    columns = [options.text_column]
    if options.pair_column is not None:
        columns.append(options.pair_column)
    rows = read_rows(
        file.path,
        format=cast(TableFormat, file.format),
        header=options.header,
        columns=columns,
        quoting=options.quoting,
        decoding=source.decoding,
        on_bytes=source.meter.add,
        on_bad_bytes=source.count_bad_bytes,
        on_bad_row=skip,
    )
    for line, cells in rows:
        found_text = True
        starts = True
        # A side of a pair is one sentence, however many lines it has.
        for sentence in cells[0].split("\n") if len(cells) == 1 else map(_in_one_line, cells):
            if sentence and not sentence.isspace():
                yield Record(sentence.removesuffix("\r"), name, line, starts)
                starts = False
        if starts:
            report.empty_documents += 1


def _in_one_line(cell: str) -> str:
    return " ".join(cell.split("\n"))


def _group(records: Iterator[Record]) -> Iterator[Document]:
    sentences: list[str] = []
    source, line = "", 0
    for record in records:
        if record.starts_document:
            if sentences:
                yield Document(tuple(sentences), source, line)
            sentences, source, line = [], record.source, record.line
        sentences.append(record.text)
    if sentences:
        yield Document(tuple(sentences), source, line)
