"""A model folder described: shapes and parameters, what made it, labels and scores."""

import json
import math
import re
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from bertpre.errors import CheckpointError
from bertpre.finetuning.task import Task
from bertpre.finetuning.tasks import member_folders, task_of
from bertpre.inspection.sections import Curves, Grid, Picture, Section
from bertpre.interop.facts import Facts, describe, short

_LAYER = re.compile(r"(encoder\.layer\.)\d+\.")
_MOST_CLASSES = 40
_SCORE_ORDER = (
    *("accuracy", "micro_f1", "macro_f1", "matthews", "spearman", "pearson", "rmse", "loss"),
    *("precision", "recall", "f1", "rows"),
)
_SHAPE_NAMES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "vocab_size",
    "max_position_embeddings",
    "type_vocab_size",
    "norm",
    "position_embeddings",
)


def checkpoint_sections(folder: Path, manifest: dict[str, Any]) -> list[Section]:
    """Describe a checkpoint, an imported or exported one, or a folder of another library.

    Args:
        folder: has config.json and weights.
        manifest: what bertpre knows of it; empty for another library's.

    Raises:
        CheckpointError: config.json or the weights cannot be read.
    """
    raw = _read_config(folder)
    return [
        Facts("checkpoint", _origin(manifest, raw)),
        *_weights(folder, manifest),
        *_shape(raw),
        *describe("held out, at this step", manifest.get("held_out", {})),
        *describe("how it was trained", manifest.get("pretrain", {})),
        *describe("its examples", manifest.get("data_options", {})),
        *describe("its text", manifest.get("data_report", {})),
    ]


def classifier_sections(folder: Path, manifest: dict[str, Any]) -> list[Section]:
    """Describe a fine-tuned model: labels, scores beside the baselines, history, and the recipe.

    Raises:
        CheckpointError: config.json or the weights cannot be read.
    """
    task = task_of(folder, manifest)
    rows = {
        "task": task.name,
        **task.label_facts(),
        "models": str(len(manifest.get("members", [])) or ""),
        "pooling": str(manifest.get("pooling", "")),
        "most tokens": str(manifest.get("max_seq_length", "")),
        "best epoch": str(manifest.get("best_epoch") or ""),
        "made from": short(manifest.get("from", "")),
        "exported from": short(manifest.get("exported_from", "")),
    }
    sections: list[Section] = [
        Facts("model", {name: value for name, value in rows.items() if value})
    ]
    if "imported" in manifest:
        sections += describe("imported", manifest["imported"])
    sections += _scores(folder, task, manifest.get("options", {}).get("metric", ""))
    sections += _labels(manifest)
    sections += _history(manifest)
    pictures = sorted(folder.glob("*.png"))
    sections += [Picture(path.stem.replace("_", " "), path) for path in pictures]
    sections += describe("recipe", manifest.get("options", {}))
    sections += describe("rows", manifest.get("counts", {}))
    folder = member_folders(folder, manifest)[0]
    raw = _read_config(folder)
    return [*sections, *_shape(raw), *_weights(folder, manifest)]


def _shape(raw: dict[str, Any]) -> list[Facts]:
    return describe("shape", {name: raw[name] for name in _SHAPE_NAMES if name in raw})


def _plain(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _origin(manifest: dict[str, Any], raw: dict[str, Any]) -> dict[str, str]:
    rows = {"architecture": ", ".join(raw.get("architectures") or ["not stated"])}
    if not manifest:
        return {**rows, "made by": "another library (it has no manifest of bertpre's)"}
    imported = manifest.get("imported")
    rows["made by"] = "pretrain" if imported is None else "import"
    for name in ("step", "max_steps", "objective", "max_seq_length", "seed"):
        if manifest.get(name) is not None:
            rows[name.replace("_", " ")] = _plain(manifest[name])
    for name in ("data", "init_from"):
        if manifest.get(name):
            rows[name.replace("_", " ")] = short(manifest[name])
    if imported is not None:
        rows["imported from"] = short(imported.get("from", ""))
        rows["tensors not used"] = ", ".join(imported.get("unused", [])) or "none"
    if "exported_from" in manifest:
        rows["exported from"] = short(manifest["exported_from"])
    rows["fingerprint"] = short(manifest.get("fingerprint", ""))
    return rows


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.is_file():
        path = folder / "bert_config.json"
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{path}: cannot be read ({error})", "copy the folder again"
        ) from error
    if not isinstance(raw, dict):
        raise CheckpointError(f"{path}: expected a JSON object", "copy the folder again")
    return raw


def _weights(folder: Path, manifest: dict[str, Any]) -> list[Section]:
    """Give the tensors, the layers of the encoder as one; without PyTorch where that will do."""
    if manifest.get("kind") == "onnx":  # they are inside the graph
        return []
    sizes: dict[str, tuple[list[int], int]] = {}
    for name, shape in sorted(_shapes(folder).items()):
        if name.endswith("position_ids"):  # 0, 1, 2, …, which older libraries stored
            continue
        shown = _LAYER.sub(r"\1*.", name)
        sizes[shown] = (shape, sizes.get(shown, (shape, 0))[1] + 1)
    rows, total = [], 0
    for name, (shape, times) in sizes.items():
        parameters = math.prod(shape) * times
        total += parameters
        rows.append([name, " x ".join(map(str, shape)), str(times), f"{parameters:,}"])
    grid = Grid("tensors", ["name", "shape", "times", "parameters"], rows)
    return [Facts("size", {"parameters": f"{total:,}", "fp32 bytes": f"{4 * total:,}"}), grid]


def _shapes(folder: Path) -> dict[str, list[int]]:
    path = folder / "model.safetensors"
    if path.is_file():
        try:
            with safe_open(path, framework="numpy") as file:
                names: list[str] = file.keys()
                return {name: file.get_slice(name).get_shape() for name in names}
        except (SafetensorError, OSError) as error:
            raise CheckpointError(
                f"{path}: not a whole safetensors file ({error})", "copy it again"
            ) from error
    from bertpre.model.weights import read_weights

    return {name: list(tensor.shape) for name, tensor in read_weights(folder).items()}


def _scores(folder: Path, task: Task, metric: str) -> list[Section]:
    path = folder / "metrics.json"
    if not path.is_file():
        return []
    try:
        metrics = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{path}: not valid JSON ({error})", "fine-tune again") from error
    baselines = metrics.get("baselines", {})
    others = {
        "the model": metrics,
        **{task.baseline_names.get(name, name): scores for name, scores in baselines.items()},
        **metrics.get("members", {}),
    }
    found = [
        ([name, part], scores[part])
        for part in ("dev", "test")
        for name, scores in others.items()
        if isinstance(scores.get(part), dict)
    ]
    sections: list[Section] = []
    if found:
        sections.append(_score_grid("scores", ["", "part"], found, metric))
    for part, classes in sorted(metrics.get("per_class", {}).items()):
        rows = [([str(name)], scores) for name, scores in list(classes.items())[:_MOST_CLASSES]]
        if rows:
            sections.append(_score_grid(f"classes, {part} rows", ["label"], rows, metric))
    return sections


def _score_grid(
    title: str, header: list[str], found: list[tuple[list[str], dict[str, Any]]], metric: str
) -> Grid:
    names = {
        name
        for _, scores in found
        for name, value in scores.items()
        if isinstance(value, int | float)
    }
    if {"accuracy", "micro_f1", "matthews"} <= names:
        names -= {"micro_f1"}  # of one class a row it is the accuracy

    def place(name: str) -> tuple[bool, int, str]:
        known = _SCORE_ORDER.index(name) if name in _SCORE_ORDER else len(_SCORE_ORDER)
        return name != metric, known, name  # what the epoch was chosen by comes first

    order = sorted(names, key=place)
    rows = [
        [*who, *(_write_score(scores[name]) if name in scores else "" for name in order)]
        for who, scores in found
    ]
    return Grid(title, [*header, *(name.replace("_", " ") for name in order)], rows)


def _write_score(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _labels(manifest: dict[str, Any]) -> list[Section]:
    classes, counts = manifest.get("classes", []), manifest.get("class_counts", {})
    parts = [part for part in ("train", "dev", "test") if counts.get(part)]
    if not parts:
        return []
    rows = [
        [str(name), *(f"{counts[part].get(name, 0):,}" for part in parts)]
        for name in classes[:_MOST_CLASSES]
    ]
    if len(classes) > _MOST_CLASSES:
        rows.append([f"and {len(classes) - _MOST_CLASSES:,} more", *("" for _ in parts)])
    return [Grid("labels", ["label", *(f"{part} rows" for part in parts)], rows)] if rows else []


def _history(manifest: dict[str, Any]) -> list[Section]:
    lines: dict[str, list[tuple[float, float]]] = {"training": [], "dev": []}
    for epoch in manifest.get("history", []):
        for name, value in (
            ("training", epoch.get("train_loss")),
            ("dev", epoch.get("dev", {}).get("loss")),
        ):
            if value is not None:
                lines[name].append((epoch["epoch"], value))
    drawn = {name: points for name, points in lines.items() if len(points) > 1}
    return [Curves("fine-tuning loss", "epoch", drawn)] if drawn else []
