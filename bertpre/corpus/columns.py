"""Find out which columns a file of tokens and tags has, and what separates them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from bertpre.corpus.delimited import count_columns
from bertpre.errors import ConfigError, CorpusError, shorten

# Lines without a token: blank ones, marks between documents, comments (the group).
# "#" alone is a token, and hashtags are, so only lines known to be comments are taken for them.
DOCUMENT_MARK = "-DOCSTART-"
NO_TOKEN = re.compile(
    rf"[ \t\r\n]*\Z|{DOCUMENT_MARK}(?=[ \t\r\n]|\Z)|(# (?:id|text)(?=[ \t\r\n=:]|\Z))"
)
_NO_SPACES = re.compile("[^ ]+")
# How far to look for a line whose token is not a space, to count its columns.
_LINES_LOOKED_AT = 1000

Separator = Literal["\t", " "]


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """The columns of a file with tags.

    Attributes:
        width: number of columns.
        separator: a tab; or a space, for any number of spaces.
        text: number of the column of tokens, from 1.
        label: number of the column of tags, from 1.
    """

    width: int
    separator: Separator
    text: int
    label: int


class Start(NamedTuple):
    """The first line with a token, which decides about the columns."""

    number: int
    text: str
    separator: Separator
    width: int


def find_spans(line: str, separator: Separator) -> list[tuple[int, int]]:
    """Return start and end of each cell of a line, with empty cells if tabs separate them."""
    if separator == " ":
        return [found.span() for found in _NO_SPACES.finditer(line.rstrip(" \t\r\n"))]
    spans, start = [], 0
    for cell in line.rstrip("\r\n").split("\t"):
        spans.append((start, start + len(cell)))
        start += len(cell) + 1
    return spans


def find_start(path: Path, lines: Iterator[str]) -> tuple[list[str], Start | None]:
    """Read up to the first line with a token; return the lines read, and that line.

    A token may be a space, so the columns of a line that starts with one cannot be counted. Another
    line is then looked for.

    Raises:
        CorpusError: the lines end with CR alone.
    """
    head: list[str] = []
    indented: Start | None = None
    for number, line in enumerate(lines, start=1):
        head.append(line)
        if NO_TOKEN.match(line):
            continue
        content = line.rstrip("\r\n")
        if "\r" in content:
            raise CorpusError(
                f"{path}: line {number}: the lines end with CR alone: {shorten(content)}",
                "replace it with LF",
            )
        separator: Separator = "\t" if "\t" in content and indented is None else " "
        # Separators at the end make no column.
        width = len(find_spans(content.rstrip(separator), separator))
        start = Start(number, content, separator, width)
        if separator == "\t" or not content.startswith(" "):
            return head, start
        indented = indented or start
        if number - indented.number >= _LINES_LOOKED_AT:
            break
    return head, indented


def check_column(path: Path, start: Start, column: int) -> None:
    """Raise a CorpusError if a line has no column of this number."""
    if not 1 <= column <= start.width:
        raise CorpusError(
            f"{path}: line {start.number}: no column {column}; found "
            f"{count_columns(start.width)}: {shorten(start.text)}",
            "choose the columns by number with --text-column and --label-column",
        )


def _check_differ(path: Path, layout: Layout) -> Layout:
    if layout.text == layout.label:
        raise ConfigError(
            f"{path}: tokens and tags are both in column {layout.text}",
            "choose the columns by number with --text-column and --label-column",
        )
    return layout


def tagged_layout(
    path: Path, start: Start, text_column: int | None, label_column: int | None
) -> Layout:
    """Return the columns of a file whose tokens have tags.

    Args:
        path: for error messages.
        start: its first line with a token.
        text_column, label_column: numbers from 1; default: the first, and the last.

    Raises:
        ConfigError: both are the same.
        CorpusError: a column is missing, or there are no tags.
    """
    if start.width == 1:
        raise CorpusError(
            f"{path}: line {start.number}: found 1 column, expected a token and its tag: "
            f"{shorten(start.text)}",
            "the tokens have no tags: name a file with tags; tabs or spaces separate the columns",
        )
    text = 1 if text_column is None else text_column
    label = start.width if label_column is None else label_column
    for column in (text, label):
        check_column(path, start, column)
    layout = Layout(width=start.width, separator=start.separator, text=text, label=label)
    return _check_differ(path, layout)


def layout_to_write(
    path: Path,
    start: Start,
    text_column: int | None,
    label_column: int | None,
    learned: Layout | None,
) -> Layout:
    """Return the columns that a file will have once it has tags.

    Args:
        path, start: see `tagged_layout`.
        text_column, label_column: numbers from 1; default: as in ``learned``.
        learned: the columns of the file that was learned from; default: a token, a tab and a tag.

    Raises:
        ConfigError, CorpusError: see `tagged_layout`; or there are too many or too few columns.
    """
    if learned is None:
        width = max(2, text_column or 0, label_column or 0)
        learned = Layout(width=width, separator="\t", text=1, label=width)
    text = learned.text if text_column is None else text_column
    label = learned.label if label_column is None else label_column
    width = learned.width
    if start.width not in (width, width - 1):
        raise CorpusError(
            f"{path}: line {start.number}: found {count_columns(start.width)}, expected {width}, "
            f"or {width - 1} without tags: {shorten(start.text)}",
            f"give the file the {width} columns of the training file, of which number {label} is "
            "replaced by the predicted tags, or leave that one out",
        )
    shows_separator = start.width > 1 or "\t" in start.text
    separator = start.separator if shows_separator else learned.separator
    layout = Layout(width=width, separator=separator, text=text, label=label)
    for column in (text, label):
        check_column(path, start._replace(width=width), column)
    return _check_differ(path, layout)
