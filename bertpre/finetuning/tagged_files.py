"""Files of tagged tokens, whatever their form: columns, JSON lines, tables."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertpre.config.schema import Finetune
from bertpre.corpus.columns import Layout
from bertpre.corpus.conll import ColumnFile, Sentence
from bertpre.corpus.files import STDIN
from bertpre.corpus.inputs import format_by_name, table_format
from bertpre.errors import ConfigError
from bertpre.finetuning.json_objects import find_field
from bertpre.finetuning.tagged_cells import CellFile
from bertpre.finetuning.tagged_json import JsonFile, forms_of, other_labels, read_first_object
from bertpre.finetuning.tagged_parquet import ParquetFile
from bertpre.finetuning.tagged_rows import Columns, FileForm, TaggedFile, TaggedRow, reading_of


def open_tagged(
    path: str | Path,
    config: Finetune,
    *,
    with_tags: bool,
    layout: Mapping[str, Any] | None = None,
) -> TaggedFile:
    """Open a file of tagged tokens, or of tokens to be tagged.

    Args:
        path: columns, JSON lines or a table; "-" or `STDIN` for standard input.
        config: how to read it.
        with_tags: whether to read the tags.
        layout: that of the training file, when predicting. The form may be another.

    Raises:
        ConfigError: the form of standard input is unknown, or the columns do not suit the form.
        CorpusError: the file cannot be read, or has no tokens or tags where they are expected.
    """
    path = STDIN if str(path) == "-" else Path(path)
    if path == STDIN and config.format == "auto":
        raise ConfigError(
            "standard input: the format is unknown, since there is no file name",
            "set it with --format, such as --format conll",
        )
    if config.pair_column is not None:
        raise ConfigError(
            f"pair_column: {config.pair_column!r}: tokens with tags have no second text",
            "leave --pair-column out",
        )
    format = table_format(path, config.format)
    if format == "conll":
        return _TaggedColumns(path, config, with_tags=with_tags, layout=layout)
    if format == "jsonl":
        return JsonFile(path, config, with_tags=with_tags, layout=layout)
    if format == "parquet":
        return ParquetFile(path, config, with_tags=with_tags, layout=layout)
    return CellFile(path, format, config, with_tags=with_tags, layout=layout)


def claim(path: str | Path, config: Finetune) -> str | None:
    """Return why a training file looks like one of tagged tokens, or None if it does not.

    Raises:
        CorpusError: JSON lines cannot be read.
    """
    path = Path(path)
    format = format_by_name(path) if config.format == "auto" else config.format
    if format == "conll":
        return "a file of columns"
    if format != "jsonl" or not path.is_file():
        return None
    fields = read_first_object(path, config)
    if fields is None:
        return None
    tokens, entities, _ = forms_of(config)
    if all(isinstance(find_field(fields, name), list) for name in tokens[1:]):
        return f"lists {tokens.text!r} and {tokens.label!r}"
    if config.text_column == "text" and find_field(fields, "text") is None:
        for name in other_labels(fields, tokens)[:1]:
            return f"lists {tokens.text!r} and {name!r}"
    # A label beside the entities is one of the whole text.
    if (
        isinstance(find_field(fields, entities.text), str)
        and isinstance(find_field(fields, "entities"), list)
        and find_field(fields, str(config.label_column)) is None
    ):
        return "a list 'entities'"
    return None


class _TaggedColumns:
    """A file of columns, a `TaggedFile`."""

    def __init__(
        self, path: Path, config: Finetune, *, with_tags: bool, layout: Mapping[str, Any] | None
    ) -> None:
        asked = Columns.asked(config, layout, form="columns")
        for option, column in (("text_column", asked.text), ("label_column", asked.label)):
            if isinstance(column, str):
                raise ConfigError(
                    f"{option}: {column!r}: expected a number, since the columns of {path} have no "
                    "names",
                    f"count the columns from 1, as in --{option.replace('_', '-')} 1",
                )
        learned = None
        if layout is not None and layout["form"] == "columns" and "width" in layout:
            names = [field.name for field in dataclasses.fields(Layout)]
            learned = Layout(**{name: layout[name] for name in names})
        self._file = ColumnFile(
            path,
            tags="read" if with_tags else "write",
            text_column=None if asked.text is None else int(asked.text),
            label_column=None if asked.label is None else int(asked.label),
            layout=learned,
            **reading_of(path, config),
        )

    @property
    def form(self) -> FileForm:
        """Return that columns are written."""
        return "columns"

    @property
    def layout(self) -> dict[str, Any]:
        """Return the columns."""
        found = self._file.layout
        return {"form": "columns", **({} if found is None else dataclasses.asdict(found))}

    def rows(self) -> Iterator[TaggedRow]:
        """Yield all sentences."""
        for sentence in self._file.sentences():
            yield TaggedRow(
                line=sentence.line,
                tokens=sentence.tokens,
                tags=sentence.tags,
                fault=sentence.fault,
                source=sentence,
            )

    def header(self) -> str:
        """Return nothing."""
        return ""

    def write(self, row: TaggedRow, tags: Sequence[str] | None) -> str:
        """Return the lines of a sentence with other tags."""
        sentence: Sentence = row.source
        return self._file.write(sentence, tags)
