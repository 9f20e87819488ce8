"""The make-data stage: tokens from a source, a held-out split, and an index of examples."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bertpre.artefacts import fingerprint, stage_folder, write_manifest
from bertpre.config.schema import MakeData
from bertpre.corpus.report import CorpusReport
from bertpre.data.dataset import PretrainingData, export_jsonl
from bertpre.data.index import DUPE_FACTOR, check_pairs_possible, count_ids, write_index
from bertpre.data.parts import read_parts
from bertpre.data.report import DataReport, describe_data, most_unknown
from bertpre.data.sources import (
    Progress,
    Source,
    StoredTokens,
    Text,
    check_options,
    make_folder,
    stored_options,
)
from bertpre.data.split import split_documents
from bertpre.data.tokens import TokenStore
from bertpre.errors import ConfigError, CorpusError
from bertpre.tokenizer.tokenizer import Tokenizer

log = logging.getLogger(__name__)

_TRUNCATED_SHARE_WARNED = 0.2


def make_data(
    inputs: Sequence[str | Path],
    *,
    tokenizer: str | Path,
    output: str | Path,
    config: MakeData | None = None,
    seed: int = 0,
    overwrite: bool = False,
    export_jsonl_to: str | Path | None = None,
    on_progress: Progress | None = None,
) -> DataReport:
    """Tokenise text once, hold some out, and draw examples from the rest.

    Several workers are started as new Python processes, so a script that calls this must do so
    under ``if __name__ == "__main__"``, as always in Python.

    Args:
        inputs: files or folders of text.
        tokenizer: a tokenizer folder.
        output: the data folder to make.
        config: the stage's options.
        seed: decides the split, the pairs and static masks.
        overwrite: replace a finished data folder.
        export_jsonl_to: also write the training examples, masked, one JSON object per line.
        on_progress: called with the bytes read from disk so far, and the total.

    Raises:
        BertpreError: the input, the tokenizer or an option is unusable; nothing is left behind.
    """
    config = config or MakeData()
    source = Text.find(inputs, tokenizer, config, on_progress)
    return _make_data(source, Path(output), config, seed, overwrite, export_jsonl_to)


def merge_parts(
    parts: Sequence[str | Path],
    *,
    output: str | Path,
    config: MakeData | None = None,
    seed: int = 0,
    overwrite: bool = False,
    export_jsonl_to: str | Path | None = None,
) -> DataReport:
    """Merge all parts of a corpus into a data folder, with the same bytes as a single run.

    Args:
        parts: a folder of `make_part` for each share, in any order.
        output: the data folder to make.
        config: the stage's options; those for reading text come from the parts.
        seed, overwrite, export_jsonl_to: as of `make_data`.

    Raises:
        BertpreError: a part is missing, damaged or of another corpus; or as `make_data` does.
    """
    config, tokens = config or MakeData(), read_parts(parts)
    _warn_of_other_options(tokens.options, stored_options(config))
    return _make_data(tokens, Path(output), config, seed, overwrite, export_jsonl_to)


def index_tokens(
    tokens: str | Path,
    *,
    output: str | Path,
    config: MakeData | None = None,
    seed: int = 0,
    overwrite: bool = False,
    export_jsonl_to: str | Path | None = None,
) -> DataReport:
    """Build another index over the tokens of a data folder, without tokenising again.

    With the same seed and share, the same documents are held out.

    Args:
        tokens: a data folder.
        output: the data folder to make.
        config: the stage's options; those for reading text come from the data folder.
        seed, overwrite, export_jsonl_to: as of `make_data`.

    Raises:
        BertpreError: the data folder is unusable; or as `make_data` does.
    """
    config, data = config or MakeData(), PretrainingData(tokens)
    _warn_of_another_split(data, config, seed)
    stored = StoredTokens(
        paths=[data.folder],
        corpus=data.manifest["report"]["corpus"],
        options=data.index_manifest["options"],
        fingerprints=[data.manifest["fingerprint"]],
    )
    return _make_data(stored, Path(output), config, seed, overwrite, export_jsonl_to)


def _make_data(
    source: Source,
    output: Path,
    config: MakeData,
    seed: int,
    overwrite: bool,
    export_jsonl_to: str | Path | None,
) -> DataReport:
    """Make a data folder from the tokens of any source."""
    config = source.complete(config, output)
    check_options(config)
    export = None if export_jsonl_to is None else Path(export_jsonl_to)
    if export is not None:
        _check_export(export, source.paths, output, overwrite=overwrite)
    identity = fingerprint([stored_options(config), seed, *source.identity(config)])
    with stage_folder(output, kind="data", overwrite=overwrite, identity=identity) as work:
        tokenizer, corpus = source.write_tokens(work, config)
        report = _write_index(
            work,
            config,
            tokenizer=tokenizer,
            corpus=corpus,
            seed=seed,
            has_columns=source.has_columns(config),
        )
    if export is not None:
        _write_export(output, export)
    return report


def _write_index(
    work: Path,
    config: MakeData,
    *,
    tokenizer: Tokenizer,
    corpus: CorpusReport,
    seed: int,
    has_columns: bool,
) -> DataReport:
    """Draw the index over the tokens in a work folder, describe both, and finish the folder."""
    store = TokenStore(work / "tokens")
    if store.num_tokens == 0:
        raise CorpusError(
            f"no token is left after normalising {store.num_documents + store.empty_documents:,} "
            "documents",
            "check that --text-column names the text and that the vocabulary fits it",
        )
    splits = training, held_out = split_documents(store, fraction=config.eval_fraction, seed=seed)
    counts = count_ids(store, held_out, tokenizer.vocab_size)
    _check_unknown(store, int(counts.everywhere[tokenizer.unk_id]), config.max_unknown_share)
    if config.objective == "mlm-nsp":
        check_pairs_possible(store, training, has_columns=has_columns)
    passes = config.dupe_factor or DUPE_FACTOR[config.objective]
    index = make_folder(work / f"index-{config.objective}-{config.max_seq_length}")
    drawn = write_index(index, splits, config, seed=seed, passes=passes)
    counts.in_training.tofile(index / "unigrams.bin")
    options = {**stored_options(config), "dupe_factor": passes}
    content = {"seed": seed, "options": options, "pass_ends": drawn.pass_ends}
    write_manifest(index, "index", content)
    report = describe_data(
        index,
        store,
        corpus=corpus,
        splits=splits,
        counts=counts,
        drawn=drawn,
        tokenizer=tokenizer,
        config=config,
        seed=seed,
    )
    _warn_of_cut_text(report, config)
    manifest = {
        "index": index.name,
        "tokenizer": tokenizer.fingerprint,
        "vocab_size": tokenizer.vocab_size,
        "report": asdict(report),
    }
    write_manifest(work, "data", manifest)
    return report


def _check_export(export: Path, inputs: Sequence[Path], output: Path, *, overwrite: bool) -> None:
    """Refuse a file that cannot be written, or that is part of the input or the output."""
    if output.resolve() in (export.resolve(), *export.resolve().parents):
        raise ConfigError(
            f"{export}: would be in the data folder, whose manifest lists all of its files",
            "choose another file",
        )
    if export.exists() and not overwrite:
        raise ConfigError(f"{export}: exists already", "choose another file, or pass --overwrite")
    if not export.parent.is_dir():
        raise ConfigError(f"{export}: there is no folder {export.parent}", "create it first")
    read = [path.resolve() for path in inputs]
    if export.exists() and any(
        path in (export.resolve(), *export.resolve().parents) for path in read
    ):
        raise ConfigError(
            f"{export}: is part of the input, which --export-jsonl would replace",
            "choose another file",
        )


def _write_export(folder: Path, export: Path) -> None:
    """Export the examples of a finished data folder."""
    try:
        export_jsonl(PretrainingData(folder, check_content=False), export)
    except ConfigError as error:
        raise ConfigError(
            f"{error.message}; {folder} is finished without it",
            f"make room, then run the same command with --overwrite; or, to tokenise nothing "
            f"again, replace the text by --tokens {folder} and choose another --output",
        ) from error


def _warn_of_cut_text(report: DataReport, config: MakeData) -> None:
    """Warn if much of the text is in no example because its sentences are too long."""
    if report.truncated_share <= _TRUNCATED_SHARE_WARNED:
        return
    is_table = config.text.pair_column is not None
    log.warning(
        "%.0f %% of the text is cut off in each pass, as its %s are long for pairs of %d "
        "tokens: %.0f on average; %s",
        100 * report.truncated_share,
        "rows" if is_table else "sentences",
        config.max_seq_length,
        report.tokens / (report.documents if is_table else report.sentences),
        "raise --max-seq-length"
        if is_table
        else "split them, raise --max-seq-length, or use --objective mlm, which cuts nothing off",
    )


def _warn_of_other_options(before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Warn of the parts' options for examples that differ from those of the merge."""
    differing = [
        f"{name} (then {before[name]!r}, now {now[name]!r})"
        for name in sorted((now.keys() & before.keys()) - {"text", "word_segmenter"})
        if before[name] != now[name]
    ]
    if differing:
        log.warning(
            "the parts were made with other options for examples; only those of --merge count: %s",
            ", ".join(differing),
        )


def _warn_of_another_split(data: PretrainingData, config: MakeData, seed: int) -> None:
    """Warn that each folder trains on documents that the other one holds out."""
    then = {"seed": data.seed, "eval_fraction": data.index_manifest["options"]["eval_fraction"]}
    now = {"seed": seed, "eval_fraction": config.eval_fraction}
    differing = [f"{name} {then[name]:g} there, {now[name]:g} here" for name in then
                 if then[name] != now[name]]  # fmt: skip
    if differing:
        log.warning(
            "the held-out documents differ from those of %s (%s), so do not train on one folder "
            "and evaluate on the other, or continue a run on one with the other",
            data.folder,
            "; ".join(differing),
        )


def _check_unknown(store: TokenStore, count: int, most: float) -> None:
    if count > most * store.num_tokens:
        named = ", ".join(f"{what!r} {number:,}" for what, number in most_unknown(store))
        raise CorpusError(
            f"{count / store.num_tokens:.1%} of the {store.num_tokens:,} tokens are [UNK], which a "
            f"model cannot learn from; expected at most {most:.0%}; most often for {named}",
            "build the vocabulary from this text, or a larger one; or allow more with "
            "--max-unknown-share",
        )
