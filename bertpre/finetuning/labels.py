"""Label names: their order, look-alikes, and lists of them in messages."""

import logging
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from decimal import Decimal

import numpy as np
import numpy.typing as npt

log = logging.getLogger(__name__)

_MOST_NAMED = 10
_MOST_QUOTED = 20
_INTEGER_OR_DECIMAL = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
_REAL = re.compile(r"\s*[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?\s*")
_BREAKS = re.compile(r"[\t\n\r]")
# Columns of a prediction table; a class with one of these names gets another column name.
OWN_COLUMNS = ("prediction", "label", "line")


def sort_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """Sort the distinct labels by value if all are numbers, else as text."""
    distinct = sorted(set(labels))
    if all(_INTEGER_OR_DECIMAL.fullmatch(label) for label in distinct):
        distinct.sort(key=Decimal)  # a stable sort, so "1" stays before "1.0"
    return tuple(distinct)


def is_real(cell: str) -> bool:
    """Return whether a cell is written as a number."""
    return _REAL.fullmatch(cell) is not None


def break_fault(cell: str) -> str | None:
    """Return why a name cannot be part of a prediction table, or None if it can."""
    if _BREAKS.search(cell):
        return "the label contains a tab or a line break, which a prediction table cannot hold"
    return None


def warn_of_look_alikes(names: Sequence[str], table: str) -> None:
    """Warn of labels that differ only in white space or in how a number is written."""
    seen: dict[str | Decimal, str] = {}
    for label in names:
        bare = label.strip()
        key = Decimal(bare) if _INTEGER_OR_DECIMAL.fullmatch(bare) else bare
        if key in seen:
            log.warning("%s: %r and %r are two classes", table, seen[key], label)
        seen[key] = label


def unknown_names(cells: Iterable[Sequence[str]], names: Sequence[str]) -> list[list[str]]:
    """Return the names in each row that are not in ``names``."""
    known = set(names)
    return [[name for name in row if name not in known] for row in cells]


def group_by_rarest(rows: Sequence[Collection[str]], names: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return for each row the number of its rarest name, from 1 in the order given; 0 if none."""
    counts = Counter(name for found in rows for name in found)
    numbers = {name: number for number, name in enumerate(names, start=1)}
    rarest = [min(found, key=lambda name: (counts[name], name), default=None) for found in rows]
    return np.array([0 if name is None else numbers[name] for name in rarest], dtype=np.int64)


def probability_columns(names: Sequence[str]) -> list[str]:
    """Return the header of a prediction table with a probability for each name."""
    columns = [f"probability of {name}" if name in OWN_COLUMNS else name for name in names]
    return ["prediction", *columns]


def name_some(names: Sequence[str]) -> str:
    """List the first names and the number of others."""
    rest = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {rest:,} more" if rest > 0 else "")


def name_lines(lines: Sequence[int]) -> str:
    """List the first lines and their number."""
    which = "line" if len(lines) == 1 else f"{len(lines):,} lines:"
    return f"{which} {name_some([str(line) for line in lines])}"


def count_rows(cells: Sequence[str]) -> str:
    """Write the subject of the message that all rows have the same label."""
    return f"all {len(cells):,} rows have" if len(cells) > 1 else "the only row has"


def name_some_quoted(names: Sequence[str]) -> str:
    """List the first names in Markdown and the number of others."""
    named = ", ".join(f"`{name}`" for name in names[:_MOST_QUOTED])
    rest = len(names) - _MOST_QUOTED
    return named + (f" and {rest} more" if rest > 0 else "")
