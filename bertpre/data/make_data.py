"""The make-data stage: text to token store, held-out split, and an index of examples."""

import logging
import os
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bertpre.artefacts import fingerprint, stage_folder, write_manifest
from bertpre.config.load import config_to_dict
from bertpre.config.schema import MakeData
from bertpre.data.dataset import PretrainingData, map_records, mask_spec_of
from bertpre.data.export import export_jsonl
from bertpre.data.pairs import (
    RECORD,
    SplitDocuments,
    draw_pairs,
    pack_sentences,
    take_pairs,
    to_records,
)
from bertpre.data.random64 import derive, permute
from bertpre.data.report import DataReport, describe_data, most_unknown
from bertpre.data.split import split_documents
from bertpre.data.tokenizing import tokenize_corpus
from bertpre.data.tokens import TokenStore
from bertpre.errors import ConfigError, CorpusError
from bertpre.text.corpus import read_documents
from bertpre.text.corpus_report import CorpusReport
from bertpre.text.inputs import find_files
from bertpre.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)

MOST_HELD_OUT = 10_000
_TRUNCATED_SHARE_WARNED = 0.2
DUPE_FACTOR = {"mlm-nsp": 5, "mlm": 1}  # with one pass, the pairs would be memorised

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
    output = Path(output)
    loaded = Tokenizer.load(tokenizer)
    options = config_to_dict(config)
    del options["workers"]  # it changes how fast, not what
    passes = config.dupe_factor or DUPE_FACTOR[config.objective]
    if config.text.pair_column is not None and config.objective != "mlm":
        raise ConfigError(
            f"the rows of a table of pairs are examples as they are, without the next-sentence "
            f"prediction of --objective {config.objective}",
            "pass --objective mlm with --pair-column",
        )
    export = None if export_jsonl_to is None else Path(export_jsonl_to)
    if export is not None and export.exists() and not overwrite:
        raise ConfigError(f"{export}: exists already", "choose another file, or pass --overwrite")
    if export is not None:
        _check_export(export, inputs)
    state = _input_state(inputs, config)
    identity = fingerprint([options, seed, loaded.fingerprint, state])
    with stage_folder(output, kind="data", overwrite=overwrite, identity=identity) as work:
        loaded.save_files(_folder(work / "tokenizer"))
        tokens = _folder(work / "tokens")
        corpus = CorpusReport()
        documents = read_documents(
            inputs, config.text, kmer=loaded.kmer, report=corpus, on_progress=on_progress
        )
        tokenize_corpus(
            (document.sentences for document in documents),
            tokenizer_folder=work / "tokenizer",
            folder=tokens,
            workers=config.workers or os.cpu_count() or 1,
        )
        store = TokenStore(tokens)
        _check_unknown(store, loaded, config.max_unknown_share)
        training, held_out = split_documents(store, fraction=config.eval_fraction, seed=seed)
        if config.objective == "mlm-nsp":
            _check_pairs_possible(store, training)
        index = _folder(work / f"index-{config.objective}-{config.max_seq_length}")
        pass_ends = _write_training_index(index, training, config, seed=seed, passes=passes)
        held_out_examples = _write_held_out_index(index, held_out, config, seed=seed)
        unigrams = _count_ids(store, held_out, loaded.vocab_size)
        unigrams.tofile(index / "unigrams.bin")
        write_manifest(
            index,
            "index",
            {"seed": seed, "options": {**options, "dupe_factor": passes}, "pass_ends": pass_ends},
        )
        report = describe_data(
            corpus,
            store,
            map_records(index / "examples.bin"),
            splits=(training, held_out),
            unigrams=unigrams,
            unknown_id=loaded.unk_id,
            passes=passes,
            held_out_examples=held_out_examples,
            max_seq_length=config.max_seq_length,
            mask_spec=mask_spec_of(options),
        )
        if report.truncated_share > _TRUNCATED_SHARE_WARNED:
            log.warning(
                "%.0f %% of the text is cut off in each pass, as its sentences are long for pairs "
                "of %d tokens: %.0f on average; split them, raise --max-seq-length, or use "
                "--objective mlm, which cuts nothing off",
                100 * report.truncated_share,
                config.max_seq_length,
                store.num_tokens / store.num_sentences,
            )
        manifest = {
            "index": index.name,
            "tokenizer": loaded.fingerprint,
            "vocab_size": loaded.vocab_size,
            "report": asdict(report),
        }
        write_manifest(work, "data", manifest)
    if export is not None:
        export_jsonl(PretrainingData(output), export)
    return report


def _check_export(export: Path, inputs: Sequence[str | Path]) -> None:
    """Refuse a file that cannot be written, or that is part of the input, before any work."""
    if not export.parent.is_dir():
        raise ConfigError(f"{export}: there is no folder {export.parent}", "make it first")
    read = [Path(given).resolve() for given in inputs]
    if export.exists() and any(
        path in (export.resolve(), *export.resolve().parents) for path in read
    ):
        raise ConfigError(
            f"{export}: is part of the input, which --export-jsonl would replace",
            "choose another file",
        )


def _folder(path: Path) -> Path:
    path.mkdir(exist_ok=True)
    return path


def _input_state(inputs: Sequence[str | Path], config: MakeData) -> list[object]:
    """Tell inputs that changed since an interrupted run from those that did not."""
    state: list[object] = []
    for file in find_files(inputs, config.text.format, is_quiet=True):
        status = file.path.stat()
        state.append([str(file.path), status.st_size, status.st_mtime_ns])
        if file.size() is None:  # what comes through a pipe may be another text each time
            state.append(secrets.token_hex())
    return state


def _check_unknown(store: TokenStore, tokenizer: Tokenizer, most: float) -> None:
    count = sum(int((block == tokenizer.unk_id).sum()) for block in store.id_blocks())
    if count > most * store.num_tokens:
        named = ", ".join(f"{what!r} {number:,}" for what, number in most_unknown(store))
        raise CorpusError(
            f"{count / store.num_tokens:.1%} of the {store.num_tokens:,} tokens are [UNK], which a "
            f"model cannot learn from; expected {most:.0%} at most; most often for {named}",
            "make the vocabulary from this text, or a larger one; or allow it with "
            "--max-unknown-share",
        )


def _check_pairs_possible(store: TokenStore, training: SplitDocuments) -> None:
    hint = (
        "separate documents by blank lines, cut longer texts with --sentences split or window:N, "
        "or turn next-sentence prediction off with --objective mlm"
    )
    if training.num_distinct < 2:
        raise CorpusError(
            f"next-sentence prediction needs two different documents to draw random sentences "
            f"from; found documents: {store.num_documents:,}, different ones: "
            f"{training.num_distinct}, sentences: {store.num_sentences:,}",
            hint,
        )
    one = int((training.last - training.first == 1).sum())
    if one == len(training):
        raise CorpusError(
            f"next-sentence prediction needs documents of two sentences or more; 100 % of the "
            f"{one:,} training documents have one",
            hint,
        )
    if one > len(training) / 2:
        log.warning(
            "%d of %d training documents (%.0f %%) have one sentence and only give random pairs; "
            "--objective mlm may suit this text better",
            one,
            len(training),
            100 * one / len(training),
        )


def _rows_of_pass(
    documents: SplitDocuments, config: MakeData, *, key: int
) -> Iterable[list[tuple[int, int, int, int, int]]]:
    if config.text.pair_column is not None:
        return take_pairs(documents, max_seq_length=config.max_seq_length)
    if config.objective == "mlm":
        return pack_sentences(documents, max_seq_length=config.max_seq_length)
    return draw_pairs(
        documents,
        max_seq_length=config.max_seq_length,
        short_seq_prob=config.short_seq_prob,
        key=key,
    )


def _write_training_index(
    index: Path, training: SplitDocuments, config: MakeData, *, seed: int, passes: int
) -> list[int]:
    """Write ``examples.bin`` and return how many examples there are after each pass."""
    ends, total = [], 0
    with (index / "examples.bin").open("wb") as file:
        for number in range(passes):
            rows = iter(_rows_of_pass(training, config, key=derive(seed, "pairs", number)))
            # A block of documents at a time, so that memory does not grow with the corpus.
            while block := list(islice(rows, 10_000)):
                records = to_records([row for document in block for row in document])
                file.write(records.tobytes())
                total += len(records)
            ends.append(total)
    return ends


def _write_held_out_index(
    index: Path, held_out: SplitDocuments, config: MakeData, *, seed: int
) -> int:
    """Write ``held-out.bin``, of one pass, and return how many examples it has."""
    records = np.zeros(0, RECORD)
    if len(held_out) == 0:
        if config.eval_fraction > 0:
            log.warning(
                "no document has a third sentence to hold out, so there is no held-out loss"
            )
    elif config.objective == "mlm-nsp" and held_out.num_distinct < 2:
        log.warning("the held-out text is one document: no held-out examples, as NSP needs two")
    else:
        rows = _rows_of_pass(held_out, config, key=derive(seed, "held-out pairs"))
        records = to_records([row for document in rows for row in document])
    if len(records) > MOST_HELD_OUT:
        key = derive(seed, "held-out sample")
        records = records[np.sort(permute(np.arange(MOST_HELD_OUT), len(records), key))]
    records.tofile(index / "held-out.bin")
    return len(records)


def _count_ids(
    store: TokenStore, held_out: SplitDocuments, vocab_size: int
) -> npt.NDArray[np.int64]:
    """Count each id in the training text: the unigram model that a loss is compared with."""
    counts = np.zeros(vocab_size, np.int64)
    for block in store.id_blocks():
        counts += np.bincount(block, minlength=vocab_size)
    for document in range(len(held_out)):
        offsets = held_out.offsets(document)
        ids, _ = store.gather(np.array([offsets[0]]), lengths=np.array([offsets[-1] - offsets[0]]))
        counts -= np.bincount(ids, minlength=vocab_size)
    return counts
