"""Which folders belong together: manifests know fingerprints, and no paths."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bertpre.artefacts import MANIFEST, Kind, read_manifest
from bertpre.errors import ConfigError, DataFormatError
from bertpre.tokenizer.folder import BACKEND, VOCAB
from bertpre.training.run_folder import RUN_CONFIG, read_run_config

# What a checkpoint has as its tokenizer has; the settings beside it state the longest input too.
_OF_TOKENIZERS = (VOCAB, BACKEND)


class Chain(NamedTuple):
    """The folders that a run was made from, and those made from it.

    Attributes:
        run: the run folder.
        tokenizer, data: None if they were not found.
        models: fine-tuned from one of the run's checkpoints, by name.
    """

    run: Path
    tokenizer: Path | None
    data: Path | None
    models: tuple[Path, ...]


def find_chain(
    run: str | Path,
    *,
    tokenizer: str | Path | None = None,
    data: str | Path | None = None,
    models: Sequence[str | Path] = (),
) -> Chain:
    """Find what belongs to a run: what is named, and what lies beside it and fits it.

    Args:
        run: a run folder.
        tokenizer, data: where they are if not beside the run.
        models: fine-tuned models that are not beside the run.

    Raises:
        DataFormatError: ``run`` is no run folder, or a folder that is named is not whole.
        ConfigError: a folder that is named belongs to another run.
    """
    run = Path(run)
    if not (run / RUN_CONFIG).is_file():
        raise DataFormatError(
            f"{run}: expected a run folder, with {RUN_CONFIG} in it",
            "name the folder that `bertpre pretrain` wrote; of any other, see `bertpre inspect`",
        )
    data_fingerprint = read_run_config(run).data
    checkpoints = list(_manifests([*run.glob("checkpoints/step-*"), run / "final"]))
    beside = sorted(path for path in run.resolve().parent.iterdir() if path.is_dir())
    # Shown as the user named the run, not with the whole path.
    around = dict(_manifests(run.parent / path.name for path in beside))

    def is_data(manifest: Mapping[str, Any]) -> bool:
        return bool(manifest["fingerprint"] == data_fingerprint)

    pieces = [_files(manifest, _OF_TOKENIZERS) for _, manifest in checkpoints]
    weights = [manifest["fingerprint"] for _, manifest in checkpoints]

    def is_tokenizer(manifest: Mapping[str, Any]) -> bool:
        return _files(manifest, _OF_TOKENIZERS) in pieces

    def is_model(manifest: Mapping[str, Any]) -> bool:
        return manifest.get("from") in weights

    found = {
        "data": _pick(data, "data", is_data, around, "the run's config names another"),
        "tokenizer": _pick(
            tokenizer, "tokenizer", is_tokenizer, around, "the run's checkpoints hold another"
        ),
    }
    kept = [
        path for path, content in around.items() if content["kind"] == "model" and is_model(content)
    ]
    for model in map(Path, models):
        picked = _pick(model, "model", is_model, {}, "it was fine-tuned from other weights")
        if picked is not None and picked.resolve() not in [path.resolve() for path in kept]:
            kept.append(picked)
    return Chain(run, found["tokenizer"], found["data"], tuple(kept))


def _pick(
    named: str | Path | None,
    kind: Kind,
    belongs: Callable[[Mapping[str, Any]], bool],
    around: Mapping[Path, dict[str, Any]],
    why_not: str,
) -> Path | None:
    if named is not None:
        named = Path(named)
        if not belongs(read_manifest(named, kind)):
            raise ConfigError(
                f"{named}: does not belong to this run: {why_not}",
                "name another folder, or leave the option out",
            )
        return named
    fitting = [
        path for path, content in around.items() if content["kind"] == kind and belongs(content)
    ]
    return fitting[0] if fitting else None


def _manifests(folders: Iterable[Path]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Read the manifests of bertpre's folders; what is none of them is passed over."""
    for folder in folders:
        try:
            stated = json.loads((folder / MANIFEST).read_text(encoding="utf-8")).get("kind")
            yield folder, read_manifest(folder, stated)
        except (OSError, ValueError, AttributeError, LookupError, DataFormatError):
            continue


def _files(manifest: Mapping[str, Any], names: Sequence[str]) -> dict[str, str]:
    files = manifest["files"]
    return {name: files[name]["sha256"] for name in names if name in files}
