"""Checkpoints: complete or absent, and sufficient to resume with the same bits.

A checkpoint is a Hugging Face model folder with the tokenizer, and ``trainer/`` with the
optimizer's moments and the state of training. Everything is safetensors and JSON, never pickle.
"""

import json
import logging
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from bertpre.artefacts import write_json, write_manifest
from bertpre.config.load import identity_options
from bertpre.data.loader import Cursor
from bertpre.errors import CheckpointError
from bertpre.model.folder import save_model
from bertpre.model.weights import load_hugging_face, read_weights
from bertpre.tokenizer.folder import state_longest_input
from bertpre.training.metrics import read_metrics
from bertpre.training.run_folder import checkpoint_folder, newest_whole_checkpoint
from bertpre.training.setup import Setup
from bertpre.training.step import LossScale

log = logging.getLogger(__name__)

_SPARE = 1.05  # times the size of a checkpoint


@dataclass(frozen=True, kw_only=True, slots=True)
class Execution:
    """What the last bits of a result depend on, besides the options."""

    compile: bool
    device: str
    micro_batch_size: int
    precision: str
    ranks: int
    threads: int
    torch: str

    @classmethod
    def of(cls, setup: Setup) -> "Execution":
        """Return how a run executes now."""
        return cls(
            compile=setup.options.compile,
            device=setup.device.type,
            micro_batch_size=setup.decided.micro_batch_size,
            precision=setup.precision,
            ranks=setup.ranks.size,
            threads=torch.get_num_threads(),
            torch=torch.__version__,
        )

    def warn_of_changes(self, before: "Execution") -> None:
        """Warn of what may change the last bits of a result."""
        for name, now in asdict(self).items():
            if getattr(before, name) != now:
                log.warning(
                    "%s was %s before and is %s now: the result may differ in its last bits",
                    name,
                    getattr(before, name),
                    now,
                )


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainerState:
    """The state of training, except weights and moments.

    Attributes:
        cursor: the next example, and the updates done.
        tokens_seen: real tokens so far.
        seconds: spent training so far.
        best_step, best_loss: the kept checkpoint with the lowest held-out MLM loss.
        lowest_loss, evals_without_gain: the lowest held-out MLM loss of all evaluations, and how
            many came after it.
        awaits_evaluation: whether this step's held-out loss has yet to be measured.
        loss_scale: of the next update; None except in fp16.
        execution: of the updates so far.
    """

    cursor: Cursor
    tokens_seen: int = 0
    seconds: float = 0.0
    best_step: int | None = None
    best_loss: float | None = None
    lowest_loss: float | None = None
    evals_without_gain: int = 0
    awaits_evaluation: bool = False
    loss_scale: LossScale | None
    execution: Execution

    def with_candidate(self, loss: float) -> "TrainerState":
        """Return the state after this checkpoint's held-out loss: it may be the best."""
        if self.best_loss is not None and self.best_loss <= loss:
            return self
        return replace(self, best_step=self.cursor.step, best_loss=loss)

    def after_evaluation(self, loss: float) -> "TrainerState":
        """Return the state after any evaluation."""
        measured = replace(self, awaits_evaluation=False)
        if self.lowest_loss is not None and self.lowest_loss <= loss:
            return replace(measured, evals_without_gain=self.evals_without_gain + 1)
        return replace(measured, lowest_loss=loss, evals_without_gain=0)


def first_state(setup: Setup) -> TrainerState:
    """Return the state before the first update."""
    scale = LossScale() if setup.precision == "fp16" else None
    return TrainerState(cursor=Cursor(), loss_scale=scale, execution=Execution.of(setup))


def save_checkpoint(run: Path, setup: Setup, state: TrainerState) -> Path:
    """Write ``checkpoints/step-N`` under another name, and rename it when complete.

    Raises:
        CheckpointError: the disk is full or not writable; older checkpoints stay intact.
    """
    final = checkpoint_folder(run, state.cursor.step)
    moments = setup.optimizer.state()
    _check_space(run, [*setup.model.parameters(), *moments.values()])
    work = _new_folder(final)
    path = work / "trainer" / "optimizer.safetensors"
    path.parent.mkdir()
    try:
        save_file(moments, path, metadata={"format": "pt"})
    except SafetensorError as error:
        raise CheckpointError(
            f"{path}: cannot be written ({error})", "check free space and permissions"
        ) from error
    write_json(path.with_name("state.json"), asdict(state))
    return _finish(run, setup, state.cursor.step, work, final)


def save_final(run: Path, setup: Setup, *, step: int) -> Path:
    """Write the trained model into ``final``, which marks the run as finished."""
    final = run / "final"
    return _finish(run, setup, step, _new_folder(final), final)


def restore(run: Path, setup: Setup) -> TrainerState:
    """Return to the newest complete checkpoint of a run, or to step 0 if there is none."""
    folder = newest_whole_checkpoint(run)
    if folder is None:
        if any((run / "checkpoints").glob("step-*")):
            log.warning("the run starts again at step 0")
        return first_state(setup)
    state = load_checkpoint(folder, setup)
    if setup.device.type == "cpu" and state.execution.device == "cpu":
        # Another number of threads rounds sums differently.
        torch.set_num_threads(state.execution.threads)
    log.info("resuming from %s", folder)
    start = first_state(setup)
    start.execution.warn_of_changes(state.execution)
    loss_scale = start.loss_scale and (state.loss_scale or start.loss_scale)
    return replace(state, execution=start.execution, loss_scale=loss_scale)


def load_checkpoint(folder: Path, setup: Setup) -> TrainerState:
    """Load a checkpoint's weights and moments into a run's model and optimizer.

    Raises:
        CheckpointError: the checkpoint is of another model, or has no trainer state.
    """
    load_hugging_face(setup.model, read_weights(folder))
    try:
        moments = load_file(folder / "trainer" / "optimizer.safetensors")
        values = json.loads((folder / "trainer" / "state.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{folder}: has no trainer state to resume from ({error})") from error
    setup.optimizer.load_state(moments)
    scale = values["loss_scale"]
    values["loss_scale"] = None if scale is None else LossScale(**scale)
    values["cursor"] = Cursor(**values["cursor"])
    values["execution"] = Execution(**values["execution"])
    return TrainerState(**values)


def warn_of_full_disk(run: Path, setup: Setup) -> None:
    """Warn before the first update if the checkpoints to keep will not fit on the disk."""
    size = 3 * _num_bytes(list(setup.model.parameters()))  # weights, and two moments of each
    there = len(list((run / "checkpoints").glob("step-*")))
    # Besides the newest, the best one and the one being written.
    num_kept = setup.options.keep_checkpoints + 2
    needed, free = size * max(1, num_kept - there), shutil.disk_usage(run).free
    if free < needed:
        log.warning(
            "%s: %s MB are free, but the checkpoints may take another %s MB; make room, or lower "
            "pretrain.keep_checkpoints",
            run,
            f"{free / 1e6:,.0f}",
            f"{needed / 1e6:,.0f}",
        )


def _check_space(run: Path, tensors: list[Tensor]) -> None:
    """Refuse a save that would fill the disk, before anything is written."""
    needed = round(_SPARE * _num_bytes(tensors))
    free = shutil.disk_usage(run).free
    if free < needed:
        raise CheckpointError(
            f"{run}: a checkpoint takes {needed / 1e6:,.0f} MB, and {free / 1e6:,.0f} MB are free",
            "make room; the same command resumes from the last checkpoint",
        )


def _num_bytes(tensors: list[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _new_folder(final: Path) -> Path:
    work = final.with_name(f".{final.name}.partial")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    return work


def _finish(run: Path, setup: Setup, step: int, work: Path, final: Path) -> Path:
    """Write the model and the manifest, and rename the folder."""
    data = setup.data
    save_model(work, setup.model, extra_config={"pad_token_id": data.tokenizer.pad_id})
    data.tokenizer.save_files(work)
    state_longest_input(work, data.max_seq_length, is_trained_here=True)
    facts = {
        "data": data.manifest["fingerprint"],
        "init_from": setup.init_from,
        "data_report": data.manifest["report"],
        "data_options": data.index_manifest["options"],
        "pretrain": identity_options(setup.options),
        "objective": data.objective,
        "max_seq_length": data.max_seq_length,
        "max_steps": setup.max_steps,
        "seed": setup.seed,
        "step": step,
    }
    write_manifest(work, "checkpoint", {**facts, **_held_out(run, step)})
    if final.exists():  # a damaged one that was skipped
        shutil.rmtree(final)
    work.replace(final)
    return final


def _held_out(run: Path, step: int) -> dict[str, object]:
    """Return the evaluation of this step for a manifest, without times."""
    for row in read_metrics(run):
        if row["split"] == "eval" and row["step"] == step:
            kept = row.keys() - {"split", "seconds"}
            return {"held_out": {name: row[name] for name in sorted(kept)}}
    return {}
