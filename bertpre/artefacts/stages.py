"""A stage's work folder: locked, kept after a crash, renamed when it is complete."""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from bertpre.artefacts.files import faults_named
from bertpre.artefacts.manifests import Kind, read_manifest
from bertpre.errors import BertpreError, ConfigError, DataFormatError

_RESUMABLE = ("part", "data")  # stages that can resume


def check_output(output: Path, *, kind: Kind, overwrite: bool) -> None:
    """Refuse an existing output, so that repeating a command loses nothing.

    Args:
        output: the folder to create.
        kind: its kind; only a complete folder of the same kind can be replaced.
        overwrite: whether to allow that.

    Raises:
        ConfigError: ``output`` exists and cannot be replaced.
    """
    if not output.exists():
        return
    if os.path.ismount(output):
        raise ConfigError(
            f"{output}: is a mount point, which cannot be replaced",
            "choose a folder inside it",
        )
    if output.is_dir() and not any(output.iterdir()):
        return
    if not overwrite:
        raise ConfigError(
            f"{output}: already exists", "choose another --output, or pass --overwrite"
        )
    if output.is_file():
        raise ConfigError(f"{output}: is a file; expected a folder", "choose another --output")
    # Never delete another stage's work or what bertpre did not write: a typo must not cost anyone
    # their home folder, and many programs write a manifest.json.
    try:
        read_manifest(output, kind)
    except DataFormatError as error:
        raise ConfigError(
            f"{output}: not a complete {kind} folder made by bertpre, so --overwrite keeps it",
            "delete it yourself, or choose another --output",
        ) from error


@contextlib.contextmanager
def locked(path: Path, what: str, *, kind: int = fcntl.LOCK_EX) -> Iterator[None]:
    """Hold a lock file during the block; the system releases it when the process ends.

    Args:
        path: the lock file.
        what: what it protects, for the error message.
        kind: LOCK_EX, or LOCK_SH to only check.

    Raises:
        ConfigError: another process holds it.
    """
    with path.open("a") as file:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(
                f"{what}: another process is writing it", "wait for it to end, or stop it"
            ) from error
        yield


def check_unlocked(path: Path, what: str) -> None:
    """Raise ConfigError if another process holds the lock; several may check at once."""
    with locked(path, what, kind=fcntl.LOCK_SH):
        pass


@contextlib.contextmanager
def stage_folder(output: Path, *, kind: Kind, overwrite: bool, identity: str) -> Iterator[Path]:
    """Create a work folder that is renamed to ``output`` when the block succeeds.

    If the process is killed, the work folder ``.NAME.partial`` stays, so that the same command (the
    same ``identity``) can resume. An input error removes it.

    Args:
        output: the final folder; missing parents are created.
        kind: its kind.
        overwrite: replace an existing artefact once the new one is complete.
        identity: fingerprint of everything the content depends on.

    Raises:
        ConfigError: see `check_output`; or ``output`` cannot be created, or another process is
            writing it.
    """
    check_output(output, kind=kind, overwrite=overwrite)
    shown = output
    try:
        output = output.resolve()  # "." has no name, and a link must stay a link
    except RuntimeError as error:  # a loop of links, before Python 3.13
        raise ConfigError(f"{shown}: {error}", "choose another --output") from error
    work = output.with_name(f".{output.name}.partial")
    new_parents = [parent for parent in work.parents if not parent.exists()]
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{shown}: cannot be created ({error.strerror})", "choose another --output"
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
    """Delete everything in a folder except one file."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path != keep:
            path.unlink()
