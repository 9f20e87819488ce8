"""Describes a run folder: progress, scores, checkpoints and curves."""

import json
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bertpre.artefacts import MANIFEST, check_files, read_manifest
from bertpre.errors import DataFormatError
from bertpre.inspection.sections import Curves, Folder, Grid, Picture, Section
from bertpre.interop.facts import Facts, describe, short
from bertpre.training.metrics import CURVES, read_metrics
from bertpre.training.run_folder import RunConfig, read_run_config

Row = dict[str, Any]  # of the metrics

_CURVES = {
    "mlm_loss": "MLM loss (nats)",
    "mlm_accuracy": "MLM accuracy",
    "nsp_accuracy": "NSP accuracy",
    "sop_accuracy": "SOP accuracy",
    "learning_rate": "learning rate",
}


def run_sections(run: Folder) -> list[Section]:
    """Describe a run folder, finished or not.

    Raises:
        CheckpointError: its config or metrics cannot be read.
    """
    folder = run.path
    config, metrics = read_run_config(folder), read_metrics(folder)
    picture = folder / CURVES
    return [
        Facts("run", _summary(folder, config, metrics)),
        _checkpoints(folder, metrics),
        *_curves(metrics),
        *([Picture("curves", picture)] if picture.is_file() else []),
        *describe("model", config.model),
        *describe("options", config.pretrain),
    ]


def _curves(metrics: Sequence[Row]) -> Iterator[Curves]:
    """Yield curves of the metrics over the steps; metrics without values are left out."""

    def points(split: str, name: str) -> list[tuple[float, float]]:
        return [
            (row["step"], row[name]) for row in metrics if row["split"] == split and name in row
        ]

    for name, title in _CURVES.items():
        lines = {"training": points("train", name), "held out": points("eval", name)}
        if name == "mlm_loss":
            lines["word frequencies alone"] = points("eval", "unigram_loss")
        if any(len(line) > 1 for line in lines.values()):
            yield Curves(title, "step", {label: line for label, line in lines.items() if line})


def _summary(folder: Path, config: RunConfig, metrics: list[Row]) -> dict[str, str]:
    # With --max-hours, the number was settled when the run had started.
    max_steps = config.decided and config.decided["max_steps"]
    last = metrics[-1] if metrics else {}
    is_finished = (folder / "final" / MANIFEST).is_file()
    rows = {
        "state": "finished" if is_finished else "unfinished: the same command resumes it",
        "steps": f"{last.get('step', 0):,} of {max_steps:,}" if max_steps else "none yet",
        "data": short(config.data),
        "starts from": short(config.init_from) if config.init_from else "random weights",
        "seed": str(config.seed),
    }
    if last:
        rows["epochs"] = f"{last['epoch']:.2f}"
        rows["tokens seen"] = f"{last['tokens_seen']:,}"
        rows["time"] = _duration(last["seconds"])
    rates = [row["tokens_per_second"] for row in metrics if "tokens_per_second" in row]
    if rates:
        rows["rate"] = f"{statistics.median_high(rates):,.0f} tokens per second (median)"
    trained = [row for row in metrics if row["split"] == "train"]
    if trained:
        rows["training loss"] = f"{trained[-1]['mlm_loss']:.3f} (MLM, last logged)"
    scores = _held_out(metrics)
    if scores:
        best = min(scores, key=lambda row: float(row["mlm_loss"]))
        rows["held out, last"] = _scores(scores[-1])
        rows["held out, best"] = f"step {best['step']:,}: {_scores(best)}"
        if "unigram_loss" in best:
            rows["word frequencies alone"] = f"MLM loss {best['unigram_loss']:.3f}"
    return rows


def _scores(row: Row) -> str:
    shown = f"MLM loss {row['mlm_loss']:.3f}, accuracy {row['mlm_accuracy']:.3f}"
    if "mlm_perplexity" in row:
        shown += f", perplexity {row['mlm_perplexity']:,.1f}"
    for pair in ("nsp", "sop"):
        if f"{pair}_loss" in row:
            accuracy = row.get(f"{pair}_accuracy", 0.0)
            shown += f"; {pair.upper()} loss {row[f'{pair}_loss']:.3f}, accuracy {accuracy:.3f}"
    return shown


def _held_out(metrics: Sequence[Row]) -> list[Row]:
    return [row for row in metrics if row["split"] == "eval"]


def _checkpoints(folder: Path, metrics: list[Row]) -> Grid:
    losses = {row["step"]: f"{row['mlm_loss']:.3f}" for row in _held_out(metrics)}
    paths = sorted((folder / "checkpoints").glob("step-*"))
    if (folder / "final").is_dir():
        paths.append(folder / "final")
    best = _best_step(paths)
    rows = []
    for path in paths:
        step: object = None
        try:
            manifest = read_manifest(path, "checkpoint")
            # Sizes only: contents are checked on loading.
            check_files(path, manifest, content=False)
            step, state = manifest.get("step"), "complete"
        except DataFormatError as error:
            state = f"damaged: {error.message}"
        size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        mark = "best" if step is not None and step == best and path.name != "final" else ""
        name = path.relative_to(folder).as_posix()
        rows.append([name, f"{size:,}", losses.get(step, ""), mark, state])
    return Grid("checkpoints", ["", "bytes", "held-out loss", "", "state"], rows)


def _best_step(paths: list[Path]) -> int | None:
    """Read from the newest checkpoint which of those kept is the best."""
    for path in reversed(paths):
        state = path / "trainer" / "state.json"
        if state.is_file():
            try:
                best: int | None = json.loads(state.read_text(encoding="utf-8")).get("best_step")
            except ValueError:
                continue  # the table shows it as damaged
            return best
    return None


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
