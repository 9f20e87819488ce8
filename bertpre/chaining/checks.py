"""Checks before the first stage of a chain starts."""

import contextlib
import dataclasses
import itertools
import logging
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from bertpre.artefacts import check_output
from bertpre.chaining.record import KINDS, Name, is_there
from bertpre.config.fields import parse_kmer
from bertpre.config.load import describe
from bertpre.config.schema import Config
from bertpre.corpus.documents import read_documents
from bertpre.corpus.inputs import find_files
from bertpre.data.sources import check_options
from bertpre.errors import BertpreError, ConfigError, CorpusError
from bertpre.finetuning.plan import read_plan
from bertpre.tokenizer.tokenizer import load_segmenter
from bertpre.training.checks import check_before_data
from bertpre.training.run_folder import read_run_config

log = logging.getLogger(__name__)

_OWN_FLAGS = {"max_steps", "max_hours", "label_column"}  # of the chain's command, for options
_DOCUMENTS_READ = 1000  # to see whether the text can be read as the options say
_BYTES_A_WEIGHT = 12  # of a checkpoint: the weight and two moments
_BYTES_A_BYTE = 1.5  # of a data folder, for each byte of text


def check_chain(
    texts: Sequence[str | Path], *, output: Path, config: Config, tables: Mapping[str, Path]
) -> None:
    """Check all that depends on no earlier stage.

    Args:
        texts: what is read as text.
        output: the chain's folder.
        config: the experiment.
        tables: those of fine-tuning, by the name of their part.

    Raises:
        BertpreError: a text or a table cannot be read as the options say, options contradict each
            other, or the chain cannot run like this.
    """
    _check_alone()
    if output.exists() and not output.is_dir():
        raise ConfigError(f"{output}: is a file; expected a folder", "choose another --output")
    if tables and "train" not in tables:
        raise ConfigError(
            f"--{next(iter(tables))} without --train: there is nothing to fine-tune on",
            f"give a training table with --train, or leave --{next(iter(tables))} out",
        )
    with hints_for_chain("make_data"):
        check_options(config.make_data)
        load_segmenter(config.make_data.word_segmenter)
    with hints_for_chain("pretrain"):
        check_before_data(config, data=output / "data", run=output / "run")
    _check_lengths(config)
    _check_devices(config)
    _check_texts(texts, output, config)
    if tables:
        _check_tables(tables, config)
    _warn_of_full_disk(output, config, texts)


def check_replaceable(output: Path, names: Sequence[Name]) -> None:
    """Refuse to replace what bertpre did not make.

    Args:
        output: the chain's folder.
        names: the stages whose folders will be made anew, if they are there.

    Raises:
        BertpreError: the folder of one holds something else.
    """
    for name in names:
        folder = output / name
        if name != "run":
            check_output(folder, kind=KINDS[name], overwrite=True)
        elif is_there(folder) and {path.name for path in folder.iterdir()} != {".lock"}:
            read_run_config(folder)


def _check_alone() -> None:
    for name, most in (("RANK", 0), ("WORLD_SIZE", 1)):
        value = os.environ.get(name, "")
        if value.isdecimal() and int(value) > most:
            raise ConfigError(
                f"the chain runs in one process, and torchrun started several ({name}={value})",
                "run build-vocab and make-data without it, then `torchrun -m bertpre pretrain`",
            )


def _check_texts(texts: Sequence[str | Path], output: Path, config: Config) -> None:
    if not texts:
        raise ConfigError("no TEXT: expected files or folders", "name them before the options")
    kmer = parse_kmer(config.build_vocab.token_mode)
    for options in dict.fromkeys([config.build_vocab.text, config.make_data.text]):
        for file in find_files(texts, options.format):
            if file.size() is None:
                raise CorpusError(
                    f"{'-' if str(texts[0]) == '-' else file.path}: can be read once only, but the "
                    "chain reads the text twice, for the vocabulary and for the examples",
                    "write the text to a file first",
                )
        read_documents(texts, options, kmer=kmer, is_quiet=True)
        # Repeats are found by reading all of the text.
        plain = dataclasses.replace(cast(Any, options), dedup="none")
        documents = read_documents(texts, plain, kmer=kmer, is_quiet=True)
        for _ in itertools.islice(documents, _DOCUMENTS_READ):
            pass
    for path in (config.build_vocab.extra_tokens, config.build_vocab.vocab_file):
        if path is not None and not Path(path).is_file():
            raise ConfigError(f"{path}: there is no such file", "check the path")
    for text in map(Path, texts):
        if text.is_dir() and output.resolve().is_relative_to(text.resolve()):
            raise ConfigError(
                f"{output}: is inside {text}, so what is made there would be read as text",
                "choose another --output",
            )


def _check_tables(tables: Mapping[str, Path], config: Config) -> None:
    with _without_warnings(), hints_for_chain("finetune"):  # fine-tuning will give the warnings
        read_plan(
            tables["train"],
            dev=tables.get("dev"),
            test=tables.get("test"),
            config=config.finetune,
            seed=config.seed,
        )


def _check_lengths(config: Config) -> None:
    asked, positions = config.finetune.max_seq_length, config.model.max_position_embeddings
    if asked is not None and asked > positions:
        raise ConfigError(
            f"finetune.max_seq_length: {asked:,}, but the encoder has {positions:,} positions",
            f"lower it to {positions} or less, or raise model.max_position_embeddings",
        )


def _check_devices(config: Config) -> None:
    stated = {config.pretrain.device, config.finetune.device} - {"auto", "cpu"}
    if stated:
        from bertpre.training.device import pick_device  # seconds, for PyTorch

        for name in sorted(stated):
            pick_device(name)


def _warn_of_full_disk(output: Path, config: Config, texts: Sequence[str | Path]) -> None:
    """Warn if not even about what the chain will write fits on the disk."""
    files = find_files(texts, config.make_data.text.format, is_quiet=True)
    model = config.model
    width, inner = model.hidden_size, model.intermediate_size
    weights = model.num_hidden_layers * (4 * width**2 + 2 * width * inner)
    weights += width * (config.build_vocab.vocab_size + model.max_position_embeddings)
    # Beside the newest checkpoints, the best one and the one that is being written.
    needed = _BYTES_A_WEIGHT * weights * (config.pretrain.keep_checkpoints + 2)
    needed += round(_BYTES_A_BYTE * sum(file.size() or 0 for file in files))
    there = next(folder for folder in (output, *output.absolute().parents) if folder.is_dir())
    free = shutil.disk_usage(there).free
    if free < needed:
        log.warning(
            "%s: %s MB are free, but the chain takes up to about %s MB; make room, or lower "
            "pretrain.keep_checkpoints",
            output,
            f"{free / 1e6:,.0f}",
            f"{needed / 1e6:,.0f}",
        )


@contextlib.contextmanager
def hints_for_chain(section: str) -> Iterator[None]:
    """Rewrite the hints of errors: a flag that chain lacks becomes the ``--set`` of its option.

    Args:
        section: the section of the schema that the stage reads.
    """

    def option_of(flag: re.Match[str]) -> str:
        name, value = flag[1].replace("-", "_"), flag[2] or ""
        is_for_text = section in ("build_vocab", "make_data")
        for option in (f"{section}.{name}", f"{section}.text.{name}"):
            if name in _OWN_FLAGS or (is_for_text and ".text." in option):
                continue
            with contextlib.suppress(KeyError):
                choices = describe(option).choices
                known = value if value in choices or value.isdecimal() else ""
                rest = f" {value}" if value and not known else ""
                return f"--set {option}={known or 'VALUE'}{rest}"
        return flag[0]

    try:
        yield
    except BertpreError as error:
        if error.hint is not None:
            error.hint = re.sub(r"--([a-z][a-z-]+)(?: ([\w.:-]*\w))?", option_of, error.hint)
        raise


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    package = logging.getLogger("bertpre")
    level = package.level
    package.setLevel(logging.ERROR)
    try:
        yield
    finally:
        package.setLevel(level)
