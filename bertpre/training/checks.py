"""What can be known to be wrong before PyTorch is imported and the device is touched."""

from pathlib import Path
from typing import Any, NamedTuple

from bertpre.artefacts import MANIFEST, check_files, read_manifest
from bertpre.config.load import config_to_dict, identity_differences
from bertpre.config.schema import Config, Model, Pretrain
from bertpre.errors import ConfigError
from bertpre.training.run_folder import RUN_CONFIG, read_run_config


class RunPlan(NamedTuple):
    """A run that can start.

    Attributes:
        resolved: what the run folder's config.yaml holds.
        is_finished: the folder has been trained to the end already.
    """

    resolved: dict[str, Any]
    is_finished: bool


def check_pretraining(
    data: str | Path, *, output: str | Path, config: Config, overwrite: bool = False
) -> RunPlan:
    """Check a run's options against its data and against what its folder holds already.

    Args:
        data: a data folder.
        output: the run folder; one with equal identity options is gone on with.
        config: the experiment's options.
        overwrite: an existing run folder will be started again.

    Raises:
        BertpreError: names everything that contradicts, and both values.
    """
    data, output = Path(data), Path(output)
    manifest = read_manifest(data, "data")
    check_files(data, manifest, content=False)
    options = read_manifest(data / manifest["index"], "index")["options"]
    _check_model(config.model, manifest["vocab_size"], options["max_seq_length"], data)
    if config.pretrain.mlm_probability is not None and options["masking"] == "static":
        raise ConfigError(
            f"pretrain.mlm_probability: {config.pretrain.mlm_probability}, but the masks of {data} "
            f"are static, drawn at {options['mlm_probability']}",
            "leave it out, or rerun make-data with --masking dynamic",
        )
    resolved = {
        "seed": config.seed,
        "data": manifest["fingerprint"],
        "model": {**config_to_dict(config.model), "vocab_size": manifest["vocab_size"]},
        "pretrain": config_to_dict(config.pretrain),
    }
    is_finished = (output / "final" / MANIFEST).is_file()
    _check_run_folder(output, resolved, overwrite=overwrite)
    return RunPlan(resolved, is_finished and not overwrite)


def _check_model(model: Model, vocab_size: int, max_seq_length: int, data: Path) -> None:
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


def _check_run_folder(output: Path, resolved: dict[str, Any], *, overwrite: bool) -> None:
    if output.exists() and not output.is_dir():
        raise ConfigError(f"{output}: is a file; expected a run folder", "choose another --output")
    # A run that was killed at once has left its lock file and nothing else.
    if not output.exists() or {path.name for path in output.iterdir()} <= {".lock"}:
        return
    if not (output / RUN_CONFIG).is_file():
        raise ConfigError(
            f"{output}: exists and is not a run folder (it has no {RUN_CONFIG})",
            "choose another --output",
        )
    # Read even if it will be overwritten: other programs have a config.yaml too.
    stored = read_run_config(output)
    if overwrite:
        return
    differences = [
        f"{name}: was {stored[name]!r:.20}, now {resolved[name]!r:.20}"
        for name in ("seed", "data")
        if stored[name] != resolved[name]
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
