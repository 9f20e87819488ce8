"""Parquet files with a column of tokens and a column of their tags."""

import functools
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertpre.config.schema import Finetune
from bertpre.corpus.parquet import find_parquet_column, inner_value, nested_value, read_parquet
from bertpre.corpus.rows import RowError
from bertpre.finetuning.json_objects import Fault, with_field
from bertpre.finetuning.tagged_cells import (
    NUMBER_HINT,
    check_columns,
    choose_columns,
    join_like,
    number_fault,
    split_cell,
)
from bertpre.finetuning.tagged_rows import Columns, FileForm, TaggedRow


class ParquetFile:
    """A parquet file whose rows are sentences, a `TaggedFile` that is written as JSON lines.

    Args:
        path: the file.
        config: which columns to read.
        with_tags: whether to read the tags.
        layout: that of the training file, when predicting.

    Raises:
        ConfigError: both are in the same column.
        CorpusError: the file cannot be read, or a column is missing.
    """

    form: FileForm = "jsonl"

    def __init__(
        self, path: Path, config: Finetune, *, with_tags: bool, layout: Mapping[str, Any] | None
    ) -> None:
        self._path, self._with_tags = path, with_tags
        asked = Columns.asked(config, layout, form="cells")
        check_columns(asked.text, asked.label, with_tags=with_tags)
        rows = read_parquet(path, None)
        first = next(rows, None)
        self._rows = rows if first is None else itertools.chain([first], rows)
        names = [] if first is None else [name for name, _ in first[1]]
        self._text, self._label = choose_columns(asked, names, with_tags=with_tags)
        if first is not None:
            find_parquet_column(path, names, str(self._text))
            if with_tags:
                find_parquet_column(path, names, str(self._label))

    @property
    def layout(self) -> dict[str, Any]:
        """Return the columns."""
        return {"form": "cells", "text": self._text, "label": self._label}

    def rows(self) -> Iterator[TaggedRow]:
        """Yield all rows."""
        for number, values in self._rows:
            row = dict(values)
            fault = functools.partial(RowError.at, self._path, number, unit="row")
            try:
                tokens, tags = self._read(fault, row)
            except RowError as error:
                yield TaggedRow(line=number, fault=error, source=row)
            else:
                yield TaggedRow(line=number, tokens=tokens, tags=tags, source=row)

    def header(self) -> str:
        """Return nothing."""
        return ""

    def write(self, row: TaggedRow, tags: Sequence[str] | None) -> str:
        """Return an object with all columns, that of the tags replaced or added."""
        fields: dict[str, Any] = row.source
        if tags is not None and row.fault is None:
            tokens = inner_value(*self._find(fields, self._text))
            labels = join_like(tokens, tags) if isinstance(tokens, str) else list(tags)
            fields = with_field(fields, self._label_name(fields), labels)
        return json.dumps(fields, ensure_ascii=False, default=str) + "\n"

    def _find(self, fields: dict[str, Any], column: str | int) -> tuple[Any, list[str]]:
        name, *inner = find_parquet_column(self._path, list(fields), str(column))
        return fields[name], inner

    def _label_name(self, fields: dict[str, Any]) -> str:
        if not isinstance(self._label, int):
            return self._label
        return list(fields)[self._label - 1] if 1 <= self._label <= len(fields) else "labels"

    def _read(
        self, fault: Fault, row: dict[str, Any]
    ) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
        tokens = self._texts(fault, row, self._text, with_numbers=False)
        if not self._with_tags:
            return tokens, None
        tags = self._texts(fault, row, self._label, with_numbers=True)
        problem = number_fault(tokens, tags)
        if problem is not None:
            raise fault(problem, NUMBER_HINT)
        return tokens, tags

    def _texts(
        self, fault: Fault, row: dict[str, Any], column: str | int, *, with_numbers: bool
    ) -> tuple[str, ...]:
        outer, inner = self._find(row, column)
        value = inner_value(outer, inner)
        if isinstance(value, str):
            return split_cell(value, with_numbers=with_numbers)
        if not isinstance(value, list):
            kind = "null" if value is None else type(value).__name__
            raise fault(f"column {str(column)!r}: expected text, found {kind}")
        for item, raw in zip(value, nested_value(outer, inner), strict=True):
            if isinstance(raw, int | float) and not with_numbers:
                raise fault(f"column {str(column)!r}: expected texts, found the number {item}")
            if not isinstance(item, str):
                shown = "null" if item is None else str(item)
                raise fault(f"column {str(column)!r}: expected a list of texts, found {shown}")
        return tuple(value)
