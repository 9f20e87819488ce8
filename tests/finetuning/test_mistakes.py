"""Mistakes shown in their sentences, compared with lines written by hand."""

from bertpre.finetuning.mistakes import MOST_SENTENCES, are_characters, mistake_lines
from bertpre.finetuning.schemes import BMES, IOB2, PLAIN


def show(tokens, true, found, scheme=IOB2):
    header, *lines = mistake_lines([7], [tokens], [true], [found], scheme)
    assert header == "line\ttrue\tfound"
    return [line.split("\t") for line in lines]


def test_a_wrong_entity_is_marked_on_both_sides_and_right_ones_too():
    tokens = ["Ann", "went", "to", "New", "York"]

    found = show(tokens, ["B-PER", "O", "O", "B-LOC", "I-LOC"], ["B-PER", "O", "O", "O", "B-LOC"])

    assert found == [
        ["7", "[PER Ann] went to [LOC New York]", "[PER Ann] went to New [LOC York]"],
    ]


def test_sentences_without_a_wrong_entity_are_not_shown():
    lines = list(mistake_lines([1, 4], [["a"], ["b"]], [["B-X"], ["O"]], [["B-X"], ["B-Y"]], IOB2))

    assert lines == ["line\ttrue\tfound", "4\tb\t[Y b]"]


def test_an_ill_formed_entity_is_none():
    assert show(["a"], ["O"], ["I-X"]) == []
    assert show(["a"], ["B-X"], ["I-X"]) == [["7", "[X a]", "a"]]


def test_of_a_long_sentence_twelve_tokens_around_each_mistake_are_shown():
    tokens = [str(number) for number in range(60)]
    true, found = ["O"] * 60, ["O"] * 60
    true[20], found[45] = "B-X", "B-Y"

    ((_, truly, given),) = show(tokens, true, found)

    first, second = [str(n) for n in range(8, 33)], [str(n) for n in range(33, 58)]
    assert truly == f"… {' '.join(first)} ".replace("20", "[X 20]") + " ".join(second) + " …"
    assert given == f"… {' '.join(first)} " + " ".join(second).replace("45", "[Y 45]") + " …"


def test_what_lies_between_distant_mistakes_is_left_out():
    tokens = [str(number) for number in range(80)]
    true = ["O"] * 80
    found = ["B-X", *true[2:], "B-Y"]

    ((_, truly, _),) = show(tokens, true, found)

    assert truly == " ".join([*map(str, range(13)), "…", *map(str, range(67, 80))])


def test_an_entity_at_the_border_of_what_is_shown_is_shown_whole():
    tokens = [str(number) for number in range(30)]
    true = ["B-X"] + ["O"] * 11 + ["B-Z", "I-Z", "I-Z"] + ["O"] * 15
    found = ["O", *true[1:]]

    ((_, truly, given),) = show(tokens, true, found)

    assert truly == "[X 0] 1 2 3 4 5 6 7 8 9 10 11 [Z 12 13 14] …"
    assert given == "0 1 2 3 4 5 6 7 8 9 10 11 [Z 12 13 14] …"


def test_single_han_characters_are_joined_without_spaces():
    tokens = list("我在北京。")

    found = show(tokens, ["O", "O", "B-LOC", "I-LOC", "O"], ["O"] * 5)

    assert found == [["7", "我在[LOC 北京]。", "我在北京。"]]


def test_words_of_a_segmentation_are_shown_in_brackets():
    found = show(list("天气好"), list("BES"), list("SSS"), BMES)

    assert found == [["7", "[天气][好]", "[天][气][好]"]]


def test_only_wrong_plain_tags_are_shown():
    found = show(["time", "flies", ",", "O"], list("NV.O"), list("NN.N"), PLAIN)

    assert found == [["7", "time flies/V , O/O", "time flies/N , O/N"]]
    assert show(["a"], ["N"], ["N"], PLAIN) == []


def test_a_token_with_a_tab_or_line_break_does_not_break_the_table():
    assert show(["a\tb\n", "\r"], ["B-X", "O"], ["O", "O"]) == [["7", "[X a b ]  ", "a b   "]]


def test_no_more_than_so_many_sentences_are_shown():
    num = MOST_SENTENCES + 5

    lines = list(mistake_lines(range(num), [["a"]] * num, [["B-X"]] * num, [["O"]] * num, IOB2))

    assert len(lines) == 1 + MOST_SENTENCES
    assert lines[-1].startswith(f"{MOST_SENTENCES - 1}\t")


def test_most_tokens_must_be_single_characters_of_an_unspaced_script():
    assert are_characters([list("東京へ行く。")])
    assert not are_characters([["東京", "へ", "行く"]])
    assert not are_characters([list("abc")])
    assert not are_characters([])
