"""Data folders from tokens that are there already: another index, or parts put together.

The tokens are hard links where the file system has them, else copies. Either way each folder stands
alone: any may be deleted or moved without the others, and links take no disk.
"""

import contextlib
import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bertpre.artefacts import fingerprint, stage_folder
from bertpre.config.load import config_to_dict
from bertpre.config.schema import MakeData
from bertpre.corpus.report import CorpusReport
from bertpre.data.dataset import PretrainingData
from bertpre.data.make_data import (
    check_export,
    check_options,
    finish_data,
    make_folder,
    stored_options,
    write_export,
)
from bertpre.data.parts import read_parts
from bertpre.data.report import DataReport
from bertpre.errors import ConfigError, DataFormatError
from bertpre.tokenizer.tokenizer import Tokenizer

log = logging.getLogger(__name__)


class _Source(NamedTuple):
    """Folders whose tokens together are those of one corpus, and what their manifests tell."""

    folders: list[Path]
    corpus: CorpusReport
    text: dict[str, Any]
    word_segmenter: str
    fingerprints: list[str]


def merge_parts(
    parts: Sequence[str | Path],
    *,
    output: str | Path,
    config: MakeData | None = None,
    seed: int = 0,
    overwrite: bool = False,
    export_jsonl_to: str | Path | None = None,
) -> DataReport:
    """Put all parts of a corpus together to a data folder, the same bytes as of one run.

    Args:
        parts: a folder of `make_part` for each share, in any order.
        output: the data folder to make.
        config: the stage's options; how text is read is what the parts say.
        seed, overwrite, export_jsonl_to: as of `bertpre.data.make_data.make_data`.

    Raises:
        BertpreError: a part is missing, damaged or of another corpus; or as `make_data` does.
    """
    manifests = read_parts(parts)
    first = next(iter(manifests))
    source = _Source(
        folders=list(manifests),
        corpus=_read_corpus(manifests[first]["corpus"]),
        text=manifests[first]["text"],
        word_segmenter=manifests[first]["word_segmenter"],
        fingerprints=sorted(manifest["fingerprint"] for manifest in manifests.values()),
    )
    _warn_of_other_options(manifests[first]["options"], config or MakeData())
    return _make_from(source, output, config, seed, overwrite, export_jsonl_to)


def _warn_of_other_options(before: Mapping[str, Any], config: MakeData) -> None:
    """Say which options the parts were given that do not hold for the merge."""
    now = stored_options(config)
    differing = [
        f"{name} (then {before[name]!r}, now {now[name]!r})"
        for name in sorted((now.keys() & before.keys()) - {"text", "word_segmenter"})
        if before[name] != now[name]
    ]
    if differing:
        log.warning(
            "the parts were made with other options for examples, which only --merge decides: %s",
            ", ".join(differing),
        )


def index_tokens(
    tokens: str | Path,
    *,
    output: str | Path,
    config: MakeData | None = None,
    seed: int = 0,
    overwrite: bool = False,
    export_jsonl_to: str | Path | None = None,
) -> DataReport:
    """Draw another index over the tokens of a data folder; nothing is tokenised again.

    With the same seed and share, the same documents are held out.

    Args:
        tokens: a data folder.
        output: the data folder to make.
        config: the stage's options; how text is read is what the data folder says.
        seed, overwrite, export_jsonl_to: as of `bertpre.data.make_data.make_data`.

    Raises:
        BertpreError: the data folder is unusable; or as `make_data` does.
    """
    data = PretrainingData(tokens)
    options = data.index_manifest["options"]
    _warn_of_another_split(data, config or MakeData(), seed)
    source = _Source(
        folders=[data.folder],
        corpus=_read_corpus(data.manifest["report"]["corpus"]),
        text=options["text"],
        word_segmenter=options.get("word_segmenter", "none"),
        fingerprints=[data.manifest["fingerprint"]],
    )
    return _make_from(source, output, config, seed, overwrite, export_jsonl_to)


def _warn_of_another_split(data: PretrainingData, config: MakeData, seed: int) -> None:
    """Say that a model trained on both folders sees in one what is held out in the other."""
    then = {"seed": data.seed, "eval_fraction": data.index_manifest["options"]["eval_fraction"]}
    now = {"seed": seed, "eval_fraction": config.eval_fraction}
    differing = [f"{name} {then[name]:g} there, {now[name]:g} here" for name in then
                 if then[name] != now[name]]  # fmt: skip
    if differing:
        log.warning(
            "other documents are held out than in %s (%s), so do not train on one folder and "
            "measure on the other, or go on from a run on one with the other",
            data.folder,
            "; ".join(differing),
        )


def _make_from(
    source: _Source,
    output: str | Path,
    config: MakeData | None,
    seed: int,
    overwrite: bool,
    export_jsonl_to: str | Path | None,
) -> DataReport:
    config = _with_text_of(source, config or MakeData())
    check_options(config)
    export = check_export(export_jsonl_to, source.folders, Path(output), overwrite=overwrite)
    if Path(output).resolve() in [folder.resolve() for folder in source.folders]:
        raise ConfigError(
            f"{output}: is the folder that the tokens are taken from", "choose another --output"
        )
    identity = fingerprint([stored_options(config), seed, source.fingerprints])
    with stage_folder(Path(output), kind="data", overwrite=overwrite, identity=identity) as work:
        _link_files(source.folders[0] / "tokenizer", make_folder(work / "tokenizer"))
        for folder in source.folders:
            _link_files(folder / "tokens", make_folder(work / "tokens"))
        tokenizer = Tokenizer.load(work / "tokenizer")
        report = finish_data(work, config, tokenizer=tokenizer, corpus=source.corpus, seed=seed)
    if export is not None:
        write_export(Path(output), export)
    return report


def _with_text_of(source: _Source, config: MakeData) -> MakeData:
    """Take how the text was read from the tokens, unless the options say something else."""
    options = config_to_dict(config)
    defaults = config_to_dict(MakeData())
    made_with = {
        **{f"text.{name}": value for name, value in source.text.items()},
        "word_segmenter": source.word_segmenter,
    }
    for name, stored in made_with.items():
        key = name.removeprefix("text.")
        stated, default = (
            (values["text"] if key != name else values).get(key) for values in (options, defaults)
        )
        if stated not in (stored, default):
            raise ConfigError(
                f"make_data.{name}: {stated!r}, but the tokens were made with {stored!r}",
                "leave it out, or tokenise the text again",
            )
    try:
        return MakeData(**{**options, "text": source.text, "word_segmenter": source.word_segmenter})
    except ValueError as error:  # pydantic's
        unknown = ", ".join(source.text.keys() - defaults["text"].keys()) or "other values"
        raise DataFormatError(
            f"{source.folders[0]}: another version of bertpre read its text, with {unknown}",
            "tokenise the text again",
        ) from error


def _read_corpus(stored: dict[str, Any]) -> CorpusReport:
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in stored.items()
    }
    try:
        return CorpusReport(**values)
    except TypeError as error:
        raise DataFormatError(
            f"the manifest's report of the corpus is of another version of bertpre ({error})",
            "tokenise the text again",
        ) from error


def _link_files(source: Path, target: Path) -> None:
    for path in sorted(source.iterdir()):
        there = target / path.name
        with contextlib.suppress(FileNotFoundError):  # from an interrupted run
            there.unlink()
        try:
            os.link(path, there)
        except OSError:  # another disk, or a file system without links
            # Not shutil.copyfile, which blames the file that it reads when the disk is full.
            with path.open("rb") as original, there.open("wb") as copy:
                shutil.copyfileobj(original, copy)
