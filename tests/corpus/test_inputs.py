"""Which files the inputs of a command name."""

from pathlib import Path

import pytest

from bertpre.corpus.files import STDIN
from bertpre.corpus.inputs import InputFile, find_files, format_by_name, table_format
from bertpre.errors import CorpusError


@pytest.fixture
def folder(tmp_path):
    for name in ("b.txt.xz", "a.jsonl", "in/c.parquet", "in/d.tsv.zst", "in/e.ndjson.bz2"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    return tmp_path


def test_a_folder_is_searched_for_every_format_and_compression(folder):
    assert find_files([folder]) == [
        InputFile(folder / "a.jsonl", "jsonl"),
        InputFile(folder / "b.txt.xz", "txt"),
        InputFile(folder / "in/c.parquet", "parquet"),
        InputFile(folder / "in/d.tsv.zst", "tsv"),
        InputFile(folder / "in/e.ndjson.bz2", "jsonl"),
    ]


def test_a_pattern_names_files_in_sorted_order_and_no_folders(folder):
    assert [file.path.name for file in find_files([f"{folder}/*"])] == ["a.jsonl", "b.txt.xz"]
    assert [file.path.name for file in find_files([f"{folder}/**/*.[jt]*"], "txt")] == [
        "a.jsonl", "b.txt.xz", "d.tsv.zst",
    ]  # fmt: skip


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(folder):
    (folder / "[1].txt").write_text("x")

    assert find_files([f"{folder}/[1].txt"]) == [InputFile(folder / "[1].txt", "txt")]


def test_a_pattern_without_a_match_is_an_error(folder):
    with pytest.raises(CorpusError, match=r"none-\*\.txt: no file matches this pattern — check"):
        find_files([f"{folder}/none-*.txt"])


def test_a_dash_is_standard_input_of_the_stated_format():
    assert find_files(["-"]) == [InputFile(STDIN, "txt")]
    assert find_files(["-"], "jsonl") == [InputFile(STDIN, "jsonl")]
    assert InputFile(STDIN, "txt").size() is None or STDIN.is_file()


def test_a_file_that_is_named_twice_is_said(folder, caplog):
    files = find_files([folder / "a.jsonl", folder])

    assert len(files) == 6
    assert "a.jsonl: given twice as input, so it is read twice" in caplog.text


def test_a_link_to_a_folder_is_passed_over_and_said(tmp_path, caplog):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "b.txt").write_text("b")
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.txt").write_text("a")
    (tmp_path / "corpus" / "sub").symlink_to(tmp_path / "real")
    (tmp_path / "corpus" / "gone.txt").symlink_to(tmp_path / "nowhere")

    files = find_files([tmp_path / "corpus"])

    assert [file.path.name for file in files] == ["a.txt"]
    assert caplog.text.count("skipped, a link to a folder or to nothing") == 2


def test_one_name_in_place_of_a_list_is_refused():
    with pytest.raises(
        TypeError, match="expected a list of files and folders, found the single name"
    ):
        find_files("corpus.txt")


@pytest.mark.parametrize(
    ("name", "format"),
    [("a.TXT", "txt"), ("a.b.jsonl.gz", "jsonl"), ("a.csv", "csv"), ("a.tsv.GZ", "tsv"),
     ("a.gz", None), ("README", None), ("tsv", None)],
)  # fmt: skip
def test_the_name_tells_the_format(name, format):
    assert format_by_name(Path(name)) == format


def test_the_format_of_a_table_is_asked_for_or_told_by_the_name():
    assert table_format(Path("a.csv"), "tsv") == "tsv"
    assert table_format(Path("a.csv.gz"), "auto") == "csv"


@pytest.mark.parametrize("name", ["a.txt", "a.dat"])
def test_a_table_whose_name_tells_nothing_is_an_error(name):
    with pytest.raises(
        CorpusError, match=f"{name}: the name does not show the format of the table"
    ):
        table_format(Path(name), "auto")


@pytest.mark.parametrize("name", ["a.conll", "a.bio", "a.iob", "A.CONLL.gz", "a.bio.zst"])
def test_column_files_are_told_by_the_name(name):
    assert format_by_name(Path(name)) == table_format(Path(name), "auto") == "conll"
