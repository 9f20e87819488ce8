"""Entities in a text, by characters, and the tags of its tokens."""

import bisect
import functools
import itertools
import re
import unicodedata
from collections.abc import Sequence
from typing import Any, NamedTuple

from bertpre.finetuning.json_objects import Fault, Number, find_field, is_encodable, kind_of
from bertpre.finetuning.schemes import IOB2, PLAIN, Span, split_tag

# Each is a token: Han characters, their iteration marks, kana.
_HAN_AND_KANA = (
    "\u3005-\u3007\u3040-\u3098\u309b-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\uff66-\uff9f\U00020000-\U0003ffff"
)
# Marks and invisible characters belong to the letter before them. None lie between these planes.
_POINTS_WITH_MARKS = (range(0x20000), range(0xE0000, 0xE1000))
_ZERO_WIDTH_SPACE = "\u200b"  # divides words in Khmer and Thai, unlike others of its category

_INTEGER = re.compile("-?[0-9]{1,18}")
_ENTITY_HINT = (
    "start and end count the characters of the text from 0, and end is that after the last; "
    "entities must not overlap"
)

Place = tuple[int, int]


class Entity(NamedTuple):
    """A part of a text: its first character, the one after its last, and what it is."""

    start: int
    end: int
    label: str


def cut_text(text: str) -> list[Place]:
    """Return start and end of each token of a text.

    Tokens are words and numbers, and single punctuation, symbols, Han and kana characters. White
    space is in none.
    """
    return [found.span() for found in _token_pattern().finditer(text)]


@functools.cache
def _token_pattern() -> re.Pattern[str]:
    # Python counts combining marks as no part of a word, so Hindi and Thai words would fall apart.
    joined = "".join(
        re.escape(char)
        for char in map(chr, itertools.chain(*_POINTS_WITH_MARKS))
        if unicodedata.category(char) in ("Mn", "Mc", "Me", "Cf") and char != _ZERO_WIDTH_SPACE
    )
    word = rf"(?:[^\W_{_HAN_AND_KANA}]|[{joined}])+"
    return re.compile(rf"[{_HAN_AND_KANA}][{joined}]*|{word}|[^\s{_ZERO_WIDTH_SPACE}][{joined}]*")


def read_entities(fault: Fault, fields: dict[str, Any], name: str, *, text: str) -> list[Entity]:
    """Read the entities of a text, in order.

    Args:
        fault: creates the error that is raised for wrong entities.
        fields: an object.
        name: its field with a list of objects with start, end and label.
        text: the text.
    """
    values = find_field(fields, name)
    if not isinstance(values, list):
        raise fault(f"field {name!r}: expected a list of entities, found {kind_of(values)}")
    entities = sorted(
        _read_entity(fault, f"entity {number} of {name!r}", value, text)
        for number, value in enumerate(values, start=1)
    )
    for one, other in itertools.pairwise(entities):
        if other.start < one.end:
            raise fault(f"{_show(one)} and {_show(other)} overlap", _ENTITY_HINT)
    return entities


def _read_entity(fault: Fault, name: str, value: Any, text: str) -> Entity:
    if not isinstance(value, dict):
        raise fault(
            f"{name}: expected an object with start, end and label, found {kind_of(value)}",
            _ENTITY_HINT,
        )
    for bound in ("start", "end"):
        found = value.get(bound)
        if not isinstance(found, Number) or not _INTEGER.fullmatch(found):
            shown = found if isinstance(found, Number) else kind_of(found)
            raise fault(f"{name}: {bound}: expected an integer, found {shown}", _ENTITY_HINT)
    label = value.get("label")
    if not isinstance(label, str) or not label or not is_encodable(label):
        raise fault(f"{name}: label: expected a text, found {kind_of(label or None)}", _ENTITY_HINT)
    entity = Entity(int(value["start"]), int(value["end"]), str(label))
    if min(entity.start, entity.end) < 0 or max(entity.start, entity.end) > len(text):
        raise fault(
            f"{name}: {_show(entity)} is outside the text of {len(text):,} characters", _ENTITY_HINT
        )
    if not cut_text(text[entity.start : entity.end]):
        raise fault(f"{name}: {_show(entity)} has no text", _ENTITY_HINT)
    return entity


def _show(entity: Entity) -> str:
    return f"{entity.label!r} from {entity.start} to {entity.end}"


def cut_at_entities(places: Sequence[Place], entities: Sequence[Entity]) -> tuple[list[Place], int]:
    """Cut tokens where an entity starts or ends inside one.

    Args:
        places: start and end of each token.
        entities: in any order.

    Returns:
        The places of the smaller tokens, and the number of entities that cut one.
    """
    starts = [start for start, _ in places]
    cuts: set[int] = set()
    num_cutting = 0
    for entity in entities:
        inside = [
            bound
            for bound in (entity.start, entity.end)
            if (token := bisect.bisect_right(starts, bound) - 1) >= 0
            and starts[token] < bound < places[token][1]
        ]
        cuts.update(inside)
        num_cutting += bool(inside)
    if not cuts:
        return list(places), 0
    bounds = sorted(cuts)
    smaller = []
    for start, end in places:
        first, last = bisect.bisect_right(bounds, start), bisect.bisect_left(bounds, end)
        edges = [start, *bounds[first:last], end]
        smaller += list(itertools.pairwise(edges))
    return smaller, num_cutting


def tags_of_entities(places: Sequence[Place], entities: Sequence[Entity]) -> tuple[str, ...]:
    """Return the IOB2 tags of tokens.

    Args:
        places: from `cut_at_entities`.
        entities: without overlap, each with a token.
    """
    starts = [start for start, _ in places]
    spans = [
        Span(
            entity.label,
            bisect.bisect_left(starts, entity.start),
            bisect.bisect_left(starts, entity.end),
        )
        for entity in sorted(entities)
    ]
    return tuple(IOB2.tags_of(spans, len(places)))


def entities_of_tags(places: Sequence[Place], tags: Sequence[str]) -> list[Entity]:
    """Return the entities that tags of any scheme mark; each token with a plain tag is one."""
    has_prefixes = all(tag == "O" or split_tag(tag) is not None for tag in tags)
    spans = (IOB2 if has_prefixes else PLAIN).lenient_spans(tags)
    return [Entity(places[span.start][0], places[span.end - 1][1], span.type) for span in spans]
