"""``chain.json``: what each stage of a chain was made with and from.

Unlike a manifest it holds times, and paths relative to the chain's folder.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from bertpre.artefacts import Kind, check_files, read_manifest, write_json
from bertpre.errors import DataFormatError

RECORD = "chain.json"

Name = Literal["tokenizer", "data", "run", "model"]
KINDS: dict[Name, Kind] = {
    "tokenizer": "tokenizer",
    "data": "data",
    "run": "checkpoint",  # in its folder final
    "model": "model",
}


# The section of the schema that each stage reads.
SECTIONS: dict[Name, str] = {
    "tokenizer": "build_vocab",
    "data": "make_data",
    "run": "pretrain",
    "model": "finetune",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """The record of one stage.

    Attributes:
        options: those that its result depends on, by dotted name.
        inputs: size and time of each file that it reads, by its name as seen from the folder.
        made_from: fingerprint of what the stage before it made; None for the first one.
        made: fingerprint of what it made; None until it is finished.
    """

    options: Mapping[str, Any]
    inputs: Mapping[str, dict[str, int]]
    made_from: str | None = None
    made: str | None = None


def read_record(output: Path) -> dict[str, Entry]:
    """Read what has been done in a chain's folder, by the stage's name.

    Raises:
        DataFormatError: the record is damaged.
    """
    path = output / RECORD
    if not path.is_file():
        return {}
    try:
        stages = json.loads(path.read_text(encoding="utf-8"))["stages"]
        return {name: Entry(**entry) for name, entry in stages.items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataFormatError(
            f"{path}: not a record of `bertpre chain` ({error})", "choose another --output"
        ) from error


def write_record(output: Path, record: Mapping[str, Entry]) -> None:
    """Replace the record, all or nothing."""
    from bertpre import __version__

    unfinished = output / f".{RECORD}.partial"
    stages = {name: asdict(entry) for name, entry in record.items()}
    write_json(unfinished, {"bertpre": __version__, "stages": stages})
    unfinished.replace(output / RECORD)


def made_in(folder: Path, name: Name) -> str | None:
    """Return the fingerprint of a stage's finished artefact; None if there is none.

    Its files are there and have their sizes.
    """
    made = folder / "final" if name == "run" else folder
    try:
        manifest = read_manifest(made, KINDS[name])
        check_files(made, manifest, content=False)
    except DataFormatError:
        return None
    return str(manifest["fingerprint"])


def is_there(folder: Path) -> bool:
    """Tell whether a stage's folder holds anything, finished or not."""
    return folder.exists() and not (folder.is_dir() and not any(folder.iterdir()))


def compare(
    output: Path, wanted: Mapping[Name, Entry], record: Mapping[str, Entry]
) -> tuple[list[Name], dict[Name, str]]:
    """Find out which stages are left to do, and which of these would replace another result.

    Args:
        output: the chain's folder.
        wanted: what each stage is to be made with now, in order.
        record: what was made.

    Returns:
        The stages that are not finished as they are wanted; and of these, those whose folder holds
        something else, with the reason.
    """
    left: list[Name] = []
    changed: dict[Name, str] = {}
    before: str | None = None
    for name, entry in wanted.items():
        folder, kept = output / name, record.get(name)
        made = made_in(folder, name)
        if not is_there(folder):
            left.append(name)
            continue
        if left:
            changed[name] = f"depends on {left[-1]}, which must be made again"
        elif kept is None:
            changed[name] = f"{output / RECORD} does not list what {folder} was made from"
        elif reasons := list(_differences(folder, kept, entry, before=before, made=made)):
            changed[name] = "; ".join(reasons)
        if name in changed or kept is None or kept.made is None:
            left.append(name)
        before = made
    return left, changed


def _differences(
    folder: Path, kept: Entry, wanted: Entry, *, before: str | None, made: str | None
) -> Iterator[str]:
    for name, now in wanted.options.items():
        if kept.options.get(name) != now:
            yield f"{name} was {_shown(kept.options.get(name))}, now {_shown(now)}"
    for name in sorted(kept.inputs.keys() | wanted.inputs.keys()):
        path = os.path.normpath(folder.parent / name)  # as seen from here
        if name not in wanted.inputs:
            yield f"{path} was an input, and no longer is"
        elif name not in kept.inputs:
            yield f"{path} is a new input"
        elif kept.inputs[name] != wanted.inputs[name]:
            yield f"{path} has another size or time"
    if kept.made_from != before:
        yield "the result of the stage before has changed"
    elif kept.made is not None and made is None:
        yield f"{folder} is damaged or incomplete"
    elif kept.made is not None and kept.made != made:
        yield f"{folder} has been replaced"


def _shown(value: object) -> str:
    return "not set" if value is None else repr(value)


def state_of(paths: Sequence[str | Path], *, seen_from: Path) -> dict[str, dict[str, int]]:
    """Return the size and the time of files by their names, relative to a folder."""
    states = {os.path.relpath(path, seen_from): Path(path).stat() for path in paths}
    return {
        name: {"bytes": state.st_size, "mtime_ns": state.st_mtime_ns}
        for name, state in states.items()
    }
