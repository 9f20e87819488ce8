"""What the cells of a label column mean: one class, several, or a number."""

import logging
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from bertpre.corpus.row_error import ListCell, shorten
from bertpre.errors import CorpusError, DataFormatError

log = logging.getLogger(__name__)

Kind = Literal["classification", "multi-label", "regression"]

_MOST_NAMED = 10
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
_REAL = re.compile(r"\s*[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?\s*")
_BREAKS = re.compile(r"[\t\n\r]")
# More values than this with fractions among them are measurements rather than names of classes,
# also where a few cells are at fault.
_MOST_FRACTIONS = 20
_FEWEST_NUMBERS = 0.8
# Beyond, squares of single-precision numbers overflow.
_LARGEST = 1e18


@dataclass(frozen=True, kw_only=True, slots=True)
class Labels:
    """What a model's outputs stand for.

    Args:
        kind: what a row has: one of the names, any number of them, or a number.
        names: one an output, in order; of a number, what it is called.
        separator: between the names in a multi-label cell.
    """

    kind: Kind
    names: tuple[str, ...]
    separator: str = ","

    def split(self, cell: str) -> list[str]:
        """Give the names in a cell; a multi-label cell may be empty and have none."""
        if self.kind != "multi-label":
            return [cell]
        return split_names(cell, self.separator)

    def targets(self, cells: Sequence[str]) -> npt.NDArray[np.int64] | npt.NDArray[np.float32]:
        """Turn cells without a fault into what is learnt.

        Returns:
            Of classes, their numbers, (rows,) int64; of several names, 0 or 1 for each,
            (rows, C) float32; of numbers, themselves, (rows, 1) float32.
        """
        if self.kind == "regression":
            return np.array([[float(cell)] for cell in cells], dtype=np.float32)
        numbers = {name: number for number, name in enumerate(self.names)}
        if self.kind == "classification":
            return np.array([numbers[cell] for cell in cells], dtype=np.int64)
        targets = np.zeros((len(cells), len(self.names)), dtype=np.float32)
        for row, cell in enumerate(cells):
            targets[row, [numbers[name] for name in self.split(cell)]] = 1
        return targets

    def strata(self, cells: Sequence[str]) -> npt.NDArray[np.int64]:
        """Sort rows into groups, (rows,) int64, that every split should have its share of.

        Of classes, these; of several names, the rarest that a row has; of numbers, their tenths.
        """
        if self.kind == "classification":
            return self.targets(cells).astype(np.int64)
        if self.kind == "regression":
            order = np.argsort(self.targets(cells)[:, 0], kind="stable")
            strata = np.empty(len(cells), dtype=np.int64)
            strata[order] = np.arange(len(cells)) * 10 // len(cells)
            return strata
        names = [self.split(cell) for cell in cells]
        counts = Counter(name for row in names for name in row)
        numbers = {name: number for number, name in enumerate(self.names, start=1)}
        rarest = [min(row, key=lambda name: (counts[name], name), default=None) for row in names]
        return np.array([0 if name is None else numbers[name] for name in rarest], dtype=np.int64)

    def unknown(self, cells: Sequence[str]) -> list[list[str]]:
        """Give the names in each cell that the model has no output for."""
        if self.kind == "regression":
            return [[] for _ in cells]
        known = set(self.names)
        return [[name for name in self.split(cell) if name not in known] for cell in cells]


def split_names(cell: str, separator: str) -> list[str]:
    """Give the names in a multi-label cell, without the white space around them."""
    return [name.strip() for name in cell.split(separator)] if cell.strip() else []


def cell_fault(cell: str, kind: Kind, separator: str) -> str | None:
    """Say what is wrong with a label cell by itself; None if nothing is."""
    if not cell.strip():
        return None if kind == "multi-label" else "the label is empty"
    if kind == "regression":
        if not _REAL.fullmatch(cell) or not math.isfinite(float(cell)):
            return f"the label {shorten(cell)} is no number"
        if abs(float(cell)) > _LARGEST:
            return f"the label {shorten(cell)} is beyond {_LARGEST:g}"
        return None
    if _BREAKS.search(cell):
        return "the label holds a tab or a line break, which a table of predictions cannot"
    if kind == "multi-label" and "" in split_names(cell, separator):
        return f"the label has nothing before or after a {separator!r}"
    return None


def find_kind(cells: Sequence[str], *, separator: str) -> tuple[Kind, str]:
    """Tell what labels mean by how they look.

    Args:
        cells: of the training rows.
        separator: what may stand between names.

    Returns:
        The kind, and the reason, for people.
    """
    if any(isinstance(cell, ListCell) for cell in cells):
        return "multi-label", "lists of names"
    filled = [cell for cell in cells if cell.strip()]
    distinct = set(filled)
    numbers = [float(cell) for cell in filled if _REAL.fullmatch(cell)]
    values = {value for value in numbers if math.isfinite(value)}
    if len(numbers) > _FEWEST_NUMBERS * len(filled):
        has_fractions = any(not value.is_integer() for value in values)
        if has_fractions and len(values) > min(_MOST_FRACTIONS, len(cells) / 2):
            return "regression", f"{len(values):,} different numbers, some with fractions"
    if filled and len(numbers) == len(filled):
        return "classification", "numbers that name classes"
    several = [cell for cell in distinct if separator in cell]
    if several:
        names = {name for cell in distinct for name in split_names(cell, separator)}
        # "Paris, France" has a comma too, but such cells have more parts than there are cells.
        if "" not in names and len(names) < len(distinct):
            return "multi-label", f"cells such as {min(several)!r}"
    return "classification", "each cell the name of one class"


def sort_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """Give the distinct labels in order: of their values if all are numbers, else of the text."""
    distinct = sorted(set(labels))
    if all(_NUMBER.fullmatch(label) for label in distinct):
        distinct.sort(key=Decimal)  # a stable sort, so "1" stays before "1.0"
    return tuple(distinct)


def make_labels(
    cells: Sequence[str], *, kind: Kind, separator: str, value_name: str, table: str
) -> Labels:
    """Collect what a training table's labels name.

    Args:
        cells: of the training rows, none with a fault.
        kind: what they mean.
        separator: between names.
        value_name: what the number of a regression is called.
        table: the file, for messages.

    Raises:
        CorpusError: there are fewer than two classes, or no label at all, or all numbers are one.
    """
    if kind == "regression":
        if len({float(cell) for cell in cells}) < 2:
            raise CorpusError(
                f"{table}: {_every(cells)} the value {cells[0]}; expected several",
                "name the right column with --label-column",
            )
        return Labels(kind=kind, names=(value_name,), separator=separator)
    if kind == "classification":
        names = sort_labels(cells)
        if len(names) < 2:
            raise CorpusError(
                f"{table}: {_every(cells)} the label {names[0]!r}; expected two classes or more",
                "name the right column with --label-column",
            )
    else:
        names = sort_labels(name for cell in cells for name in split_names(cell, separator))
        if not names:
            raise CorpusError(
                f"{table}: none of the {len(cells):,} rows has a label",
                "name the right column with --label-column",
            )
    _warn_of_look_alikes(names, table)
    return Labels(kind=kind, names=names, separator=separator)


def _every(cells: Sequence[str]) -> str:
    return f"all {len(cells):,} rows have" if len(cells) > 1 else "the only row has"


def name_some(names: Sequence[str]) -> str:
    """List the first names, and say how many more there are."""
    rest = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {rest:,} more" if rest > 0 else "")


def name_lines(lines: Sequence[int]) -> str:
    """List the first lines, and say how many there are."""
    which = "line" if len(lines) == 1 else f"{len(lines):,} lines:"
    return f"{which} {name_some([str(line) for line in lines])}"


def _warn_of_look_alikes(names: Sequence[str], table: str) -> None:
    seen: dict[str | Decimal, str] = {}
    for label in names:
        bare = label.strip()
        key = Decimal(bare) if _NUMBER.fullmatch(bare) else bare
        if key in seen:
            log.warning("%s: %r and %r are two classes", table, seen[key], label)
        seen[key] = label


def labels_of(folder: Path, manifest: dict[str, Any]) -> Labels:
    """Read from a model's manifest what its outputs stand for.

    Raises:
        DataFormatError: an older bertpre wrote it, which knew of one kind of label only.
    """
    if "task" not in manifest:
        raise DataFormatError(
            f"{folder}: an older bertpre wrote this model, without the kind of its labels",
            "fine-tune it again with `bertpre finetune`",
        )
    return Labels(
        kind=manifest["task"],
        names=tuple(manifest["classes"]),
        separator=manifest["options"]["label_separator"],
    )


def member_folders(folder: Path, manifest: Mapping[str, Any]) -> list[Path]:
    """Give the folders of the models whose mean a model folder predicts: its own, or its parts."""
    return [folder / name for name in manifest.get("members", [])] or [folder]
