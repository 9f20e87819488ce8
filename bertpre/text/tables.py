"""Lines and rows of files on disk, one at a time: the lowest step of reading.

Serves corpora and the labelled tables of finetuning alike. Every cell is text; nothing is guessed
to be a number, a date or a missing value.
"""

import csv
import gzip
import io
import json
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple, cast

from bertpre.errors import CorpusError

TableFormat = Literal["jsonl", "csv", "tsv"]
FileFormat = Literal["txt", "jsonl", "csv", "tsv"]

_SUFFIXES: dict[str, FileFormat] = {
    ".txt": "txt",
    ".jsonl": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
}
_GZIP_MAGIC = b"\x1f\x8b"


class Row(NamedTuple):
    """The requested cells of one row, in the order of the request."""

    line: int  # where the row starts, from 1
    cells: tuple[str, ...]


def format_by_name(path: Path) -> FileFormat | None:
    """Tell a file's format by its suffix, the one before ``.gz``; None if it is unknown."""
    name = path.name.lower().removesuffix(".gz")
    return _SUFFIXES.get(Path(name).suffix)


def table_format(path: Path, asked: Literal["auto", "jsonl", "csv", "tsv"]) -> TableFormat:
    """Settle the format of a table.

    Raises:
        CorpusError: ``asked`` is "auto" and the file name does not tell.
    """
    if asked != "auto":
        return asked
    found = format_by_name(path)
    if found is None or found == "txt":
        raise CorpusError(
            f"{path}: the name does not say which kind of table it is; expected a name that ends "
            "in .tsv, .csv or .jsonl (or one of these and .gz)",
            "rename it, or state the format",
        )
    return found


def read_lines(path: Path, *, on_bytes: Callable[[int], None] | None = None) -> Iterator[str]:
    r"""Read a UTF-8 file, plain or gzipped, line by line; only "\n" ends a line.

    Args:
        path: the file; gzip is recognised by its first bytes, whatever the name.
        on_bytes: told how many bytes of the file on disk were read, after each read.

    Yields:
        Lines with their "\n", without a byte order mark.

    Raises:
        CorpusError: no such file, a damaged gzip file, or bytes that are not UTF-8.
    """
    number = 0
    try:
        with _Watched(path, on_bytes) as file, _unpacked(file) as stream:
            for number, line in enumerate(stream, start=1):
                text = line.decode("utf-8")
                yield text.removeprefix("\ufeff") if number == 1 else text
    except UnicodeDecodeError as error:
        raise CorpusError(
            f"{path}: line {number}, byte {error.start + 1} of the line: expected UTF-8, "
            f"found 0x{error.object[error.start]:02X}",
            "convert the file, for example with `iconv -f GB18030 -t UTF-8`",
        ) from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise CorpusError(
            f"{path}: damaged gzip file after line {number} ({error})", "copy the file again"
        ) from error
    except FileNotFoundError as error:
        raise CorpusError(f"{path}: there is no such file", "check the path") from error
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read ({error.strerror})") from error


def read_rows(
    path: Path,
    *,
    format: TableFormat,
    header: bool,
    columns: Sequence[str | int],
    on_bytes: Callable[[int], None] | None = None,
    on_bad_row: Callable[[CorpusError], None] | None = None,
) -> Iterator[Row]:
    """Read some columns of a table, row by row; blank lines are no rows.

    Args:
        path: the file, plain or gzipped.
        format: tsv has no quoting, so a lone quote is text; csv has.
        header: whether csv and tsv start with column names.
        columns: names, or numbers from 1; a number that is also a name in the header is the name.
        on_bytes: see `read_lines`.
        on_bad_row: given the error of a jsonl line that cannot be used, which is then skipped;
            without it, the error is raised.

    Raises:
        CorpusError: a column is missing, a row is short, quotes do not match, or a line is no JSON.
    """
    lines = read_lines(path, on_bytes=on_bytes)
    if format == "jsonl":
        yield from _json_rows(path, lines, [str(column) for column in columns], on_bad_row)
        return
    raw_rows = _csv_rows(path, lines) if format == "csv" else _tsv_rows(lines)
    names = next(raw_rows, (1, None))[1] if header else None
    if header and names is None:
        return
    places = [_place(path, column, names) for column in columns]
    width = max(places) + 1
    for line, cells in raw_rows:
        if len(cells) < width:
            raise CorpusError(
                f"{path}: line {line}: found {_count(len(cells), 'column')}, expected at least "
                f"{width}: {_shorten(cells[0])}",
                f"check that the columns are separated by {'commas' if format == 'csv' else 'tabs'}"
                ", and the format",
            )
        yield Row(line, tuple(cells[place] for place in places))


class _Watched(io.FileIO):
    """A file that tells how far it has been read, which works under gzip too."""

    def __init__(self, path: Path, on_bytes: Callable[[int], None] | None) -> None:
        super().__init__(path)
        self._on_bytes = on_bytes

    def readinto(self, buffer: object, /) -> int | None:
        count = super().readinto(buffer)  # type: ignore[arg-type]
        if self._on_bytes is not None and count:
            self._on_bytes(count)
        return count


def _unpacked(file: io.FileIO) -> BinaryIO:
    buffered = io.BufferedReader(file, buffer_size=1 << 16)
    if buffered.peek(2).startswith(_GZIP_MAGIC):
        # GzipFile's own iteration runs Python code for each line; BufferedReader's does not.
        unzipped = cast(io.RawIOBase, gzip.GzipFile(fileobj=buffered))
        return io.BufferedReader(unzipped, buffer_size=1 << 16)
    return buffered


def _tsv_rows(lines: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(lines, start=1):
        content = line.removesuffix("\n").removesuffix("\r")
        if content:
            yield number, content.split("\t")


def _csv_rows(path: Path, lines: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(sys.maxsize)
    reader = csv.reader(lines, strict=True)
    start = 1
    try:
        for cells in reader:
            if cells:
                yield start, cells
            start = reader.line_num + 1
    except csv.Error as error:
        raise CorpusError(
            f"{path}: line {start}: not valid csv ({error})",
            'quote cells that hold quotes, and double the quotes inside ("")',
        ) from error


def _place(path: Path, column: str | int, names: list[str] | None) -> int:
    if names is not None and str(column) in names:
        if names.count(str(column)) > 1:
            raise CorpusError(
                f"{path}: line 1: {names.count(str(column))} columns are called {column!r}",
                "give the column's number, from 1",
            )
        return names.index(str(column))
    if isinstance(column, int) and 1 <= column <= (sys.maxsize if names is None else len(names)):
        return column - 1
    if names is None:
        raise CorpusError(
            f"{path}: without a header line there is no column {column!r}",
            "give the column's number, from 1",
        )
    shown = ", ".join(_shorten(name) for name in names[:20])
    raise CorpusError(
        f"{path}: line 1: no column {column!r}; found {_count(len(names), 'column')}: {shown}",
        "name one of these; or, if line 1 is no header, say so and give the column's number",
    )


def _json_rows(
    path: Path,
    lines: Iterator[str],
    names: Sequence[str],
    on_bad_row: Callable[[CorpusError], None] | None,
) -> Iterator[Row]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield Row(number, _json_cells(f"{path}: line {number}", line, names))
        except CorpusError as error:
            if on_bad_row is None:
                raise
            on_bad_row(error)


def _json_cells(where: str, line: str, names: Sequence[str]) -> tuple[str, ...]:
    try:
        # A number stays as it is written: 1.0 is another label than 1.
        found = json.loads(line, parse_int=str, parse_float=str, parse_constant=str)
    except (ValueError, RecursionError) as error:
        raise CorpusError(f"{where}: not valid JSON ({error})") from error
    if not isinstance(found, dict):
        raise CorpusError(f"{where}: expected a JSON object, found {_shorten(line.strip())}")
    cells = []
    for name in names:
        if name not in found:
            shown = ", ".join(_shorten(key) for key in list(found)[:20])
            raise CorpusError(f"{where}: no field {name!r}; found {shown or 'none'}")
        value = json.dumps(found[name]) if isinstance(found[name], bool) else found[name]
        if not isinstance(value, str):
            kind = "null" if value is None else type(value).__name__
            raise CorpusError(f"{where}: field {name!r}: expected text, found {kind}")
        # JSON may escape half of a surrogate pair, which is no character.
        if "\\u" in line and any("\ud800" <= char <= "\udfff" for char in value):
            raise CorpusError(f"{where}: field {name!r}: holds half of a surrogate pair")
        cells.append(value)
    return tuple(cells)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _shorten(text: str) -> str:
    return repr(text) if len(text) <= 40 else f"{text[:40]!r}…"
