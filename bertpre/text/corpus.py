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
from bertpre.text.tables import FileFormat, TableFormat, format_by_name, read_lines, read_rows

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
    bad_records: int = 0  # jsonl lines that cannot be used; they are skipped


class _File(NamedTuple):
    path: Path
    format: FileFormat


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
        inputs: files and folders; a folder is read recursively, in sorted order.
        options: format, column, what a document is.
        report: counts what is read and what is skipped.
        on_progress: told the bytes read on disk so far, and in all.

    Raises:
        CorpusError: at once if an input is missing; while reading if a file cannot be read, or if
            at the end there was no text at all.
    """
    files = [file for given in inputs for file in _find_files(Path(given), options)]
    total_bytes = sum(file.path.stat().st_size for file in files)
    meter = _Meter(total_bytes, on_progress)
    return _read(files, options, report=report or CorpusReport(), meter=meter)


class _Meter:
    """Adds up the bytes read over all files."""

    def __init__(self, total: int, on_progress: Callable[[int, int | None], None] | None) -> None:
        self._done = 0
        self._total = total
        self._on_progress = on_progress

    def add(self, count: int) -> None:
        self._done += count
        if self._on_progress is not None:
            self._on_progress(self._done, self._total)


def _find_files(given: Path, options: TextOptions) -> list[_File]:
    asked = None if options.format == "auto" else options.format
    if given.is_file():
        return [_File(given, asked or format_by_name(given) or "txt")]
    if not given.is_dir():
        raise CorpusError(f"{given}: there is no such file or folder", "check the path")
    found, passed_over = [], []
    for path in sorted(given.rglob("*")):
        if not path.is_file() or any(
            part.startswith(".") for part in path.relative_to(given).parts
        ):
            continue
        form = asked or format_by_name(path)
        if form is None:
            passed_over.append(path)
        else:
            found.append(_File(path, form))
    if passed_over:
        log.warning(
            "%s: passed over %d files whose names do not tell their format, the first being %s; "
            "--format txt reads every file as text",
            given,
            len(passed_over),
            passed_over[0],
        )
    if not found:
        raise CorpusError(
            f"{given}: no text files in this folder; expected names that end in .txt, .jsonl, "
            ".csv or .tsv (or one of these and .gz)",
            "state the --format, so that every file is read",
        )
    return found


def _read(
    files: Sequence[_File], options: TextOptions, *, report: CorpusReport, meter: _Meter
) -> Iterator[Record]:
    for file in files:
        read = _txt_records if file.format == "txt" else _table_records
        for record in read(file, options, report=report, meter=meter):
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


def _txt_records(
    file: _File, options: TextOptions, *, report: CorpusReport, meter: _Meter
) -> Iterator[Record]:
    source = str(file.path)
    starts = True
    for number, line in enumerate(read_lines(file.path, on_bytes=meter.add), start=1):
        if line.isspace():
            starts = starts or options.document != "file"
            continue
        yield Record(line.removesuffix("\n").removesuffix("\r"), source, number, starts)
        starts = options.document == "line"
    if options.document == "file" and starts:
        report.empty_documents += 1


def _table_records(
    file: _File, options: TextOptions, *, report: CorpusReport, meter: _Meter
) -> Iterator[Record]:
    def skip(error: CorpusError) -> None:
        report.bad_records += 1
        if report.documents == 0 and report.bad_records >= _RECORDS_BEFORE_GIVING_UP:
            raise CorpusError(
                f"none of the first {report.bad_records:,} records can be used; the last: {error}",
                "check --format and --text-column",
            )
        if report.bad_records <= _WARNINGS_SHOWN:
            log.warning("skipped: %s", error)

    source = str(file.path)
    rows = read_rows(
        file.path,
        format=cast(TableFormat, file.format),
        header=options.header,
        columns=[options.text_column],
        on_bytes=meter.add,
        on_bad_row=skip,
    )
    for line, (text,) in rows:
        starts = True
        for sentence in text.split("\n"):
            if sentence and not sentence.isspace():
                yield Record(sentence.removesuffix("\r"), source, line, starts)
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
