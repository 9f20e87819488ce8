"""Describes a model folder: shapes and parameters, origin, labels and scores."""

import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from bertpre.errors import CheckpointError
from bertpre.finetuning.registry import member_folders, task_of
from bertpre.finetuning.task import Task
from bertpre.inspection.sections import Curves, Folder, Grid, Picture, Section
from bertpre.interop.facts import Facts, describe, short

_LAYER = re.compile(r"(encoder\.layer\.)\d+\.")
_MOST_CLASSES = 40
_MOST_MISTAKES = 10
_SCORE_ORDER = (
    *("accuracy", "micro_f1", "macro_f1", "matthews", "spearman", "pearson", "rmse"),
    *("bleu", "chrf", "rouge_l", "cider_d", "exact_match", "loss"),
    *("precision", "recall", "f1", "lenient_precision", "lenient_recall", "lenient_f1", "rows"),
)
_SHAPE_NAMES = (
    *("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
    *("hidden_act", "vocab_size", "max_position_embeddings", "type_vocab_size"),
    *("norm", "position_embeddings"),
)


def checkpoint_sections(folder: Folder) -> list[Section]:
    """Describe a checkpoint, also an imported or exported one or one from another library.

    Raises:
        CheckpointError: config.json or the weights cannot be read.
    """
    config, manifest = _read_config(folder.path), folder.manifest
    return [
        Facts("checkpoint", _origin(manifest, config)),
        *_weights(folder, folder.path),
        *_shape(config),
        *describe("held out, at this step", manifest.get("held_out", {})),
        *describe("how it was trained", manifest.get("pretrain", {})),
        *describe("its examples", manifest.get("data_options", {})),
        *describe("its text", manifest.get("data_report", {})),
    ]


def classifier_sections(folder: Folder) -> list[Section]:
    """Describe a fine-tuned model: labels, scores beside the baselines, history, and the recipe.

    Raises:
        CheckpointError: config.json or the weights cannot be read.
    """
    manifest = folder.manifest
    options = manifest.get("options", {})
    # An older bertpre knew of one task only, and did not name it.
    task = task_of(folder.path, {"task": "classification", **manifest})
    rows = {
        "task": task.name,
        **task.label_facts(),
        "models": len(manifest.get("members", [])),
        "pooling": manifest.get("pooling"),
        "max_seq_length": manifest.get("max_seq_length"),
        "best epoch": manifest.get("best_epoch"),
        "made from": short(manifest.get("from", "")),
        "exported from": short(manifest.get("exported_from", "")),
    }
    first = member_folders(folder.path, manifest)[0]
    return [
        Facts("model", {name: str(value) for name, value in rows.items() if value}),
        *describe("imported", manifest.get("imported", {})),
        *_scores(folder.path, task, options.get("metric", "")),
        *_labels(task, manifest),
        *_mistakes(folder.path),
        *_history(manifest),
        *(Picture(path.stem.replace("_", " "), path) for path in sorted(folder.path.glob("*.png"))),
        *describe("recipe", options),
        *describe("rows", manifest.get("counts", {})),
        *_shape(_read_config(first)),
        *_weights(folder, first),
    ]


def _shape(config: Mapping[str, Any]) -> list[Facts]:
    return describe("shape", {name: config[name] for name in _SHAPE_NAMES if name in config})


def _origin(manifest: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, str]:
    rows = {"architecture": ", ".join(config.get("architectures") or ["not stated"])}
    if not manifest:
        return {**rows, "made by": "another library (there is no manifest)"}
    imported = manifest.get("imported")
    rows["made by"] = "pretrain" if imported is None else "import"
    for name in ("step", "max_steps", "objective", "max_seq_length", "seed"):
        value = manifest.get(name)
        if value is not None:
            rows[name.replace("_", " ")] = f"{value:,}" if isinstance(value, int) else str(value)
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


def _weights(folder: Folder, model: Path) -> list[Section]:
    """List the tensors of a model, with the encoder layers merged."""
    if folder.kind == "onnx":  # the weights are inside the graph
        return []
    shapes = _shapes(model)
    times = Counter(_LAYER.sub(r"\1*.", name) for name in shapes)
    rows, total = [], 0
    for name, shape in {_LAYER.sub(r"\1*.", name): shapes[name] for name in sorted(shapes)}.items():
        parameters = math.prod(shape) * times[name]
        total += parameters
        rows.append([name, " x ".join(map(str, shape)), str(times[name]), f"{parameters:,}"])
    grid = Grid("tensors", ["name", "shape", "times", "parameters"], rows)
    return [Facts("size", {"parameters": f"{total:,}", "fp32 bytes": f"{4 * total:,}"}), grid]


def _shapes(folder: Path) -> dict[str, list[int]]:
    """Read the shapes of a model's tensors, without PyTorch if possible."""
    path = folder / "model.safetensors"
    shapes: dict[str, list[int]]
    if path.is_file():
        try:
            with safe_open(path, framework="numpy") as file:
                shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise CheckpointError(
                f"{path}: not a whole safetensors file ({error})", "copy it again"
            ) from error
    else:
        from bertpre.model.weights import read_weights

        shapes = {name: list(tensor.shape) for name, tensor in read_weights(folder).items()}
    # Older libraries also stored the positions, which are always 0, 1, 2, …
    return {name: shape for name, shape in shapes.items() if not name.endswith("position_ids")}


def _scores(folder: Path, task: Task, metric: str) -> list[Section]:
    path = folder / "metrics.json"
    if not path.is_file():
        return []
    try:
        metrics = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{path}: not valid JSON ({error})", "fine-tune again") from error
    baselines = metrics.get("baselines", {})
    named = {task.baseline_names.get(name, name): scores for name, scores in baselines.items()}
    others = {"the model": metrics, **named, **metrics.get("members", {})}
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
            grid = _score_grid(f"classes, {part} rows", ["label"], rows, metric)
            header = [task.class_unit if name == "rows" else name for name in grid.header]
            sections.append(Grid(grid.title, header, grid.rows))
    return sections


def _score_grid(
    title: str, header: list[str], found: list[tuple[list[str], dict[str, Any]]], metric: str
) -> Grid:
    values = [item for _, scores in found for item in scores.items()]
    names = {name for name, value in values if isinstance(value, int | float)}
    if {"accuracy", "micro_f1", "matthews"} <= names:
        names -= {"micro_f1"}  # with one class per row it equals the accuracy

    def place(name: str) -> tuple[bool, int, str]:
        known = _SCORE_ORDER.index(name) if name in _SCORE_ORDER else len(_SCORE_ORDER)
        return name != metric, known, name  # the score that chose the epoch comes first

    order = sorted(names, key=place)
    rows = [
        [*who, *(_write_score(scores.get(name, "")) for name in order)] for who, scores in found
    ]
    return Grid(title, [*header, *(name.replace("_", " ") for name in order)], rows)


def _write_score(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _labels(task: Task, manifest: Mapping[str, Any]) -> list[Section]:
    classes, counts = task.known_labels(), manifest.get("class_counts", {})
    parts = [part for part in ("train", "dev", "test") if counts.get(part)]
    if counts and not parts:  # regression has no labels to count
        return []
    rows = [
        [str(name), *(f"{counts[part].get(name, 0):,}" for part in parts)]
        for name in classes[:_MOST_CLASSES]
    ]
    if len(classes) > _MOST_CLASSES:
        rows.append([f"and {len(classes) - _MOST_CLASSES:,} more", *("" for _ in parts)])
    header = [f"{part} {task.class_unit}" for part in parts]
    return [Grid("labels", ["label", *header], rows)] if rows else []


def _mistakes(folder: Path) -> list[Section]:
    path = folder / "dev_mistakes.tsv"
    if not path.is_file():
        return []
    header, *rows = (line.split("\t") for line in path.read_text(encoding="utf-8").splitlines())
    title = f"mistakes on dev rows, the first {min(len(rows), _MOST_MISTAKES)} of {path.name}"
    return [Grid(title, header, rows[:_MOST_MISTAKES])] if rows else []


def _history(manifest: Mapping[str, Any]) -> list[Section]:
    epochs = manifest.get("history", [])
    losses = {
        "training": [(epoch["epoch"], epoch.get("train_loss")) for epoch in epochs],
        "dev": [(epoch["epoch"], epoch.get("dev", {}).get("loss")) for epoch in epochs],
    }
    lines = {name: [p for p in line if p[1] is not None] for name, line in losses.items()}
    drawn = {name: line for name, line in lines.items() if len(line) > 1}
    return [Curves("fine-tuning loss", "epoch", drawn)] if drawn else []
