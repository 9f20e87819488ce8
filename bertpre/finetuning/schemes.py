"""Tag schemes: how the tags of the tokens of a sentence mark its entities.

A tag is "O" for a token outside all entities, or a prefix and a type such as B-PER, or a bare
prefix, as in word segmentation. Tags without prefixes, such as parts of speech, are plain.

Each letter plays a role: it begins an entity of several tokens (B), is inside one (I), ends it (E),
or is an entity of a single token (S).
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

OUTSIDE_TAG = "O"
BARE_TYPE = "_"  # the type of a bare prefix, as seqeval calls it

_ROLE_OF_LETTER = dict(zip("BIESMLUW", "BIESIESS", strict=True))
# A type "_" after a hyphen could not be told from that of a bare prefix when written back.
_TAG = re.compile(r"([BIESMLUW])(?:-(?!_$)(.+))?", re.DOTALL)


class Span(NamedTuple):
    """An entity: its type, its first token, and the token after its last."""

    type: str
    start: int
    end: int


class Cell(NamedTuple):
    """What a tag says: B, I, E, S or O, and the type."""

    role: str
    type: str


class Transitions(NamedTuple):
    """Which sequences of C tags are valid.

    Attributes:
        start: (C,) bool: the tag may come first.
        between: (C, C) bool: the tag of the column may follow that of the row.
        end: (C,) bool: the tag may come last.
    """

    start: npt.NDArray[np.bool_]
    between: npt.NDArray[np.bool_]
    end: npt.NDArray[np.bool_]


_OUTSIDE = Cell("O", "")


@lru_cache(maxsize=1 << 16)
def split_tag(tag: str) -> tuple[str, str] | None:
    """Split a tag into prefix and type; None if it has no prefix of any scheme, as "O" has none."""
    match = _TAG.fullmatch(tag)
    return None if match is None else (match[1], match[2] or BARE_TYPE)


def join_tag(letter: str, type_: str) -> str:
    """Write a tag: the inverse of `split_tag`."""
    return letter if type_ == BARE_TYPE else f"{letter}-{type_}"


@dataclass(frozen=True, slots=True)
class Scheme:
    """A way of marking entities by tags.

    Args:
        name: for people and manifests.
        letters: the prefixes in the roles B, I, E and S; "." for a role that the scheme lacks.
            Empty if tags are plain: then each token but those outside is an entity of its own, and
            its tag is the type.
        begins_all: whether B begins every entity, and not only one that touches another of its
            type.
    """

    name: str
    letters: str
    begins_all: bool = True

    @property
    def is_plain(self) -> bool:
        """Whether tags have no prefixes."""
        return not self.letters

    @property
    def has_ends(self) -> bool:
        """Whether the last token of several has a prefix of its own."""
        return self.letters[2:3] not in ("", ".")

    @property
    def has_singles(self) -> bool:
        """Whether the only token of an entity has a prefix of its own."""
        return self.letters[3:] not in ("", ".")

    # Tags

    def read(self, tag: str) -> Cell | None:
        """Return what a tag says, or None if it is no tag of this scheme."""
        return _read(self.letters, tag)

    def types_in(self, sentences: Iterable[Sequence[str]]) -> tuple[str, ...]:
        """Return the types in the tags of some sentences, sorted; the tags themselves if plain."""
        tags = {tag for tags in sentences for tag in tags}
        cells = {self.read(tag) for tag in tags} - {None, _OUTSIDE}
        return tuple(sorted({cell.type for cell in cells if cell is not None}))

    def names(self, types: Iterable[str], *, outside: bool) -> tuple[str, ...]:
        """Return all tags of some types, whether or not they occur.

        Args:
            types: as from `types_in`.
            outside: whether "O" is a tag, as it is not in word segmentation.

        Returns:
            "O", then by type and prefix.
        """
        first = [OUTSIDE_TAG] if outside else []
        if self.is_plain:
            return (*first, *sorted(set(types)))
        letters = self.letters.replace(".", "")
        return (
            *first,
            *(join_tag(part, type_) for type_ in sorted(set(types)) for part in letters),
        )

    # Entities

    def spans(self, tags: Sequence[str]) -> list[Span]:
        """Return the entities of a sentence, strictly: an ill-formed one is none at all.

        Tags of another scheme count as outside.

        Source: seqeval 1.2.2, mode "strict", with its schemes IOB1, IOB2, IOBES and BILOU. The
            letters of BMES and BMEWO are read as those of IOBES.
        """
        cells = [self.read(tag) or _OUTSIDE for tag in tags] + [_OUTSIDE]
        found = []
        previous, start = _OUTSIDE, 0
        while start < len(tags):
            end = start + 1
            if self._starts(previous, cells[start]):
                while _continues(cells[end - 1], cells[end]):
                    end += 1
                if self._is_whole(cells[end - 1], cells[end], length=end - start):
                    found.append(Span(cells[start].type, start, end))
            previous, start = cells[end - 1], end
        return found

    def lenient_spans(self, tags: Sequence[str]) -> list[Span]:
        """Return the entities of a sentence as conlleval reads them, which forgives wrong prefixes.

        An entity goes on from a B or I to an I or E of the same type. Any other prefix starts one.
        So an I after O or after another type starts one, and an E need not end it. Prefixes of all
        schemes are understood.

        seqeval's default mode does the same for the prefixes B, I, E and S. Elsewhere it differs:
        it knows no M, L, U and W, so that touching U of one type are one entity there; a tag
        without prefix loses its first letter and is an entity, so "PER" becomes "ER" there, but is
        outside here; hyphens before a type belong to it here.

        Source: conlleval of the CoNLL-2000 shared task, for B and I; seqeval 1.2.2 for E and S.
        """
        letters = "" if self.is_plain else None
        found = []
        previous, start = _OUTSIDE, 0
        for place, tag in enumerate((*tags, OUTSIDE_TAG)):
            cell = _read(letters, tag) or _OUTSIDE
            if not _continues(previous, cell):
                if previous is not _OUTSIDE:
                    found.append(Span(previous.type, start, place))
                start = place
            previous = cell
        return found

    def tags_of(self, spans: Iterable[Span], length: int) -> list[str]:
        """Write the proper tags of a sentence.

        Args:
            spans: entities in order, without overlap.
            length: number of tokens in the sentence.
        """
        tags = [OUTSIDE_TAG] * length
        before = Span("", -1, -1)
        for span in spans:
            touches = before.end == span.start and before.type == span.type
            if self.is_plain:
                tags[span.start : span.end] = [span.type] * (span.end - span.start)
            else:
                letters = self.proper_letters(span.end - span.start, touches=touches)
                tags[span.start : span.end] = [join_tag(letter, span.type) for letter in letters]
            before = span
        return tags

    def repaired(self, tags: Sequence[str]) -> list[str]:
        """Return the proper tags of the entities that a lenient reading finds."""
        return self.tags_of(self.lenient_spans(tags), len(tags))

    def proper_letters(self, length: int, *, touches: bool) -> str:
        """Return the prefixes of the tokens of an entity, a letter each.

        Args:
            length: number of tokens.
            touches: whether an entity of the same type ends just before.
        """
        begin, inside, end, single = tuple(self.letters)
        first = begin if self.begins_all or touches else inside
        if length == 1:
            return single if self.has_singles else first
        return first + inside * (length - 2) + (end if self.has_ends else inside)

    # Which tags may follow which

    def allowed(self, names: Sequence[str]) -> Transitions:
        """Return which sequences of tags are valid: those whose every tag but O is in an entity.

        Args:
            names: C tags; one of another scheme counts as outside.
        """
        if self.is_plain:
            num = len(names)
            return Transitions(np.ones(num, bool), np.ones((num, num), bool), np.ones(num, bool))
        cells = [self.read(name) or _OUTSIDE for name in names]
        rows = [[self._may_follow(row, column) for column in cells] for row in cells]
        return Transitions(
            start=np.array([self._may_follow(_OUTSIDE, cell) for cell in cells], dtype=bool),
            between=np.array(rows, dtype=bool).reshape(len(names), len(names)),
            end=np.array([self._may_follow(cell, _OUTSIDE) for cell in cells], dtype=bool),
        )

    def _may_follow(self, previous: Cell, cell: Cell) -> bool:
        if _continues(previous, cell):
            return True
        if previous.role == "B" and self.has_singles:
            return False  # one token alone has a prefix of its own
        if previous.role in "BI" and self.has_ends:
            return False
        return cell is _OUTSIDE or self._starts(previous, cell)

    def _starts(self, previous: Cell, cell: Cell) -> bool:
        if self.begins_all:
            return cell.role in "BS"
        if cell.role == "B":
            return previous is not _OUTSIDE and previous.type == cell.type
        return cell.role == "I" and (previous.role != "I" or previous.type != cell.type)

    def _is_whole(self, last: Cell, following: Cell, *, length: int) -> bool:
        if self.has_ends:
            return last.role in "ES"
        if not self.begins_all:
            # So in seqeval: B-LOC after B-PER touches no entity of its type, and spoils that one.
            return last.role != "B" or following.role != "B" or last.type == following.type
        return length > 1 or last.role == "S" or not self.has_singles


@lru_cache(maxsize=1 << 16)
def _read(letters: str | None, tag: str) -> Cell | None:
    """Read a tag by the letters of a scheme, or of all schemes if None."""
    if tag == OUTSIDE_TAG:
        return _OUTSIDE
    if letters == "":
        return Cell("S", tag)
    parts = split_tag(tag)
    if parts is None or (letters is not None and parts[0] not in letters):
        return None
    return Cell(_ROLE_OF_LETTER[parts[0]], parts[1])


def _continues(previous: Cell, cell: Cell) -> bool:
    return previous.role in "BI" and cell.role in "IE" and previous.type == cell.type


IOB1 = Scheme("IOB1", "BI..", begins_all=False)
IOB2 = Scheme("IOB2", "BI..")
IOBES = Scheme("IOBES", "BIES")
BILOU = Scheme("BILOU", "BILU")
BMES = Scheme("BMES", "BMES")
BMEWO = Scheme("BMEWO", "BMEW")
# seqeval lacks it; used for Chinese names. An entity of one token has S, no end is marked.
BIOS = Scheme("BIOS", "BI.S")
PLAIN = Scheme("plain", "")

SCHEMES = {scheme.name: scheme for scheme in (IOB2, IOB1, IOBES, BILOU, BMES, BMEWO, BIOS, PLAIN)}
