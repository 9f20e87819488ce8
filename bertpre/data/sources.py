"""Where the tokens of a data folder come from: text, another data folder, or parts of a corpus.

Existing tokens are hard-linked where the file system supports it, and copied elsewhere. Either way
each folder can be moved or deleted without the others, and links take no disk space.
"""

import contextlib
import os
import secrets
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from bertpre.config.load import config_to_dict
from bertpre.config.schema import MakeData
from bertpre.corpus.documents import Corpus
from bertpre.corpus.inputs import find_files
from bertpre.corpus.report import CorpusReport
from bertpre.data.tokenizing import Part, prepare_workers, tokenize_corpus
from bertpre.errors import ConfigError, DataFormatError
from bertpre.tokenizer.tokenizer import Tokenizer

Progress = Callable[[int, int | None], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Text:
    """Files or folders of text, to be tokenised.

    Attributes:
        inputs: the files and folders.
        tokenizer: decides the ids.
        on_progress: called with the bytes read from disk so far, and the total.
    """

    inputs: Sequence[str | Path]
    tokenizer: Tokenizer
    on_progress: Progress | None = None

    @property
    def paths(self) -> list[Path]:
        """What is read."""
        return [Path(path) for path in self.inputs]

    @classmethod
    def find(
        cls,
        inputs: Sequence[str | Path],
        tokenizer: str | Path,
        config: MakeData,
        on_progress: Progress | None,
    ) -> Self:
        """Find the files and load the tokenizer, while worker processes start.

        Raises:
            CorpusError, TokenizerError: one of them is missing or unusable.
        """
        prepare_workers(find_files(inputs, config.text.format, is_quiet=True), config.workers)
        return cls(inputs=inputs, tokenizer=Tokenizer.load(tokenizer), on_progress=on_progress)

    def complete(self, config: MakeData, output: Path) -> MakeData:
        """Return the options unchanged; any output folder will do."""
        return config

    def identity(self, config: MakeData) -> list[object]:
        """Return values that identify the text, and differ once it changes."""
        state: list[object] = [self.tokenizer.fingerprint, "shards by bytes"]
        for file in find_files(self.inputs, config.text.format, is_quiet=True):
            status = file.path.stat()
            state.append([str(file.path), status.st_size, status.st_mtime_ns])
            if file.size() is None:  # a pipe may deliver another text each time
                state.append(secrets.token_hex())
        return state

    def has_columns(self, config: MakeData) -> bool:
        """Return whether any file is one of columns."""
        files = find_files(self.inputs, config.text.format, is_quiet=True)
        return any(file.format == "conll" for file in files)

    def write_tokens(self, work: Path, config: MakeData) -> tuple[Tokenizer, CorpusReport]:
        """Fill ``tokenizer`` and ``tokens`` of a work folder; return what reading found."""
        corpus, _ = self.tokenize(work, config)
        corpus.finish()
        return self.tokenizer, corpus.report

    def tokenize(
        self,
        work: Path,
        config: MakeData,
        *,
        part: Part = Part(1, 1),  # noqa: B008
    ) -> tuple[Corpus, int]:
        """Tokenise one share of the text.

        Args:
            work: where ``tokenizer`` and ``tokens`` go.
            config: how text is read, and by how many processes.
            part: which share.

        Returns:
            The corpus, which has been read, and how many shards all of it has.
        """
        corpus = Corpus(
            self.inputs, config.text, kmer=self.tokenizer.kmer, on_progress=self.on_progress
        )
        self.tokenizer.save_files(make_folder(work / "tokenizer"))
        num_shards = tokenize_corpus(
            corpus,
            self.tokenizer,
            tokenizer_folder=work / "tokenizer",
            folder=make_folder(work / "tokens"),
            workers=config.workers or os.cpu_count() or 1,
            segmenter=config.word_segmenter,
            part=part,
        )
        return corpus, num_shards


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredTokens:
    """Folders that together hold the tokens of a corpus, and what their manifests say.

    Attributes:
        paths: the folders.
        corpus: the stored report on reading the text.
        options: the stored make_data section.
        fingerprints: of the folders.
    """

    paths: list[Path]
    corpus: dict[str, Any]
    options: dict[str, Any]
    fingerprints: list[str]

    def complete(self, config: MakeData, output: Path) -> MakeData:
        """Return the options, with those for reading text as they are stored.

        Raises:
            ConfigError: an option contradicts a stored one, or the output is one of the folders.
            DataFormatError: another version has stored options unknown to this one.
        """
        if output.resolve() in [folder.resolve() for folder in self.paths]:
            raise ConfigError(
                f"{output}: is the folder that the tokens are taken from", "choose another --output"
            )
        text, segmenter = self.options["text"], self.options.get("word_segmenter", "none")
        stated, default = config_to_dict(config), config_to_dict(MakeData())
        for name, stored in text.items():
            allowed = (stored, default["text"].get(name))
            _check_option(f"text.{name}", stated["text"].get(name), allowed)
        allowed = (segmenter, default["word_segmenter"])
        _check_option("word_segmenter", config.word_segmenter, allowed)
        try:
            return MakeData(**{**stated, "text": text, "word_segmenter": segmenter})
        except ValueError as error:  # pydantic's
            unknown = ", ".join(text.keys() - default["text"].keys()) or "other values"
            raise DataFormatError(
                f"{self.paths[0]}: another version of bertpre read its text, with {unknown}",
                "tokenise the text again",
            ) from error

    def identity(self, config: MakeData) -> list[object]:
        """Return values that identify the tokens."""
        return list(self.fingerprints)

    def has_columns(self, config: MakeData) -> bool:
        """Return whether the text was certainly files of columns."""
        return config.text.format == "conll"

    def write_tokens(self, work: Path, config: MakeData) -> tuple[Tokenizer, CorpusReport]:
        """Fill ``tokenizer`` and ``tokens`` of a work folder; return what reading found."""
        _link_files(self.paths[0] / "tokenizer", make_folder(work / "tokenizer"))
        for folder in self.paths:
            _link_files(folder / "tokens", make_folder(work / "tokens"))
        return Tokenizer.load(work / "tokenizer"), self._read_corpus()

    def _read_corpus(self) -> CorpusReport:
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in self.corpus.items()
        }
        try:
            return CorpusReport(**values)
        except TypeError as error:
            raise DataFormatError(
                f"another version of bertpre wrote the manifest's report on the corpus ({error})",
                "tokenise the text again",
            ) from error


Source = Text | StoredTokens


def make_folder(path: Path) -> Path:
    """Make a folder, unless an interrupted run has left it."""
    path.mkdir(exist_ok=True)
    return path


def stored_options(config: MakeData) -> dict[str, Any]:
    """Return the options that manifests store: those that change the content."""
    options = config_to_dict(config)
    del options["workers"]  # it affects only the speed
    return options


def check_options(config: MakeData) -> None:
    """Refuse options that contradict each other, before anything is read.

    Raises:
        ConfigError: two of them do.
    """
    if config.text.pair_column is not None and config.objective != "mlm":
        raise ConfigError(
            f"the rows of a table of pairs become examples directly, without the next-sentence "
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
            f"{config.random_token_share:g} add up to more than 1",
            "lower one of them; the rest of 1 is the share of tokens left unchanged",
        )
    if config.mask_spans == "geometric" and config.whole_word_masking:
        raise ConfigError(
            "--mask-spans geometric already masks whole words; --whole-word-masking adds nothing",
            "leave out one of the two",
        )


def _check_option(name: str, stated: object, allowed: tuple[object, object]) -> None:
    """Refuse a value that is neither the stored one nor the default, in this order."""
    if stated not in allowed:
        raise ConfigError(
            f"make_data.{name}: {stated!r}, but the tokens were made with {allowed[0]!r}",
            "leave it out, or tokenise the text again",
        )


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
