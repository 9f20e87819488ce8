"""Baselines for tags, on sentences where it is known what they can do, and against brute force."""

import random
import time

import pytest

from bertpre.finetuning.schemes import BMES, IOB1, IOB2, IOBES, Span
from bertpre.finetuning.token_baselines import commonest_tags, longest_matches


def split(*lines):
    return [line.split() for line in lines]


def test_each_token_gets_its_commonest_tag_and_unseen_ones_the_commonest_of_all():
    train = split("the bank in Bank", "bank bank"), split("D N P N", "V V")

    found = commonest_tags(*train, split("the bank Bank boat", ""))

    # "bank" is V twice and N once; of all tags, N and V are commonest.
    assert found == [["D", "V", "N", "N"], []]


def test_of_equally_common_tags_the_first_is_taken_whatever_the_order():
    train = split("a a"), split("V N")

    assert commonest_tags(*train, split("a b")) == [["N", "N"]]
    assert commonest_tags([], [], split("a b")) == [["O", "O"]]


def test_the_longest_match_wins_and_the_rest_is_outside():
    tokens = split("in New York", "New York Times wrote", "New York", "in New", "York won", "York")
    tags = split("O B-LOC I-LOC", "B-ORG I-ORG I-ORG O", "B-LOC I-LOC", "O O", "B-Y O", "B-X")
    # York is an entity in two of its five occurrences, too few.
    scored = split("the New York Times in New York", "New York York", "New York Post", "New", "")

    found = longest_matches(tokens, tags, scored, IOB2)

    assert found == split(
        *("O B-ORG I-ORG I-ORG O B-LOC I-LOC", "B-LOC I-LOC O", "B-LOC I-LOC O", "O", "")
    )


@pytest.mark.parametrize(("elsewhere", "expected"), [("may", "B-X"), ("may may", "O")])
def test_a_sequence_is_known_if_an_entity_in_more_than_half_of_its_occurrences(elsewhere, expected):
    tokens = split("may came", "may came", f"{elsewhere} be")
    tags = [["B-X", "O"], ["B-X", "O"], ["O"] * len(tokens[2])]

    assert longest_matches(tokens, tags, [["may"]], IOB2) == [[expected]]


def test_the_commonest_type_is_taken_and_tags_are_those_of_the_scheme():
    tokens = split("a b", "a b", "a b", "c", "q")
    spans = [[Span(kind, 0, 2)] for kind in "XYX"] + [[Span("X", 0, 1)], []]

    def found(scheme):
        tags = [scheme.tags_of(*pair) for pair in zip(spans, map(len, tokens), strict=True)]
        return longest_matches(tokens, tags, split("a b c a"), scheme)

    assert found(IOB1) == split("I-X I-X B-X O")
    assert found(IOBES) == split("B-X E-X S-X O")


def test_without_outside_in_training_unmatched_tokens_are_words_of_their_own():
    tokens, tags = [list("今天天气好"), list("天气")], [list("BEBES"), list("BE")]

    found = longest_matches(tokens, tags, [list("好天气啊今"), list("今天气")], BMES)

    assert found == [list("SBESS"), list("BES")]


def test_without_outside_a_word_is_known_however_often_its_tokens_occur_otherwise():
    tokens, tags = [list("天气"), list("天气"), list("天气")], [list("SS"), list("SS"), list("BE")]

    assert longest_matches(tokens, tags, [list("天气")], BMES) == [list("BE")]


def test_a_token_without_a_word_gets_the_commonest_type_of_words():
    train = [["a", "b", "c"]], [["S-N", "S-V", "S-V"]]

    assert longest_matches(*train, [["q", "a"]], IOBES) == [["S-V", "S-N"]]


def test_a_beginning_of_a_longer_entity_falls_back_to_the_shorter():
    tokens, tags = split("a b c d", "a"), split("B-X I-X I-X I-X", "B-Y")

    assert longest_matches(
        [*tokens, ["a", "o"]], [*tags, ["B-Y", "O"]], split("a b c a b"), IOB2
    ) == split("B-Y O O B-Y O")


def test_nothing_to_learn_from_finds_nothing():
    assert longest_matches(split("a"), split("O"), split("a b"), IOB2) == split("O O")
    assert longest_matches([], [], split("a b"), IOB2) == split("O O")


@pytest.mark.parametrize("seed", range(5))
def test_matches_are_those_of_brute_force(seed):
    rng = random.Random(seed)

    def draw(num):
        return [rng.choices("abc", k=rng.randint(1, 9)) for _ in range(num)]

    tokens, scored = draw(12), draw(40)
    tags = [rng.choices(["O", "B-X", "B-Y", "I-X"], k=len(some)) for some in tokens]
    types = {}
    for some, its_tags in zip(tokens, tags, strict=True):
        for kind, start, end in IOB2.lenient_spans(its_tags):
            types.setdefault("".join(some[start:end]), []).append(kind)
    texts = ["".join(some) for some in tokens]
    occurrences = {
        key: sum(text.startswith(key, at) for text in texts for at in range(9)) for key in types
    }
    types = {key: kinds for key, kinds in types.items() if 2 * len(kinds) > occurrences[key]}
    assert types.keys() < occurrences.keys()

    found = longest_matches(tokens, tags, scored, IOB2)

    for some, its_tags in zip(scored, found, strict=True):
        expected, place = ["O"] * len(some), 0
        while place < len(some):
            ends = [e for e in range(place + 1, len(some) + 1) if "".join(some[place:e]) in types]
            if ends:
                kinds = types["".join(some[place : ends[-1]])]
                kind = max("XY", key=kinds.count)
                inside = [f"I-{kind}"] * (ends[-1] - place - 1)
                expected[place : ends[-1]] = [f"B-{kind}", *inside]
            place = ends[-1] if ends else place + 1
        assert its_tags == expected


def test_a_long_sentence_of_known_words_takes_no_quadratic_time():
    words = [[f"w{number % 7}" for number in range(length)] for length in range(1, 20)]
    tags = [["B-X"] + ["I-X"] * (len(some) - 1) for some in words]
    long = [[f"w{number % 7}" for number in range(100_000)]]

    start = time.perf_counter()
    longest_matches([*words, ["o"]], [*tags, ["O"]], long, IOB2)

    assert time.perf_counter() - start < 5  # some 0.1 s; quadratic would take minutes
