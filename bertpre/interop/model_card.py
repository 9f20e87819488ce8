"""The model card, README.md, of an exported folder, written from its manifest."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import jinja2

from bertpre.finetuning.registry import task_class
from bertpre.interop.facts import Facts, describe, short

CARD = "README.md"


def write_card(
    path: Path,
    manifest: Mapping[str, Any],
    config: Mapping[str, Any],
    *,
    to: Literal["huggingface", "onnx"],
) -> None:
    """Write a model card in Markdown; equal manifests give equal bytes.

    Args:
        path: the file.
        manifest: the checkpoint's or the fine-tuned model's.
        config: its config.json.
        to: the target of the export.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("bertpre.interop", "."),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"short": short, "cell": _cell}
    text = environment.get_template("card.md.jinja").render(
        manifest=manifest,
        config={**config.get("encoder", {}), **config},
        to=to,
        is_fine_tuned=manifest["kind"] == "model",
        is_paired=_is_paired(manifest),
        architecture=_auto_class(config["architectures"][0]),
        is_tagger=config["architectures"][0].endswith("ForTokenClassification"),
        is_writer=config["architectures"][0] == "EncoderDecoderModel",
        use=_intended_use(manifest),
        tables=_facts(manifest),
    )
    path.write_text(text, encoding="utf-8", newline="\n")


def _is_paired(manifest: Mapping[str, Any]) -> bool:
    return manifest.get("options", {}).get("pair_column") is not None


def _auto_class(architecture: str) -> str:
    """Return the class of the transformers library that loads the model with all its heads."""
    if architecture == "EncoderDecoderModel":
        return architecture
    head = architecture.removeprefix("Bertpre").removeprefix("Bert")
    if head == "ForPreTraining":
        return "BertForPreTraining"
    return "AutoModel" + head.removeprefix("Model")


def _intended_use(manifest: Mapping[str, Any]) -> str:
    if manifest["kind"] == "model":
        return _classifier_use(manifest)
    if manifest.get("objective") is None:
        return "An encoder without heads: vectors of texts, or a start for fine-tuning."
    return "A start for fine-tuning on texts like those it was trained on; filling masks."


def _classifier_use(manifest: Mapping[str, Any]) -> str:
    what = "pairs of texts" if _is_paired(manifest) else "texts"
    task = task_class(manifest["task"]).from_manifest(manifest)
    return task.card_text(f"{what} like those it was fine-tuned on")


def _facts(manifest: Mapping[str, Any]) -> list[Facts]:
    found = [
        *describe("Held-out figures", manifest.get("held_out", {})),
        *describe("Recipe", manifest.get("pretrain", {})),
        *describe("Examples", manifest.get("data_options", {})),
        *describe("Training text", manifest.get("data_report", {})),
    ]
    if manifest["kind"] == "model":
        best = manifest.get("best_epoch")
        scores = [e["dev"] for e in manifest.get("history", []) if e.get("epoch") == best]
        found += describe("Scores on the dev rows", scores[0]) if scores else []
        found += describe("Fine-tuning recipe", manifest.get("options", {}))
        found += describe("Rows", manifest.get("counts", {}))
        found += describe("Labels", manifest.get("class_counts", {}))
    return found


def _cell(value: str) -> str:
    # A bar or a line break would end the cell.
    return value.replace("|", "\\|").replace("\n", " ")
