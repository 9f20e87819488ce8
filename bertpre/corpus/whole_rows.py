"""Whole rows of csv and tsv files, and what is wrong with their number of cells."""

import functools
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from bertpre.corpus.delimited import (
    Quoting,
    count_columns,
    find_column,
    read_delimited,
    write_delimited,
)
from bertpre.corpus.rows import RowError
from bertpre.errors import shorten


class WholeRow(NamedTuple):
    """A row with all its cells."""

    line: int  # its first line, from 1
    cells: list[str]
    fault: RowError | None


class DelimitedTable:
    """A csv or tsv file that is read once.

    Blank lines are skipped, except inside a table of one column, where they are rows of empty text.

    Args:
        path: for messages.
        lines: including newlines.
        format: csv or tsv.
        header: whether the first row has the column names.
        quoting: how to read quotes; see `read_delimited`.

    Attributes:
        names: the column names; None if there is no header or no row.
        width: number of columns of the first row; 0 if there is none.
        is_quoted: whether cells may be quoted.
    """

    def __init__(
        self,
        path: Path,
        lines: Iterator[str],
        *,
        format: Literal["csv", "tsv"],
        header: bool,
        quoting: Quoting,
    ) -> None:
        self._path, self._format = path, format
        rows, self.is_quoted = read_delimited(path, lines, format=format, quoting=quoting)
        self._start, first = next((row for row in rows if row[1]), (0, list[str]()))
        self.width = len(first)
        self.names = first if header and first else None
        self._rows = rows if header or not first else itertools.chain([(self._start, first)], rows)

    def find(self, column: str | int) -> int:
        """Return the index of a column, from 0; see `find_column`."""
        return find_column(self._path, column, self.names, self._format)

    def rows(self, fewest: int) -> Iterator[WholeRow]:
        """Yield all rows after the header.

        Args:
            fewest: a row with fewer cells has a fault, and one with more than ``width`` too.
        """
        for line, cells in self._without_blank_lines():
            yield WholeRow(line, cells, self._fault(line, cells, fewest))

    def write(self, cells: Sequence[str]) -> str:
        """Return the line of a row; see `write_delimited`."""
        return write_delimited(cells, format=self._format, is_quoted=self.is_quoted)

    def _fault(self, line: int, cells: list[str], fewest: int) -> RowError | None:
        separator = "comma" if self._format == "csv" else "tab"
        fault = functools.partial(RowError.at, self._path, line)
        if len(cells) < fewest:
            return fault(
                f"found {count_columns(len(cells))}, expected at least {fewest}: "
                f"{shorten(cells[0])}",
                f"check the format, and that columns are separated by {separator}s",
            )
        # Otherwise the end of a text that contains a separator would be lost silently.
        if any(cells[self.width :]):
            return fault(
                f"found {count_columns(len(cells))}, expected {self.width} as in line "
                f"{self._start}: {shorten(cells[0])}",
                f"a {separator} inside a text splits it: quote such cells and pass --quoting csv, "
                f"or replace the {separator}",
            )
        return None

    def _without_blank_lines(self) -> Iterator[tuple[int, list[str]]]:
        blank: list[int] = []
        for line, cells in self._rows:
            if cells:
                yield from ((number, [""]) for number in blank)
                yield line, cells
                blank = []
            elif self.width == 1:
                blank.append(line)
