"""Tables with a cell of tokens and a cell of their tags."""

import ast
import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from bertpre.config.schema import Finetune
from bertpre.corpus.files import read_lines
from bertpre.corpus.rows import RowError
from bertpre.corpus.whole_rows import DelimitedTable, WholeRow
from bertpre.errors import ConfigError, CorpusError
from bertpre.finetuning.tagged_rows import Columns, FileForm, TaggedRow, reading_of

_SPACES = re.compile("[ \t\r\n]+")
_TEXT_ITEM = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_NUMBER_ITEM = r"-?[0-9]+(?:\.[0-9]+)?"
# NumPy writes lists without commas.
_NEXT = re.compile(rf"\s*({_TEXT_ITEM}|{_NUMBER_ITEM})(?:\s*,|(?=[\s\]]))", re.DOTALL)
_END = re.compile(r"\s*\]\s*")


class CellFile:
    """A TSV or CSV table whose rows are sentences, a `TaggedFile`.

    Args:
        path: the file.
        format: tsv or csv.
        config: how to read it.
        with_tags: whether to read the tags.
        layout: that of the training file, when predicting.

    Raises:
        ConfigError: both cells are in the same column.
        CorpusError: the file cannot be read, or a column is missing.
    """

    def __init__(
        self,
        path: Path,
        format: Literal["tsv", "csv"],
        config: Finetune,
        *,
        with_tags: bool,
        layout: Mapping[str, Any] | None,
    ) -> None:
        self._path, self._with_tags = path, with_tags
        self.form: FileForm = format
        asked = Columns.asked(config, layout, form="cells")
        check_columns(asked.text, asked.label, with_tags=with_tags)
        self._table = DelimitedTable(
            path,
            read_lines(path, **reading_of(path, config)),
            format=format,
            header=config.header,
            quoting=config.quoting,
        )
        self._text, self._label = choose_columns(
            asked, self._table.names or (), with_tags=with_tags
        )
        self._text_place, self._tag_place = 0, None
        if self._table.width:
            self._text_place = self._table.find(self._text)
            if with_tags or self._has(self._label):
                self._tag_place = self._table.find(self._label)
        if self._text_place == self._tag_place:
            check_columns(self._text, self._text, with_tags=with_tags)

    @property
    def layout(self) -> dict[str, Any]:
        """Return the columns."""
        return {"form": "cells", "text": self._text, "label": self._label}

    def rows(self) -> Iterator[TaggedRow]:
        """Yield all rows."""
        needed = [self._text_place]
        if self._with_tags and self._tag_place is not None:
            needed.append(self._tag_place)
        for row in self._table.rows(max(needed) + 1):
            if row.fault is None:
                yield self._read(row)
            else:
                yield TaggedRow(line=row.line, fault=row.fault, source=row)

    def header(self) -> str:
        """Return the names of all columns, if the file has them."""
        names = self._table.names
        if names is None:
            return ""
        if self._tag_place is None:
            names = [*names, self._label if isinstance(self._label, str) else "labels"]
        return self._write(names)

    def write(self, row: TaggedRow, tags: Sequence[str] | None) -> str:
        """Return all cells, that of the tags replaced, or added after the last column.

        Raises:
            CorpusError: a cell needs quotes, but quotes are text in this file.
        """
        source: WholeRow = row.source
        cells, width = list(source.cells), self._table.width
        is_tagged = tags is not None and row.fault is None
        if self._tag_place is None:
            # A row that is too short or too long has to stay so when it is read again.
            if is_tagged or len(cells) >= width:
                cells += [""] * (width - len(cells))
                cells.insert(width, "")
        elif is_tagged:
            cells += [""] * (self._tag_place + 1 - len(cells))
        if is_tagged:
            place = width if self._tag_place is None else self._tag_place
            cells[place] = join_like(cells[self._text_place], tags or ())
        return self._write(cells, row.line)

    def _write(self, cells: Sequence[str], line: int = 1) -> str:
        try:
            return self._table.write(cells)
        except CorpusError as error:
            raise CorpusError(f"{self._path}: line {line}: {error.message}", error.hint) from error

    def _has(self, column: str | int) -> bool:
        names = self._table.names or ()
        return str(column) in names or (
            isinstance(column, int) and 1 <= column <= self._table.width
        )

    def _read(self, row: WholeRow) -> TaggedRow:
        tokens = split_cell(row.cells[self._text_place])
        if not self._with_tags or self._tag_place is None:
            return TaggedRow(line=row.line, tokens=tokens, source=row)
        tags = split_cell(row.cells[self._tag_place], with_numbers=True)
        problem = number_fault(tokens, tags)
        if problem is None:
            return TaggedRow(line=row.line, tokens=tokens, tags=tags, source=row)
        fault = RowError.at(self._path, row.line, problem, NUMBER_HINT)
        return TaggedRow(line=row.line, fault=fault, source=row)


def check_columns(
    text: str | int | None, label: str | int | None, *, with_tags: bool, are: str = "columns"
) -> None:
    """Raise a ConfigError if tokens and tags are in the same column.

    Args:
        text, label: the columns, or fields; None: not chosen yet.
        with_tags: whether tags are read. Predictions have no option for their column.
        are: what they are called.
    """
    if text is not None and text == label:
        options = "--text-column and --label-column" if with_tags else "--text-column"
        raise ConfigError(
            f"text_column and label_column are both {text!r}", f"choose the {are} with {options}"
        )


def choose_columns(
    asked: Columns, names: Sequence[str], *, with_tags: bool
) -> tuple[str | int, str | int]:
    """Return the columns of tokens and of tags.

    Args:
        asked: what the options name. Otherwise the first of the usual names that there is.
        names: of the columns of the table.
        with_tags: whether there have to be tags; otherwise, they may be added.
    """
    text, label = asked
    if text is None:
        text = next((name for name in ("text", "tokens") if name in names), "text")
    if label is None:
        usual = ("label", "labels", "tags")
        label = next((name for name in usual if name in names), "label" if with_tags else "labels")
    return text, label


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


def split_cell(cell: str, *, with_numbers: bool = False) -> tuple[str, ...]:
    """Split a cell at spaces, or read the list that it is.

    Args:
        cell: texts with spaces between, or a list of texts as Python, JSON or NumPy write it.
        with_numbers: whether a list of numbers is a list too; in a text, it may be a citation.
    """
    items = _read_list(cell.strip(), with_numbers=with_numbers)
    return tuple(filter(None, _SPACES.split(cell))) if items is None else items


def join_cell(items: Sequence[str]) -> str:
    """Write texts with spaces between, or as a JSON list if they could not be told apart."""
    joined = " ".join(items)
    if split_cell(joined, with_numbers=True) == tuple(items):
        return joined
    return json.dumps(list(items), ensure_ascii=False)


def join_like(cell: str, items: Sequence[str]) -> str:
    """Write texts as `join_cell` does, but as a JSON list if a cell is a list."""
    if _read_list(cell.strip(), with_numbers=False) is None:
        return join_cell(items)
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
