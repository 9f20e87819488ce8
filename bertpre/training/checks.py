"""Checks that need neither PyTorch nor the device."""

import importlib.util
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from bertpre.artefacts import MANIFEST, check_files, check_unlocked, read_manifest
from bertpre.config.load import config_to_dict, identity_differences
from bertpre.config.schema import Config, Model, Pretrain
from bertpre.errors import ConfigError
from bertpre.training.init_from import find_origin
from bertpre.training.run_folder import RUN_CONFIG, RunConfig, read_run_config
from bertpre.training.schedule import decay_steps, planned_steps


class RunPlan(NamedTuple):
    """A run that can start.

    Attributes:
        config: what the run folder's config.yaml will hold; ``decided`` comes from a run that
            exists already.
        is_finished: the run is complete already.
        max_steps: updates in the run; None if they must be measured first.
        init_from: the checkpoint with the initial weights.
        reopened_after: the last step whose checkpoint a longer run can use.
    """

    config: RunConfig
    is_finished: bool
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
    """Check a run's options against its data and its existing folder.

    Args:
        data: a data folder.
        output: the run folder; one with equal identity options is resumed.
        config: the experiment's options.
        overwrite: start an existing run again.
        extend_to: more steps for an existing run.

    Raises:
        BertpreError: names all contradictions, with both values.
    """
    data, output = Path(data), Path(output)
    manifest = read_manifest(data, "data")
    check_files(data, manifest, content=False)
    options = read_manifest(data / manifest["index"], "index")["options"]
    _check_model(config.model, manifest["vocab_size"], options["max_seq_length"], data)
    _check_masks(config.pretrain, options, data)
    planned = planned_steps(config.pretrain, manifest["report"])
    _check_options(config.pretrain, manifest["report"], data)
    origin = find_origin(config, run=None if overwrite else output)
    if overwrite and origin.folder is not None and _is_inside(origin.folder, output):
        raise ConfigError(
            f"{output}: --overwrite would remove {origin.folder}, from which the run starts",
            "choose another --output",
        )
    if (output / ".lock").is_file():  # before the summary of a run that cannot start
        check_unlocked(output / ".lock", str(output))
    asked = RunConfig(
        seed=config.seed,
        data=manifest["fingerprint"],
        init_from=origin.fingerprint,
        model={**config_to_dict(config.model), "vocab_size": manifest["vocab_size"]},
        pretrain=config_to_dict(config.pretrain),
        decided=None,
    )
    stored = _read_run(output)
    if stored is None or overwrite:
        if extend_to is not None:
            raise ConfigError(f"{output}: there is no run to extend", "leave out --extend-to")
        return RunPlan(asked, False, planned, origin.folder)
    _check_same_run(stored, asked, output)
    assert stored.decided is not None
    before, asked = stored.decided["max_steps"], replace(asked, decided=stored.decided)
    if extend_to is None or extend_to == before:
        is_finished = (output / "final" / MANIFEST).is_file()
        return RunPlan(asked, is_finished, before, origin.folder)
    last = _check_extension(output, config.pretrain, before, extend_to)
    return RunPlan(asked, False, extend_to, origin.folder, last)


def check_before_data(config: Config, *, data: Path, run: Path) -> None:
    """Check a run's options against those that its data will be made with.

    Args:
        config: the options of both.
        data: where the data folder will be.
        run: the run folder, if it exists.

    Raises:
        BertpreError: as `check_pretraining`, as far as can be known before the data exists.
    """
    made = config_to_dict(config.make_data)
    _check_model(config.model, config.model.vocab_size, made["max_seq_length"], data)
    _check_masks(config.pretrain, made, data)
    held_out = config.make_data.eval_fraction > 0
    report = {"training_examples": 1, "mean_length": 1.0, "held_out_examples": held_out}
    planned_steps(config.pretrain, report)
    _check_options(config.pretrain, report, data)
    find_origin(config, run=run)


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
            f"pretrain.initial_global_batch_size: {initial} is larger than "
            f"pretrain.global_batch_size: {options.global_batch_size}, to which it grows",
            "lower the first, or raise the second",
        )
    if patience is not None and not report["held_out_examples"]:
        raise ConfigError(
            f"pretrain.early_stopping_evals: {patience}, but {data} has no held-out examples to "
            "evaluate",
            "leave it out, or make the data folder from more documents or a larger --eval-fraction",
        )
    if options.tensorboard and importlib.util.find_spec("tensorboard") is None:
        raise ConfigError(
            "pretrain.tensorboard: the package tensorboard is not installed",
            "pip install 'bertpre[tensorboard]'",
        )


def _is_inside(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())


def _read_run(output: Path) -> RunConfig | None:
    """Return the options of a run folder; None if the folder is new."""
    if output.exists() and not output.is_dir():
        raise ConfigError(f"{output}: is a file; expected a run folder", "choose another --output")
    # A run that was killed at once leaves only its lock file.
    if not output.exists() or {path.name for path in output.iterdir()} <= {".lock"}:
        return None
    if not (output / RUN_CONFIG).is_file():
        raise ConfigError(
            f"{output}: exists and is not a run folder (it has no {RUN_CONFIG})",
            "choose another --output",
        )
    # Read even if it will be overwritten: other programs have a config.yaml too.
    return read_run_config(output)


def _check_same_run(stored: RunConfig, asked: RunConfig, output: Path) -> None:
    differences = [
        f"{name}: was {getattr(stored, name)!r:.20}, now {getattr(asked, name)!r:.20}"
        for name in ("seed", "data", "init_from")
        if getattr(stored, name) != getattr(asked, name)
    ]
    for name, section in (("model", Model), ("pretrain", Pretrain)):
        differences += identity_differences(
            getattr(stored, name), getattr(asked, name), section=section, prefix=f"{name}."
        )
    if differences:
        raise ConfigError(
            f"{output}: was started with other options, which a resume would mix:\n  "
            + "\n  ".join(differences),
            "choose another --output, use the same options, or start again with --overwrite",
        )


def _check_extension(output: Path, options: Pretrain, max_steps: int, extend_to: int) -> int:
    """Return the last step that a run shares with a longer one."""
    schedule = options.schedule
    if schedule.name not in ("constant", "wsd"):
        raise ConfigError(
            f"--extend-to {extend_to}: the {schedule.name} schedule decays over the whole run, so "
            "a longer run is a different one",
            "start a run with pretrain.schedule.name constant or wsd, or start one from these "
            "weights with --init-from",
        )
    if options.final_mlm_probability is not None:
        raise ConfigError(
            f"--extend-to {extend_to}: the mask rate changes over the whole run to "
            f"pretrain.final_mlm_probability: {options.final_mlm_probability:g}, so a "
            "longer run is a different one",
            "start one from these weights with --init-from",
        )
    if extend_to < max_steps:
        raise ConfigError(f"--extend-to {extend_to}: the run has {max_steps} steps", "ask for more")
    last = max_steps
    if schedule.name == "wsd":
        last -= decay_steps(schedule, max_steps)
    steps = [int(folder.name[5:]) for folder in (output / "checkpoints").glob("step-*")]
    if not any(step <= last for step in steps):
        raise ConfigError(
            f"{output}: has no checkpoint up to step {last}, where its learning rate was still "
            f"constant; found steps {', '.join(map(str, sorted(steps))) or 'none'}",
            "in the next run, keep more with pretrain.keep_checkpoints and save_every_steps",
        )
    return last
