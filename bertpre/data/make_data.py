"""The make-data stage: text to token store, held-out split, and an index of examples.

The tokens may also come from a data folder that is there already, or from parts of the corpus that
were tokenised elsewhere.
"""

import logging
import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bertpre.artefacts import fingerprint, stage_folder, write_manifest
from bertpre.config.load import config_to_dict
from bertpre.config.schema import MakeData
from bertpre.corpus.documents import read_documents
from bertpre.corpus.inputs import find_files
from bertpre.corpus.report import CorpusReport
from bertpre.data.dataset import PretrainingData
from bertpre.data.index import (
    DUPE_FACTOR,
    check_pairs_possible,
    count_ids,
    write_held_out_index,
    write_training_index,
)
from bertpre.data.records import map_records
from bertpre.data.report import DataReport, describe_data, most_unknown
from bertpre.data.samples import export_jsonl
from bertpre.data.split import split_documents
from bertpre.data.tokenizing import tokenize_corpus
from bertpre.data.tokens import TokenStore
from bertpre.errors import ConfigError, CorpusError
from bertpre.tokenizer.tokenizer import Tokenizer

log = logging.getLogger(__name__)

_TRUNCATED_SHARE_WARNED = 0.2

Progress = Callable[[int, int | None], None]


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
        export_jsonl_to: also write the training examples, masked, one JSON object a line.
        on_progress: told the bytes read on disk so far, and in all.

    Raises:
        BertpreError: the input, the tokenizer or an option is unusable; nothing is left behind.
    """
    config = config or MakeData()
    check_options(config)
    loaded = Tokenizer.load(tokenizer)
    export = check_export(export_jsonl_to, inputs, Path(output), overwrite=overwrite)
    identity = fingerprint(
        [stored_options(config), seed, loaded.fingerprint, input_state(inputs, config)]
    )
    with stage_folder(Path(output), kind="data", overwrite=overwrite, identity=identity) as work:
        loaded.save_files(make_folder(work / "tokenizer"))
        corpus = CorpusReport()
        documents = read_documents(
            inputs, config.text, kmer=loaded.kmer, report=corpus, on_progress=on_progress
        )
        tokenize_corpus(
            (document.sentences for document in documents),
            loaded,
            tokenizer_folder=work / "tokenizer",
            folder=make_folder(work / "tokens"),
            workers=config.workers or os.cpu_count() or 1,
            segmenter=config.word_segmenter,
        )
        report = finish_data(work, config, tokenizer=loaded, corpus=corpus, seed=seed)
    if export is not None:
        write_export(Path(output), export)
    return report


def finish_data(
    work: Path, config: MakeData, *, tokenizer: Tokenizer, corpus: CorpusReport, seed: int
) -> DataReport:
    """Draw the index over the tokens in a work folder, and complete it to a data folder.

    Args:
        work: holds ``tokenizer`` and ``tokens``.
        config: the stage's options.
        tokenizer: the one in ``tokenizer``.
        corpus: what reading the text found.
        seed: decides the split, the pairs and static masks.

    Raises:
        CorpusError: the tokens cannot give such examples.
    """
    store = TokenStore(work / "tokens")
    if store.num_tokens == 0:
        raise CorpusError(
            f"no token is left of {store.num_documents + store.empty_documents:,} documents after "
            "normalising",
            "check that --text-column names the text and that the vocabulary fits it",
        )
    splits = split_documents(store, fraction=config.eval_fraction, seed=seed)
    training, held_out = splits
    everything, unigrams = count_ids(store, held_out, tokenizer.vocab_size)
    unknown = int(everything[tokenizer.unk_id])
    _check_unknown(store, unknown, config.max_unknown_share)
    if config.objective == "mlm-nsp":
        check_pairs_possible(store, training)
    passes = config.dupe_factor or DUPE_FACTOR[config.objective]
    options = {**stored_options(config), "dupe_factor": passes}
    index = make_folder(work / f"index-{config.objective}-{config.max_seq_length}")
    drawn = write_training_index(index, training, config, seed=seed, passes=passes)
    held_out_examples = write_held_out_index(index, held_out, config, seed=seed)
    unigrams.tofile(index / "unigrams.bin")
    content = {"seed": seed, "options": options, "pass_ends": drawn.pass_ends}
    write_manifest(index, "index", content)
    report = describe_data(
        corpus,
        store,
        map_records(index / "examples.bin"),
        splits=splits,
        unigrams=unigrams,
        unknown=unknown,
        unused=drawn.unused,
        tokenizer=tokenizer,
        passes=passes,
        held_out_examples=held_out_examples,
        config=config,
        seed=seed,
        disk_bytes={
            name: sum(path.stat().st_size for path in folder.iterdir() if path.suffix == ".bin")
            for name, folder in (("tokens", work / "tokens"), ("index", index))
        },
    )
    if report.truncated_share > _TRUNCATED_SHARE_WARNED:
        is_table = config.text.pair_column is not None
        log.warning(
            "%.0f %% of the text is cut off in each pass, as its %s are long for pairs of %d "
            "tokens: %.0f on average; %s",
            100 * report.truncated_share,
            "rows" if is_table else "sentences",
            config.max_seq_length,
            store.num_tokens / (store.num_documents if is_table else store.num_sentences),
            "raise --max-seq-length"
            if is_table
            else "split them, raise --max-seq-length, or use --objective mlm, which cuts nothing "
            "off",
        )
    manifest = {
        "index": index.name,
        "tokenizer": tokenizer.fingerprint,
        "vocab_size": tokenizer.vocab_size,
        "report": asdict(report),
    }
    write_manifest(work, "data", manifest)
    return report


def check_options(config: MakeData) -> None:
    """Refuse options that contradict each other, before anything is read.

    Raises:
        ConfigError: two of them do.
    """
    if config.text.pair_column is not None and config.objective != "mlm":
        raise ConfigError(
            f"the rows of a table of pairs are examples as they are, without the next-sentence "
            f"prediction of --objective {config.objective}",
            "pass --objective mlm with --pair-column",
        )
    if config.balance_nsp and config.objective != "mlm-nsp":
        raise ConfigError(
            f"--balance-nsp has nothing to balance with --objective {config.objective}",
            "leave it out, or pass --objective mlm-nsp",
        )
    if config.mask_token_share + config.random_token_share > 1:
        raise ConfigError(
            f"make_data.mask_token_share {config.mask_token_share:g} and random_token_share "
            f"{config.random_token_share:g} are more than 1 together",
            "lower one of them; what is left of 1 stays as it is",
        )
    if config.mask_spans == "geometric" and config.whole_word_masking:
        raise ConfigError(
            "--mask-spans geometric masks whole words as it is, next to --whole-word-masking",
            "leave one of the two out",
        )


def check_export(
    given: str | Path | None, inputs: Sequence[str | Path], output: Path, *, overwrite: bool
) -> Path | None:
    """Refuse a file that cannot be written, or that is part of the input or the output.

    Raises:
        ConfigError: it is.
    """
    if given is None:
        return None
    export = Path(given)
    if output.resolve() in (export.resolve(), *export.resolve().parents):
        raise ConfigError(
            f"{export}: is in the data folder to be made, whose files are listed in its manifest",
            "choose another file",
        )
    if export.exists() and not overwrite:
        raise ConfigError(f"{export}: exists already", "choose another file, or pass --overwrite")
    if not export.parent.is_dir():
        raise ConfigError(f"{export}: there is no folder {export.parent}", "make it first")
    read = [Path(path).resolve() for path in inputs]
    if export.exists() and any(
        path in (export.resolve(), *export.resolve().parents) for path in read
    ):
        raise ConfigError(
            f"{export}: is part of the input, which --export-jsonl would replace",
            "choose another file",
        )
    return export


def write_export(folder: Path, export: Path) -> None:
    """Write the examples of a data folder that is finished by now.

    Raises:
        ConfigError: there is no room; the folder stays.
    """
    try:
        export_jsonl(PretrainingData(folder), export)
    except ConfigError as error:
        raise ConfigError(
            f"{error.message}; {folder} is finished without it",
            f"make room, then run the same command with --overwrite; --tokens {folder} and another "
            "--output, in place of the text, tokenise nothing again",
        ) from error


def make_folder(path: Path) -> Path:
    """Make a folder, or find it there from an interrupted run."""
    path.mkdir(exist_ok=True)
    return path


def stored_options(config: MakeData) -> dict[str, Any]:
    """Return the options as the manifest keeps them: what changes the content."""
    options = config_to_dict(config)
    del options["workers"]  # it changes how fast, not what
    return options


def input_state(inputs: Sequence[str | Path], config: MakeData) -> list[object]:
    """Tell inputs that changed since an interrupted run from those that did not."""
    state: list[object] = []
    for file in find_files(inputs, config.text.format, is_quiet=True):
        status = file.path.stat()
        state.append([str(file.path), status.st_size, status.st_mtime_ns])
        if file.size() is None:  # what comes through a pipe may be another text each time
            state.append(secrets.token_hex())
    return state


def _check_unknown(store: TokenStore, count: int, most: float) -> None:
    if count > most * store.num_tokens:
        named = ", ".join(f"{what!r} {number:,}" for what, number in most_unknown(store))
        raise CorpusError(
            f"{count / store.num_tokens:.1%} of the {store.num_tokens:,} tokens are [UNK], which a "
            f"model cannot learn from; expected {most:.0%} at most; most often for {named}",
            "make the vocabulary from this text, or a larger one; or allow it with "
            "--max-unknown-share",
        )
