"""One file, written whole or not at all; the files of an artefact are written through here."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from bertpre.errors import ConfigError


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """Give a file to write under another name, which takes its own when the block ends well."""
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
    """Write a text file in UTF-8, with line ends as they are in ``text``."""
    with _replacing(path) as file:
        file.write(text.encode())


def write_json(path: Path, value: object) -> None:
    """Write ``value`` as JSON that people can read and that has the same bytes each time."""
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    write_text(path, text + "\n")


@contextlib.contextmanager
def whole_file(output: Path) -> Iterator[BinaryIO]:
    """Give a file that a user asked for, to be written; it appears when it is whole.

    Raises:
        ConfigError: it cannot be written there.
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
