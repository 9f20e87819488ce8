"""Artefact folders are whole or absent, refused rather than lost, and resumed after a crash."""

import fcntl
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bertpre.artefacts import (
    check_output,
    check_unlocked,
    locked,
    read_manifest,
    stage_folder,
    write_manifest,
)
from bertpre.errors import ConfigError, CorpusError

CRASHING_STAGE = """
import sys, time
from pathlib import Path
from bertpre.artefacts import stage_folder
output, identity = Path(sys.argv[1]), sys.argv[2]
with stage_folder(output, kind="tokenizer", overwrite=True, identity=identity) as work:
    (work / "shard-0").write_text("done")
    print("ready", flush=True)
    time.sleep(60)
"""


def make(output: Path, *, overwrite: bool = False, content: str = "text") -> None:
    with stage_folder(output, kind="tokenizer", overwrite=overwrite, identity="x") as work:
        (work / "vocab.txt").write_text(content)
        write_manifest(work, "tokenizer", {"vocab_size": 5})


def fail(
    output: Path, error: BaseException, *, overwrite: bool = False, kind: Any = "tokenizer"
) -> None:
    with stage_folder(output, kind=kind, overwrite=overwrite, identity="x") as work:
        (work / "shard-0").write_text("done")
        raise error


@pytest.fixture
def artefact(tmp_path):
    make(tmp_path / "tokenizer")
    return tmp_path / "tokenizer"


@pytest.fixture
def crash(tmp_path):
    """Start a stage in another process, kill it midway, and return its output's path."""

    def crash_with(identity: str) -> Path:
        output = tmp_path / "data"
        command = [sys.executable, "-c", CRASHING_STAGE, str(output), identity]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        return output

    return crash_with


def test_a_finished_stage_leaves_only_its_output(artefact):
    assert [path.name for path in artefact.parent.iterdir()] == ["tokenizer"]
    assert sorted(path.name for path in artefact.iterdir()) == ["manifest.json", "vocab.txt"]


def test_an_existing_output_is_refused(artefact):
    with pytest.raises(ConfigError) as caught:
        make(artefact, content="other")

    assert caught.value.message == f"{artefact}: already exists"
    assert caught.value.hint == "choose another --output, or pass --overwrite"
    assert (artefact / "vocab.txt").read_text() == "text"


def test_overwrite_replaces_a_finished_folder(artefact):
    make(artefact, overwrite=True, content="other")

    assert (artefact / "vocab.txt").read_text() == "other"
    assert [path.name for path in artefact.parent.iterdir()] == ["tokenizer"]


def test_overwrite_keeps_the_old_folder_until_the_new_one_is_complete(artefact):
    with pytest.raises(CorpusError, match="the corpus is empty"):
        fail(artefact, CorpusError("the corpus is empty"), overwrite=True)

    assert (artefact / "vocab.txt").read_text() == "text"
    assert [path.name for path in artefact.parent.iterdir()] == ["tokenizer"]


def test_overwrite_leaves_alone_what_bertpre_did_not_finish(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    (home / "thesis.tex").write_text("precious")

    with pytest.raises(ConfigError, match="not a complete tokenizer folder made by bertpre"):
        make(home, overwrite=True)

    assert (home / "thesis.tex").read_text() == "precious"


@pytest.mark.parametrize("overwrite", [True, False])
def test_a_file_is_never_replaced(tmp_path, overwrite):
    file = tmp_path / "file"
    file.write_text("precious")

    with pytest.raises(ConfigError, match=r"already exists|is a file; expected a folder"):
        make(file, overwrite=overwrite)

    assert file.read_text() == "precious"


def test_an_empty_folder_counts_as_absent(tmp_path, monkeypatch):
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)

    check_output(Path("."), kind="tokenizer", overwrite=False)
    make(Path("."))

    assert (here / "vocab.txt").read_text() == "text"


def test_a_link_to_a_folder_stays_a_link(artefact, tmp_path):
    link = tmp_path / "newest"
    link.symlink_to(artefact)

    make(link, overwrite=True, content="other")

    assert link.is_symlink()
    assert (artefact / "vocab.txt").read_text() == "other"


def test_an_output_under_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(ConfigError, match=r"out: cannot be created \(Not a directory\)"):
        make(tmp_path / "file" / "out")


def test_an_input_error_leaves_nothing_not_even_new_parents(tmp_path):
    with pytest.raises(CorpusError):
        fail(tmp_path / "a" / "b" / "out", CorpusError("line 5 is not UTF-8"))

    assert list(tmp_path.iterdir()) == []


def test_an_input_error_leaves_parents_that_were_there(tmp_path):
    (tmp_path / "a").mkdir()
    with pytest.raises(CorpusError):
        fail(tmp_path / "a" / "b" / "out", CorpusError("line 5 is not UTF-8"))

    assert list(tmp_path.rglob("*")) == [tmp_path / "a"]


def test_an_interrupt_leaves_nothing_where_nothing_can_go_on(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        fail(tmp_path / "new" / "out", KeyboardInterrupt(), kind="model")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["data", "part"])
def test_an_interrupt_keeps_what_was_done(tmp_path, kind):
    output = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        fail(output, KeyboardInterrupt(), kind=kind)

    assert not output.exists()
    with stage_folder(output, kind=kind, overwrite=False, identity="x") as work:
        assert (work / "shard-0").read_text() == "done"


def test_a_killed_stage_goes_on_from_what_it_had(crash):
    output = crash("identity")

    assert not output.exists()
    assert (output.parent / ".data.partial" / "shard-0").is_file()
    with stage_folder(output, kind="tokenizer", overwrite=False, identity="identity") as work:
        assert (work / "shard-0").read_text() == "done"
    assert [path.name for path in output.parent.iterdir()] == ["data"]
    assert [path.name for path in output.iterdir()] == ["shard-0"]


def test_a_stage_with_another_identity_starts_anew(crash):
    output = crash("identity")
    (output.parent / ".data.partial" / "folder").mkdir()

    with stage_folder(output, kind="tokenizer", overwrite=False, identity="another") as work:
        assert sorted(path.name for path in work.iterdir()) == [".identity", ".lock"]


def test_a_partial_folder_is_no_output_that_needs_overwriting(crash):
    output = crash("identity")

    make(output)

    assert read_manifest(output, "tokenizer")["vocab_size"] == 5


def test_two_processes_cannot_write_the_same_output(tmp_path):
    output = tmp_path / "data"
    command = [sys.executable, "-c", CRASHING_STAGE, str(output), "x"]
    with stage_folder(output, kind="tokenizer", overwrite=False, identity="x") as work:
        (work / "mine").write_text("")

        other = subprocess.run(command, capture_output=True, text=True, timeout=120)

        assert f"ConfigError: {output}: another process is writing it" in other.stderr
        assert (work / "mine").is_file()


def test_a_lock_ends_with_its_block(tmp_path):
    def take() -> None:
        with locked(tmp_path / "lock", "run"):
            pass

    with locked(tmp_path / "lock", "run"), pytest.raises(ConfigError, match="run: another process"):
        take()

    take()


@pytest.mark.parametrize(
    "manifest", ['{"name": "my web app"}', '{"kind": "tokenizer"}', "not json", '{"kind": "data"}']
)
def test_overwrite_leaves_a_folder_alone_whose_manifest_is_not_of_this_stage(tmp_path, manifest):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "manifest.json").write_text(manifest)
    (folder / "thesis.txt").write_text("mine")

    with pytest.raises(ConfigError, match="not a complete tokenizer folder made by"):
        check_output(folder, kind="tokenizer", overwrite=True)

    assert (folder / "thesis.txt").read_text() == "mine"


def test_many_processes_may_ask_at_once_whether_a_folder_is_free(tmp_path):
    lock = tmp_path / "lock"
    with lock.open("a") as other:
        fcntl.flock(other, fcntl.LOCK_SH)  # as another one does that is just asking

        check_unlocked(lock, "run")

    with locked(lock, "run"), pytest.raises(ConfigError, match="run: another process is writing"):
        check_unlocked(lock, "run")
