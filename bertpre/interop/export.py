"""Export to the transformers library and to ONNX.

Our checkpoints already are Hugging Face folders. Exporting drops the trainer's state, adds a model
card, and refuses models that the transformers library would load wrongly.
"""

import json
import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from bertpre.artefacts import (
    MANIFEST,
    Kind,
    check_output,
    fingerprint,
    stage_folder,
    write_manifest,
)
from bertpre.errors import InteropError
from bertpre.interop.model_card import CARD, write_card
from bertpre.tokenizer.folder import state_longest_input
from bertpre.tokenizer.tokenizer import Tokenizer
from bertpre.training.run_folder import find_checkpoint, read_model_manifest

log = logging.getLogger(__name__)

Target = Literal["huggingface", "onnx"]

_CONFIG = "config.json"
# Of a fine-tuned model.
_ALSO_COPIED = ("metrics.json", "confusion_matrix.png", "generation_config.json")
# Entries that write_manifest adds.
_OWN_FACTS = {"kind", "format", "bertpre", "files", "fingerprint"}


class ExportReport(NamedTuple):
    """What was written.

    Attributes:
        output: the folder.
        files: size of each file in bytes, by name.
        largest_difference: between the outputs of the ONNX model and ours; None for Hugging Face
            folders, whose weights are unchanged.
    """

    output: Path
    files: dict[str, int]
    largest_difference: float | None


def export(
    checkpoint: str | Path,
    output: str | Path,
    *,
    to: Target,
    encoder_only: bool = False,
    overwrite: bool = False,
) -> ExportReport:
    """Write a checkpoint or a fine-tuned model for use without bertpre.

    Args:
        checkpoint: a checkpoint, a run folder, a fine-tuned model or an imported folder.
        output: the folder to create.
        to: "huggingface", for ``from_pretrained`` of the transformers library; or "onnx", a
            model.onnx of any batch size and length, checked against our outputs.
        encoder_only: leave the heads out of the ONNX model.
        overwrite: replace an existing exported folder.

    Raises:
        InteropError: the target cannot express the model, bertpre did not write the checkpoint,
            the ONNX libraries are missing, or the outputs of the ONNX model differ.
        BertpreError: the checkpoint is missing, damaged or one of several, or the output exists.
    """
    output = Path(output)
    folder = find_checkpoint(checkpoint)
    manifest = _facts(folder)
    raw = json.loads((folder / _CONFIG).read_text(encoding="utf-8"))
    kind: Kind = "onnx" if to == "onnx" else manifest["kind"]
    check_output(output, kind=kind, overwrite=overwrite)
    if to == "huggingface":
        _check_expressible(folder, raw)
    elif manifest.get("task") == "generation" and not encoder_only:
        raise InteropError(
            f"{folder}: a model that writes text word by word cannot be one ONNX graph",
            "export it with --to huggingface, or its encoder with --encoder-only",
        )
    tokenizer = Tokenizer.load(folder)
    _warn_of_overlaps(tokenizer)
    identity = fingerprint([manifest["fingerprint"], to, encoder_only])
    difference = None
    with stage_folder(output, kind=kind, overwrite=overwrite, identity=identity) as work:
        if to == "onnx":
            # Imports PyTorch and the ONNX libraries.
            from bertpre.interop.onnx_model import write_onnx

            difference = write_onnx(folder, work, encoder_only=encoder_only)
        copied = [_CONFIG, *(name for name in _ALSO_COPIED if (folder / name).is_file())]
        for name in copied if to == "onnx" else ["model.safetensors", *copied]:
            shutil.copyfile(folder / name, work / name)
        tokenizer.save_files(work)
        num_positions = int(raw.get("encoder", raw)["max_position_embeddings"])
        state_longest_input(work, num_positions, is_trained_here=False)
        write_card(work / CARD, manifest, raw, to=to)
        facts = {name: value for name, value in manifest.items() if name not in _OWN_FACTS}
        write_manifest(work, kind, {**facts, "exported_from": manifest["fingerprint"]})
    files = {path.name: path.stat().st_size for path in sorted(output.iterdir())}
    return ExportReport(output, files, difference)


def _warn_of_overlaps(tokenizer: Tokenizer) -> None:
    kmer = tokenizer.kmer
    if kmer is not None and kmer.stride != kmer.length:
        log.warning(
            "other libraries do not split sequences into overlapping %d-mers: pass this model text "
            "that is already split, with spaces",
            kmer.length,
        )


def _facts(folder: Path) -> dict[str, Any]:
    if not (folder / MANIFEST).is_file():
        raise InteropError(
            f"{folder}: has no {MANIFEST}, so bertpre did not write it",
            "import it with `bertpre import` first",
        )
    return read_model_manifest(folder)


def _check_expressible(folder: Path, raw: Mapping[str, Any]) -> None:
    if raw.get("model_type") in ("bert", "encoder-decoder"):
        return
    reasons = {
        "pre-norm layers": raw.get("norm") == "pre",
        "sinusoidal positions": raw.get("position_embeddings") == "sinusoidal",
        "classifier with mean pooling": raw.get("pooling") == "mean",
        "classifier that compares two texts": raw.get("pooling") == "compare",
        "conditional random field": raw.get("crf", False),
        "encoder that writes text (--decoder prefix)": raw.get("form") == "prefix",
    }
    named = ", ".join(reason for reason, is_so in reasons.items() if is_so)
    raise InteropError(
        f"{folder}: BERT in the transformers library has no {named}, so its outputs would differ",
        f"use it with bertpre{_ways_out(raw)}",
    )


def _ways_out(raw: Mapping[str, Any]) -> str:
    writes = raw["architectures"][0] in ("BertpreForGeneration", "BertpreEncoderDecoder")
    onnx = "" if writes else ", or export it with --to onnx"
    if raw.get("norm") == "pre" or raw.get("position_embeddings") == "sinusoidal":
        return (
            f"{onnx}; a model pretrained with model.norm=post and "
            "model.position_embeddings=learned can be exported"
        )
    if writes:
        other = "with --decoder copied"
    else:
        other = "without --crf" if raw.get("crf") else "with --pooling cls"
    return f"{onnx}; a model fine-tuned {other} can be exported"
