"""Which scheme the tags of a file follow, and where they break it."""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bertpre.errors import CorpusError
from bertpre.finetuning.schemes import (
    BILOU,
    BIOS,
    BMES,
    BMEWO,
    IOB1,
    IOB2,
    IOBES,
    OUTSIDE_TAG,
    PLAIN,
    Scheme,
    split_tag,
)
from bertpre.finetuning.tables import LabelledTable

log = logging.getLogger(__name__)

# A scheme holds if it is broken by less than one entity in this many.
FEWEST_ENTITIES_PER_BROKEN = 100

_FEWEST_PER_SLIP = 20

# Of schemes that fit equally well, the first is taken.
_CANDIDATES = (IOB2, IOB1, IOBES, BMES, BILOU, BMEWO, BIOS)
# Without M, bare B, E and S could be of two schemes; word segmentation writes BMES.
_BARE_CANDIDATES = (IOB2, IOB1, BMES, IOBES, BILOU, BMEWO, BIOS)


class Place(NamedTuple):
    """A token: the sentence and the token in it, both from 0, and its tag."""

    sentence: int
    token: int
    tag: str


class Recognized(NamedTuple):
    """The scheme of some tags.

    Attributes:
        scheme: all but a few entities follow it.
        num_entities: as a lenient reading finds them; 0 if tags are plain.
        num_broken: entities whose tags are not the proper ones.
        first_broken: the first wrong tag among them.
        num_prefixed: if tags are plain: tokens with a tag such as B-PER, which suggest that others
            lost their prefix.
        first_odd: if tags are plain: the first tag without a prefix; None if all are bare letters.
    """

    scheme: Scheme
    num_entities: int = 0
    num_broken: int = 0
    first_broken: Place | None = None
    num_prefixed: int = 0
    first_odd: Place | None = None


class Breaks(NamedTuple):
    """How many entities break a scheme, and the first wrong tag."""

    scheme: Scheme
    num_broken: int
    first: Place


class MixedSchemes(NamedTuple):
    """Tags that follow no scheme well enough.

    Attributes:
        num_entities: as a lenient reading finds them.
        breaks: the scheme that is broken least, and the next one whose prefixes all occur.
    """

    num_entities: int
    breaks: tuple[Breaks, Breaks]


class _Pattern(NamedTuple):
    """The prefixes of an entity, and whether it touches another of its type before it."""

    letters: str
    touches: bool


def recognize(sentences: Sequence[Sequence[str]]) -> Recognized | MixedSchemes:
    """Recognize the scheme of the tags of some sentences.

    Tags are plain if one of them is neither "O" nor prefixed. Otherwise the scheme is the one that
    fewest entities break, if these are less than one in a hundred,
    or of fewer than a hundred entities at most one in twenty. Without entities it is IOB2.
    """
    counts = Counter(tag for tags in sentences for tag in tags)
    odd = {tag for tag in counts if tag != OUTSIDE_TAG and split_tag(tag) is None}
    if odd or _are_plain_letters(counts):
        return Recognized(
            PLAIN,
            num_prefixed=sum(count for tag, count in counts.items() if _has_type(tag)),
            first_odd=_find_first(sentences, odd),
        )
    patterns: Counter[_Pattern] = Counter()
    firsts: dict[_Pattern, tuple[int, int]] = {}
    for number, tags in enumerate(sentences):
        for start, pattern in _patterns_of(tags):
            patterns[pattern] += 1
            firsts.setdefault(pattern, (number, start))
    num_entities = patterns.total()
    if num_entities == 0:
        return Recognized(IOB2)
    ranked = sorted(_candidates(counts), key=lambda scheme: _count_broken(scheme, patterns))
    if _count_broken(ranked[0], patterns) == 0:
        return Recognized(ranked[0], num_entities)
    best = _breaks(ranked[0], patterns, firsts, sentences)
    is_rare = best.num_broken * FEWEST_ENTITIES_PER_BROKEN < num_entities
    # With fewer entities than that, a few are more likely to be slips than another scheme.
    is_slip = num_entities < FEWEST_ENTITIES_PER_BROKEN and (
        best.num_broken * _FEWEST_PER_SLIP <= num_entities
    )
    if is_rare or is_slip:
        return Recognized(best.scheme, num_entities, best.num_broken, best.first)
    letters = {letter for pattern in patterns for letter in pattern.letters} | {"."}
    # Of the others, IOB2 says more than BMES where no tag has M.
    other = next((some for some in ranked[1:] if letters.issuperset(some.letters)), ranked[1])
    return MixedSchemes(num_entities, (best, _breaks(other, patterns, firsts, sentences)))


def scheme_of_names(names: Iterable[str]) -> Scheme:
    """Return the scheme of the set of tags that a model of others knows.

    I of a type without B tells IOB1 from IOB2. Tags of no scheme make all plain.
    """
    names = set(names) - {OUTSIDE_TAG}
    parts = [split_tag(name) for name in names]
    letters = {part[0] for part in parts if part is not None}
    fitting = [scheme for scheme in _CANDIDATES if letters <= set(scheme.letters)]
    if None in parts or not fitting or _are_plain_letters(names):
        return PLAIN
    begun = {part[1] for part in parts if part is not None and part[0] == "B"}
    if fitting[0] is IOB2 and any(part is not None and part[1] not in begun for part in parts):
        return IOB1
    return fitting[0]


def _has_type(tag: str) -> bool:
    return split_tag(tag) is not None and len(tag) > 1


def _are_plain_letters(tags: Iterable[str]) -> bool:
    """Return whether bare letters are labels of their own, such as S for a subject.

    Prefixes of word segmentation come with B and one that goes on from it, or as I and O alone.
    """
    letters = set(tags) - {OUTSIDE_TAG}
    if not letters or any(len(letter) > 1 for letter in letters):
        return False
    return letters != {"I"} and not ("B" in letters and letters & set("IEML"))


def _candidates(tags: Iterable[str]) -> list[Scheme]:
    letters = {tag[0] for tag in tags}
    ordered = _CANDIDATES if any(map(_has_type, tags)) else _BARE_CANDIDATES
    # BIOS is rare: not to be thought of where a common scheme is broken.
    return [some for some in ordered if some is not BIOS or ("S" in letters and "E" not in letters)]


def _find_first(sentences: Sequence[Sequence[str]], wanted: set[str]) -> Place | None:
    return next(
        (
            Place(number, place, tag)
            for number, tags in enumerate(sentences)
            for place, tag in enumerate(tags)
            if tag in wanted
        ),
        None,
    )


def _patterns_of(tags: Sequence[str]) -> Iterable[tuple[int, _Pattern]]:
    """Yield the first token of each entity, and its pattern."""
    end, type_ = -1, ""
    for span in IOB2.lenient_spans(tags):
        letters = "".join(tag[0] for tag in tags[span.start : span.end])
        yield span.start, _Pattern(letters, end == span.start and type_ == span.type)
        end, type_ = span.end, span.type


def _proper_letters(scheme: Scheme, pattern: _Pattern) -> str:
    return scheme.proper_letters(len(pattern.letters), touches=pattern.touches)


def _count_broken(scheme: Scheme, patterns: Counter[_Pattern]) -> int:
    return sum(
        count
        for pattern, count in patterns.items()
        if pattern.letters != _proper_letters(scheme, pattern)
    )


def _breaks(
    scheme: Scheme,
    patterns: Counter[_Pattern],
    firsts: dict[_Pattern, tuple[int, int]],
    sentences: Sequence[Sequence[str]],
) -> Breaks:
    broken = {
        pattern: proper
        for pattern in patterns
        if (proper := _proper_letters(scheme, pattern)) != pattern.letters
    }
    pattern = min(broken, key=firsts.__getitem__)
    sentence, start = firsts[pattern]
    pairs = zip(pattern.letters, broken[pattern], strict=True)
    token = start + next(place for place, (is_, proper) in enumerate(pairs) if is_ != proper)
    place = Place(sentence, token, sentences[sentence][token])
    return Breaks(scheme, _count_broken(scheme, patterns), place)


def recognize_table(table: LabelledTable) -> Scheme:
    """Recognize the scheme of a training table, and log what breaks it.

    Raises:
        CorpusError: the tags are of several schemes.
    """

    def where(place: Place | None) -> str:
        assert place is not None
        line, token = table.lines[place.sentence], table.texts[place.sentence][place.token]
        return f"the tag {place.tag!r} of {token!r} in the sentence on line {line}"

    found = recognize(table.labels)
    if isinstance(found, MixedSchemes):
        told = "; ".join(
            f"{broken.num_broken:,} break {broken.scheme.name}, first {where(broken.first)}"
            for broken in found.breaks
        )
        raise CorpusError(
            f"{table.name}: the tags of its {found.num_entities:,} entities follow no scheme: "
            f"{told}; expected fewer than one in {FEWEST_ENTITIES_PER_BROKEN}",
            "fix these tags, or convert all to one scheme, such as IOB2, in which B- starts each "
            "entity",
        )
    if found.num_prefixed:
        raise CorpusError(
            f"{table.name}: {found.num_prefixed:,} of {sum(map(len, table.labels)):,} tags have a "
            f"prefix such as B-, but {where(found.first_odd)} has none",
            "give all entities prefixes, or none; tokens outside of entities have the tag O",
        )
    if found.num_broken:
        log.warning(
            "%s: %s of %s entities break %s, first %s; they are learned as if they were written "
            "properly, and scored as they are",
            table.name,
            f"{found.num_broken:,}",
            f"{found.num_entities:,}",
            found.scheme.name,
            where(found.first_broken),
        )
    return found.scheme
