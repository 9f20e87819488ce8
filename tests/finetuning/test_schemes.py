"""Tag schemes against seqeval, against conlleval's published rules, and brute force."""

import itertools
import random
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertpre.finetuning.schemes import (
    BILOU,
    BIOS,
    BMES,
    BMEWO,
    IOB1,
    IOB2,
    IOBES,
    PLAIN,
    SCHEMES,
    Span,
    split_tag,
)

ENTITY_SCHEMES = [scheme for scheme in SCHEMES.values() if not scheme.is_plain]
# Scheme, its name in seqeval, and how its letters are written there.
IN_SEQEVAL = [
    (IOB1, "IOB1", {}),
    (IOB2, "IOB2", {}),
    (IOBES, "IOBES", {}),
    (BILOU, "BILOU", {}),
    (BMES, "IOBES", {"M": "I"}),
    (BMEWO, "IOBES", {"M": "I", "W": "S"}),
]

NAMES = [scheme.name for scheme, *_ in IN_SEQEVAL]

types = st.sampled_from(["PER", "LOC", "PER.NOM", "a-b", "_"])


@st.composite
def sentences_of_spans(draw):
    """Entities without overlap, which may touch, and the length of their sentence."""
    borders = draw(st.lists(st.integers(0, 12), unique=True).map(sorted))
    kinds = draw(st.lists(st.none() | types, min_size=len(borders), max_size=len(borders)))
    pairs = zip(itertools.pairwise(borders), kinds, strict=False)
    spans = [Span(kind, start, end) for (start, end), kind in pairs if kind is not None]
    return spans, 12


def random_tags(scheme, rng, *, kinds=("X", "Y"), longest=7):
    tags = scheme.names(kinds, outside=True)
    return [rng.choice(tags) for _ in range(rng.randint(0, longest))]


def seqeval_spans(tags, name, letters):
    from seqeval import scheme

    tags = [letters.get(tag[0], tag[0]) + tag[1:] for tag in tags]
    entities = scheme.Tokens(tags, getattr(scheme, name)).entities
    return [Span(entity.tag, entity.start, entity.end) for entity in entities]


def seqeval_default_spans(tags):
    from seqeval.metrics.sequence_labeling import get_entities

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".* seems not to be NE tag")
        return [Span(kind, start, last + 1) for kind, start, last in get_entities(list(tags))]


# Strict reading


@pytest.mark.parity
@pytest.mark.parametrize(("scheme", "name", "letters"), IN_SEQEVAL, ids=NAMES)
def test_strict_spans_are_those_of_seqeval_on_random_tags(scheme, name, letters):
    rng = random.Random(1)
    for _ in range(4000):
        tags = random_tags(scheme, rng)

        assert scheme.spans(tags) == seqeval_spans(tags, name, letters), tags


@pytest.mark.parity
@pytest.mark.parametrize(("scheme", "name", "letters"), IN_SEQEVAL, ids=NAMES)
def test_strict_spans_of_bare_prefixes_are_those_of_seqeval(scheme, name, letters):
    tags = scheme.names(["_"], outside=True)
    assert all(len(tag) == 1 for tag in tags)
    for some in itertools.product(tags, repeat=4):
        assert scheme.spans(some) == seqeval_spans(some, name, letters), some


def test_strict_spans_by_hand():
    assert IOB2.spans(["B-X", "I-X", "I-Y", "O", "I-X", "B-X"]) == [
        Span("X", 0, 2),
        Span("X", 5, 6),
    ]
    assert IOB1.spans(["I-X", "B-X", "I-X", "I-Y"]) == [
        *(Span("X", 0, 1), Span("X", 1, 3), Span("Y", 3, 4))
    ]
    assert IOBES.spans(["B-X", "I-X", "S-X", "B-X", "E-X"]) == [Span("X", 2, 3), Span("X", 3, 5)]
    assert BMEWO.spans(["B-X", "M-X", "E-X", "W-X"]) == [Span("X", 0, 3), Span("X", 3, 4)]
    assert BIOS.spans(["B-X", "I-X", "S-X", "B-X", "O"]) == [Span("X", 0, 2), Span("X", 2, 3)]
    assert PLAIN.spans(["N", "O", "B-X"]) == [Span("N", 0, 1), Span("B-X", 2, 3)]


def test_tags_of_another_scheme_are_outside_when_read_strictly():
    assert IOB2.spans(["B-X", "E-X", "S-X", "PER"]) == [Span("X", 0, 1)]
    assert [IOB2.read(tag) for tag in ("E-X", "PER", "b-X", "B-", "B-_", "")] == [None] * 6


def test_a_type_may_hold_hyphens_dots_and_spaces():
    assert split_tag("B-PER.NOM") == ("B", "PER.NOM")
    assert split_tag("I-creative-work") == ("I", "creative-work")
    assert split_tag("S-a b\nc") == ("S", "a b\nc")
    assert split_tag("M") == ("M", "_")
    assert [split_tag(tag) for tag in ("O", "N", "BPER", "NN")] == [None] * 4


# Lenient reading


def conlleval_spans(tags):
    """Read the tags B, I and O by the rules of the script of the CoNLL-2000 shared task.

    A chunk ends after a B or I before B or O, and wherever the type changes. A chunk starts at a B
    and at an I after O, and wherever the type changes, except at O.
    """
    found, start = [], None
    before, kind_before = "O", ""
    for place, tag in enumerate([*tags, "O"]):
        letter, _, kind = tag.partition("-")
        ends = (before, letter) in {("B", "B"), ("B", "O"), ("I", "B"), ("I", "O")}
        ends |= before != "O" and kind_before != kind
        starts = (before, letter) in {("B", "B"), ("I", "B"), ("O", "B"), ("O", "I")}
        starts |= letter != "O" and kind_before != kind
        if ends:
            found.append(Span(kind_before, start, place))
        if starts:
            start = place
        before, kind_before = letter, kind
    return found


@pytest.mark.parametrize("scheme", [IOB1, IOB2], ids=lambda scheme: scheme.name)
def test_lenient_spans_follow_the_rules_of_conlleval(scheme):
    for length in range(6):
        for tags in itertools.product(["O", "B-X", "I-X", "B-Y", "I-Y"], repeat=length):
            assert scheme.lenient_spans(tags) == conlleval_spans(tags), tags


@pytest.mark.parity
@pytest.mark.parametrize("scheme", ENTITY_SCHEMES, ids=lambda scheme: scheme.name)
def test_lenient_spans_are_those_of_seqeval_whatever_the_scheme(scheme):
    rng = random.Random(2)
    for _ in range(4000):
        tags = random_tags(IOBES, rng, kinds=("X", "Y.Z", "a-b", "_"))

        assert scheme.lenient_spans(tags) == seqeval_default_spans(tags), tags


@pytest.mark.parity
def test_where_seqeval_differs_when_lenient():
    # A tag without prefix loses its first letter there.
    assert seqeval_default_spans(["PER", "O"]) == [Span("ER", 0, 1)]
    assert IOB2.lenient_spans(["PER", "O"]) == []
    # U is unknown there, so touching entities of one type are one.
    assert seqeval_default_spans(["U-X", "U-X"]) == [Span("X", 0, 2)]
    assert BILOU.lenient_spans(["U-X", "U-X"]) == [Span("X", 0, 1), Span("X", 1, 2)]
    # M is unknown there; a well-formed entity is read all the same, but one after E overlaps it.
    assert seqeval_default_spans(["B-X", "M-X", "E-X"]) == [Span("X", 0, 3)]
    assert seqeval_default_spans(["B-X", "E-X", "M-X"]) == [Span("X", 0, 2), Span("X", 0, 3)]
    assert BMES.lenient_spans(["B-X", "E-X", "M-X"]) == [Span("X", 0, 2), Span("X", 2, 3)]
    # Hyphens before a type are its own here.
    assert IOB2.lenient_spans(["B--X"]) == seqeval_default_spans(["B--X"]) == [Span("-X", 0, 1)]
    assert seqeval_spans(["B--X"], "IOB2", {}) == [Span("X", 0, 1)]
    assert IOB2.spans(["B--X"]) == [Span("-X", 0, 1)]


def test_an_inside_without_begin_is_an_entity_only_when_lenient():
    assert IOB2.spans(["O", "I-X", "I-X"]) == []
    assert IOB2.lenient_spans(["O", "I-X", "I-X"]) == [Span("X", 1, 3)]


# Writing


@pytest.mark.parametrize("scheme", ENTITY_SCHEMES, ids=lambda scheme: scheme.name)
@given(given_spans=sentences_of_spans())
def test_proper_tags_are_read_back_strictly_and_leniently(scheme, given_spans):
    spans, length = given_spans

    tags = scheme.tags_of(spans, length)

    assert len(tags) == length
    assert scheme.spans(tags) == scheme.lenient_spans(tags) == spans


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        (IOB1, "I-X B-X I-X B-X O I-Y I-X"),
        (IOB2, "B-X B-X I-X B-X O B-Y B-X"),
        (IOBES, "S-X B-X E-X S-X O S-Y S-X"),
        (BILOU, "U-X B-X L-X U-X O U-Y U-X"),
        (BMES, "S-X B-X E-X S-X O S-Y S-X"),
        (BMEWO, "W-X B-X E-X W-X O W-Y W-X"),
        (BIOS, "S-X B-X I-X S-X O S-Y S-X"),
    ],
    ids=lambda part: getattr(part, "name", None),
)
def test_proper_tags_by_hand(scheme, expected):
    ends = [("X", 0, 1), ("X", 1, 3), ("X", 3, 4), ("Y", 5, 6), ("X", 6, 7)]

    assert scheme.tags_of([Span(*end) for end in ends], 7) == expected.split()


def test_long_entities_have_insides_of_their_scheme():
    spans = [Span("_", 0, 4)]

    written = {scheme.name: "".join(scheme.tags_of(spans, 4)) for scheme in ENTITY_SCHEMES}

    assert written == {
        **{"IOB1": "IIII", "IOB2": "BIII", "IOBES": "BIIE", "BILOU": "BIIL"},
        **{"BMES": "BMME", "BMEWO": "BMME", "BIOS": "BIII"},
    }


def test_repaired_tags_are_the_proper_ones_of_what_a_lenient_reader_finds():
    assert IOB2.repaired(["I-X", "I-X", "I-Y"]) == ["B-X", "I-X", "B-Y"]
    assert IOB1.repaired(["B-X", "O", "B-X", "B-X"]) == ["I-X", "O", "I-X", "B-X"]
    assert IOBES.repaired(["B-X", "I-X", "O", "B-Y"]) == ["B-X", "E-X", "O", "S-Y"]
    assert IOB2.repaired(["S-X", "B-X", "E-X"]) == ["B-X", "B-X", "I-X"]
    assert PLAIN.repaired(["N", "O", "B-X"]) == ["N", "O", "B-X"]


@pytest.mark.parametrize("scheme", ENTITY_SCHEMES, ids=lambda scheme: scheme.name)
def test_repairing_changes_no_valid_sequence(scheme):
    rng = random.Random(3)
    for _ in range(1000):
        tags = random_tags(scheme, rng, longest=4)
        is_valid = covered(scheme, tags)

        assert (scheme.repaired(tags) == tags) == is_valid, tags


# Names and transitions


def test_names_are_the_closed_set_by_type_and_prefix():
    assert IOBES.names(["LOC", "A"], outside=True) == (
        *("O", "B-A", "I-A", "E-A", "S-A", "B-LOC", "I-LOC", "E-LOC", "S-LOC"),
    )
    assert IOB1.names({"X"}, outside=True) == IOB2.names(["X", "X"], outside=True)
    assert BMES.names(["_"], outside=False) == ("B", "M", "E", "S")
    assert BILOU.names(["X"], outside=False) == ("B-X", "I-X", "L-X", "U-X")
    assert BMEWO.names(["X"], outside=False) == ("B-X", "M-X", "E-X", "W-X")
    assert BIOS.names(["X"], outside=True) == ("O", "B-X", "I-X", "S-X")
    assert PLAIN.names(["V", "N"], outside=False) == ("N", "V")
    assert PLAIN.names(["V", "N"], outside=True) == ("O", "N", "V")


def test_types_are_collected_from_the_tags_of_the_scheme():
    assert IOB2.types_in([["B-Y", "O"], ["I-X", "B", "E-Z"]]) == ("X", "Y", "_")
    assert PLAIN.types_in([["V", "O"], ["N", "V"]]) == ("N", "V")


def covered(scheme, tags):
    """Return whether every tag but O is in an entity of the strict reading."""
    inside = {place for span in scheme.spans(tags) for place in range(span.start, span.end)}
    return inside == {place for place, tag in enumerate(tags) if tag != "O"}


def is_allowed(transitions, numbers):
    if not numbers:
        return True
    return bool(
        transitions.start[numbers[0]]
        and all(transitions.between[pair] for pair in itertools.pairwise(numbers))
        and transitions.end[numbers[-1]]
    )


@pytest.mark.parametrize("scheme", ENTITY_SCHEMES, ids=lambda scheme: scheme.name)
@pytest.mark.parametrize("outside", [True, False])
def test_exactly_the_sequences_whose_tags_are_all_in_entities_are_allowed(scheme, outside):
    names = scheme.names(["X", "Y"], outside=outside)
    transitions = scheme.allowed(names)
    longest = 5 if len(names) < 6 else 4
    for length in range(longest + 1):
        for numbers in itertools.product(range(len(names)), repeat=length):
            tags = [names[number] for number in numbers]

            assert is_allowed(transitions, numbers) == covered(scheme, tags), tags


@pytest.mark.parametrize("scheme", ENTITY_SCHEMES, ids=lambda scheme: scheme.name)
@given(given_spans=sentences_of_spans())
def test_the_proper_tags_of_any_entities_are_allowed(scheme, given_spans):
    spans, length = given_spans
    names = scheme.names([span.type for span in spans], outside=True)

    tags = scheme.tags_of(spans, length)

    assert is_allowed(scheme.allowed(names), [names.index(tag) for tag in tags])


def test_plain_tags_may_follow_each_other_as_they_like():
    transitions = PLAIN.allowed(("N", "I-X"))

    assert all(np.all(part) for part in transitions)
    assert [part.shape for part in transitions] == [(2,), (2, 2), (2,)]


def test_a_name_of_no_scheme_counts_as_outside():
    transitions = IOB2.allowed(("[PAD]", "B-X", "I-X"))

    assert transitions.start.tolist() == [True, True, False]
    assert transitions.between[0].tolist() == [True, True, False]


def test_no_names_have_no_transitions():
    assert [part.shape for part in IOB2.allowed(())] == [(0,), (0, 0), (0,)]
