"""Rows of tables on disk, one at a time.

Serves corpora and the labelled tables of finetuning alike. Every cell is text; nothing is guessed
to be a number, a date or a missing value.
"""

import functools
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from bertpre.corpus.delimited import Quoting, read_delimited
from bertpre.corpus.files import COMPRESSION_SUFFIXES, Decoding, read_lines
from bertpre.corpus.parquet import read_parquet
from bertpre.corpus.row_error import Fault, RowError, join_items, shorten
from bertpre.errors import CorpusError

TableFormat = Literal["jsonl", "csv", "tsv", "parquet"]
FileFormat = Literal["txt", "jsonl", "csv", "tsv", "parquet"]

_SUFFIXES: dict[str, FileFormat] = {
    ".txt": "txt",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}


class Row(NamedTuple):
    """The requested cells of one row, in the order of the request."""

    line: int  # where the row starts, from 1
    cells: tuple[str, ...]


def format_by_name(path: Path) -> FileFormat | None:
    """Tell a file's format by its suffix, the one before ``.gz``; None if it is unknown."""
    return _SUFFIXES.get(_suffix(path))


def is_json_by_name(path: Path) -> bool:
    """Tell whether a name ends in ``.json``, before ``.gz`` and the like."""
    return _suffix(path) == ".json"


def _suffix(path: Path) -> str:
    name = Path(path.name.lower())
    return Path(name.stem if name.suffix in COMPRESSION_SUFFIXES else name).suffix


def table_format(
    path: Path, asked: Literal["auto", "jsonl", "csv", "tsv", "parquet"]
) -> TableFormat:
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
            "in .tsv, .csv, .jsonl or .parquet (or one of the first three and .gz)",
            "rename it, or state the format",
        )
    return found


def read_rows(
    path: Path,
    *,
    format: TableFormat,
    header: bool,
    columns: Sequence[str | int],
    quoting: Quoting = "auto",
    decoding: Decoding | None = None,
    on_bytes: Callable[[int], None] | None = None,
    on_bad_bytes: Callable[[int], None] | None = None,
    on_bad_row: Callable[[RowError], None] | None = None,
    on_bad_width: Callable[[RowError], None] | None = None,
    list_separators: Mapping[str | int, str] | None = None,
) -> Iterator[Row]:
    """Read some columns of a table, row by row.

    Blank lines are no rows, but for those between rows of a single column, whose text is empty.

    Args:
        path: the file, plain or compressed.
        format: the kind of table.
        header: whether csv and tsv start with column names.
        columns: names, or numbers from 1; a number that is also a name in the header is the name.
            A jsonl field inside another is ``outer.inner``.
        quoting: what a quote means in csv and tsv; see `read_delimited`.
        decoding: how bytes become text; see `read_lines`.
        on_bytes: see `read_lines`.
        on_bad_bytes: see `read_lines`.
        on_bad_row: given the error of a jsonl line or parquet row that cannot be used, which is
            then skipped; without it, the error is raised.
        on_bad_width: the same for csv and tsv rows of too few or too many cells.
        list_separators: for jsonl and parquet columns whose lists become one cell, what to put
            between the items; a list in any other column is a bad row.

    Raises:
        CorpusError: a column is missing, a row is short or long, quotes do not match, or a line is
            no JSON.
    """
    names = [str(column) for column in columns]
    separators = {str(name): value for name, value in (list_separators or {}).items()}
    if format == "parquet":
        cells_of_rows = read_parquet(path, names, on_bytes=on_bytes, separators=separators)
        yield from _usable(cells_of_rows, on_bad_row)
        return
    lines = read_lines(path, decoding=decoding, on_bytes=on_bytes, on_bad_bytes=on_bad_bytes)
    if format == "jsonl":
        yield from _usable(_json_rows(path, lines, names, separators), on_bad_row)
        return
    raw_rows = read_delimited(path, lines, format=format, quoting=quoting)
    first = next((row for row in raw_rows if row[1]), None)
    if first is None:
        return
    width = len(first[1])
    places = [_place(path, column, first[1] if header else None, format) for column in columns]
    rows = raw_rows if header else itertools.chain([first], raw_rows)
    separator = "comma" if format == "csv" else "tab"
    for line, cells in _without_blank_lines(rows, width):
        error: RowError | None = None
        if len(cells) <= max(places):
            error = RowError.at(
                path,
                line,
                f"found {_count(len(cells), 'column')}, expected at least {max(places) + 1}: "
                f"{shorten(cells[0])}",
                f"check that the columns are separated by {separator}s, and the format",
            )
        # What is left of a text that holds a separator would be lost without a word.
        elif any(cells[width:]):
            error = RowError.at(
                path,
                line,
                f"found {_count(len(cells), 'column')}, expected {width} as in line {first[0]}: "
                f"{shorten(cells[0])}",
                f"a {separator} inside a text divides it: quote such cells and read them with "
                "--quoting csv, or replace it",
            )
        if error is None:
            yield Row(line, tuple(cells[place] for place in places))
        elif on_bad_width is None:
            raise error
        else:
            on_bad_width(error)


def _without_blank_lines(
    rows: Iterator[tuple[int, list[str]]], width: int
) -> Iterator[tuple[int, list[str]]]:
    """Leave blank lines out, but for those inside a table of one column: rows of empty text."""
    blank: list[int] = []
    for line, cells in rows:
        if cells:
            yield from ((number, [""]) for number in blank)
            yield line, cells
            blank = []
        elif width == 1:
            blank.append(line)


def _usable(
    rows: Iterator[tuple[int, tuple[str, ...] | RowError]],
    on_bad_row: Callable[[RowError], None] | None,
) -> Iterator[Row]:
    for number, cells in rows:
        if not isinstance(cells, RowError):
            yield Row(number, cells)
        elif on_bad_row is None:
            raise cells
        else:
            on_bad_row(cells)


def _place(path: Path, column: str | int, names: list[str] | None, format: str) -> int:
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
    shown = ", ".join(shorten(name) for name in names[:20])
    hint = (
        "name one of these with --text-column and the like; or, if line 1 is no header, pass "
        "--no-header and give the column's number"
    )
    if len(names) == 1 and format == "csv" and "\t" in names[0]:
        hint = "line 1 holds tabs: state --format tsv"
    elif len(names) == 1 and format == "tsv" and "," in names[0]:
        hint = "line 1 holds commas: state --format csv"
    elif any("\r" in name for name in names):
        hint = "the lines end in CR alone: write LF for it"
    elif len(names) == 1 and "\\t" in names[0]:
        hint = "line 1 holds a backslash and a t in place of tabs: write tabs"
    elif len(names) == 1 and ";" in names[0]:
        hint = "line 1 holds semicolons: separate the columns by tabs or commas"
    elif all(len(name) > 1 and name[0] == name[-1] == '"' for name in names):
        hint = "the names are in quotes: read them with --quoting csv"
    raise CorpusError(
        f"{path}: line 1: no column {column!r}; found {_count(len(names), 'column')}: {shown}", hint
    )


def _json_rows(
    path: Path, lines: Iterator[str], names: Sequence[str], separators: Mapping[str, str]
) -> Iterator[tuple[int, tuple[str, ...] | RowError]]:
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                fault = functools.partial(RowError.at, path, number)
                yield number, _json_cells(fault, line, names, separators)
            except RowError as error:
                yield number, error


def _json_cells(
    fault: Fault, line: str, names: Sequence[str], separators: Mapping[str, str]
) -> tuple[str, ...]:
    try:
        # A number stays as it is written: 1.0 is another label than 1.
        found = json.loads(line, parse_int=str, parse_float=str, parse_constant=str)
    except (ValueError, RecursionError) as error:
        raise fault(f"not valid JSON ({error})") from error
    if not isinstance(found, dict):
        raise fault(f"expected a JSON object, found {shorten(line.strip())}")
    cells = []
    for name in names:
        value = _field(fault, found, name)
        value = json.dumps(value) if isinstance(value, bool) else value
        if isinstance(value, list) and name in separators:
            value = join_items(fault, f"field {name!r}", value, separators[name])
        if not isinstance(value, str):
            kind = "null" if value is None else type(value).__name__
            raise fault(f"field {name!r}: expected text, found {kind}")
        # JSON may escape half of a surrogate pair, which is no character.
        if "\\u" in line and any("\ud800" <= char <= "\udfff" for char in value):
            raise fault(f"field {name!r}: holds half of a surrogate pair")
        cells.append(value)
    return tuple(cells)


def _field(fault: Fault, found: Mapping[str, Any], name: str) -> Any:
    if name in found:
        return found[name]
    inner: Any = found
    for part in name.split("."):
        if not isinstance(inner, dict) or part not in inner:
            # The names at the deepest level that is there say most.
            names = list(inner) if isinstance(inner, dict) else []
            shown = ", ".join(shorten(key) for key in names[:20])
            raise fault(f"no field {name!r}; found {shown or 'none'}")
        inner = inner[part]
    return inner


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
