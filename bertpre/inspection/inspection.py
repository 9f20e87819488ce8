"""Any folder of the chain, told apart and described."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertpre.artefacts import MANIFEST, Kind, read_manifest
from bertpre.errors import DataFormatError
from bertpre.finetuning.tasks import member_folders
from bertpre.inspection.data_sections import data_sections
from bertpre.inspection.model_sections import checkpoint_sections, classifier_sections
from bertpre.inspection.run_sections import run_sections
from bertpre.inspection.sections import Inspection, Section
from bertpre.inspection.tokenizer_sections import encodings, tokenizer_sections
from bertpre.interop.facts import Facts, describe
from bertpre.tokenizer.tokenizer import Tokenizer
from bertpre.training.run_folder import RUN_CONFIG, find_checkpoint

_NUM_EXAMPLES = 5
_KINDS: tuple[Kind, ...] = ("tokenizer", "part", "data", "checkpoint", "model", "onnx")


def inspect(
    folder: str | Path, *, texts: Sequence[str] = (), num_examples: int = _NUM_EXAMPLES
) -> Inspection:
    """Describe a tokenizer, data, run, checkpoint or model folder; of other libraries too.

    Args:
        folder: what any stage wrote, or a Hugging Face BERT or tokenizer folder.
        texts: to show the pieces of, where the folder has a tokenizer.
        num_examples: decoded examples to show of a data folder.

    Raises:
        DataFormatError: there is no such folder, or it is none of these, or it is damaged.
        BertpreError: what is in it cannot be read.
    """
    folder = Path(folder)
    kind, manifest = tell_kind(folder)
    sections: list[Section]
    if kind == "tokenizer":
        return Inspection(kind, folder, tuple(tokenizer_sections(folder, texts)))
    if kind == "data":
        sections = data_sections(folder, num_examples)
    elif kind == "part":
        facts = {name: value for name, value in manifest.items() if name != "files"}
        sections = [*describe("part of a corpus, for --merge", facts)]
    elif kind == "run":
        sections = run_sections(folder)
    elif kind == "model":
        sections = classifier_sections(folder, manifest)
    elif kind == "onnx":
        files = {name: f"{found['bytes']:,} bytes" for name, found in manifest["files"].items()}
        inside = classifier_sections if "task" in manifest else checkpoint_sections
        sections = [Facts("exported for ONNX", files), *inside(folder, manifest)]
    else:
        sections = checkpoint_sections(folder, manifest)
    if texts:
        sections.append(encodings(Tokenizer.load(_tokenizer_of(kind, folder, manifest)), texts))
    return Inspection(kind, folder, tuple(sections))


def _tokenizer_of(kind: str, folder: Path, manifest: dict[str, Any]) -> Path:
    if kind in ("part", "data"):
        return folder / "tokenizer"
    if kind == "run":
        return find_checkpoint(folder)
    return member_folders(folder, manifest)[0]


def tell_kind(folder: Path) -> tuple[str, dict[str, Any]]:
    """Tell what a folder is.

    Returns:
        "tokenizer", "part", "data", "run", "checkpoint", "model" or "onnx", and its manifest, which
        is empty for a run and for folders of other libraries.

    Raises:
        DataFormatError: it is none of these.
    """
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "there is no such folder"
        raise DataFormatError(
            f"{folder}: {what}; expected a folder", "name one that a bertpre command wrote"
        )
    if (folder / MANIFEST).is_file():
        kind = _stated_kind(folder)
        return kind, read_manifest(folder, kind)
    if (folder / RUN_CONFIG).is_file():
        return "run", {}
    if (folder / "config.json").is_file() or (folder / "bert_config.json").is_file():
        return "checkpoint", {}
    if (folder / "vocab.txt").is_file() or (folder / "tokenizer.json").is_file():
        return "tokenizer", {}
    found = ", ".join(sorted(path.name for path in folder.iterdir())[:5]) or "nothing"
    raise DataFormatError(
        f"{folder}: expected a tokenizer, data, run, checkpoint or model folder, found {found}",
        "name a folder that a bertpre command wrote; an unfinished one has no manifest yet",
    )


def _stated_kind(folder: Path) -> Kind:
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataFormatError(
            f"{folder / MANIFEST}: not valid JSON ({error})", "make the folder again"
        ) from error
    stated = manifest.get("kind") if isinstance(manifest, dict) else None
    for kind in _KINDS:
        if kind == stated:
            return kind
    raise DataFormatError(
        f"{folder / MANIFEST}: expected one of the kinds {', '.join(_KINDS)}, found {stated!r}",
        "name a folder that a bertpre command wrote",
    )
