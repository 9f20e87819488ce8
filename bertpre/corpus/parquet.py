"""Rows of parquet files, with the package pyarrow, which is optional."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bertpre.corpus.row_error import RowError, join_items
from bertpre.errors import CorpusError

_ROWS_AT_ONCE = 1024


class _Column(NamedTuple):
    way: list[str]  # its name, and those of the fields inside it
    separator: str | None  # between the items of a list


def read_parquet(
    path: Path,
    names: Sequence[str],
    *,
    on_bytes: Callable[[int], None] | None = None,
    separators: Mapping[str, str] | None = None,
) -> Iterator[tuple[int, tuple[str, ...] | RowError]]:
    """Read columns of a parquet file, a batch of rows in memory at a time.

    Args:
        path: the file.
        names: columns, or numbers from 1; a field inside another is ``outer.inner``.
        on_bytes: told how many bytes of the file each batch stands for.
        separators: for columns whose lists become one cell, what to put between the items.

    Yields:
        The row's number from 1, and its cells, numbers written out; or the error of a row without
        text or number in one of them.

    Raises:
        CorpusError: pyarrow is missing, the file is damaged, or a column is missing.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise CorpusError(
            f"{path}: parquet files need the package pyarrow", "pip install 'bertpre[parquet]'"
        ) from error
    if not path.exists():
        raise CorpusError(f"{path}: there is no such file", "check the path")
    if not path.is_file():
        raise CorpusError(f"{path}: a parquet file cannot come from a pipe", "name the file")
    try:
        with parquet.ParquetFile(path) as file:
            columns = [
                _Column(_find(path, file.schema_arrow, name), (separators or {}).get(name))
                for name in names
            ]
            tops = list(dict.fromkeys(column.way[0] for column in columns))
            size, total, number = path.stat().st_size, file.metadata.num_rows, 0
            for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=tops):
                read = {top: batch.column(top).to_pylist() for top in tops}
                for row in range(batch.num_rows):
                    number += 1
                    yield number, _cells(path, number, read, row, columns)
                if on_bytes is not None:
                    before = number - batch.num_rows
                    on_bytes(size * number // total - size * before // total)
    except (pyarrow.ArrowException, OSError) as error:
        raise CorpusError(
            f"{path}: not a readable parquet file ({error})", "copy the file again, or check it"
        ) from error


def _find(path: Path, schema: Any, name: str) -> list[str]:
    """Return the way to a column: its name, and those of the fields inside it."""
    if name in schema.names:
        return [name]
    first, *inner = name.split(".")
    if inner and first in schema.names:
        return [first, *inner]
    if name.isdecimal() and 1 <= int(name) <= len(schema.names):
        return [schema.names[int(name) - 1]]
    shown = ", ".join(repr(column) for column in schema.names[:20])
    raise CorpusError(f"{path}: no column {name!r}; found {shown}", "name one of these")


def _cells(
    path: Path,
    number: int,
    read: dict[str, list[Any]],
    row: int,
    columns: Sequence[_Column],
) -> tuple[str, ...] | RowError:
    def fault(problem: str) -> RowError:
        return RowError.at(path, number, problem, unit="row")

    cells = []
    for (top, *inner), separator in columns:
        name, value = ".".join([top, *inner]), read[top][row]
        for part in inner:
            value = value.get(part) if isinstance(value, dict) else None
        if isinstance(value, list) and separator is not None:
            try:
                value = join_items(fault, f"column {name!r}", map(_text, value), separator)
            except RowError as error:
                return error
        text = _text(value)
        if not isinstance(text, str):
            kind = "null" if value is None else type(value).__name__
            if isinstance(value, float):
                kind = str(value)  # nan, inf
            return fault(f"column {name!r}: expected text, found {kind}")
        cells.append(text)
    return tuple(cells)


def _text(value: Any) -> Any:
    """Write a number as people do; what is no number stays as it is."""
    if isinstance(value, bool):
        return "true" if value else "false"  # as in JSON
    if isinstance(value, int | Decimal):
        return str(value)
    if not isinstance(value, float) or not math.isfinite(value):
        return value
    # Whole numbers are floats wherever a column has gaps: a class 1 is no other class for that.
    if value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    # The fewest digits, of a float32 that Python was given as a float64 too.
    short = np.float32(value) if abs(value) < 1e38 else value
    return str(short if float(short) == value else value)
