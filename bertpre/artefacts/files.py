"""Atomic writing of single files: text and JSON of an artefact, or a command's output."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from bertpre.errors import ConfigError


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces ``path`` when the block ends without an error."""
    unfinished = path.with_name(f".{path.name}.partial")
    file = unfinished.open("wb")
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file without translating newlines."""
    with _replacing(path) as file:
        file.write(text.encode())


def write_json(path: Path, value: object) -> None:
    """Write ``value`` as indented JSON with sorted keys."""
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    write_text(path, text + "\n")


@contextlib.contextmanager
def whole_file(output: Path) -> Iterator[BinaryIO]:
    """Open a command's output file, which gets its name only when it is complete.

    Raises:
        ConfigError: the file cannot be written there.
    """
    with faults_named(output), contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(_replacing(output))
        except OSError as error:
            raise ConfigError(
                f"{output}: cannot be written ({error.strerror})", "choose another --output"
            ) from error
        yield file


@contextlib.contextmanager
def faults_named(path: Path) -> Iterator[None]:
    """Name ``path`` in system errors that name no file, such as a full disk.

    Raises:
        ConfigError: in place of such an error.
    """
    try:
        yield
    except OSError as error:
        if error.filename is not None or isinstance(error, BrokenPipeError):
            raise
        raise ConfigError(
            f"{path}: cannot be written ({error.strerror or error})",
            "free some space, then run the same command again",
        ) from error


def check_output_file(output: Path, *, reads: Path | None = None, overwrite: bool) -> None:
    """Refuse an output file that already exists or is also the command's input.

    Raises:
        ConfigError: it is refused, or it is a folder or a device.
    """
    if not output.exists():
        if not output.parent.is_dir():
            raise ConfigError(
                f"{output}: there is no folder {output.parent}",
                "make it, or choose another --output",
            )
        return
    if output.is_dir():
        raise ConfigError(f"{output}: is a folder; expected a file", "choose another --output")
    if not output.is_file():  # a finished file would take the place of the device itself
        raise ConfigError(
            f"{output}: is a device or a pipe; expected a file", "choose another --output"
        )
    if reads is not None and reads.exists() and output.samefile(reads):
        raise ConfigError(f"{output}: is also the input", "choose another --output")
    if not overwrite:
        raise ConfigError(
            f"{output}: already exists", "choose another --output, or pass --overwrite"
        )
