"""The work folder of a stage: under a lock, kept after a crash, renamed when it is complete."""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from bertpre.artefacts.files import faults_named
from bertpre.artefacts.manifests import Kind, read_manifest
from bertpre.errors import BertpreError, ConfigError, DataFormatError

_RESUMABLE = ("part", "data")  # stages that go on from what they had finished


def check_output(output: Path, *, kind: Kind, overwrite: bool) -> None:
    """Refuse an output that exists, so that nothing is lost by a repeated command.

    Args:
        output: the folder to make.
        kind: what it will be; only a finished folder of the same kind may be replaced.
        overwrite: whether one may.

    Raises:
        ConfigError: ``output`` exists and may not, or must not, be replaced.
    """
    if not output.exists():
        return
    if os.path.ismount(output):
        raise ConfigError(
            f"{output}: is a mount point, which cannot be replaced as a whole",
            "choose a folder inside it",
        )
    if output.is_dir() and not any(output.iterdir()):
        return
    if not overwrite:
        raise ConfigError(
            f"{output}: exists already", "choose another --output, or pass --overwrite"
        )
    if output.is_file():
        raise ConfigError(f"{output}: is a file; expected a folder", "choose another --output")
    # Never delete what bertpre did not write, nor another stage's work: a typing slip must not cost
    # somebody's home folder, and many programs have a manifest.json.
    try:
        read_manifest(output, kind)
    except DataFormatError as error:
        raise ConfigError(
            f"{output}: is not a {kind} folder that bertpre finished, so --overwrite leaves it "
            "alone",
            "remove it by hand, or choose another --output",
        ) from error


@contextlib.contextmanager
def locked(path: Path, what: str, *, kind: int = fcntl.LOCK_EX) -> Iterator[None]:
    """Hold a lock file for the duration; the lock ends with the process, however it ends.

    Raises:
        ConfigError: another process holds it.
    """
    with path.open("a") as file:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(
                f"{what}: another process is writing it", "wait for it, or stop it first"
            ) from error
        yield


def check_unlocked(path: Path, what: str) -> None:
    """Raise ConfigError if another process holds it; the processes of torchrun may ask at once."""
    with locked(path, what, kind=fcntl.LOCK_SH):
        pass


@contextlib.contextmanager
def stage_folder(output: Path, *, kind: Kind, overwrite: bool, identity: str) -> Iterator[Path]:
    """Give a stage a work folder that becomes ``output`` when the block ends well.

    The work folder ``.NAME.partial`` stays beside ``output`` when the process is killed, so that
    the same command (the same ``identity``) finds what it had finished; an input error removes it.

    Args:
        output: the finished folder; its parents are made.
        kind: what it will be.
        overwrite: replace a finished artefact of that name, after the new one is complete.
        identity: fingerprint of what the content depends on.

    Raises:
        ConfigError: see `check_output`; or ``output`` cannot be made there, or another process
            works on it.
    """
    check_output(output, kind=kind, overwrite=overwrite)
    shown = output
    try:
        output = output.resolve()  # "." has no name, and a link must stay one
    except RuntimeError as error:  # before Python 3.13, what a loop of links raises
        raise ConfigError(f"{shown}: {error}", "choose another --output") from error
    work = output.with_name(f".{output.name}.partial")
    new_parents = [parent for parent in work.parents if not parent.exists()]
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{shown}: cannot be made ({error.strerror})", "choose another --output"
        ) from error
    lock, mark = work / ".lock", work / ".identity"
    with locked(lock, str(shown)):
        try:
            if not mark.is_file() or mark.read_text() != identity:
                empty_folder(work, keep=lock)
                mark.write_text(identity)
            with faults_named(shown):
                yield work
        except BaseException as error:
            if kind in _RESUMABLE and not isinstance(error, BertpreError):
                raise
            shutil.rmtree(work, ignore_errors=True)
            for parent in new_parents:
                with contextlib.suppress(OSError):
                    parent.rmdir()
            raise
        mark.unlink()
        lock.unlink()
        _put_in_place(work, output)


def _put_in_place(work: Path, output: Path) -> None:
    if not output.exists():
        work.replace(output)
        return
    old = output.with_name(f".{output.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    output.replace(old)
    work.replace(output)
    shutil.rmtree(old)


def empty_folder(folder: Path, *, keep: Path) -> None:
    """Remove everything in a folder but one file."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path != keep:
            path.unlink()
