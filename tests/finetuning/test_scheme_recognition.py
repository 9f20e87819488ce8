"""Which scheme is recognized, and what is said of tags that break it."""

import pytest

from bertpre.finetuning.scheme_recognition import (
    Breaks,
    MixedSchemes,
    Place,
    Recognized,
    recognize,
    scheme_of_names,
)
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
)

ENTITY_SCHEMES = [scheme for scheme in SCHEMES.values() if not scheme.is_plain]


def split(*lines):
    return [line.split() for line in lines]


@pytest.mark.parametrize("scheme", ENTITY_SCHEMES, ids=lambda scheme: scheme.name)
def test_every_scheme_is_recognized_by_its_own_tags(scheme):
    spans = [Span("X", 0, 1), Span("X", 1, 4), Span("Y", 4, 6), Span("X", 8, 9)]

    found = recognize([scheme.tags_of(spans, 10), ["O"]])

    assert found == Recognized(scheme, num_entities=4)


@pytest.mark.parametrize(
    ("scheme", "tags"),
    [
        (IOB1, "I-X O I-Y I-X"),
        (IOB2, "B-X O B-Y"),
        (IOB2, "B-X I-X O B-Y I-Y"),  # also BIOS without single tokens
        (IOBES, "S-X O O"),
        (IOBES, "B-X E-X S-Y"),  # also BMES
        (BMES, "B-X M-X E-X"),
        (BMEWO, "W-X B-X E-X"),
        (BILOU, "U-X O"),
        (BIOS, "S-X B-X I-X O"),
        (IOB2, "O O O"),
    ],
    ids=lambda part: getattr(part, "name", None),
)
def test_a_scheme_is_recognized_by_some_of_its_tags(scheme, tags):
    found = recognize(split(tags))

    assert isinstance(found, Recognized)
    assert (found.scheme, found.num_broken) == (scheme, 0)


@pytest.mark.parametrize(
    ("scheme", "tags"),
    [
        (BMES, "B E S S B M E"),
        (BMES, "B E S S"),
        (BMEWO, "B E W W"),
        (IOB2, "B I B B I"),
        (IOB2, "O B I B"),
        (IOB1, "O I I O"),
        (BILOU, "B L U"),
        (PLAIN, "S O U"),
        (PLAIN, "N V B I"),
        (PLAIN, "B O"),
        (PLAIN, "M W"),
        (PLAIN, "E S"),
    ],
    ids=lambda part: getattr(part, "name", None),
)
def test_bare_letters_are_prefixes_only_together(scheme, tags):
    found = recognize(split(tags))

    assert isinstance(found, Recognized)
    assert (found.scheme, found.num_broken) == (scheme, 0)


def test_parts_of_speech_are_plain():
    assert recognize(split("DET NOUN", "O S-ADJ")) == Recognized(
        PLAIN, num_prefixed=1, first_odd=Place(0, 0, "DET")
    )


def test_a_lost_prefix_is_found_among_tags_read_as_plain():
    found = recognize(split("B-PER I-PER O", "O PER B-LOC"))

    assert found == Recognized(PLAIN, num_prefixed=3, first_odd=Place(1, 1, "PER"))


def test_a_broken_start_in_more_than_a_hundred_entities_is_counted_and_located():
    tags = split("O B-X I-X", *["B-X I-X O"] * 99, "B-X I-Y", "I-X")

    found = recognize([*tags, *split("B-X " * 100)])

    assert found == Recognized(IOB2, 203, 2, Place(100, 1, "I-Y"))


def test_exactly_one_broken_start_in_a_hundred_is_too_many():
    good = ["B-X I-X O"] * 98

    assert isinstance(recognize(split(*good, "B-X I-X", "B-X I-X", "O I-X")), Recognized)
    found = recognize(split(*good, "B-X I-X", "O I-X"))

    assert isinstance(found, MixedSchemes)
    assert found.num_entities == 100
    # The same tags in IOB1: a B that touches nothing is broken.
    assert found.breaks == (
        Breaks(IOB2, 1, Place(99, 1, "I-X")),
        Breaks(IOB1, 99, Place(0, 0, "B-X")),
    )


def test_iob1_holds_with_few_needless_begins():
    found = recognize(split(*["O I-X I-X B-X"] * 100, "O O B-Y"))

    assert found == Recognized(IOB1, 201, 1, Place(100, 2, "B-Y"))


def test_a_broken_end_is_located_at_the_last_token():
    found = recognize(split(*["B-X I-X E-X S-X"] * 60, "O B-X I-X O"))

    assert found == Recognized(IOBES, 121, 1, Place(60, 2, "I-X"))


def test_a_prefix_of_another_scheme_is_a_broken_entity():
    found = recognize(split(*["B-X I-X B-X"] * 100, "O S-X"))

    assert found == Recognized(IOB2, 201, 1, Place(100, 1, "S-X"))


def test_the_scheme_without_ends_is_not_thought_of_where_ends_occur():
    found = recognize(split(*["B-X E-X S-X"] * 5, *["B-X I-X S-X"] * 5))

    assert isinstance(found, MixedSchemes)
    assert [part.scheme for part in found.breaks] == [IOBES, IOB2]


def test_two_schemes_in_one_file_are_mixed():
    found = recognize(split("B-X I-X B-X", *["B-X I-X O"] * 5, *["B-X E-X S-X"] * 5))

    # IOBES is broken by the seven entities of IOB2, and IOB2 by the ten of IOBES.
    assert found == MixedSchemes(
        17, (Breaks(IOBES, 7, Place(0, 1, "I-X")), Breaks(IOB2, 10, Place(6, 1, "E-X")))
    )


def test_names_of_a_model_tell_the_scheme():
    assert scheme_of_names(["O", "B-X", "I-X"]) is IOB2
    # "I-PER" without "B-PER": no two people touched in CoNLL-2003.
    assert scheme_of_names(["O", "B-LOC", "I-LOC", "I-PER"]) is IOB1
    assert scheme_of_names(["O", "I-LOC", "I-PER"]) is IOB1
    assert scheme_of_names(IOBES.names(["X", "Y"], outside=True)) is IOBES
    assert scheme_of_names(BMES.names(["_"], outside=False)) is BMES
    assert scheme_of_names(["NOUN", "VERB", "B-X"]) is PLAIN
    assert scheme_of_names(["LABEL_0", "LABEL_1"]) is PLAIN
    assert scheme_of_names(["B-X", "M-X", "L-X"]) is PLAIN
    assert scheme_of_names(["S", "O"]) is PLAIN
