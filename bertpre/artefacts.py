"""Folders that pass between the stages: manifests, fingerprints, and all-or-nothing writing.

An artefact is a folder whose ``manifest.json`` was written last. It holds what the content depends
on and never paths, times, host names or worker counts, so equal runs give equal bytes.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal

from bertpre.errors import BertpreError, ConfigError, DataFormatError

Kind = Literal["tokenizer", "part", "data", "index", "checkpoint", "model", "onnx"]
_RESUMABLE = ("part", "data")  # whose stages go on from what they had finished
MANIFEST = "manifest.json"
FORMAT = 1  # raised when a folder's layout changes in a way that older code cannot read
_MADE_BY = {
    "tokenizer": "bertpre build-vocab",
    "part": "bertpre make-data --part",
    "data": "bertpre make-data",
    "index": "bertpre make-data",
    "checkpoint": "bertpre pretrain",
    "model": "bertpre finetune",
    "onnx": "bertpre export --to onnx",
}


def fingerprint_file(path: Path) -> str:
    """Return the sha256 of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fingerprint(value: object) -> str:
    """Return the sha256 of a JSON value, in hexadecimal, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def write_json(path: Path, value: object) -> None:
    """Write ``value`` as JSON that people can read and that has the same bytes each time."""
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())


def write_manifest(folder: Path, kind: Kind, content: Mapping[str, object]) -> None:
    """Finish an artefact: record its content and the fingerprint of every file, last.

    Args:
        folder: the folder, complete but for its manifest.
        kind: what the folder is; a reader asks for it by this name.
        content: options, counts and the fingerprints of what it was made from.
    """
    from bertpre import __version__

    files = {
        path.relative_to(folder).as_posix(): {
            "bytes": path.stat().st_size,
            "sha256": fingerprint_file(path),
        }
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path != folder / MANIFEST and not path.name.startswith(".")
    }
    body = {
        **content,
        "kind": kind,
        "format": FORMAT,
        "bertpre": __version__,
        "files": files,
        "fingerprint": fingerprint(files),
    }
    unfinished = folder / f"{MANIFEST}.writing"
    write_json(unfinished, body)
    unfinished.replace(folder / MANIFEST)


def read_manifest(folder: Path, kind: Kind) -> dict[str, Any]:
    """Read the manifest of a finished artefact of one kind.

    Raises:
        DataFormatError: the folder is missing, unfinished, of another kind or a newer format.
    """
    path = folder / MANIFEST
    hint = f"make one with `{_MADE_BY[kind]}`"
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "there is no such folder"
        raise DataFormatError(
            f"{folder}: {what}; expected a {kind} folder",
            hint,
        )
    if not path.is_file():
        raise DataFormatError(
            f"{folder}: not a finished {kind} folder (it has no {MANIFEST})",
            f"run the command that writes it again, or {hint}",
        )
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataFormatError(f"{path}: not valid JSON ({error})", hint) from error
    found = manifest.get("kind") if isinstance(manifest, dict) else None
    if found != kind:
        raise DataFormatError(f"{folder}: expected a {kind} folder, found {found!r}", hint)
    missing = {"format", "files", "fingerprint"} - manifest.keys()
    if missing:
        raise DataFormatError(f"{path}: lacks {', '.join(sorted(missing))}", hint)
    if manifest["format"] > FORMAT:
        raise DataFormatError(
            f"{path}: format {manifest['format']}, newer than this bertpre reads ({FORMAT})",
            "upgrade bertpre",
        )
    return dict(manifest)


def is_artefact(folder: Path) -> bool:
    """Tell a folder that bertpre finished from one that only has some manifest.json."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(manifest, dict) and {"bertpre", "kind", "fingerprint"} <= manifest.keys()


def check_files(folder: Path, manifest: Mapping[str, Any], *, content: bool) -> None:
    """Compare the files of an artefact with what its manifest says of them.

    Args:
        folder: the artefact.
        manifest: what `read_manifest` returned for it.
        content: compare the sha256 of each file too, not only the size.

    Raises:
        DataFormatError: a file is missing or differs.
    """
    hint = "make the folder again"
    for name, expected in manifest["files"].items():
        path = folder / name
        if not path.is_file():
            raise DataFormatError(f"{path}: missing, though the manifest lists it", hint)
        size = path.stat().st_size
        if size != expected["bytes"]:
            raise DataFormatError(
                f"{path}: expected {expected['bytes']:,} bytes, found {size:,}", hint
            )
        if content and (found := fingerprint_file(path)) != expected["sha256"]:
            raise DataFormatError(
                f"{path}: damaged: its sha256 is {found[:12]}…, "
                f"the manifest says {expected['sha256'][:12]}…",
                hint,
            )


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
def faults_named(path: Path) -> Iterator[None]:
    """Give a fault of the system that names no file, such as a full disk, this one.

    Raises:
        ConfigError: in place of such a fault.
    """
    try:
        yield
    except OSError as error:
        if error.filename is not None or isinstance(error, BrokenPipeError):
            raise
        raise ConfigError(
            f"{path}: cannot be written ({error.strerror or error})",
            "make room, then run the same command again",
        ) from error


def check_output_file(output: Path, *, reads: Path | None = None, overwrite: bool) -> None:
    """Refuse a single file as output that exists, or that is what the command reads.

    Raises:
        ConfigError: it is, or it is a folder.
    """
    if not output.exists():
        return
    if output.is_dir():
        raise ConfigError(f"{output}: is a folder; expected a file", "choose another --output")
    if reads is not None and reads.exists() and output.samefile(reads):
        raise ConfigError(f"{output}: is the table to be read", "choose another --output")
    if not overwrite:
        raise ConfigError(
            f"{output}: exists already", "choose another --output, or pass --overwrite"
        )


@contextlib.contextmanager
def whole_file(output: Path) -> Iterator[BinaryIO]:
    """Give a file to write that appears under its name when it is whole, or not at all.

    Raises:
        ConfigError: it cannot be written there.
    """
    unfinished = output.with_name(f".{output.name}.partial")
    try:
        file = unfinished.open("wb")
    except OSError as error:
        raise ConfigError(
            f"{output}: cannot be written ({error.strerror})", "choose another --output"
        ) from error
    try:
        with faults_named(output), file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(output)
    finally:
        unfinished.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Hold a lock file for the duration; the lock ends with the process, however it ends.

    Raises:
        ConfigError: another process holds it.
    """
    with path.open("a") as file:
        _lock(file, fcntl.LOCK_EX, what)
        yield


def check_unlocked(path: Path, what: str) -> None:
    """Raise ConfigError if another process holds it; torchrun's may all ask at once."""
    with path.open("a") as file:
        _lock(file, fcntl.LOCK_SH, what)


def _lock(file: IO[str], kind: int, what: str) -> None:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ConfigError(
            f"{what}: another process is writing it", "wait for it, or stop it first"
        ) from error


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
        if output.exists():
            old = output.with_name(f".{output.name}.old")
            shutil.rmtree(old, ignore_errors=True)
            output.replace(old)
            work.replace(output)
            shutil.rmtree(old)
        else:
            work.replace(output)


def empty_folder(folder: Path, *, keep: Path) -> None:
    """Remove everything in a folder but one file."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path != keep:
            path.unlink()
