"""What all forms of files of tagged tokens have in common."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypedDict

from bertpre.config.schema import Finetune
from bertpre.corpus.decoding import Decoding
from bertpre.corpus.rows import RowError

log = logging.getLogger(__name__)


FileForm = Literal["columns", "jsonl", "tsv", "csv"]


@dataclass(frozen=True, kw_only=True, slots=True)
class TaggedRow:
    """A sentence of a file of tagged tokens.

    Args:
        line: line on which it starts, from 1.
        tokens: its tokens; none if there is a fault.
        tags: the tag of each token; None if they are not read or there is a fault.
        fault: what is wrong with it.
        source: what its file needs to write it; only the file looks inside.
    """

    line: int
    tokens: tuple[str, ...] = ()
    tags: tuple[str, ...] | None = None
    fault: RowError | None = None
    source: Any = None


class TaggedFile(Protocol):
    """A file of tagged tokens, read and written row by row."""

    @property
    def form(self) -> FileForm:
        """Return the form in which rows are written."""

    @property
    def layout(self) -> dict[str, Any]:
        """Return the form of the file, for the manifest of a model."""

    def rows(self) -> Iterator[TaggedRow]:
        """Yield all rows once, in order, also those with a fault."""

    def header(self) -> str:
        """Return what comes before the rows that are written."""

    def write(self, row: TaggedRow, tags: Sequence[str] | None) -> str:
        """Return a row with other tags, in the form of the file, with its line ends.

        Args:
            row: from `rows` of this file.
            tags: one for each token; None, or a row with a fault: the row stays as it is.
        """


class Columns(NamedTuple):
    """The columns, or JSON fields, that are asked for; None: the default of the form."""

    text: str | int | None
    label: str | int | None

    @classmethod
    def asked(cls, config: Finetune, layout: Mapping[str, Any] | None, *, form: str) -> "Columns":
        """Return the columns that the options name.

        Args:
            config: text and label column; their defaults ask for none.
            layout: that of the training file, whose columns are the defaults for a file of the same
                form. For another form they mean nothing, though the options repeat them.
            form: that of this file.
        """
        text = None if config.text_column == "text" else config.text_column
        label = None if config.label_column == "label" else config.label_column
        if layout is None:
            return cls(text, label)
        learned = cls(layout.get("text"), layout.get("label"))
        if layout["form"] == form:
            return cls(
                learned.text if text is None else text, learned.label if label is None else label
            )
        return cls(
            None if text == learned.text else text, None if label == learned.label else label
        )


class Reading(TypedDict):
    """How bytes are read."""

    decoding: Decoding
    on_bad_bytes: Callable[[int], None]


def reading_of(path: Path, config: Finetune) -> Reading:
    """Return how to read a file; invalid bytes are logged."""
    return {
        "decoding": Decoding(encoding=config.encoding, on_bad_bytes=config.on_bad_bytes),
        "on_bad_bytes": lambda count: log.warning(
            "%s: %d byte sequences are not valid %s", path, count, config.encoding
        ),
    }
