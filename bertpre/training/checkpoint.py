"""Checkpoints: whole or absent, and enough in them to go on as if nothing had happened.

A checkpoint is a model folder in Hugging Face form with the tokenizer, and ``trainer/`` with the
optimizer's moments and where training stood. Everything is safetensors and JSON, never pickle.
"""

import json
import logging
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from bertpre.artefacts import write_json, write_manifest
from bertpre.data.loader import Cursor
from bertpre.errors import CheckpointError
from bertpre.model.folder import save_model
from bertpre.model.heads import BertForPreTraining
from bertpre.model.weights import load_hugging_face, read_weights
from bertpre.tokenizer.folder import state_longest_input
from bertpre.tokenizer.tokenizer import Tokenizer
from bertpre.training.metrics import read_metrics
from bertpre.training.optim import PretrainingOptimizer
from bertpre.training.run_folder import checkpoint_folder
from bertpre.training.step import LossScale

log = logging.getLogger(__name__)

_SPARE = 1.05  # of the bytes that a checkpoint takes


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainerState:
    """Where training stands, beside weights and moments.

    Attributes:
        cursor: the next example, and the updates done.
        tokens_seen: real tokens so far.
        seconds: spent training so far.
        best_step, best_loss: the kept checkpoint with the lowest held-out MLM loss.
        lowest_loss, evals_without_gain: the lowest held-out MLM loss of all evaluations, and how
            many came after it.
        awaits_evaluation: whether this step's held-out loss is still to be measured.
        loss_scale: of the next update; None but in fp16.
        execution: what the bits of a result depend on beyond the options: device, precision,
            threads, micro-batch size, PyTorch version.
    """

    cursor: Cursor
    tokens_seen: int
    seconds: float
    best_step: int | None
    best_loss: float | None
    lowest_loss: float | None
    evals_without_gain: int
    awaits_evaluation: bool
    loss_scale: LossScale | None
    execution: dict[str, Any]

    def with_candidate(self, loss: float) -> "TrainerState":
        """Return the state after measuring this step's held-out loss: the best, or not."""
        if self.best_loss is not None and self.best_loss <= loss:
            return self
        return replace(self, best_step=self.cursor.step, best_loss=loss)

    def after_evaluation(self, loss: float) -> "TrainerState":
        """Return the state after any evaluation."""
        measured = replace(self, awaits_evaluation=False)
        if self.lowest_loss is not None and self.lowest_loss <= loss:
            return replace(measured, evals_without_gain=self.evals_without_gain + 1)
        return replace(measured, lowest_loss=loss, evals_without_gain=0)


def save_checkpoint(
    run: Path,
    *,
    model: BertForPreTraining,
    optimizer: PretrainingOptimizer,
    state: TrainerState,
    tokenizer: Tokenizer,
    facts: Mapping[str, object],
) -> Path:
    """Write ``checkpoints/step-N`` under another name and rename it when whole.

    Args:
        run: the run folder.
        model, optimizer, state: what to save.
        tokenizer: its files go into the checkpoint, so that it needs nothing else.
        facts: what the manifest says of the model.

    Raises:
        CheckpointError: there is no room for it, or it cannot be written; older ones are intact.
    """
    final = checkpoint_folder(run, state.cursor.step)
    moments = optimizer.state()
    _check_space(run, model, moments)
    work = _new_folder(final)
    trainer = work / "trainer"
    trainer.mkdir()
    path = trainer / "optimizer.safetensors"
    try:
        save_file(moments, path, metadata={"format": "pt"})
    except SafetensorError as error:
        raise CheckpointError(
            f"{path}: cannot be written ({error})", "check free space and permissions"
        ) from error
    write_json(trainer / "state.json", asdict(state))
    scores = _held_out(run, state.cursor.step)
    _write_model(work, model, tokenizer, {**facts, **scores, "step": state.cursor.step})
    _put(work, final)
    return final


def save_final(
    run: Path,
    *,
    model: BertForPreTraining,
    tokenizer: Tokenizer,
    step: int,
    facts: Mapping[str, object],
) -> Path:
    """Write the trained model into ``final``, by which a run is known to be finished."""
    work = _new_folder(run / "final")
    _write_model(work, model, tokenizer, {**facts, **_held_out(run, step), "step": step})
    _put(work, run / "final")
    return run / "final"


def load_checkpoint(
    folder: Path, *, model: BertForPreTraining, optimizer: PretrainingOptimizer
) -> TrainerState:
    """Put a checkpoint's weights and moments into a model and its optimizer.

    Raises:
        CheckpointError: the checkpoint is of another model, or has no trainer state.
    """
    load_hugging_face(model, read_weights(folder))
    try:
        moments = load_file(folder / "trainer" / "optimizer.safetensors")
        values = json.loads((folder / "trainer" / "state.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{folder}: has no trainer state to go on from ({error})") from error
    optimizer.load_state(moments)
    scale = values["loss_scale"]
    values["loss_scale"] = None if scale is None else LossScale(**scale)
    return TrainerState(**{**values, "cursor": Cursor(**values["cursor"])})


def warn_of_full_disk(run: Path, *, model: BertForPreTraining, keep: int) -> None:
    """Warn before the first update if the checkpoints that will be kept do not fit on the disk.

    Args:
        run: the run folder.
        model: whose weights, and two moments of each, a checkpoint holds.
        keep: the newest checkpoints that stay.
    """
    size = 3 * sum(weight.numel() * weight.element_size() for weight in model.parameters())
    there = len(list((run / "checkpoints").glob("step-*")))
    # Beside the newest, the best one and the one that is being written.
    needed, free = size * max(1, keep + 2 - there), shutil.disk_usage(run).free
    if free < needed:
        log.warning(
            "%s: %s MB are free, but the checkpoints to come take up to %s MB; make room, or lower "
            "pretrain.keep_checkpoints",
            run,
            f"{free / 1e6:,.0f}",
            f"{needed / 1e6:,.0f}",
        )


def _check_space(run: Path, model: BertForPreTraining, moments: Mapping[str, Tensor]) -> None:
    """Refuse a save that would fill the disk, before anything is written."""
    tensors = [*model.parameters(), *moments.values()]
    needed = round(_SPARE * sum(tensor.numel() * tensor.element_size() for tensor in tensors))
    free = shutil.disk_usage(run).free
    if free < needed:
        raise CheckpointError(
            f"{run}: a checkpoint takes {needed / 1e6:,.0f} MB, and {free / 1e6:,.0f} MB are free",
            "make room; the same command goes on from the last checkpoint",
        )


def _write_model(
    work: Path, model: BertForPreTraining, tokenizer: Tokenizer, facts: Mapping[str, object]
) -> None:
    save_model(work, model, extra_config={"pad_token_id": tokenizer.pad_id})
    tokenizer.save_files(work)
    state_longest_input(work, cast(int, facts["max_seq_length"]), is_trained_here=True)
    write_manifest(work, "checkpoint", facts)


def _held_out(run: Path, step: int) -> dict[str, object]:
    """Give for a manifest what was measured at this very step, without times."""
    for row in read_metrics(run):
        if row["split"] == "eval" and row["step"] == step:
            kept = row.keys() - {"split", "seconds"}
            return {"held_out": {name: row[name] for name in sorted(kept)}}
    return {}


def _new_folder(final: Path) -> Path:
    work = final.with_name(f".{final.name}.partial")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    return work


def _put(work: Path, final: Path) -> None:
    # What is there can only be a damaged one that the run has passed over.
    if final.exists():
        shutil.rmtree(final)
    work.replace(final)
