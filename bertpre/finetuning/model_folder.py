"""The folder that fine-tuning writes: models that other libraries load, scores, predictions."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertpre.artefacts import write_json, write_manifest
from bertpre.finetuning.pictures import draw_curves
from bertpre.finetuning.plan import Plan
from bertpre.finetuning.results import FinetuneResult, MemberResult
from bertpre.finetuning.start import Start
from bertpre.model.folder import save_model
from bertpre.model.names import Finetuned
from bertpre.tokenizer.folder import state_longest_input


class ModelWriter:
    """Writes a model folder: a single model directly in it, several in subfolders.

    Args:
        folder: an empty folder.
        plan: tables and training runs.
        start: the checkpoint that the models start from.
        facts: options, counts and fingerprints for the manifests.
    """

    def __init__(
        self, folder: Path, *, plan: Plan, start: Start, facts: Mapping[str, object]
    ) -> None:
        self._folder = folder
        self._plan = plan
        self._start = start
        self._facts = {
            **facts,
            "task": plan.task.name,
            "classes": list(plan.task.names),
            "class_counts": {
                part: plan.task.count_labels(table.labels) for part, table in plan.tables().items()
            },
            "max_seq_length": start.encoder.max_seq_length,
            "pooling": start.pooling,
        }
        if plan.train.layout:
            self._facts["layout"] = dict(plan.train.layout)

    def write_model(self, model: Finetuned, member: MemberResult) -> None:
        """Write a trained model; if it is one of several, also its scores and manifest."""
        is_single = len(self._plan.members) == 1
        folder = self._folder if is_single else self._folder / member.name
        folder.mkdir(exist_ok=True)
        tokenizer = self._start.encoder.tokenizer
        extra = {"pad_token_id": tokenizer.pad_id, **self._plan.task.config_entries()}
        generation = self._plan.task.generation_config(tokenizer)
        save_model(folder, model, extra_config=extra, generation_config=generation)
        tokenizer.save_files(folder)
        longest = self._start.encoder.max_seq_length  # where `predict` cuts texts
        state_longest_input(folder, longest, is_trained_here=True)
        if not is_single:
            write_json(folder / "metrics.json", member.scores)
            facts = {**self._facts, **_member_facts(member), "seed": member.seed}
            write_manifest(folder, "model", facts | member.task.own_facts())

    def finish(self, result: FinetuneResult) -> None:
        """Write scores, predictions, plots and the manifest."""
        write_json(self._folder / "metrics.json", _metrics(result))
        tables = self._plan.scored_tables()
        for part, table in tables.items():
            result.task.write_predictions(self._folder, part, table, result.outputs[part])
        histories = {member.name: member.history for member in result.members}
        draw_curves(self._folder / "curves.png", histories, metric=self._plan.metric)
        _write_classes(self._folder / "classes.tsv", result)
        result.task.draw_mistakes(self._folder, tables["dev"], result.outputs["dev"], result.dev)
        facts = dict(self._facts)
        if len(result.members) == 1:
            facts |= _member_facts(result.members[0])
        else:
            facts["members"] = [member.name for member in result.members]
        write_manifest(self._folder, "model", facts | result.task.own_facts())


def _member_facts(member: MemberResult) -> dict[str, Any]:
    return {
        "best_epoch": member.best_epoch,
        "history": [report._asdict() for report in member.history],
    }


def _metrics(result: FinetuneResult) -> dict[str, Any]:
    metrics: dict[str, Any] = {
        **result.scores,
        "baselines": result.baselines,
        "per_class": {
            part: {
                row.name: {k: v for k, v in row._asdict().items() if k != "name"} for row in rows
            }
            for part, rows in result.class_rows.items()
        },
    }
    if len(result.members) > 1:
        spread = result.spread()
        metrics["members"] = {member.name: member.scores for member in result.members}
        for place, name in enumerate(("mean", "standard_deviation")):
            metrics[name] = {
                part: {score: pair[place] for score, pair in scores.items()}
                for part, scores in spread.items()
            }
    return metrics


def _write_classes(path: Path, result: FinetuneResult) -> None:
    if not any(result.class_rows.values()):
        return
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write(f"part\tclass\tprecision\trecall\tf1\t{result.task.class_unit}\n")
        for part, rows in result.class_rows.items():
            for row in rows:
                shares = f"{row.precision:.4f}\t{row.recall:.4f}\t{row.f1:.4f}"
                file.write(f"{part}\t{row.name}\t{shares}\t{row.rows}\n")
