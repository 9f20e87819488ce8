"""A run folder described: how far it is, how well it does, its checkpoints and curves."""

import json
from pathlib import Path
from typing import Any

from bertpre.artefacts import MANIFEST, check_files, read_manifest
from bertpre.errors import DataFormatError
from bertpre.inspection.sections import Curves, Grid, Picture, Section
from bertpre.interop.facts import Facts, describe, short
from bertpre.training.metrics import CURVES, read_metrics
from bertpre.training.run_folder import RunConfig, read_run_config

Row = dict[str, Any]


def run_sections(folder: Path) -> list[Section]:
    """Describe a run folder, finished or not.

    Raises:
        CheckpointError: its config or its metrics cannot be read.
    """
    config, metrics = read_run_config(folder), read_metrics(folder)
    sections: list[Section] = [Facts("run", _summary(folder, config, metrics))]
    sections += [_checkpoints(folder, metrics)]
    sections += curves(metrics)
    if (folder / CURVES).is_file():
        sections.append(Picture("curves", folder / CURVES))
    return [
        *sections,
        *describe("model", config.model),
        *describe("options", config.pretrain),
    ]


def curves(metrics: list[Row]) -> list[Section]:
    """Draw what a run measured over its steps; what it never measured is left out."""
    found: list[Section] = []
    for title, name in (
        ("MLM loss (nats)", "mlm_loss"),
        ("MLM accuracy", "mlm_accuracy"),
        ("NSP accuracy", "nsp_accuracy"),
        ("SOP accuracy", "sop_accuracy"),
        ("learning rate", "learning_rate"),
    ):
        lines = {}
        for label, split in (("training", "train"), ("held out", "eval")):
            points = [(r["step"], r[name]) for r in metrics if r["split"] == split and name in r]
            if points:
                lines[label] = points
        unigram = [(r["step"], r["unigram_loss"]) for r in metrics if "unigram_loss" in r]
        if name == "mlm_loss" and unigram:
            lines["word frequencies alone"] = unigram
        if any(len(points) > 1 for points in lines.values()):
            found.append(Curves(title, "step", lines))
    return found


def held_out(metrics: list[Row]) -> list[Row]:
    """Give the evaluations of a run."""
    return [row for row in metrics if row["split"] == "eval"]


def _summary(folder: Path, config: RunConfig, metrics: list[Row]) -> dict[str, str]:
    # With --max-hours, the number was settled when the run had started.
    max_steps = config.decided and config.decided.max_steps
    last = metrics[-1] if metrics else {}
    is_finished = (folder / "final" / MANIFEST).is_file()
    rows = {
        "state": "finished" if is_finished else "unfinished: the same command goes on from there",
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
        middle = sorted(rates)[len(rates) // 2]
        rows["rate"] = f"{middle:,.0f} tokens a second (median)"
    trained = [row for row in metrics if row["split"] == "train"]
    if trained:
        rows["training loss"] = f"{trained[-1]['mlm_loss']:.3f} (MLM, last line)"
    scores = held_out(metrics)
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


def _checkpoints(folder: Path, metrics: list[Row]) -> Grid:
    losses = {row["step"]: f"{row['mlm_loss']:.3f}" for row in held_out(metrics)}
    paths = sorted((folder / "checkpoints").glob("step-*"))
    if (folder / "final").is_dir():
        paths.append(folder / "final")
    best = _best_step(paths)
    rows = []
    for path in paths:
        step: object = None
        try:
            manifest = read_manifest(path, "checkpoint")
            # Sizes only: contents are compared when one is loaded.
            check_files(path, manifest, content=False)
            step, state = manifest.get("step"), "whole"
        except DataFormatError as error:
            state = f"damaged: {error.message}"
        size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        mark = "best" if step is not None and step == best and path.name != "final" else ""
        name = path.relative_to(folder).as_posix()
        rows.append([name, f"{size:,}", losses.get(step, ""), mark, state])
    return Grid("checkpoints", ["", "bytes", "held-out loss", "", "state"], rows)


def _best_step(paths: list[Path]) -> int | None:
    """Read which step the newest checkpoint knows as the best of those that are kept."""
    for path in reversed(paths):
        state = path / "trainer" / "state.json"
        if state.is_file():
            try:
                best: int | None = json.loads(state.read_text(encoding="utf-8")).get("best_step")
            except ValueError:
                continue  # said to be damaged in the table
            return best
    return None


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
