"""Rows of csv and tsv files, and what a quote means in them."""

import csv
import itertools
import logging
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from bertpre.errors import CorpusError

log = logging.getLogger(__name__)

Quoting = Literal["auto", "none", "csv"]

# How much of a tsv file is looked at to tell whether its cells are quoted.
_SAMPLE_CHARACTERS = 1 << 20


def read_delimited(
    path: Path, lines: Iterator[str], *, format: Literal["csv", "tsv"], quoting: Quoting
) -> Iterator[tuple[int, list[str]]]:
    """Split lines into cells, and join those that a quoted cell spans.

    Args:
        path: named in errors.
        lines: with their newlines.
        format: csv has commas, tsv has tabs.
        quoting: csv: a cell in quotes may hold anything, quotes doubled; none: a quote is text;
            auto: csv for csv files, and for tsv files none unless their beginning shows cells
            quoted as pandas and spreadsheets quote them.

    Yields:
        The line that a row starts on, from 1, and its cells; none for a blank line.

    Raises:
        CorpusError: quotes do not match.
    """
    delimiter = "," if format == "csv" else "\t"
    is_noticed = False
    if quoting == "auto" and format == "tsv":
        sample = _take(lines, _SAMPLE_CHARACTERS)
        is_noticed = _looks_quoted(sample)
        lines = itertools.chain(sample, lines)
        if is_noticed:
            log.info(
                "%s: read as csv reads quotes, as its cells are quoted so; --quoting none keeps "
                "quotes as text",
                path,
            )
    if is_noticed or quoting == "csv" or (quoting == "auto" and format == "csv"):
        return _quoted_rows(path, lines, delimiter)
    return _plain_rows(path, lines, delimiter, warn=quoting == "auto")


def _plain_rows(
    path: Path, lines: Iterator[str], delimiter: str, *, warn: bool
) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(lines, start=1):
        content = line.removesuffix("\n").removesuffix("\r")
        cells = content.split(delimiter) if content else []
        if warn and '""' in content and any(_has_doubled_quotes(cell) for cell in cells):
            warn = False  # once is enough
            log.warning(
                "%s: line %d: a cell looks quoted as csv quotes it, and is read as it stands; "
                "--quoting csv reads it without its quotes",
                path,
                number,
            )
        yield number, cells


def _quoted_rows(
    path: Path, lines: Iterator[str], delimiter: str
) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(sys.maxsize)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    start = 1
    try:
        for cells in reader:
            yield start, cells
            start = reader.line_num + 1
    except csv.Error as error:
        raise CorpusError(
            f"{path}: line {start}: not valid csv ({error})",
            'quote cells that hold quotes, and double the quotes inside (""); or, if quotes are '
            "text in this file, say so with --quoting none",
        ) from error


def _take(lines: Iterator[str], characters: int) -> list[str]:
    sample, size = [], 0
    for line in lines:
        sample.append(line)
        size += len(line)
        if size >= characters:
            break
    return sample


def _looks_quoted(sample: Sequence[str]) -> bool:
    """Tell whether cells are quoted, by what nobody writes by hand.

    A cell in quotes alone proves nothing, since a sentence may be one. Doubled quotes inside it do,
    and so do quotes around every cell of several columns, or rows that are all of one width only if
    quoted cells may hold tabs and newlines.
    """
    csv.field_size_limit(sys.maxsize)
    rows: list[list[str]] = []
    try:
        rows.extend(filter(None, csv.reader(sample, delimiter="\t", strict=True)))
    except csv.Error as error:
        if "unexpected end" not in str(error):  # the sample may end within a cell
            return False
    raw = [line.rstrip("\r\n").split("\t") for line in sample if line.rstrip("\r\n")]
    if any(_has_doubled_quotes(cell) for cells in raw for cell in cells):
        return True
    if not raw:
        return False
    if all(len(cells) > 1 and all(map(_is_quoted, cells)) for cells in raw):
        return True
    return len({len(cells) for cells in rows}) == 1 and len({len(cells) for cells in raw}) > 1


def _is_quoted(cell: str) -> bool:
    return len(cell) > 1 and cell[0] == cell[-1] == '"'


def _has_doubled_quotes(cell: str) -> bool:
    inside = cell[1:-1]
    return (
        len(cell) > 3
        and _is_quoted(cell)
        and '""' in inside
        and '"' not in inside.replace('""', "")
    )
