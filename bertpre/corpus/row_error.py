"""What is wrong with one row of a table, in a form that many of them can be told together."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from bertpre.errors import CorpusError


class RowError(CorpusError):
    """A row that cannot be used.

    Attributes:
        line: where it starts, from 1; in parquet, its number.
        problem: what is wrong with it, without saying where.
    """

    line: int
    problem: str

    @classmethod
    def at(
        cls, path: Path, line: int, problem: str, hint: str | None = None, *, unit: str = "line"
    ) -> "RowError":
        """Say where in which file a problem is."""
        # No __init__ of its own: errors cross process borders by the arguments of their base.
        error = cls(f"{path}: {unit} {line}: {problem}", hint)
        error.line, error.problem = line, problem
        return error


Fault = Callable[[str], RowError]


class ListCell(str):
    """A list written as one cell, which still says that it was one."""


def join_items(fault: Fault, place: str, items: Iterable[Any], separator: str) -> ListCell:
    """Write a list of texts as one cell, which can be divided again.

    Raises:
        RowError: what ``fault`` makes of an item that is no text, or that holds the separator.
    """
    texts = list(items)
    for item in texts:
        if not isinstance(item, str):
            raise fault(f"{place}: expected a list of texts, found {shorten(str(item))}")
        if separator in item:
            raise fault(f"{place}: {shorten(item)} holds the separator {separator!r}")
    return ListCell(separator.join(texts))


def shorten(text: str) -> str:
    """Quote a text, or its first 40 characters."""
    return repr(text) if len(text) <= 40 else f"{text[:40]!r}…"
