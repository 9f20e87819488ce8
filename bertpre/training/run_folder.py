"""A run folder on disk: its options and its complete checkpoints, read without PyTorch."""

import contextlib
import logging
import shutil
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from bertpre.artefacts import MANIFEST, check_files, empty_folder, read_manifest
from bertpre.errors import CheckpointError, DataFormatError

log = logging.getLogger(__name__)

RUN_CONFIG = "config.yaml"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunConfig:
    """The options of a run, as its ``config.yaml`` holds them.

    Attributes:
        seed: of the experiment.
        data: fingerprint of the data folder.
        init_from: fingerprint of the initial weights; None if they are random.
        model, pretrain: the sections as plain values.
        decided: the steps and sizes that were settled at the start of the run; an older version may
            have stored ``max_steps`` only. None before the start.
    """

    seed: int
    data: str
    init_from: str | None
    model: dict[str, Any]
    pretrain: dict[str, Any]
    decided: dict[str, int] | None


def start_run_folder(output: Path, config: RunConfig, *, lock: Path, overwrite: bool) -> None:
    """Store a run's options in its folder.

    Args:
        output: the run folder, which exists.
        config: the options.
        lock: a file to keep.
        overwrite: empty the folder first, to start again.
    """
    if overwrite and (output / RUN_CONFIG).is_file():
        empty_folder(output, keep=lock)
    unfinished = output / f".{RUN_CONFIG}.partial"
    unfinished.write_text(yaml.safe_dump(asdict(config), sort_keys=False), encoding="utf-8")
    unfinished.replace(output / RUN_CONFIG)


def read_run_config(run: Path) -> RunConfig:
    """Read the options that a run folder was started with.

    Raises:
        CheckpointError: the folder has none, or they cannot be read.
    """
    path = run / RUN_CONFIG
    try:
        stored = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise CheckpointError(f"{path}: cannot be read ({error})") from error
    sections: dict[str, Any] = stored if isinstance(stored, dict) else {}
    if not (
        {"seed", "data"} <= sections.keys()
        and all(isinstance(sections.get(name), dict) for name in ("model", "pretrain", "decided"))
        and "max_steps" in sections["decided"]
    ):
        raise CheckpointError(f"{path}: is not the config of a run", "choose another --output")
    return RunConfig(
        seed=sections["seed"],
        data=sections["data"],
        init_from=sections.get("init_from"),
        model=sections["model"],
        pretrain=sections["pretrain"],
        decided=sections["decided"],
    )


def checkpoint_folder(run: Path, step: int) -> Path:
    """Return the path of the checkpoint after ``step`` updates, whether it exists or not."""
    return run / "checkpoints" / f"step-{step:08d}"


def newest_whole_checkpoint(run: Path) -> Path | None:
    """Find the newest checkpoint of a run whose files match its manifest.

    Damaged ones are skipped with a warning.
    """
    folders = sorted((run / "checkpoints").glob("step-*"), reverse=True)
    for folder in folders:
        if is_whole(folder):
            return folder
    if folders:
        log.warning("%s: none of %d checkpoints is complete", run, len(folders))
    return None


def is_whole(checkpoint: Path) -> bool:
    """Return whether all files of a checkpoint match its manifest; warn if not."""
    try:
        check_files(checkpoint, read_manifest(checkpoint, "checkpoint"), content=True)
    except DataFormatError as error:
        log.warning("%s; this checkpoint is skipped", error.message)
        return False
    return True


def remove_old_checkpoints(run: Path, *, keep: int, kept_steps: Collection[int | None]) -> None:
    """Remove all checkpoints but the newest and those of the given steps."""
    kept = {checkpoint_folder(run, step) for step in kept_steps if step is not None}
    for folder in sorted((run / "checkpoints").glob("step-*"))[:-keep]:
        if folder not in kept:
            shutil.rmtree(folder)


def reopen_run(run: Path, *, after_step: int) -> None:
    """Mark a finished run as unfinished, and remove the checkpoints of later steps.

    Args:
        run: the run folder.
        after_step: the last step whose checkpoint stays.
    """
    last = checkpoint_folder(run, after_step).name
    for folder in sorted((run / "checkpoints").glob("step-*")):
        if folder.name > last:
            shutil.rmtree(folder)
    shutil.rmtree(run / "final", ignore_errors=True)


def read_model_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of a checkpoint or a fine-tuned model, and check the files.

    Raises:
        DataFormatError: the folder is of another kind, or a file differs.
    """
    try:
        manifest = read_manifest(folder, "checkpoint")
    except DataFormatError:
        manifest = read_manifest(folder, "model")
    check_files(folder, manifest, content=True)
    return manifest


def find_checkpoint(path: str | Path) -> Path:
    """Find the model in a folder that the user names: a model folder or a run folder.

    Args:
        path: a checkpoint, a fine-tuned model, a Hugging Face folder, or a run folder, which
            stands for its ``final`` or else its newest complete checkpoint.

    Raises:
        CheckpointError: the folder has no model, or several.
    """
    path = Path(path)
    if not path.is_dir():
        what = "is a file" if path.exists() else "there is no such folder"
        raise CheckpointError(
            f"{path}: {what}; expected a checkpoint or a run folder",
            "make one with `bertpre pretrain`",
        )
    if (path / "config.json").is_file():
        return path
    if (path / "final" / MANIFEST).is_file():
        return path / "final"
    newest = newest_whole_checkpoint(path)
    if newest is not None:
        return newest
    _check_single(path)
    what = (
        "a run without a complete checkpoint"
        if (path / RUN_CONFIG).is_file()
        else "not a model folder"
    )
    raise CheckpointError(
        f"{path}: is {what}; expected config.json, final/ or checkpoints/ in it",
        "continue the run, or name another folder",
    )


def _check_single(folder: Path) -> None:
    with contextlib.suppress(DataFormatError):
        members = read_manifest(folder, "model").get("members")
        if members:
            raise CheckpointError(
                f"{folder}: holds {len(members)} models; only `bertpre predict` can use several at "
                "once",
                f"name one of them, such as {folder / members[0]}",
            )
