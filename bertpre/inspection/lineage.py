"""Finds the folders that belong to a run by fingerprint, since manifests contain no paths."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bertpre.artefacts import Kind, read_manifest
from bertpre.errors import ConfigError, DataFormatError
from bertpre.inspection.inspection import tell_kind
from bertpre.inspection.sections import Folder
from bertpre.tokenizer.folder import BACKEND, VOCAB
from bertpre.training.run_folder import RUN_CONFIG, read_run_config

_Mark = tuple[str, object]  # a kind of folder, and what identifies the one that belongs to the run
_WHY_NOT: dict[Kind, str] = {
    "data": "the run's config names another",
    "tokenizer": "the run's checkpoints hold another",
    "model": "it was fine-tuned from other weights",
}


class Chain(NamedTuple):
    """A run with the folders it was made from and those made from it.

    Attributes:
        run: the run folder.
        tokenizer, data: None if not found.
        models: models fine-tuned from a checkpoint of the run, sorted by name.
    """

    run: Path
    tokenizer: Path | None
    data: Path | None
    models: tuple[Path, ...]


def find_chain(
    run: str | Path,
    *,
    tokenizer: str | Path | None = None,
    data: str | Path | None = None,
    models: Sequence[str | Path] = (),
) -> Chain:
    """Find the folders that belong to a run, among those given and those beside it.

    Args:
        run: a run folder.
        tokenizer, data: their folders if not beside the run.
        models: fine-tuned models that are not beside the run.

    Raises:
        DataFormatError: ``run`` is not a run folder, or a given folder is incomplete.
        ConfigError: a given folder belongs to another run.
    """
    run = Path(run)
    if not (run / RUN_CONFIG).is_file():
        raise DataFormatError(
            f"{run}: expected a run folder, with {RUN_CONFIG} in it",
            "pass a folder from `bertpre pretrain`; for other folders use `bertpre inspect`",
        )
    relatives: list[_Mark] = [("data", read_run_config(run).data)]
    for checkpoint in _finished_folders([*run.glob("checkpoints/step-*"), run / "final"]):
        relatives.append(("tokenizer", _tokenizer_files(checkpoint)))
        relatives.append(("model", checkpoint.manifest["fingerprint"]))
    beside = sorted(path.name for path in run.resolve().parent.iterdir() if path.is_dir())
    found: dict[str, list[Path]] = {"data": [], "tokenizer": [], "model": []}
    # With paths relative to the run as the user gave it, not absolute.
    for folder in _finished_folders(run.parent / name for name in beside):
        if _mark(folder) in relatives:
            found[folder.kind].append(folder.path)
    if data is not None:
        found["data"] = [_check_named(data, "data", relatives)]
    if tokenizer is not None:
        found["tokenizer"] = [_check_named(tokenizer, "tokenizer", relatives)]
    for model in models:
        path = _check_named(model, "model", relatives)
        if path.resolve() not in [known.resolve() for known in found["model"]]:
            found["model"].append(path)
    first = {kind: next(iter(paths), None) for kind, paths in found.items()}
    return Chain(run, first["tokenizer"], first["data"], tuple(found["model"]))


def _check_named(folder: str | Path, kind: Kind, relatives: Sequence[_Mark]) -> Path:
    path = Path(folder)
    if _mark(Folder(kind, path, read_manifest(path, kind))) not in relatives:
        raise ConfigError(
            f"{path}: does not belong to this run: {_WHY_NOT[kind]}",
            "pass another folder, or leave the option out",
        )
    return path


def _mark(folder: Folder) -> _Mark:
    """Return the kind of a folder and what it has in common with related folders."""
    if folder.kind == "tokenizer":
        return folder.kind, _tokenizer_files(folder)
    return folder.kind, folder.manifest.get("fingerprint" if folder.kind == "data" else "from")


def _finished_folders(paths: Iterable[Path]) -> Iterator[Folder]:
    """Yield the folders with a manifest of bertpre; skip all others."""
    for path in paths:
        with contextlib.suppress(DataFormatError, OSError):
            folder = tell_kind(path)
            if folder.manifest:
                yield folder


def _tokenizer_files(folder: Folder) -> dict[str, str]:
    """Return the fingerprints of the files that a checkpoint shares with its tokenizer.

    tokenizer_config.json is not one: in a checkpoint it also states the longest input.
    """
    files = folder.manifest["files"]
    return {name: files[name]["sha256"] for name in (VOCAB, BACKEND) if name in files}
