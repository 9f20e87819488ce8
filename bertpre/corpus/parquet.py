"""Read rows of parquet files with the optional package pyarrow."""

import math
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from bertpre.errors import CorpusError

_ROWS_AT_ONCE = 1024


def read_parquet(
    path: Path, names: Sequence[str] | None, *, on_bytes: Callable[[int], None] | None = None
) -> Iterator[tuple[int, list[tuple[str, Any]]]]:
    """Read columns of a parquet file in batches of rows.

    Args:
        path: the file.
        names: columns, or their numbers from 1; ``outer.inner`` is a nested field. None: all
            columns, with all values unchanged.
        on_bytes: called with the bytes of the file that each batch corresponds to.

    Yields:
        The row's number from 1, and the name and value of each column. Numbers, also in lists, are
        converted to text; other values are unchanged.

    Raises:
        CorpusError: pyarrow is missing, the file is damaged, or a column is missing.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise CorpusError(
            f"{path}: reading parquet needs the package pyarrow", "pip install 'bertpre[parquet]'"
        ) from error
    if not path.exists():
        raise CorpusError(f"{path}: there is no such file", "check the path")
    if not path.is_file():
        raise CorpusError(f"{path}: parquet cannot be read from a pipe", "name a file")
    try:
        with parquet.ParquetFile(path) as file:
            all_names = file.schema_arrow.names
            columns = [
                find_parquet_column(path, all_names, name)
                for name in (all_names if names is None else names)
            ]
            found = [".".join(column) for column in columns]
            outermost = list(dict.fromkeys(column for column, *_ in columns))
            size, total, number = path.stat().st_size, file.metadata.num_rows, 0
            for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=outermost):
                read = {column: batch.column(column).to_pylist() for column in outermost}
                values = [
                    read[column]
                    if names is None
                    else [inner_value(value, fields) for value in read[column]]
                    for column, *fields in columns
                ]
                for row in zip(*values, strict=True):
                    number += 1
                    yield number, list(zip(found, row, strict=True))
                if on_bytes is not None:
                    before = number - batch.num_rows
                    on_bytes(size * number // total - size * before // total)
    except (pyarrow.ArrowException, OSError) as error:
        raise CorpusError(
            f"{path}: not a readable parquet file ({error})", "check the file, or copy it again"
        ) from error


def find_parquet_column(path: Path, names: Sequence[str], name: str) -> list[str]:
    """Return a column's name and the path of nested fields to its values.

    Args:
        path: for messages.
        names: of all columns.
        name: a name, a number from 1, or ``outer.inner``.

    Raises:
        CorpusError: there is no such column.
    """
    if name in names:
        return [name]
    first, *inner = name.split(".")
    if inner and first in names:
        return [first, *inner]
    if name.isdecimal() and 1 <= int(name) <= len(names):
        return [names[int(name) - 1]]
    shown = ", ".join(repr(column) for column in names[:20])
    raise CorpusError(f"{path}: no column {name!r}; found {shown}", "choose one of these")


def inner_value(value: Any, fields: Sequence[str]) -> Any:
    """Return the value of a nested field, with numbers, also in a list, as text."""
    value = nested_value(value, fields)
    return list(map(_write_number, value)) if isinstance(value, list) else _write_number(value)


def nested_value(value: Any, fields: Sequence[str]) -> Any:
    """Return the value of a nested field unchanged, None if there is none."""
    for field in fields:
        value = value.get(field) if isinstance(value, dict) else None
    return value


def _write_number(value: Any) -> Any:
    """Convert a number to text, and leave other values unchanged."""
    if isinstance(value, bool):
        return "true" if value else "false"  # as in JSON
    if isinstance(value, int | Decimal):
        return str(value)
    if not isinstance(value, float) or not math.isfinite(value):
        return value
    # A column of integers with gaps holds floats: the label 1.0 means 1.
    if value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    # The fewest digits, also of a float32 that was converted to a float64.
    short = np.float32(value) if abs(value) < 1e38 else value
    return str(short if float(short) == value else value)
