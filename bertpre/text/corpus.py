"""Files and folders to records and documents, streaming.

A record is one line that holds text; a document is consecutive records that belong together.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, cast

from bertpre.config.schema import TextOptions
from bertpre.errors import CorpusError
from bertpre.text.files import Decoding, read_lines
from bertpre.text.inputs import InputFile, find_files
from bertpre.text.tables import TableFormat, read_rows

log = logging.getLogger(__name__)

# If none of so many records of the corpus can be used, the option is wrong, not the data.
_RECORDS_BEFORE_GIVING_UP = 1000
_WARNINGS_SHOWN = 3


class Record(NamedTuple):
    """One line of text, never blank."""

    text: str
    source: str
    line: int  # from 1
    starts_document: bool


class Document(NamedTuple):
    """Consecutive sentences, at least one."""

    sentences: tuple[str, ...]
    source: str
    line: int  # of the first sentence, from 1


@dataclass(kw_only=True, slots=True)
class CorpusReport:
    """What reading found; counts up while records are read."""

    documents: int = 0
    sentences: int = 0
    characters: int = 0
    empty_documents: int = 0  # rows of tables and whole files without text; they are skipped
    bad_records: int = 0  # jsonl lines and parquet rows that cannot be used; they are skipped
    bad_bytes: int = 0  # sequences that are not of the encoding, replaced or skipped


def read_documents(
    inputs: Sequence[str | Path],
    options: TextOptions,
    *,
    report: CorpusReport | None = None,
    on_progress: Callable[[int, int | None], None] | None = None,
) -> Iterator[Document]:
    """Read documents, each whole; see `read_records` for arguments and errors."""
    return _group(read_records(inputs, options, report=report, on_progress=on_progress))


def read_records(
    inputs: Sequence[str | Path],
    options: TextOptions,
    *,
    report: CorpusReport | None = None,
    on_progress: Callable[[int, int | None], None] | None = None,
) -> Iterator[Record]:
    r"""Read every line that holds text, in the order of the inputs.

    Lines end at "\n" only. Lines of nothing but white space are not records; in txt they end a
    document, as ``options.document`` says. The lines of a table's cell or of a jsonl field are the
    records of one document.

    Args:
        inputs: files, folders, patterns, or "-"; see `bertpre.text.inputs.find_files`.
        options: format, column, encoding, what a document is.
        report: counts what is read and what is skipped.
        on_progress: told the bytes read on disk so far, and in all.

    Raises:
        CorpusError: at once if an input is missing; while reading if a file cannot be read, or if
            at the end there was no text at all.
    """
    files = find_files(inputs, options.format)
    decoding = Decoding(encoding=options.encoding, on_bad_bytes=options.on_bad_bytes)
    sizes = [file.size() for file in files]
    total = None if None in sizes else sum(size or 0 for size in sizes)
    source = _Source(options, decoding, report or CorpusReport(), _Meter(total, on_progress))
    return _read(files, source)


class _Source(NamedTuple):
    """What reading any file needs."""

    options: TextOptions
    decoding: Decoding
    report: CorpusReport
    meter: "_Meter"

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


def _read(files: Sequence[InputFile], source: _Source) -> Iterator[Record]:
    report = source.report
    for file in files:
        read = _txt_records if file.format == "txt" else _table_records
        for record in read(file, source):
            report.documents += record.starts_document
            report.sentences += 1
            report.characters += len(record.text)
            yield record
    if report.documents == 0:
        shown = ", ".join(str(file.path) for file in files[:3]) + (", …" if files[3:] else "")
        bad = f" and {report.bad_records:,} unusable records" if report.bad_records else ""
        raise CorpusError(
            f"no text in the input: found only blank lines{bad} in {shown}",
            "check the files, and --format and --text-column",
        )


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

    def skip(error: CorpusError) -> None:
        report.bad_records += 1
        if report.documents == 0 and report.bad_records >= _RECORDS_BEFORE_GIVING_UP:
            raise CorpusError(
                f"none of the first {report.bad_records:,} records can be used; the last: {error}",
                "check --format and --text-column",
            )
        if report.bad_records <= _WARNINGS_SHOWN:
            log.warning("skipped: %s", error)

    name = str(file.path)
    rows = read_rows(
        file.path,
        format=cast(TableFormat, file.format),
        header=options.header,
        columns=[options.text_column],
        quoting=options.quoting,
        decoding=source.decoding,
        on_bytes=source.meter.add,
        on_bad_bytes=source.count_bad_bytes,
        on_bad_row=skip,
    )
    for line, (text,) in rows:
        starts = True
        for sentence in text.split("\n"):
            if sentence and not sentence.isspace():
                yield Record(sentence.removesuffix("\r"), name, line, starts)
                starts = False
        if starts:
            report.empty_documents += 1


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
