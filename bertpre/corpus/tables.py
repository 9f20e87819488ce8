"""Read tables row by row and report unusable rows, for corpora and labelled tables.

Every cell is text; nothing is interpreted as a number, a date or a missing value.
"""

import functools
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, TypeVar

from bertpre.corpus.columns import DOCUMENT_MARK, NO_TOKEN
from bertpre.corpus.conll import ColumnFile
from bertpre.corpus.decoding import Decoding
from bertpre.corpus.delimited import Quoting
from bertpre.corpus.files import read_lines
from bertpre.corpus.inputs import TableFormat
from bertpre.corpus.parquet import read_parquet
from bertpre.corpus.rows import RowError as RowError
from bertpre.corpus.whole_rows import DelimitedTable
from bertpre.errors import CorpusError, shorten

_Raw = TypeVar("_Raw")


class Row(NamedTuple):
    """The requested cells of a row, in the requested order."""

    line: int  # the first line of the row, from 1
    cells: tuple[str, ...]
    starts_document: bool = True  # only in conll with marks between documents, some rows do not


class ListCell(str):
    """A cell that was a list."""


class _Reading(TypedDict):
    """How lines are read."""

    decoding: Decoding | None
    on_bytes: Callable[[int], None] | None
    on_bad_bytes: Callable[[int], None] | None


# Creates the error of a row from a problem and a hint.
_Fault = Callable[..., RowError]


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
    """Read columns of a table, row by row.

    Blank lines are skipped, except inside a table of one column, where they are rows of empty text.
    In conll, a row is a sentence, and its only cell the tokens with a space between. It starts a
    document, unless there was a mark that starts one and no other since.

    Args:
        path: the file, plain or compressed.
        format: the format of the table.
        header: whether csv and tsv start with column names.
        columns: names, or numbers from 1; names in the header take precedence over numbers.
            ``outer.inner`` is a nested field in jsonl and parquet. In conll, only one: "text" for
            the first column, or the number of the column of tokens.
        quoting: how to read quotes in csv and tsv; see `read_delimited`.
        decoding: how to decode bytes.
        on_bytes, on_bad_bytes: see `read_lines`.
        on_bad_row: called with the error of an unusable jsonl line, parquet row or conll sentence,
            which is then skipped; without it, the error is raised.
        on_bad_width: the same for csv and tsv rows with too few or too many cells.
        list_separators: joins lists in these jsonl and parquet columns into one cell; in other
            columns, lists make a row unusable.

    Raises:
        CorpusError: a column is missing, quotes are unbalanced, or a row is unusable.
    """
    reading = _Reading(decoding=decoding, on_bytes=on_bytes, on_bad_bytes=on_bad_bytes)
    if format == "conll":
        yield from _sentence_rows(path, columns, reading, on_bad_row)
        return
    names = [str(column) for column in columns]
    separators = {str(name): value for name, value in (list_separators or {}).items()}
    if format == "parquet":
        values = read_parquet(path, names, on_bytes=on_bytes)
        parquet_cells = functools.partial(_parquet_cells, names=names, separators=separators)
        yield from _usable_rows(path, values, parquet_cells, on_bad_row, unit="row")
        return
    lines = read_lines(path, **reading)
    if format == "jsonl":
        objects = ((n, line) for n, line in enumerate(lines, start=1) if line.strip())
        json_cells = functools.partial(_json_cells, names=names, separators=separators)
        yield from _usable_rows(path, objects, json_cells, on_bad_row)
        return
    table = DelimitedTable(path, lines, format=format, header=header, quoting=quoting)
    yield from _delimited_rows(table, columns, on_bad_width)


def _token_column(path: Path, columns: Sequence[str | int]) -> int | None:
    """Return the column that has the text of a column file; None: the default."""
    column = next((column for column in reversed(columns) if column != "text"), "text")
    if len(columns) == 1 and (column == "text" or isinstance(column, int)):
        return None if isinstance(column, str) else column
    raise CorpusError(
        f"{path}: no column {column!r}; a file of columns has no text but its tokens",
        "choose the column of the tokens by its number, from 1, with --text-column, and no others; "
        "if this is a table, set --format to that of the table",
    )


def _sentence_rows(
    path: Path,
    columns: Sequence[str | int],
    reading: _Reading,
    on_bad_row: Callable[[RowError], None] | None,
) -> Iterator[Row]:
    column = _token_column(path, columns)
    file = ColumnFile(path, tags="ignore", text_column=column, **reading)
    has_documents, starts = False, True
    for sentence in file.sentences():
        before, after = _find_marks(sentence.lines)
        has_documents = has_documents or before
        starts = starts or before or not has_documents
        if sentence.fault is None:
            yield Row(sentence.line, (" ".join(sentence.tokens),), starts)
        elif on_bad_row is None:
            raise sentence.fault
        else:
            on_bad_row(sentence.fault)
        # After a bad sentence that starts a document, the next one does.
        starts = after or (starts and sentence.fault is not None)
        has_documents = has_documents or after


def _find_marks(lines: Sequence[str]) -> tuple[bool, bool]:
    """Return whether a document is said to start before and after the tokens of some lines."""
    marks = [line.startswith(DOCUMENT_MARK) for line in lines if NO_TOKEN.match(line)]
    num_before = sum(1 for _ in itertools.takewhile(NO_TOKEN.match, lines))
    return any(marks[:num_before]), any(marks[num_before:])


def _delimited_rows(
    table: DelimitedTable,
    columns: Sequence[str | int],
    on_bad_width: Callable[[RowError], None] | None,
) -> Iterator[Row]:
    if not table.width:
        return
    places = [table.find(column) for column in columns]
    for line, cells, fault in table.rows(max(places) + 1):
        if fault is None:
            yield Row(line, tuple([cells[place] for place in places]))
        elif on_bad_width is None:
            raise fault
        else:
            on_bad_width(fault)


def _usable_rows(
    path: Path,
    rows: Iterable[tuple[int, _Raw]],
    make_cells: Callable[[_Fault, _Raw], tuple[str, ...]],
    on_bad_row: Callable[[RowError], None] | None,
    *,
    unit: str = "line",
) -> Iterator[Row]:
    """Convert numbered rows to cells; report unusable ones, or raise their error."""
    for number, raw in rows:
        try:
            cells = make_cells(functools.partial(RowError.at, path, number, unit=unit), raw)
        except RowError as error:
            if on_bad_row is None:
                raise
            on_bad_row(error)
        else:
            yield Row(number, cells)


def _parquet_cells(
    fault: _Fault,
    row: list[tuple[str, Any]],
    *,
    names: Sequence[str],
    separators: Mapping[str, str],
) -> tuple[str, ...]:
    return tuple(
        _make_cell(fault, f"column {found!r}", value, separators.get(name))
        for name, (found, value) in zip(names, row, strict=True)
    )


def _json_cells(
    fault: _Fault, line: str, *, names: Sequence[str], separators: Mapping[str, str]
) -> tuple[str, ...]:
    try:
        # Keep numbers as written: the labels 1.0 and 1 differ.
        found = json.loads(line, parse_int=str, parse_float=str, parse_constant=str)
    except (ValueError, RecursionError) as error:
        # Its message without its position, which counts lines within this one.
        problem = error.msg if isinstance(error, json.JSONDecodeError) else error
        raise fault(f"not valid JSON ({problem})") from error
    if not isinstance(found, dict):
        raise fault(f"expected a JSON object, found {shorten(line.strip())}")
    cells = []
    for name in names:
        value = _find_field(fault, found, name)
        value = json.dumps(value) if isinstance(value, bool) else value
        cell = _make_cell(fault, f"field {name!r}", value, separators.get(name))
        # JSON may escape half of a surrogate pair, which is not a character.
        if "\\u" in line and any("\ud800" <= char <= "\udfff" for char in cell):
            raise fault(f"field {name!r}: contains half of a surrogate pair")
        cells.append(cell)
    return tuple(cells)


def _find_field(fault: _Fault, found: Mapping[str, Any], name: str) -> Any:
    if name in found:
        return found[name]
    inner: Any = found
    for part in name.split("."):
        if not isinstance(inner, dict) or part not in inner:
            # Show the names at the deepest existing level.
            names = list(inner) if isinstance(inner, dict) else []
            shown = ", ".join(shorten(key) for key in names[:20])
            raise fault(f"no field {name!r}; found {shown or 'none'}")
        inner = inner[part]
    return inner


def _make_cell(fault: _Fault, place: str, value: Any, separator: str | None) -> str:
    """Check that a value is text, or join a list of texts if there is a separator."""
    if isinstance(value, list) and separator is not None:
        for item in value:
            if not isinstance(item, str):
                raise fault(f"{place}: expected a list of texts, found {shorten(str(item))}")
            if separator in item:
                raise fault(f"{place}: {shorten(item)} contains the separator {separator!r}")
        return ListCell(separator.join(value))
    if not isinstance(value, str):
        # A float is nan or inf here.
        kind = str(value) if isinstance(value, float) else type(value).__name__
        raise fault(f"{place}: expected text, found {'null' if value is None else kind}")
    return value
