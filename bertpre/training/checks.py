"""What can be known to be wrong before PyTorch is imported and the device is touched."""

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bertpre.artefacts import (
    MANIFEST,
    check_files,
    check_unlocked,
    fingerprint_file,
    read_manifest,
)
from bertpre.config.load import config_to_dict, identity_differences
from bertpre.config.schema import Config, Model, Pretrain
from bertpre.errors import CheckpointError, ConfigError
from bertpre.training.run_folder import (
    RUN_CONFIG,
    find_checkpoint,
    newest_whole_checkpoint,
    read_model_manifest,
    read_run_config,
)
from bertpre.training.schedule import decay_steps, planned_steps

_LEGACY_WEIGHTS = "pytorch_model.bin"
# Of a model that starts from a checkpoint: dropout is a matter of training, and positions that the
# checkpoint lacks are drawn.
_MAY_DIFFER = {
    "max_position_embeddings",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "initializer_range",
}


class RunPlan(NamedTuple):
    """A run that can start.

    Attributes:
        resolved: what the run folder's config.yaml holds.
        is_finished: the folder has been trained to the end already.
        decided: what was settled when the run started and stays: steps, those of the warm-up and
            of a growing batch, and the micro-batch size found by trying; None for a new run.
        max_steps: updates in the run; None if they must be measured first.
        init_from: the checkpoint that the run starts from.
        reopened_after: the last step whose checkpoint is of use when a run is made longer.
    """

    resolved: dict[str, Any]
    is_finished: bool
    decided: dict[str, int] | None
    max_steps: int | None
    init_from: Path | None
    reopened_after: int | None = None


def check_pretraining(
    data: str | Path,
    *,
    output: str | Path,
    config: Config,
    overwrite: bool = False,
    extend_to: int | None = None,
) -> RunPlan:
    """Check a run's options against its data and against what its folder holds already.

    Args:
        data: a data folder.
        output: the run folder; one with equal identity options is gone on with.
        config: the experiment's options.
        overwrite: an existing run folder will be started again.
        extend_to: more steps for a run that is there.

    Raises:
        BertpreError: names everything that contradicts, and both values.
    """
    data, output = Path(data), Path(output)
    manifest = read_manifest(data, "data")
    check_files(data, manifest, content=False)
    options = read_manifest(data / manifest["index"], "index")["options"]
    _check_model(config.model, manifest["vocab_size"], options["max_seq_length"], data)
    _check_masks(config.pretrain, options, data)
    planned = planned_steps(config.pretrain, manifest["report"])
    _check_options(config.pretrain, manifest["report"], data)
    begun = None if overwrite else _begun_from_what_is_gone(config.pretrain.init_from, output)
    init_from = _check_init_from(config) if begun is None else None
    if overwrite and init_from is not None and _is_inside(init_from, output):
        raise ConfigError(
            f"{output}: --overwrite would remove {init_from}, from which the run is to start",
            "choose another --output",
        )
    if (output / ".lock").is_file():  # before the summary of a run that cannot start
        check_unlocked(output / ".lock", str(output))
    resolved = {
        "seed": config.seed,
        "data": manifest["fingerprint"],
        "init_from": (begun or {}).get("init_from")
        if init_from is None
        else _weights_fingerprint(init_from),
        "model": {**config_to_dict(config.model), "vocab_size": manifest["vocab_size"]},
        "pretrain": config_to_dict(config.pretrain),
    }
    is_finished = (output / "final" / MANIFEST).is_file()
    decided = _check_run_folder(output, resolved, overwrite=overwrite)
    max_steps = planned if decided is None else decided["max_steps"]
    if extend_to is not None and (decided is None or extend_to != decided["max_steps"]):
        last = _check_extension(output, config, decided, extend_to)
        return RunPlan(resolved, False, decided, extend_to, init_from, last)
    return RunPlan(resolved, is_finished and not overwrite, decided, max_steps, init_from)


def _check_extension(
    output: Path, config: Config, decided: dict[str, int] | None, extend_to: int
) -> int:
    """Return the last step of a run that a longer one has in common with it."""
    schedule = config.pretrain.schedule
    if decided is None:
        raise ConfigError(f"{output}: there is no run to extend", "leave out --extend-to")
    if schedule.name not in ("constant", "wsd"):
        raise ConfigError(
            f"--extend-to {extend_to}: the {schedule.name} schedule falls over the whole run, so a "
            "longer run is another one",
            "start a run with pretrain.schedule.name constant or wsd, or one from this one's "
            "weights with --init-from",
        )
    if config.pretrain.final_mlm_probability is not None:
        raise ConfigError(
            f"--extend-to {extend_to}: the mask rate moves over the whole run to "
            f"pretrain.final_mlm_probability: {config.pretrain.final_mlm_probability:g}, so a "
            "longer run is another one",
            "start one from this one's weights with --init-from",
        )
    before = decided["max_steps"]
    if extend_to < before:  # the same again is the same command after a kill
        raise ConfigError(f"--extend-to {extend_to}: the run has {before} steps", "state more")
    last = before
    if schedule.name == "wsd":
        last -= decay_steps(schedule, before)
    steps = [int(folder.name[5:]) for folder in (output / "checkpoints").glob("step-*")]
    if not any(step <= last for step in steps):
        raise ConfigError(
            f"{output}: has no checkpoint of step {last} or before, where its learning rate was "
            f"still constant; found steps {', '.join(map(str, sorted(steps))) or 'none'}",
            "keep more with pretrain.keep_checkpoints and save_every_steps in the next run",
        )
    return last


def check_before_data(config: Config, *, data: Path, run: Path) -> None:
    """Check a run's options against those that its data will be made with.

    Args:
        config: the options of both.
        data: where the data folder will be.
        run: the run folder, if there is one already.

    Raises:
        BertpreError: as `check_pretraining`, as far as it can be known.
    """
    made = config_to_dict(config.make_data)
    _check_model(config.model, config.model.vocab_size, made["max_seq_length"], data)
    _check_masks(config.pretrain, made, data)
    held_out = config.make_data.eval_fraction > 0
    report = {"training_examples": 1, "mean_length": 1.0, "held_out_examples": held_out}
    planned_steps(config.pretrain, report)
    _check_options(config.pretrain, report, data)
    if _begun_from_what_is_gone(config.pretrain.init_from, run) is None:
        _check_init_from(config)


def _check_masks(options: Pretrain, made: Mapping[str, Any], data: Path) -> None:
    if options.mlm_probability is not None and made["masking"] == "static":
        raise ConfigError(
            f"pretrain.mlm_probability: {options.mlm_probability}, but the masks of {data} "
            f"are static, drawn at {made['mlm_probability']}",
            "leave it out, or rerun make-data with --masking dynamic",
        )


def _check_options(options: Pretrain, report: Mapping[str, Any], data: Path) -> None:
    initial, patience = options.initial_global_batch_size, options.early_stopping_evals
    if initial is not None and initial > options.global_batch_size:
        raise ConfigError(
            f"pretrain.initial_global_batch_size: {initial}, more than "
            f"pretrain.global_batch_size: {options.global_batch_size}, which it grows to",
            "lower the first, or raise the second",
        )
    if patience is not None and not report["held_out_examples"]:
        raise ConfigError(
            f"pretrain.early_stopping_evals: {patience}, but {data} holds no example out, so there "
            "is no loss to stop by",
            "leave it out, or make the data folder from more documents or a larger --eval-fraction",
        )
    if options.tensorboard and importlib.util.find_spec("tensorboard") is None:
        raise ConfigError(
            "pretrain.tensorboard: the package tensorboard is not installed",
            "pip install 'bertpre[tensorboard]'",
        )


def checkpoint_shape(folder: str | Path, *, run: Path | None = None) -> dict[str, Any]:
    """Read the model section that a checkpoint was made with, for a run that starts from it.

    Args:
        folder: a checkpoint, a run folder or a Hugging Face BERT folder.
        run: the run folder, which knows it where the checkpoint is gone.

    Raises:
        CheckpointError: there is no model there.
    """
    names = config_to_dict(Model()).keys() - {"vocab_size"}
    begun = None if run is None else _begun_from_what_is_gone(str(folder), run)
    if begun is not None:
        return {name: begun["model"][name] for name in names if name in begun["model"]}
    path = find_checkpoint(folder) / "config.json"
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read as JSON ({error})") from error
    if not isinstance(stored, dict):
        raise CheckpointError(f"{path}: expected a JSON object, found {stored!r:.60}")
    return {name: stored[name] for name in names if name in stored}


def _begun_from_what_is_gone(init_from: str | None, run: Path) -> dict[str, Any] | None:
    """Return a run's config if it goes on from its own checkpoints, and what it began with is gone.

    Such a run needs that folder no longer; with any other one named it would be another run.
    """
    if init_from is None or Path(init_from).exists() or not (run / RUN_CONFIG).is_file():
        return None
    stored = read_run_config(run)
    if stored["pretrain"].get("init_from") != init_from or newest_whole_checkpoint(run) is None:
        return None
    return stored


def _check_init_from(config: Config) -> Path | None:
    if config.pretrain.init_from is None:
        if config.pretrain.reset_embeddings:
            raise ConfigError(
                "pretrain.reset_embeddings: there is no pretrain.init_from whose embeddings it "
                "would reset",
                "state both, or none",
            )
        return None
    folder = find_checkpoint(config.pretrain.init_from)
    if (folder / MANIFEST).is_file():  # other libraries' folders have none
        read_model_manifest(folder)
    shape = checkpoint_shape(folder)
    asked = config_to_dict(config.model)
    problems = [
        f"model.{name}: {asked[name]!r}, but {folder} has {shape[name]!r}"
        for name in sorted(shape.keys() - _MAY_DIFFER)
        if asked[name] != shape[name]
    ]
    if problems:
        raise ConfigError("; ".join(problems), "leave out what the checkpoint decides")
    return folder


def _is_inside(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())


def _weights_fingerprint(folder: Path) -> str:
    for name in ("model.safetensors", _LEGACY_WEIGHTS):
        if (folder / name).is_file():
            return fingerprint_file(folder / name)
    raise CheckpointError(
        f"{folder}: has neither model.safetensors nor {_LEGACY_WEIGHTS}",
        "give a checkpoint or a Hugging Face BERT folder",
    )


def _check_model(model: Model, vocab_size: int | None, max_seq_length: int, data: Path) -> None:
    problems = []
    if model.vocab_size is not None and model.vocab_size != vocab_size:
        problems.append(f"model.vocab_size: {model.vocab_size}, but {data} has {vocab_size}")
    if model.hidden_size % model.num_attention_heads:
        problems.append(
            f"model.num_attention_heads: {model.num_attention_heads} does not divide "
            f"model.hidden_size: {model.hidden_size}"
        )
    if model.position_embeddings == "sinusoidal" and model.hidden_size % 2:
        problems.append(
            f"model.hidden_size: {model.hidden_size}, but sinusoidal positions need an even one"
        )
    if max_seq_length > model.max_position_embeddings:
        problems.append(
            f"model.max_position_embeddings: {model.max_position_embeddings}, but the examples of "
            f"{data} have up to {max_seq_length} tokens"
        )
    if problems:
        raise ConfigError("; ".join(problems), "change the model section, or rerun make-data")


def _check_run_folder(
    output: Path, resolved: dict[str, Any], *, overwrite: bool
) -> dict[str, int] | None:
    """Check that a run that is there is this one, and return what it has decided."""
    if output.exists() and not output.is_dir():
        raise ConfigError(f"{output}: is a file; expected a run folder", "choose another --output")
    # A run that was killed at once has left its lock file and nothing else.
    if not output.exists() or {path.name for path in output.iterdir()} <= {".lock"}:
        return None
    if not (output / RUN_CONFIG).is_file():
        raise ConfigError(
            f"{output}: exists and is not a run folder (it has no {RUN_CONFIG})",
            "choose another --output",
        )
    # Read even if it will be overwritten: other programs have a config.yaml too.
    stored = read_run_config(output)
    if overwrite:
        return None
    differences = [
        f"{name}: was {stored.get(name)!r:.20}, now {resolved[name]!r:.20}"
        for name in ("seed", "data", "init_from")
        if stored.get(name) != resolved[name]
    ]
    for name, section in (("model", Model), ("pretrain", Pretrain)):
        differences += identity_differences(
            stored[name], resolved[name], section=section, prefix=f"{name}."
        )
    if differences:
        raise ConfigError(
            f"{output}: was started with other options, and going on would mix the two:\n  "
            + "\n  ".join(differences),
            "choose another --output, give the same options, or start again with --overwrite",
        )
    decided: dict[str, int] = stored["decided"]
    return decided
