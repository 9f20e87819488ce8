"""Manifests: what a folder is, what it was made from, and the fingerprint of every file."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from bertpre.artefacts.files import write_json
from bertpre.errors import DataFormatError

Kind = Literal["tokenizer", "part", "data", "index", "checkpoint", "model", "onnx"]
MANIFEST = "manifest.json"
FORMAT = 1  # increased when older code can no longer read a folder's layout
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
    """Return the sha256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fingerprint(value: object) -> str:
    """Return the sha256 of a JSON value in hexadecimal, independent of the order of keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def write_manifest(folder: Path, kind: Kind, content: Mapping[str, object]) -> None:
    """Complete an artefact by writing its manifest with the fingerprint of every file.

    Args:
        folder: complete except for its manifest.
        kind: what the folder is; readers check it.
        content: options, counts and the fingerprints of the inputs.
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
    about = {"kind": kind, "format": FORMAT, "bertpre": __version__}
    write_json(
        folder / MANIFEST, {**content, **about, "files": files, "fingerprint": fingerprint(files)}
    )


def read_manifest(folder: Path, kind: Kind) -> dict[str, Any]:
    """Read the manifest of a complete artefact.

    Raises:
        DataFormatError: the folder is missing, incomplete, of another kind or a newer format.
    """
    path = folder / MANIFEST
    hint = f"make one with `{_MADE_BY[kind]}`"
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "there is no such folder"
        raise DataFormatError(f"{folder}: {what}; expected a {kind} folder", hint)
    if not path.is_file():
        raise DataFormatError(
            f"{folder}: not a complete {kind} folder (it has no {MANIFEST})",
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
        raise DataFormatError(f"{path}: missing {', '.join(sorted(missing))}", hint)
    if manifest["format"] > FORMAT:
        raise DataFormatError(
            f"{path}: format {manifest['format']} is newer than this version can read ({FORMAT})",
            "upgrade bertpre",
        )
    return dict(manifest)


def is_artefact(folder: Path) -> bool:
    """Return whether a folder's manifest.json was written by bertpre."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(manifest, dict) and {"bertpre", "kind", "fingerprint"} <= manifest.keys()


def check_files(folder: Path, manifest: Mapping[str, Any], *, content: bool) -> None:
    """Check that the files of an artefact match its manifest.

    Args:
        folder: the artefact.
        manifest: what `read_manifest` returned for it.
        content: compare the sha256 of each file as well as its size.

    Raises:
        DataFormatError: a file is missing or differs.
    """
    hint = "recreate the folder"
    for name, expected in manifest["files"].items():
        path = folder / name
        if not path.is_file():
            raise DataFormatError(f"{path}: missing, but listed in the manifest", hint)
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
