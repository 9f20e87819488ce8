"""Sections of a folder description, independent of terminal or HTML."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bertpre.interop.facts import Facts


@dataclass(frozen=True, slots=True)
class Grid:
    """A table with a header."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Bars:
    """A histogram: each bar's label and count."""

    title: str
    bars: Sequence[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Curves:
    """Lines with a common x axis: by name, the points (x, y) sorted by x."""

    title: str
    x_label: str
    lines: Mapping[str, Sequence[tuple[float, float]]]


@dataclass(frozen=True, slots=True)
class Examples:
    """Decoded training examples; a predicted token is written ``{seen→was}``."""

    title: str
    lines: Sequence[str]


@dataclass(frozen=True, slots=True)
class Picture:
    """An image file in the folder."""

    title: str
    path: Path


Section = Facts | Grid | Bars | Curves | Examples | Picture


class Folder(NamedTuple):
    """A folder of a known kind.

    Attributes:
        kind: "tokenizer", "part", "data", "run", "checkpoint", "model" or "onnx".
        path: where it is.
        manifest: bertpre's manifest; empty for a run, and for a folder of another library.
    """

    kind: str
    path: Path
    manifest: Mapping[str, Any]


class Inspection(NamedTuple):
    """The description of a folder: its kind and path, and its sections in order."""

    kind: str
    path: Path
    sections: tuple[Section, ...]
