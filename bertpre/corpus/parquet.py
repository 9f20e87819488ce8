"""Rows of parquet files, with the package pyarrow, which is optional."""

import math
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from bertpre.errors import CorpusError

_ROWS_AT_ONCE = 1024


def read_parquet(
    path: Path, names: Sequence[str], *, on_bytes: Callable[[int], None] | None = None
) -> Iterator[tuple[int, list[tuple[str, Any]]]]:
    """Read columns of a parquet file, a batch of rows in memory at a time.

    Args:
        path: the file.
        names: columns, or numbers from 1; a field inside another is ``outer.inner``.
        on_bytes: told how many bytes of the file each batch stands for.

    Yields:
        The row's number from 1, and the name and value of each column. Numbers are written out, in
        lists too; what is neither text nor number stays as it is.

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
            columns = [_find_column(path, file.schema_arrow, name) for name in names]
            found = [".".join(column) for column in columns]
            outermost = list(dict.fromkeys(column for column, *_ in columns))
            size, total, number = path.stat().st_size, file.metadata.num_rows, 0
            for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=outermost):
                read = {column: batch.column(column).to_pylist() for column in outermost}
                values = [
                    [_inner_value(value, fields) for value in read[column]]
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
            f"{path}: not a readable parquet file ({error})", "copy the file again, or check it"
        ) from error


def _find_column(path: Path, schema: Any, name: str) -> list[str]:
    """Return a column's name, and those of the fields inside it that lead to the values."""
    if name in schema.names:
        return [name]
    first, *inner = name.split(".")
    if inner and first in schema.names:
        return [first, *inner]
    if name.isdecimal() and 1 <= int(name) <= len(schema.names):
        return [schema.names[int(name) - 1]]
    shown = ", ".join(repr(column) for column in schema.names[:20])
    raise CorpusError(f"{path}: no column {name!r}; found {shown}", "name one of these")


def _inner_value(value: Any, fields: Sequence[str]) -> Any:
    for field in fields:
        value = value.get(field) if isinstance(value, dict) else None
    return list(map(_write_number, value)) if isinstance(value, list) else _write_number(value)


def _write_number(value: Any) -> Any:
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
