"""Files of columns: what is read, what is written back, and every fault of a line."""

import dataclasses
import gzip
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bertpre.corpus.columns import Layout
from bertpre.corpus.conll import ColumnFile, Sentence
from bertpre.corpus.decoding import Decoding
from bertpre.corpus.tables import Row, read_rows
from bertpre.errors import ConfigError, CorpusError

TABS = Layout(width=2, separator="\t", text=1, label=2)
SPACES = dataclasses.replace(TABS, separator=" ")


def write(folder: Path, content: str | bytes, name: str = "f.conll") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read(path: Path, *, tags="read", **options) -> list[Sentence]:
    return list(ColumnFile(path, tags=tags, **options).sentences())


def pairs(path: Path, **options) -> list[list[tuple[str, str]]]:
    return [list(zip(one.tokens, one.tags, strict=True)) for one in read(path, **options)]


def refused(path: Path, kind=CorpusError, **options) -> CorpusError:
    with pytest.raises(kind) as caught:
        read(path, **options)
    return caught.value


def tagged(path: Path, tag: str = "X", **options) -> str:
    file = ColumnFile(path, tags="write", **options)
    return "".join(file.write(one, [tag] * len(one.tokens)) for one in file.sentences())


# Reading


@pytest.mark.parametrize(
    "content",
    [
        "Jan\tB-PER\nsleeps\tO\n\n.\tO\n",
        "Jan B-PER\nsleeps O\n\n. O",
        "Jan    B-PER\nsleeps    O\n\n\n\n.         O\n\n",
        "Jan\tB-PER\r\nsleeps\tO\r\n\r\n.\tO\r\n",
        "\ufeffJan\tB-PER\nsleeps\tO\n\t\n.\tO\n",
        "Jan\tB-PER\t\nsleeps\tO\t\t\n \t \r\n.\tO \n",
        "\n\n-DOCSTART- -X- O\n\nJan B-PER\nsleeps O\n-DOCSTART-\n. O\n",
        "# id = 7\n# text = Jan sleeps\nJan\tB-PER\nsleeps\tO\n\n# text\n.\tO\n",
        "# id\t7\nJan\tB-PER\n# text: in between\nsleeps\tO\n\n# id=8\n.\tO\n",
        "Jan NNP x B-PER\nsleeps VBZ x O\n\n. . x O\n",
    ],
)
def test_forms_of_one_file_read_alike(tmp_path, content):
    assert pairs(write(tmp_path, content)) == [[("Jan", "B-PER"), ("sleeps", "O")], [(".", "O")]]
    assert pairs(write(tmp_path, gzip.compress(content.encode()), "f.conll.gz")) == pairs(
        write(tmp_path, content)
    )


def test_the_line_of_a_sentence_is_that_of_its_first_token(tmp_path):
    path = write(tmp_path, "\n# id 1\na O\n\n\n-DOCSTART-\n\nb O\nc O\n")

    assert [(one.line, one.places) for one in read(path)] == [(3, (2,)), (8, (0, 1))]


def test_number_signs_are_tokens_unless_a_line_says_id_or_text(tmp_path):
    path = write(tmp_path, "#\tO\n#tag\tB-X\n# \tO\n# ids\tO\n#text\tO\n# text\tO\n")

    assert pairs(path) == [
        [("#", "O"), ("#tag", "B-X"), ("# ", "O"), ("# ids", "O"), ("#text", "O")]
    ]


def test_only_the_separator_of_the_first_token_divides(tmp_path):
    spaces = write(tmp_path, "a\u00a0b O\nc\u3000d O\ne\u2028f O\ng\x0bh\x85i O\n", "spaces.bio")
    tabs = write(tmp_path, "New York\tB-LOC\n a b \tO\n\u3000\tO\n", "tabs.iob")

    assert [token for token, _ in pairs(spaces)[0]] == [
        "a\u00a0b", "c\u3000d", "e\u2028f", "g\x0bh\x85i",
    ]  # fmt: skip
    assert pairs(tabs) == [[("New York", "B-LOC"), (" a b ", "O"), ("\u3000", "O")]]


@pytest.mark.parametrize(
    "content",
    ["a\tO\n \tO\nb\tO\n", "a O\n  O\nb O\n", "a O\n O\nb O\n", "a x O\n x O\nb x O\n"],
)
def test_a_token_may_be_a_space(tmp_path, content):
    path = write(tmp_path, content)

    assert pairs(path) == [[("a", "O"), (" ", "O"), ("b", "O")]]
    assert pairs(write(tmp_path, tagged(path, layout=read_layout(path)))) == [
        [("a", "X"), (" ", "X"), ("b", "X")]
    ]


def read_layout(path: Path) -> Layout | None:
    return ColumnFile(path, tags="read").layout


def test_a_space_may_be_the_first_token(tmp_path):
    assert pairs(write(tmp_path, "\n  O\n O\nb O\n")) == [[(" ", "O"), (" ", "O"), ("b", "O")]]
    assert pairs(write(tmp_path, " \tO\nb\tO\n")) == [[(" ", "O"), ("b", "O")]]


def test_a_file_that_is_indented_throughout_has_no_more_columns(tmp_path):
    assert pairs(write(tmp_path, "  a O\n  b O\n")) == [[("a", "O"), ("b", "O")]]


def test_a_token_may_be_empty_between_tabs(tmp_path):
    assert pairs(write(tmp_path, "a\tO\n\tB-X\n")) == [[("a", "O"), ("", "B-X")]]


def test_columns_are_chosen_by_number(tmp_path):
    path = write(tmp_path, "1 Jan N B-PER x\n2 . P O x\n")

    assert pairs(path, text_column=2, label_column=4) == [[("Jan", "B-PER"), (".", "O")]]
    assert pairs(path, text_column=2, label_column=3) == [[("Jan", "N"), (".", "P")]]
    assert ColumnFile(path, tags="read", text_column=2, label_column=4).layout == Layout(
        width=5, separator=" ", text=2, label=4
    )


def test_other_encodings_are_read(tmp_path):
    path = write(tmp_path, "北京\tB-LOC\n".encode("gb18030"))

    assert pairs(path, decoding=Decoding(encoding="gb18030")) == [[("北京", "B-LOC")]]


def test_bytes_are_counted(tmp_path):
    path, counts = write(tmp_path, "a O\n" * 10), []

    read(path, on_bytes=counts.append)

    assert sum(counts) == 40


def test_a_file_without_tokens_has_no_sentences(tmp_path):
    for content in ("", "\n\n", "# id\n-DOCSTART-\n\t\n"):
        file = ColumnFile(write(tmp_path, content), tags="read")
        assert (list(file.sentences()), file.layout) == ([], None)


# Faults


@pytest.mark.parametrize(
    ("content", "problem", "hint"),
    [
        (
            "a\tO\nb\n\nc\tO\n",
            "found 1 column, expected 2 as in line 1, whose columns",
            "blank lines",
        ),
        ("a\tO\nb\tO\tx\n\nc\tO\n", "found 3 columns, expected 2 as in line 1: 'b\\tO\\tx'", ""),
        ("a\tO\nb O\n\nc\tO\n", "found 1 column, expected 2", "by tabs as in line 1"),
        ("a O\nb\tO\n\nc O\n", "found 1 column, expected 2", "by spaces as in line 1"),
        (
            "a\tO\n# note\n\nc\tO\n",
            "found 1 column, expected 2 as in line 1; only lines with '# id' or '# text' are",
            "if it is a comment, remove it",
        ),
        ("a\tO\nb\t\n\nc\tO\n", "the tag is empty", "give every token a tag"),
        ("a\tO\nb\t \n\nc\tO\n", "the tag is empty", "give every token a tag"),
    ],
)
def test_a_bad_line_is_the_fault_of_its_sentence_only(tmp_path, content, problem, hint):
    path = write(tmp_path, content)

    first, second = read(path)

    assert first.fault.message.startswith(f"{path}: line 2: {problem}")
    assert hint in first.fault.hint
    assert (first.fault.line, first.line, first.tokens, first.tags) == (2, 1, (), None)
    assert (second.fault, second.tokens) == (None, ("c",))


def test_a_long_bad_line_is_shown_by_its_start(tmp_path):
    [one] = read(write(tmp_path, "a O\n" + "b" * 100 + "\n"))

    assert one.fault.problem.endswith(f"as in line 1: '{'b' * 40}'…")


def test_tokens_without_tags_cannot_be_learned_from(tmp_path):
    error = refused(write(tmp_path, "# id\nJan\nsleeps\n"))

    assert "line 2: found 1 column, expected a token and its tag: 'Jan'" in error.message
    assert "name a file with tags" in error.hint


def test_columns_that_do_not_exist_or_are_the_same_are_refused(tmp_path):
    path = write(tmp_path, "a\tx\tO\n")

    assert "line 1: no column 4; found 3 columns" in refused(path, label_column=4).message
    assert "no column 0" in refused(path, text_column=0).message
    assert "no column 4" in refused(path, text_column=4, tags="ignore").message
    same = refused(path, ConfigError, text_column=3)
    assert same.message.endswith("tokens and tags are both in column 3")
    assert "--label-column" in same.hint


def test_lines_that_end_with_cr_alone_are_said(tmp_path):
    error = refused(write(tmp_path, "a\tO\rb\tO\r"))

    assert "line 1: the lines end with CR alone" in error.message


# Writing


def test_the_tag_is_replaced_and_all_else_stays(tmp_path):
    content = "\ufeff\n-DOCSTART- O\n# id 1\nJan   N  O \n\r\n,  P    B-X \t \r\n# text\n\n"
    path = write(tmp_path, content)

    assert tagged(path, "T", layout=dataclasses.replace(SPACES, width=3, label=3)) == (
        "\n-DOCSTART- O\n# id 1\nJan   N  T \n\r\n,  P    T \t \r\n# text\n\n"
    )


@pytest.mark.parametrize(
    ("content", "layout", "expected"),
    [
        ("a\nb\n", TABS, "a\tX\nb\tX\n"),
        ("a\nb", SPACES, "a X\nb X"),
        ("a\r\n\r\nb \r\n", TABS, "a\tX\r\n\r\nb \tX\r\n"),
        ("a\t\r\nb\t\n", SPACES, "a\tX\r\nb\tX\n"),
        ("a\nNew York\n", TABS, "a\tX\nNew York\tX\n"),
        ("a N\nb V \n", dataclasses.replace(TABS, width=3, label=3), "a N X\nb V X\n"),
        ("N  a\n", Layout(width=3, separator=" ", text=3, label=2), "N  X a\n"),
        ("a\n", Layout(width=2, separator="\t", text=2, label=1), "X\ta\n"),
        ("O\ta\n", Layout(width=2, separator="\t", text=2, label=1), "X\ta\n"),
        ("a\nb\n", None, "a\tX\nb\tX\n"),
        ("a O\n", None, "a X\n"),
    ],
)
def test_a_missing_column_of_tags_is_inserted_where_it_belongs(tmp_path, content, layout, expected):
    assert tagged(write(tmp_path, content), layout=layout) == expected


def test_tokens_are_found_on_either_side_of_a_missing_tag(tmp_path):
    path = write(tmp_path, "N\ta\nV\tb\n")
    layout = Layout(width=3, separator="\t", text=3, label=2)

    assert read(path, tags="write", layout=layout)[0].tokens == ("a", "b")
    assert read(path, tags="write", layout=dataclasses.replace(layout, text=1))[0].tokens == (
        "N",
        "V",
    )


@pytest.mark.parametrize(("content", "found"), [("a\tb\tc\tO\n", 4), ("a\n", 1)])
def test_any_other_width_is_refused_with_both_ways_out(tmp_path, content, found):
    layout = Layout(width=3, separator="\t", text=1, label=3)

    error = refused(write(tmp_path, content), tags="write", layout=layout)

    assert f"line 1: found {found} column" in error.message
    assert "expected 3, or 2 without tags" in error.message
    assert "the 3 columns of the training file, of which number 3 is replaced" in error.hint
    assert "leave that one out" in error.hint


def test_a_sentence_with_a_fault_is_written_unchanged(tmp_path):
    content = "# id 1\na O\nb O x\n\nc O\n"
    file = ColumnFile(write(tmp_path, content), tags="write", layout=SPACES)

    bad, good = file.sentences()

    assert file.write(bad, ["X", "X"]) + file.write(good, None) == content
    assert file.write(good, ["X"]) == "c X\n"


def test_an_old_tag_may_be_missing_where_it_is_replaced(tmp_path):
    path = write(tmp_path, "a\tO\nb\t\n")

    assert tagged(path, layout=TABS) == "a\tX\nb\tX\n"


def test_a_tag_with_the_separator_is_refused(tmp_path):
    with pytest.raises(CorpusError, match=r"the tag 'B-a b' contains the separator of the col"):
        tagged(write(tmp_path, "a O\n"), "B-a b", layout=SPACES)


TOKEN = st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), min_size=1)
SPACE_TOKEN = TOKEN.filter(lambda text: not set(text) & {" ", "\t"})
TAB_TOKEN = TOKEN.filter(lambda text: "\t" not in text)


def is_free(sentences: list[list[str]]) -> bool:
    """Return whether no line is a comment or a mark."""
    starts = ("# id", "# text", "-DOCSTART-", "\ufeff")
    return not any(token.startswith(starts) for tokens in sentences for token in tokens)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data(), separator=st.sampled_from(["\t", " "]), gap=st.integers(1, 3))
def test_tokens_in_are_tokens_out(tmp_path, data, separator, gap):
    token = TAB_TOKEN if separator == "\t" else SPACE_TOKEN
    sentence = st.lists(token, min_size=1, max_size=5)
    sentences = data.draw(st.lists(sentence, min_size=1, max_size=4).filter(is_free))
    wide = separator * (1 if separator == "\t" else gap)
    lines = ["\n".join(f"{one}{wide}O" for one in tokens) for tokens in sentences]
    path = write(tmp_path, "\n\n".join(lines) + "\n")

    found = pairs(path)
    again = pairs(write(tmp_path, tagged(path, layout=read_layout(path)), "again.conll"))

    assert found == [[(one, "O") for one in tokens] for tokens in sentences]
    assert again == [[(one, "X") for one in tokens] for tokens in sentences]


PARTS = st.sampled_from(
    ["a", "b b", "#", "# id", "-DOCSTART-", "\t", " ", "\n", "\n\n", "\r\n", "O", "\u2028", "é"]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(parts=st.lists(PARTS, max_size=30), ending=st.sampled_from(["", "\n"]))
def test_the_lines_of_all_sentences_are_the_file(tmp_path, parts, ending):
    content = "first\tO\n" + "".join(parts) + ending
    path = write(tmp_path, content)

    file = ColumnFile(path, tags="read")
    sentences = list(file.sentences())

    assert "".join(line for one in sentences for line in one.lines) == content
    assert "".join(file.write(one, None) for one in sentences) == content


# As text


def test_sentences_are_rows_of_their_tokens(tmp_path):
    path = write(tmp_path, "# id 1\nJan N B-PER\n. P O\n\n1 N O\n")
    bad = write(tmp_path, "a O\n\nb\n\nc O\n", "bad.conll")
    skipped = []

    def rows(path, *columns):
        return list(
            read_rows(path, format="conll", header=True, columns=columns, on_bad_row=skipped.append)
        )

    assert rows(path, "text") == rows(path, 1) == [Row(2, ("Jan .",)), Row(5, ("1",))]
    assert rows(path, 2) == [Row(2, ("N P",)), Row(5, ("N",))]
    assert rows(bad, "text") == [Row(1, ("a",)), Row(5, ("c",))]
    assert [error.line for error in skipped] == [3]
    with pytest.raises(CorpusError, match="line 3: found 1 column"):
        list(read_rows(bad, format="conll", header=True, columns=["text"]))


@pytest.mark.parametrize("columns", [["label"], ["text", "label"], ["text", 2], ["tokens"]])
def test_other_columns_of_a_column_file_are_no_text(tmp_path, columns):
    path = write(tmp_path, "a O\n")

    with pytest.raises(CorpusError, match=f"no column {columns[-1]!r}; a file of columns has no"):
        list(read_rows(path, format="conll", header=True, columns=columns))
