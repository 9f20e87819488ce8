"""The demo's text and task: sentences out of docstrings, and no test row in the text."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "data" / "gather_demo_text.py"


@pytest.fixture(scope="module")
def gather():
    spec = importlib.util.spec_from_file_location("gather_demo_text", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    subprocess.run([sys.executable, SCRIPT, folder], check=True, capture_output=True)
    return folder


def read_table(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text(encoding="utf-8").split("\n")[1:-1]]


def test_wrapped_lines_are_joined_and_cut_at_sentence_ends(gather):
    text = """Open a file, e.g. a
    log file.  Return it.

    The mode may be given
    as text!
    """

    assert gather.split_sentences(text) == [
        "Open a file, e.g. a log file.",
        "The mode may be given as text!",
    ]  # "Return it." has two words only


def test_an_abbreviation_does_not_end_a_sentence(gather):
    assert gather.split_sentences("Takes a number, i.e. The one that was given before.") == [
        "Takes a number, i.e. The one that was given before."
    ]


def test_examples_and_code_are_no_sentences(gather):
    text = """Add two numbers together.

    >>> add_numbers(one, two)
    the answer is here

    ========================
    x = compute the sum of it
    def add_numbers(one, two):
    """

    assert gather.split_sentences(text) == ["Add two numbers together."]


def test_list_items_are_sentences_of_their_own(gather):
    text = """The modes of a file:
    - read from the start
    - write to the end
    """

    assert gather.split_sentences(text) == [
        "The modes of a file:",
        "- read from the start",
        "- write to the end",
    ]


def test_comments_are_read_in_blocks_with_their_place(gather, tmp_path):
    path = tmp_path / "module.py"
    path.write_text(
        '"""The module docstring."""\n# One comment\n# in two lines.\nx = 1  # not this\n\n'
        "def f():\n    '''What f does.'''\n    # Another comment.\n",
        encoding="utf-8",
    )

    passages = gather.read_passages(path)

    assert [(passage.line, passage.text, passage.is_docstring) for passage in passages] == [
        (1, "The module docstring.", True),
        (2, "One comment\nin two lines.", False),
        (7, "What f does.", True),
        (8, "Another comment.", False),
    ]


def test_a_file_for_another_python_is_passed_over(gather, tmp_path):
    path = tmp_path / "old.py"
    path.write_text("print 'hello'\n", encoding="utf-8")

    assert gather.read_passages(path) == []


@pytest.mark.slow
def test_the_task_is_balanced_and_its_splits_share_no_text(gather, folder):
    tables = {name: read_table(folder / f"{name}.tsv") for name in ("train", "dev", "test")}

    texts = [gather.normalise(text) for table in tables.values() for text, _ in table]
    labels = [label for _, label in tables["train"]]
    assert len(set(texts)) == len(texts)
    assert {labels.count(label) for label in gather.LABELS} == {gather.TRAIN_ROWS}
    assert {label for _, label in tables["test"]} == set(gather.LABELS)
    assert len(tables["test"]) >= 400


@pytest.mark.slow
def test_no_row_names_a_package(gather, folder):
    rows = [row for name in ("train", "dev", "test") for row in read_table(folder / f"{name}.tsv")]

    assert not [text for text, _ in rows if any(name in text.lower() for name in gather.LABELS)]


@pytest.mark.slow
def test_no_sentence_of_a_test_or_dev_row_is_in_the_text(gather, folder):
    lines = (folder / "corpus.txt").read_text(encoding="utf-8").split("\n")
    corpus = {gather.normalise(line) for line in lines}
    rows = read_table(folder / "test.tsv") + read_table(folder / "dev.tsv")
    held_back = {gather.normalise(text) for text, _ in rows} | {
        gather.normalise(sentence) for text, _ in rows for sentence in gather.split_sentences(text)
    }

    assert not corpus & held_back
    assert len(corpus) > 20_000
    assert len(lines) > len(corpus)  # blank lines: there are documents


@pytest.mark.slow
def test_the_text_is_the_same_each_time(folder, tmp_path):
    subprocess.run([sys.executable, SCRIPT, tmp_path], check=True, capture_output=True)

    for path in folder.iterdir():
        assert (tmp_path / path.name).read_bytes() == path.read_bytes()
