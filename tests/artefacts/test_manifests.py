"""Artefact folders: what a manifest says, and what is refused when a folder is read."""

import errno
from pathlib import Path

import pytest

from bertpre.artefacts import (
    check_files,
    check_output,
    faults_named,
    fingerprint,
    is_artefact,
    read_manifest,
    stage_folder,
    write_json,
    write_manifest,
)
from bertpre.errors import ConfigError, DataFormatError


def make(output: Path, *, overwrite: bool = False, content: str = "text") -> None:
    with stage_folder(output, kind="tokenizer", overwrite=overwrite, identity="x") as work:
        (work / "vocab.txt").write_text(content)
        write_manifest(work, "tokenizer", {"vocab_size": 5})


@pytest.fixture
def artefact(tmp_path):
    make(tmp_path / "tokenizer")
    return tmp_path / "tokenizer"


def test_a_manifest_says_what_the_folder_is_and_holds(artefact):
    manifest = read_manifest(artefact, "tokenizer")

    # The sha256 of "text", by the sha256sum command.
    sha256 = "982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1"
    assert manifest["files"] == {"vocab.txt": {"bytes": 4, "sha256": sha256}}
    assert (manifest["kind"], manifest["vocab_size"]) == ("tokenizer", 5)
    check_files(artefact, manifest, content=True)


def test_equal_content_gives_equal_bytes(artefact, tmp_path):
    make(tmp_path / "elsewhere" / "again")

    first, second = (
        (folder / "manifest.json").read_bytes()
        for folder in (artefact, tmp_path / "elsewhere" / "again")
    )

    assert first == second


def test_other_content_gives_another_fingerprint(artefact, tmp_path):
    make(tmp_path / "other", content="texts")

    fingerprints = {
        read_manifest(folder, "tokenizer")["fingerprint"]
        for folder in (artefact, tmp_path / "other")
    }

    assert len(fingerprints) == 2


def test_fingerprint_does_not_depend_on_the_order_of_keys():
    assert fingerprint({"a": 1, "b": [2, 3]}) == fingerprint({"b": [2, 3], "a": 1})
    assert fingerprint({"a": 1}) != fingerprint({"a": 2})


def test_json_keeps_letters_of_every_script_and_refuses_what_is_no_json(tmp_path):
    write_json(tmp_path / "a.json", {"b": "日本", "a": 1})

    assert (tmp_path / "a.json").read_text(encoding="utf-8") == '{\n  "a": 1,\n  "b": "日本"\n}\n'
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "b.json", float("nan"))


def test_a_missing_folder_is_named_with_the_command_that_makes_it(tmp_path):
    with pytest.raises(DataFormatError) as caught:
        read_manifest(tmp_path / "none", "data")

    assert caught.value.message == (
        f"{tmp_path / 'none'}: there is no such folder; expected a data folder"
    )
    assert caught.value.hint == "make one with `bertpre make-data`"


def test_a_folder_without_a_manifest_is_refused(tmp_path):
    with pytest.raises(DataFormatError) as caught:
        read_manifest(tmp_path, "checkpoint")

    assert caught.value.message == (
        f"{tmp_path}: not a complete checkpoint folder (it has no manifest.json)"
    )
    assert "make one with `bertpre pretrain`" in str(caught.value.hint)


def test_a_folder_of_another_kind_is_refused(artefact):
    with pytest.raises(DataFormatError, match="expected a data folder, found 'tokenizer'"):
        read_manifest(artefact, "data")


@pytest.mark.parametrize("text", ["{", "", "\x00"])
def test_a_manifest_that_is_not_json_is_refused(artefact, text):
    (artefact / "manifest.json").write_text(text)

    with pytest.raises(DataFormatError, match=r"manifest\.json: not valid JSON"):
        read_manifest(artefact, "tokenizer")


@pytest.mark.parametrize("text", ["[]", "{}", '{"name": "some web page"}'])
def test_a_manifest_of_something_else_is_refused(artefact, text):
    (artefact / "manifest.json").write_text(text)

    with pytest.raises(DataFormatError, match="expected a tokenizer folder, found None"):
        read_manifest(artefact, "tokenizer")


def test_a_folder_of_a_newer_format_is_refused(artefact):
    manifest = read_manifest(artefact, "tokenizer")
    write_json(artefact / "manifest.json", {**manifest, "format": 99})

    with pytest.raises(
        DataFormatError, match=r"format 99 is newer than this version can read \(\d+\)"
    ):
        read_manifest(artefact, "tokenizer")


def test_a_folder_of_the_next_format_is_refused_and_of_an_older_one_read(artefact):
    manifest = read_manifest(artefact, "tokenizer")

    write_json(artefact / "manifest.json", {**manifest, "format": 0})
    assert read_manifest(artefact, "tokenizer")["format"] == 0

    write_json(artefact / "manifest.json", {**manifest, "format": 2})
    with pytest.raises(
        DataFormatError, match=r"format 2 is newer than this version can read \(1\)"
    ):
        read_manifest(artefact, "tokenizer")


def test_only_a_folder_that_bertpre_finished_is_an_artefact(artefact, tmp_path):
    other = tmp_path / "web"
    other.mkdir()

    assert is_artefact(artefact)
    assert not is_artefact(other)
    for text in ("{", "[]", '{"name": "web page"}', '{"kind": "tokenizer", "bertpre": "0.1.0"}'):
        (other / "manifest.json").write_text(text)
        assert not is_artefact(other)


def test_a_missing_file_is_found(artefact):
    manifest = read_manifest(artefact, "tokenizer")
    (artefact / "vocab.txt").unlink()

    with pytest.raises(DataFormatError, match=r"vocab\.txt: missing, but listed in the manifest"):
        check_files(artefact, manifest, content=False)


def test_a_cut_file_is_found_by_its_size(artefact):
    manifest = read_manifest(artefact, "tokenizer")
    (artefact / "vocab.txt").write_text("te")

    with pytest.raises(
        DataFormatError, match=r"vocab\.txt: expected 4 bytes, found 2 — recreate the"
    ):
        check_files(artefact, manifest, content=False)


def test_a_changed_file_of_the_same_size_is_found_by_its_content(artefact):
    manifest = read_manifest(artefact, "tokenizer")
    (artefact / "vocab.txt").write_text("tent")

    check_files(artefact, manifest, content=False)
    with pytest.raises(DataFormatError, match=r"vocab\.txt: damaged: its sha256 is .*…, the man"):
        check_files(artefact, manifest, content=True)


def test_a_loop_of_links_is_no_place_for_an_output(tmp_path):
    (tmp_path / "loop").symlink_to("loop")

    with pytest.raises((ConfigError, OSError), match=r"loop|Too many levels"):
        make(tmp_path / "loop" / "output")


def test_a_mount_point_is_no_output_since_it_cannot_be_replaced():
    with pytest.raises(ConfigError, match="/: is a mount point, which cannot be replaced"):
        check_output(Path("/"), kind="data", overwrite=True)


def test_a_fault_without_a_file_gets_the_name_of_the_output(tmp_path):
    full = OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(ConfigError) as error, faults_named(tmp_path / "out"):
        raise full
    with pytest.raises(FileNotFoundError), faults_named(tmp_path / "out"):
        (tmp_path / "none").read_text()
    with pytest.raises(BrokenPipeError), faults_named(tmp_path / "out"):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")  # the reader left: no fault of the file

    assert error.value.message == f"{tmp_path / 'out'}: cannot be written (No space left on device)"
    assert error.value.hint == "free some space, then run the same command again"
