"""Stream records and documents from files and folders.

A record is a non-blank line or sentence; a document is consecutive records that belong together.
Duplicates are removed and lines are split into sentences if the options say so.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, cast

from bertpre.config.fields import Kmer
from bertpre.config.schema import TextOptions
from bertpre.corpus.decoding import Decoding
from bertpre.corpus.duplicates import remove_repeats
from bertpre.corpus.files import read_lines
from bertpre.corpus.inputs import InputFile, TableFormat, find_files
from bertpre.corpus.report import (
    CorpusReport,
    LineCounter,
    SentenceCounter,
    warn_of_duplicates,
)
from bertpre.corpus.sentences import Record, cut_sentences
from bertpre.corpus.tables import read_rows
from bertpre.errors import ConfigError, CorpusError

log = logging.getLogger(__name__)

# If none of this many records is usable, the options are wrong, not the data.
_RECORDS_BEFORE_GIVING_UP = 1000
_WARNINGS_SHOWN = 3
# Up to this many unusable records are only counted, even if they are most of a small corpus.
_BAD_RECORDS_PASSED_OVER = 10
# Characters; a document is held in memory, so a file without blank lines is cut into several.
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
    return _group_by_document(records)


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
    files = find_files(inputs, options.format, is_quiet=is_quiet)
    if options.pair_column is not None:
        _check_pairs(files, options)
    decoding = Decoding(encoding=options.encoding, on_bad_bytes=options.on_bad_bytes)
    sizes = [file.size() for file in files]
    num_readings = 1 if options.dedup == "none" else 2
    for file, size in zip(files, sizes, strict=True):
        if size is None and num_readings == 2:
            raise CorpusError(
                f"{file.path}: a pipe can only be read once, but --dedup reads the text twice",
                "write the text to a file first",
            )
    total = None if None in sizes else num_readings * sum(size or 0 for size in sizes)
    done = 0

    def count_bytes(count: int) -> None:
        nonlocal done
        done += count
        if on_progress is not None:
            on_progress(done, total)

    report = report or CorpusReport()
    return _read(files, _Reading(options, decoding, report, count_bytes, [], is_quiet), kmer)


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


def _read(files: Sequence[InputFile], reading: _Reading, kmer: Kmer | None) -> Iterator[Record]:
    options, report = reading.options, reading.report
    counter = SentenceCounter(report)
    lines = _count_lines(_read_lines_of(files, reading), report)
    if options.dedup != "none":
        first = reading._replace(report=CorpusReport(), last_bad=[], is_quiet=True)
        lines = remove_repeats(lines, _read_lines_of(files, first), options.dedup, report)
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
            bad = f", {report.bad_records:,} unusable records (the last: {reading.last_bad[0]})"
        raise CorpusError(f"no text in the input: only blank lines{bad} in {shown}", hint)
    usable = report.documents + report.removed_documents + report.empty_documents
    if report.bad_records > max(usable, _BAD_RECORDS_PASSED_OVER):
        raise CorpusError(
            f"most records are unusable: {report.bad_records:,}, against {report.documents:,} "
            f"usable ones; the last: {reading.last_bad[0]}",
            hint,
        )
    if not reading.is_quiet:
        warn_of_duplicates(report, options)


def _read_lines_of(files: Sequence[InputFile], reading: _Reading) -> Iterator[Record]:
    for file in files:
        read = _txt_records if file.format == "txt" else _table_records
        yield from read(file, reading)


def _count_lines(lines: Iterable[Record], report: CorpusReport) -> Iterator[Record]:
    counter = LineCounter(report)
    for line in lines:
        counter.add(line)
        yield line
    counter.finish()


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


def _txt_records(file: InputFile, reading: _Reading) -> Iterator[Record]:
    options = reading.options
    name = str(file.path)
    starts = True
    lines = read_lines(
        file.path,
        decoding=reading.decoding,
        on_bytes=reading.on_bytes,
        on_bad_bytes=reading.count_bad_bytes,
    )
    for number, line in enumerate(lines, start=1):
        if line.isspace():
            starts = starts or options.document != "file"
            continue
        yield Record(line.removesuffix("\n").removesuffix("\r"), name, number, starts)
        starts = options.document == "line"
    if options.document == "file" and starts:
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


def _group_by_document(records: Iterator[Record]) -> Iterator[Document]:
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
