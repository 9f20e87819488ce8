"""The build-vocab stage: text to a tokenizer folder and a report of how well it fits."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

from bertpre.artefacts import fingerprint, fingerprint_file, stage_folder, write_manifest
from bertpre.config.fields import parse_kmer
from bertpre.config.load import config_to_dict
from bertpre.config.schema import BuildVocab
from bertpre.corpus.report import CorpusReport
from bertpre.errors import ConfigError, CorpusError
from bertpre.tokenizer.extra_tokens import ExtraTokens, read_extra_tokens
from bertpre.tokenizer.folder import read_vocab, write_tokenizer_folder
from bertpre.tokenizer.learning import choose_pieces, choose_whole_tokens, measure
from bertpre.tokenizer.normalizing import SPECIAL_TOKENS, Rules
from bertpre.tokenizer.sampling import Counted, Sample, count_words

log = logging.getLogger(__name__)

_MOST_FREQUENT_SHOWN = 10

# How far the stage is, in percent, when words are counted and when the trainer has all of them.
# What it does then cannot be watched.
_COUNTED, _FED = 55, 70


@dataclass(frozen=True, kw_only=True, slots=True)
class VocabReport:
    """What a vocabulary was made from, and how well it fits.

    Attributes:
        corpus: what was read.
        sample: how much of it words were counted in.
        words: running words as the model will see them, punctuation marks among them; in
            whole-token mode, running tokens.
        distinct_words: how many of these differ.
        cut_words: runs over 100 characters, which are cut there.
        forgotten_words: occurrences of rare words that did not fit in memory.
        vocab_size_asked: the cap.
        vocab_size: entries found.
        left_out: characters (in whole-token mode, tokens) that have no entry.
        left_out_most_frequent: the first of them, with their counts.
        unk_rate: share of the words that become [UNK]; None if no text was given.
        pieces_per_word: mean over the words, likewise. Extra tokens with punctuation in them count
            as the words that they would be cut to.
    """

    corpus: CorpusReport
    sample: Sample
    words: int
    distinct_words: int
    cut_words: int
    forgotten_words: int
    vocab_size_asked: int
    vocab_size: int
    left_out: int
    left_out_most_frequent: tuple[tuple[str, int], ...]
    unk_rate: float | None
    pieces_per_word: float | None


class _Vocabulary(NamedTuple):
    tokens: list[str]
    left_out: list[tuple[str, int]]
    unknown: int  # running words that become [UNK]
    pieces: int  # of all running words


def build_vocab(
    inputs: Sequence[str | Path],
    output: str | Path,
    config: BuildVocab,
    *,
    seed: int = 0,
    overwrite: bool = False,
    on_progress: Callable[[int, int | None], None] | None = None,
) -> VocabReport:
    """Make a tokenizer folder from text; equal text and options give equal bytes.

    Args:
        inputs: files and folders of text; with ``config.vocab_file`` there may be none.
        output: the folder to make.
        config: the stage's options.
        seed: decides which documents of a large corpus are sampled.
        overwrite: replace a finished folder.
        on_progress: told how many percent of the work are done, and 100.

    Raises:
        CorpusError: the input cannot be read, holds no words, or would turn into [UNK] too much.
        TokenizerError: the extra tokens or the ready vocabulary are of no use.
        ConfigError: the output exists, or there is nothing to make a vocabulary from.
    """
    options = config_to_dict(config)
    for name in ("extra_tokens", "vocab_file"):
        path = options[name]
        # A manifest tells what a folder was made from, not where that lay.
        if path is not None and Path(path).is_file():
            options[name] = fingerprint_file(Path(path))
    kmer = parse_kmer(config.token_mode)
    rules = Rules(
        whole=config.token_mode == "whole" or kmer is not None,
        lowercase=config.lowercase,
        strip_accents=config.strip_accents,
        kmer=kmer,
    )
    identity = fingerprint([options, seed])
    with stage_folder(
        Path(output), kind="tokenizer", overwrite=overwrite, identity=identity
    ) as work:
        extra, ready = ExtraTokens(), None
        if config.extra_tokens is not None:
            extra = read_extra_tokens(Path(config.extra_tokens), rules)
            rules = replace(rules, kept_whole=extra.kept_whole)
        if config.vocab_file is not None:
            ready = read_vocab(Path(config.vocab_file))
        elif not inputs:
            raise ConfigError("no text to make a vocabulary from", "name files or folders")
        tell = _percent(on_progress)
        counted = None
        if inputs:
            counted = count_words(
                inputs, config, rules, seed=seed, on_progress=lambda share: tell(_COUNTED * share)
            )
            if not counted.words:
                raise CorpusError(
                    f"no words in the input: all of its {counted.corpus.characters:,} characters "
                    "are control characters or the like, which normalising removes",
                    "check the files, and --format and --text-column",
                )
        vocabulary = _choose(counted, config, rules, extra=extra, ready=ready, tell=tell)
        report = _describe(counted, vocabulary, asked=config.vocab_size if ready is None else None)
        tell(100)
        _check_unknown(report, config, is_ready=ready is not None)
        write_tokenizer_folder(work, vocabulary.tokens, rules)
        write_manifest(
            work,
            "tokenizer",
            {
                "options": options,
                "seed": seed,
                "vocab_size": report.vocab_size,
                "words_fingerprint": None if counted is None else counted.words.fingerprint(),
                "report": asdict(report),
            },
        )
    return report


def _percent(
    on_progress: Callable[[int, int | None], None] | None,
) -> Callable[[float], None]:
    def tell(percent: float) -> None:
        if on_progress is not None:
            on_progress(round(percent), 100)

    return tell


def _choose(
    counted: Counted | None,
    config: BuildVocab,
    rules: Rules,
    *,
    extra: ExtraTokens,
    ready: list[str] | None,
    tell: Callable[[float], None],
) -> _Vocabulary:
    """Put the vocabulary together and see how it fits the words."""
    if ready is not None:
        there = set(ready)
        tokens = [*ready, *(entry for entry in extra.entries if entry not in there)]
        if counted is None:
            return _Vocabulary(tokens, [], 0, 0)
        left_out = None
    else:
        assert counted is not None
        room = config.vocab_size - len(SPECIAL_TOKENS) - len(extra.entries)
        if room < 1:
            raise ConfigError(
                f"{len(extra.entries):,} extra tokens leave no room in a vocabulary of "
                f"{config.vocab_size:,} entries",
                "raise --vocab-size",
            )
        if rules.whole:
            entries, left_out = choose_whole_tokens(
                counted.words,
                room=room,
                min_frequency=config.min_frequency,
                already=frozenset(extra.entries),
            )
        else:
            entries, left_out = choose_pieces(
                counted.words,
                counted.totals,
                room=room,
                min_frequency=config.min_frequency,
                on_progress=lambda share: tell(_COUNTED + (_FED - _COUNTED) * share),
            )
        there = set(extra.entries)
        entries = [entry for entry in entries if entry not in there]
        tokens = [*SPECIAL_TOKENS, *extra.entries, *entries]
    known, total = set(tokens), counted.totals.total
    if rules.whole:
        # A literal "[MASK]" in text is no control token.
        known -= set(SPECIAL_TOKENS)
        found = sum(count for word, count in counted.words if word in known)
        unknown, pieces = total - found, total
    else:
        unknown, pieces = measure(counted.words, tokens)
    if left_out is None:
        candidates = counted.words if rules.whole else counted.totals.characters.items()
        left_out = [(what, count) for what, count in candidates if what not in known]
        left_out.sort(key=lambda item: (-item[1], item[0]))
    return _Vocabulary(tokens, left_out, unknown, pieces)


def _describe(
    counted: Counted | None, vocabulary: _Vocabulary, *, asked: int | None
) -> VocabReport:
    size = len(vocabulary.tokens)
    if counted is None:
        nothing = Sample(share=1.0, documents=0, bytes=0, corpus_bytes=0)
        return VocabReport(
            corpus=CorpusReport(),
            sample=nothing,
            words=0,
            distinct_words=0,
            cut_words=0,
            forgotten_words=0,
            vocab_size_asked=asked or size,
            vocab_size=size,
            left_out=0,
            left_out_most_frequent=(),
            unk_rate=None,
            pieces_per_word=None,
        )
    totals = counted.totals
    return VocabReport(
        corpus=counted.corpus,
        sample=counted.sample,
        words=totals.total,
        distinct_words=totals.distinct,
        cut_words=totals.cut_words,
        forgotten_words=totals.forgotten,
        vocab_size_asked=asked or size,
        vocab_size=size,
        left_out=len(vocabulary.left_out),
        left_out_most_frequent=tuple(vocabulary.left_out[:_MOST_FREQUENT_SHOWN]),
        unk_rate=vocabulary.unknown / totals.total,
        pieces_per_word=vocabulary.pieces / totals.total,
    )


def _check_unknown(report: VocabReport, config: BuildVocab, *, is_ready: bool) -> None:
    if report.unk_rate is not None and report.unk_rate > config.max_unknown_share:
        unit = "characters" if config.token_mode == "wordpiece" else "tokens"
        named = ", ".join(f"{what!r} {count:,}" for what, count in report.left_out_most_frequent)
        if is_ready:
            way_out = "take a vocabulary made for such text, with the casing it was made with"
        elif config.token_mode == "wordpiece":
            way_out = "raise --vocab-size"
        else:
            way_out = "raise --vocab-size or lower --min-frequency, or use --token-mode wordpiece"
        raise CorpusError(
            f"{report.unk_rate:.1%} of the {report.words:,} words would become [UNK], which a "
            f"model cannot learn from; expected {config.max_unknown_share:.0%} at most; "
            f"{report.left_out:,} {unit} have no entry, most often {named}",
            f"{way_out}; or allow it with --max-unknown-share",
        )
    if report.forgotten_words:
        log.warning(
            "%s occurrences of rare words (%.2f %%) were not counted, to bound memory",
            f"{report.forgotten_words:,}",
            100 * report.forgotten_words / report.words,
        )
