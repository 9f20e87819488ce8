"""Recognizes and describes any folder of the chain."""

import json
from collections.abc import Sequence
from pathlib import Path

from bertpre.artefacts import MANIFEST, Kind, read_manifest
from bertpre.errors import DataFormatError
from bertpre.finetuning.registry import member_folders
from bertpre.inspection.model_sections import checkpoint_sections, classifier_sections
from bertpre.inspection.run_sections import run_sections
from bertpre.inspection.sections import Folder, Inspection, Section
from bertpre.inspection.text_sections import data_sections, encodings, tokenizer_sections
from bertpre.interop.facts import Facts, describe
from bertpre.tokenizer.tokenizer import Tokenizer
from bertpre.training.run_folder import RUN_CONFIG, find_checkpoint

_KINDS: tuple[Kind, ...] = ("tokenizer", "part", "data", "checkpoint", "model", "onnx")
# How to recognize folders without a manifest.
_TOLD_BY_FILES = (
    ("run", (RUN_CONFIG,)),
    ("checkpoint", ("config.json", "bert_config.json")),
    ("tokenizer", ("vocab.txt", "tokenizer.json")),
)


def inspect(folder: str | Path, *, texts: Sequence[str] = (), num_examples: int = 5) -> Inspection:
    """Describe a tokenizer, data, run, checkpoint or model folder, also from other libraries.

    Args:
        folder: the output of any stage, or a Hugging Face BERT or tokenizer folder.
        texts: texts to tokenise, if the folder has a tokenizer.
        num_examples: decoded examples to show from a data folder.

    Raises:
        DataFormatError: there is no such folder, it is of another kind, or it is damaged.
        BertpreError: its contents cannot be read.
    """
    found = tell_kind(Path(folder))
    sections = _sections(found, num_examples)
    if texts or found.kind == "tokenizer":
        sections.append(encodings(Tokenizer.load(_tokenizer_of(found)), texts))
    return Inspection(found.kind, found.path, tuple(sections))


def _sections(folder: Folder, num_examples: int) -> list[Section]:
    if folder.kind == "tokenizer":
        return tokenizer_sections(folder)
    if folder.kind == "data":
        return data_sections(folder, num_examples)
    if folder.kind == "part":
        facts = {name: value for name, value in folder.manifest.items() if name != "files"}
        return [*describe("part of a corpus, for --merge", facts)]
    if folder.kind == "run":
        return run_sections(folder)
    is_fine_tuned = folder.kind == "model" or "task" in folder.manifest
    sections = classifier_sections(folder) if is_fine_tuned else checkpoint_sections(folder)
    if folder.kind == "onnx":
        files = folder.manifest["files"].items()
        sizes = {name: f"{file['bytes']:,} bytes" for name, file in files}
        sections.insert(0, Facts("exported for ONNX", sizes))
    return sections


def _tokenizer_of(folder: Folder) -> Path:
    if folder.kind in ("part", "data"):
        return folder.path / "tokenizer"
    if folder.kind == "run":
        return find_checkpoint(folder.path)
    return member_folders(folder.path, folder.manifest)[0]


def tell_kind(path: Path) -> Folder:
    """Determine the kind of a folder.

    Raises:
        DataFormatError: its kind is unknown.
    """
    if not path.is_dir():
        what = "is a file" if path.exists() else "there is no such folder"
        raise DataFormatError(
            f"{path}: {what}; expected a folder", "name one that a bertpre command wrote"
        )
    if (path / MANIFEST).is_file():
        stated = _stated_kind(path / MANIFEST)
        return Folder(stated, path, read_manifest(path, stated))
    for kind, names in _TOLD_BY_FILES:
        if any((path / name).is_file() for name in names):
            return Folder(kind, path, {})
    if (path / "chain.json").is_file():
        raise DataFormatError(
            f"{path}: is the work folder of `bertpre chain`, which holds several folders",
            f"name one of them: {path}/tokenizer, {path}/data, {path}/run or {path}/model",
        )
    found = ", ".join(sorted(file.name for file in path.iterdir())[:5]) or "nothing"
    raise DataFormatError(
        f"{path}: expected a tokenizer, data, run, checkpoint or model folder, found {found}",
        "name a folder that a bertpre command wrote; an unfinished one has no manifest yet",
    )


def _stated_kind(path: Path) -> Kind:
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataFormatError(
            f"{path}: not valid JSON ({error})", "make the folder again"
        ) from error
    stated = manifest.get("kind") if isinstance(manifest, dict) else None
    for kind in _KINDS:
        if kind == stated:
            return kind
    raise DataFormatError(
        f"{path}: expected one of the kinds {', '.join(_KINDS)}, found {stated!r}",
        "name a folder that a bertpre command wrote",
    )
