"""Tables with a cell of tokens and a cell of their tags."""

import ast
import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bertpre.config.schema import Finetune
from bertpre.corpus.inputs import TableFormat
from bertpre.corpus.rows import RowError
from bertpre.corpus.tables import ListCell, Row, read_rows
from bertpre.errors import ConfigError
from bertpre.finetuning.tagged_rows import Columns, TaggedRow, reading_of

# Between the texts of a list that is read as a cell; it occurs in no text.
_BETWEEN = "\x1f"
_SPACES = re.compile("[ \t\r\n]+")
_TEXT_ITEM = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_NUMBER_ITEM = r"-?[0-9]+(?:\.[0-9]+)?"
# NumPy writes lists without commas.
_NEXT = re.compile(rf"\s*({_TEXT_ITEM}|{_NUMBER_ITEM})(?:\s*,|(?=[\s\]]))", re.DOTALL)
_END = re.compile(r"\s*\]\s*")


class _Source(NamedTuple):
    """The cell of tokens as it was; None if it could not be read."""

    cell: str | None


class CellFile:
    """A table whose rows are sentences, a `TaggedFile`.

    Args:
        path: TSV, CSV or parquet.
        format: which of these.
        config: how to read it.
        with_tags: whether to read the tags.
        layout: that of the training file, when predicting.

    Raises:
        ConfigError: both cells are in the same column.
    """

    def __init__(
        self,
        path: Path,
        format: TableFormat,
        config: Finetune,
        *,
        with_tags: bool,
        layout: Mapping[str, Any] | None,
    ) -> None:
        self._path, self._format, self._config = path, format, config
        self._with_tags = with_tags
        asked = Columns.asked(config, layout, form="cells")
        self._text = "text" if asked.text is None else asked.text
        self._label = "label" if asked.label is None else asked.label
        if self._text == self._label:
            raise ConfigError(
                f"text_column and label_column are both {self._text!r}",
                "choose the columns with --text-column and --label-column",
            )

    @property
    def layout(self) -> dict[str, Any]:
        """Return the columns."""
        return {"form": "cells", "text": self._text, "label": self._label}

    def rows(self) -> Iterator[TaggedRow]:
        """Yield all rows."""
        columns = [self._text, self._label] if self._with_tags else [self._text]
        bad: list[RowError] = []
        rows = read_rows(
            self._path,
            format=self._format,
            header=self._config.header,
            columns=columns,
            quoting=self._config.quoting,
            on_bad_row=bad.append,
            on_bad_width=bad.append,
            list_separators=dict.fromkeys(columns, _BETWEEN),
            **reading_of(self._path, self._config),
        )
        for row in rows:
            yield from _faulty(bad)
            yield self._read(row)
        yield from _faulty(bad)

    def header(self) -> str:
        """Return the names of both columns."""
        has_names = self._config.header or self._format == "parquet"
        names = [
            name if has_names and isinstance(name, str) else default
            for name, default in ((self._text, "tokens"), (self._label, "labels"))
        ]
        return "\t".join(names) + "\n"

    def write(self, row: TaggedRow, tags: Sequence[str] | None) -> str:
        """Return both cells, that of the tags empty without tags."""
        source: _Source = row.source
        cell = source.cell
        if cell is None:
            cell = "" if row.fault is not None else join_cell(row.tokens)
        return f"{cell}\t{'' if tags is None or row.fault is not None else join_cell(tags)}\n"

    def _read(self, row: Row) -> TaggedRow:
        cell = row.cells[0]
        is_writable = not isinstance(cell, ListCell) and not set(cell) & set("\t\r\n")
        source = _Source(cell if is_writable else None)
        tokens = split_cell(cell)
        if not self._with_tags:
            return TaggedRow(line=row.line, tokens=tokens, source=source)
        tags = split_cell(row.cells[1], with_numbers=True)
        problem = number_fault(tokens, tags)
        if problem is None:
            return TaggedRow(line=row.line, tokens=tokens, tags=tags, source=source)
        unit = "row" if self._format == "parquet" else "line"
        fault = RowError.at(self._path, row.line, problem, NUMBER_HINT, unit=unit)
        return TaggedRow(line=row.line, fault=fault, source=source)


# For the fault of `number_fault`.
NUMBER_HINT = "give every token one tag"


def number_fault(tokens: Sequence[str], tags: Sequence[str]) -> str | None:
    """Return what is wrong with the number of tags, or with an empty one; None if all is well."""
    if len(tokens) != len(tags):
        return f"found {_count(len(tags), 'tag')} for {_count(len(tokens), 'token')}"
    if "" in tags:
        return f"tag {tags.index('') + 1} is empty"
    return None


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _faulty(bad: list[RowError]) -> Iterator[TaggedRow]:
    while bad:
        fault = bad.pop(0)
        yield TaggedRow(line=fault.line, fault=fault, source=_Source(None))


def split_cell(cell: str, *, with_numbers: bool = False) -> tuple[str, ...]:
    """Split a cell at spaces, or read the list that it is.

    Args:
        cell: texts with spaces between, or a list of texts as Python, JSON or NumPy write it.
        with_numbers: whether a list of numbers is a list too; in a text, it may be a citation.
    """
    if isinstance(cell, ListCell):
        return tuple(cell.split(_BETWEEN)) if cell else ()
    items = _read_list(cell.strip(), with_numbers=with_numbers)
    return tuple(filter(None, _SPACES.split(cell))) if items is None else items


def join_cell(items: Sequence[str]) -> str:
    """Write texts with spaces between, or as a JSON list if they could not be told apart."""
    joined = " ".join(items)
    if split_cell(joined, with_numbers=True) == tuple(items):
        return joined
    return json.dumps(list(items), ensure_ascii=False)


def _read_list(cell: str, *, with_numbers: bool) -> tuple[str, ...] | None:
    if not (cell.startswith("[") and cell.endswith("]")):
        return None
    if not cell[1:-1].strip():
        return ()
    items, place = [], 1
    while match := _NEXT.match(cell, place):
        items.append(match[1])
        place = match.end()
    are_texts = all(item[0] in "'\"" for item in items)
    if not items or not _END.fullmatch(cell, place) or not (are_texts or with_numbers):
        return None
    try:
        texts = tuple(map(_read_item, items))
        "".join(texts).encode()
    except (ValueError, SyntaxError):  # a bad escape, or half of a surrogate pair
        return None
    return texts


def _read_item(item: str) -> str:
    if item[0] not in "'\"":
        return item
    if "\\" not in item:
        return item[1:-1]
    try:
        return str(json.loads(item))  # JSON has escapes that Python lacks
    except ValueError:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of an unknown escape
            return str(ast.literal_eval(item))
