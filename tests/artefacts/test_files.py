"""A file appears under its name when it is whole, or the file before it stays."""

import errno
import os

import pytest

from bertpre.artefacts import check_output_file, whole_file, write_json, write_text
from bertpre.errors import ConfigError


def test_text_is_written_as_utf_8_with_the_line_ends_that_it_has(tmp_path):
    write_text(tmp_path / "a.txt", "日本\r\nb\n")

    assert (tmp_path / "a.txt").read_bytes() == b"\xe6\x97\xa5\xe6\x9c\xac\r\nb\n"


@pytest.mark.parametrize("write", [write_text, write_json])
def test_a_full_disk_leaves_the_file_that_was_there(tmp_path, monkeypatch, write):
    path = tmp_path / "a.json"
    path.write_text("before")
    full = OSError(errno.ENOSPC, "No space left on device")

    def fail(_descriptor: int) -> None:
        raise full

    monkeypatch.setattr(os, "fsync", fail)

    with pytest.raises(OSError, match="No space left"):
        write(path, "after")

    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {"a.json": "before"}


def test_an_output_appears_only_when_it_is_whole(tmp_path):
    def write_and_fail() -> None:
        with whole_file(tmp_path / "out.tsv") as file:
            file.write(b"half of it")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_and_fail()
    assert list(tmp_path.iterdir()) == []

    with whole_file(tmp_path / "out.tsv") as file:
        file.write(b"all of it")
        assert not (tmp_path / "out.tsv").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["out.tsv"]
    assert (tmp_path / "out.tsv").read_bytes() == b"all of it"


def test_an_output_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    below, elsewhere = tmp_path / "file" / "out", tmp_path / "out"
    full = OSError(errno.ENOSPC, "No space left on device")

    def fail(_descriptor: int) -> None:
        raise full

    with pytest.raises(ConfigError) as no_folder, whole_file(below):
        pass
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(ConfigError) as no_room, whole_file(elsewhere) as file:
        file.write(b"text")

    assert no_folder.value.message == f"{below}: cannot be written (Not a directory)"
    assert no_folder.value.hint == "choose another --output"
    assert no_room.value.message == f"{elsewhere}: cannot be written (No space left on device)"
    assert not elsewhere.exists()


def test_an_output_file_that_is_there_or_is_read_is_refused(tmp_path):
    table = tmp_path / "table.tsv"
    table.write_text("text\n")

    check_output_file(tmp_path / "new.tsv", reads=table, overwrite=False)
    check_output_file(table, overwrite=True)
    with pytest.raises(
        ConfigError, match=r"table\.tsv: already exists — choose another --output, or"
    ):
        check_output_file(table, overwrite=False)
    with pytest.raises(ConfigError, match=r"table\.tsv: is also the input"):
        check_output_file(table, reads=table, overwrite=True)
    with pytest.raises(ConfigError, match="is a folder; expected a file"):
        check_output_file(tmp_path, overwrite=True)


def test_an_output_that_is_a_pipe_is_refused_as_it_would_be_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    with pytest.raises(ConfigError, match="pipe: is a device or a pipe; expected a file"):
        check_output_file(pipe, overwrite=True)
