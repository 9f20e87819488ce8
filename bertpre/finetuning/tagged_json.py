"""JSON lines of tagged tokens.

An object has a list of tokens and one of labels (the form "tokens"), a text and the entities in it
("entities"), or two texts that are split at spaces ("cells").
"""

import functools
import itertools
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bertpre.config.schema import Finetune
from bertpre.corpus.files import read_lines
from bertpre.corpus.rows import RowError
from bertpre.errors import CorpusError, shorten
from bertpre.finetuning.entities import (
    Place,
    cut_at_entities,
    cut_text,
    entities_of_tags,
    read_entities,
    tags_of_entities,
)
from bertpre.finetuning.json_objects import (
    Fault,
    dump,
    find_field,
    is_text,
    parse_object,
    read_text,
    read_texts,
    with_field,
)
from bertpre.finetuning.tagged_cells import (
    NUMBER_HINT,
    check_columns,
    join_cell,
    number_fault,
    split_cell,
)
from bertpre.finetuning.tagged_rows import Columns, FileForm, TaggedRow, reading_of

log = logging.getLogger(__name__)

# Text and label field of each form, in the order in which they are tried.
_DEFAULT_FIELDS = {
    "tokens": ("tokens", "labels"),
    "entities": ("text", "entities"),
    "cells": ("text", "label"),
}
_LINES_LOOKED_AT = 1000


class Form(NamedTuple):
    """How an object has its tokens and labels."""

    name: str
    text: str
    label: str


class _Source(NamedTuple):
    """A line, its object, and the places of tokens in a text that was cut."""

    line: str
    fields: dict[str, Any]
    places: Sequence[Place]


class _Sentence(NamedTuple):
    tokens: tuple[str, ...]
    tags: tuple[str, ...] | None
    places: Sequence[Place] = ()


class JsonFile:
    """JSON lines whose objects are sentences, a `TaggedFile`.

    Args:
        path: the file, or `STDIN`.
        config: how to read it.
        with_tags: whether to read the tags.
        layout: that of the training file, when predicting.

    Raises:
        ConfigError: tokens and labels are the same field.
        CorpusError: the first object has no tokens.
    """

    def __init__(
        self,
        path: Path,
        config: Finetune,
        *,
        with_tags: bool,
        layout: Mapping[str, Any] | None,
    ) -> None:
        self._path = path
        self._with_tags = with_tags
        self._num_entities = self._num_cutting = 0
        lines = read_lines(path, **reading_of(path, config))
        head, number, first = _read_head(lines)
        self._lines = itertools.chain(head, lines)
        forms = forms_of(config, layout)
        found = forms[0] if first is None else _choose(forms, first, with_tags=with_tags)
        if found is None:
            raise _no_form(path, number, forms, first or {}, with_tags=with_tags)
        check_columns(found.text, found.label, with_tags=with_tags, are="fields")
        if with_tags and found.name == "tokens" and first is not None:
            _check_labels(path, number, found, first)
        self._form = found

    @property
    def form(self) -> FileForm:
        """Return that JSON lines are written."""
        return "jsonl"

    @property
    def layout(self) -> dict[str, Any]:
        """Return the fields."""
        return {"form": self._form.name, "text": self._form.text, "label": self._form.label}

    def rows(self) -> Iterator[TaggedRow]:
        """Yield all rows."""
        read = {
            "tokens": self._read_tokens,
            "entities": self._read_entities,
            "cells": self._read_cells,
        }[self._form.name]
        for number, line in enumerate(self._lines, start=1):
            if not line.strip():
                continue
            fault = functools.partial(RowError.at, self._path, number)
            fields: dict[str, Any] = {}
            try:
                fields = parse_object(fault, line)
                found = read(fault, fields)
            except RowError as error:
                yield TaggedRow(line=number, fault=error, source=_Source(line, fields, ()))
            else:
                source = _Source(line, fields, found.places)
                yield TaggedRow(line=number, tokens=found.tokens, tags=found.tags, source=source)
        if self._num_cutting:
            log.warning(
                "%s: %d of %d entities start or end inside a word; these words are cut there, but "
                "a text without entities has whole words, so the model cannot find such entities",
                self._path,
                self._num_cutting,
                self._num_entities,
            )

    def header(self) -> str:
        """Return nothing."""
        return ""

    def write(self, row: TaggedRow, tags: Sequence[str] | None) -> str:
        """Return the object with other labels or entities, and all other fields as they were."""
        source: _Source = row.source
        if tags is None or row.fault is not None:
            return source.line.removesuffix("\n") + "\n"
        labels: Any = list(tags)
        if self._form.name == "cells":
            labels = join_cell(tags)
        elif self._form.name == "entities":
            found = entities_of_tags(source.places, tags)
            labels = [entity._asdict() for entity in found]
        return dump(with_field(source.fields, self._form.label, labels)) + "\n"

    def _read_tokens(self, fault: Fault, fields: dict[str, Any]) -> _Sentence:
        tokens = read_texts(fault, fields, self._form.text, with_numbers=False)
        if not self._with_tags:
            return _Sentence(tokens, None)
        tags = read_texts(fault, fields, self._form.label, with_numbers=True)
        return _checked(fault, tokens, tags)

    def _read_cells(self, fault: Fault, fields: dict[str, Any]) -> _Sentence:
        tokens = split_cell(read_text(fault, fields, self._form.text))
        if not self._with_tags:
            return _Sentence(tokens, None)
        tags = split_cell(read_text(fault, fields, self._form.label), with_numbers=True)
        return _checked(fault, tokens, tags)

    def _read_entities(self, fault: Fault, fields: dict[str, Any]) -> _Sentence:
        text = read_text(fault, fields, self._form.text)
        places = cut_text(text)
        tags = None
        if self._with_tags:
            entities = read_entities(fault, fields, self._form.label, text=text)
            places, num_cutting = cut_at_entities(places, entities)
            self._num_cutting += num_cutting
            self._num_entities += len(entities)
            tags = tags_of_entities(places, entities)
        return _Sentence(tuple(text[start:end] for start, end in places), tags, places)


def forms_of(config: Finetune, layout: Mapping[str, Any] | None = None) -> list[Form]:
    """Return the forms that objects may have, with their fields; that of a layout first."""
    forms = []
    for name, (text, label) in _DEFAULT_FIELDS.items():
        asked = Columns.asked(config, layout, form=name)
        forms.append(Form(name, str(asked.text or text), str(asked.label or label)))
    return sorted(forms, key=lambda form: layout is None or form.name != layout["form"])


def read_first_object(path: Path, config: Finetune) -> dict[str, Any] | None:
    """Return the first object of JSON lines; None if there is none."""
    return _read_head(read_lines(path, decoding=reading_of(path, config)["decoding"]))[2]


def _read_head(lines: Iterator[str]) -> tuple[list[str], int, dict[str, Any] | None]:
    """Read up to the first object; return the lines read, its line number, and the object."""
    head = []
    for number, line in enumerate(itertools.islice(lines, _LINES_LOOKED_AT), start=1):
        head.append(line)
        try:
            return head, number, parse_object(RowError, line)
        except RowError:
            continue
    return head, 0, None


def _choose(forms: Sequence[Form], fields: dict[str, Any], *, with_tags: bool) -> Form | None:
    """Return the first form that an object has."""
    for form in forms:
        text, label = find_field(fields, form.text), find_field(fields, form.label)
        if form.name == "tokens":
            if isinstance(text, list):
                return form
        elif is_text(text) and (
            not with_tags or (label is not None and is_text(label) == (form.name == "cells"))
        ):
            return form
    return None


def _no_form(
    path: Path, number: int, forms: Sequence[Form], fields: dict[str, Any], *, with_tags: bool
) -> CorpusError:
    by_name = {form.name: form for form in forms}
    tokens, entities, cells = (by_name[name] for name in _DEFAULT_FIELDS)
    shown = ", ".join(shorten(name) for name in list(fields)[:20]) or "none"
    expected = f"a list {tokens.text!r} or a text {entities.text!r}"
    hint = "name the field of tokens or of the text with --text-column"
    if with_tags:
        expected = (
            f"lists {tokens.text!r} and {tokens.label!r}, a text {entities.text!r} and a list "
            f"{entities.label!r}, or texts {cells.text!r} and {cells.label!r}"
        )
        hint = "name the fields of tokens and of labels with --text-column and --label-column"
    return CorpusError(
        f"{path}: line {number}: found the fields {shown}; expected {expected}", hint
    )


def other_labels(fields: dict[str, Any], form: Form) -> list[str]:
    """Return the fields that may have the labels of a list of tokens, the likeliest first."""
    tokens = find_field(fields, form.text)
    names = [
        name
        for name, value in fields.items()
        if isinstance(tokens, list)
        and isinstance(value, list)
        and value is not tokens
        and len(value) == len(tokens)
    ]
    # Corpora of names often have parts of speech too.
    usual = ("ner", "label", "tag")
    return sorted(names, key=lambda name: [part not in name.lower() for part in usual])


def _check_labels(path: Path, number: int, form: Form, fields: dict[str, Any]) -> None:
    others = other_labels(fields, form)
    if find_field(fields, form.label) is None and others:
        lists = " and ".join(map(repr, [form.text, *others]))
        raise CorpusError(
            f"{path}: line {number}: found the lists {lists}, but no {form.label!r}",
            f"name the field of labels: --label-column {others[0]}",
        )


def _checked(fault: Fault, tokens: tuple[str, ...], tags: tuple[str, ...]) -> _Sentence:
    problem = number_fault(tokens, tags)
    if problem is not None:
        raise fault(problem, NUMBER_HINT)
    return _Sentence(tokens, tags)
