"""The build-vocab stage: from text to a tokenizer folder, with a report of how well it fits."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from bertpre.artefacts import fingerprint, fingerprint_file, stage_folder, write_manifest
from bertpre.config.fields import parse_kmer
from bertpre.config.load import config_to_dict
from bertpre.config.schema import BuildVocab
from bertpre.corpus.report import CorpusReport
from bertpre.errors import ConfigError, CorpusError
from bertpre.tokenizer.extra_tokens import ExtraTokens, read_extra_tokens
from bertpre.tokenizer.folder import read_vocab, write_tokenizer_folder
from bertpre.tokenizer.learning import ChosenTokens, choose_pieces, choose_whole_tokens, measure
from bertpre.tokenizer.normalizing import SPECIAL_TOKENS, Rules
from bertpre.tokenizer.sampling import Counted, Sample, count_words

log = logging.getLogger(__name__)

_MOST_FREQUENT_SHOWN = 10

# Progress in percent when words are counted, and when they are passed to the trainer, which then
# reports no progress.
_COUNTED, _FED = 55, 70


@dataclass(frozen=True, kw_only=True, slots=True)
class VocabReport:
    """The sources of a vocabulary, and how well it fits them.

    Attributes:
        corpus: the text that was read.
        sample: the part of it in which words were counted.
        words: number of words after normalising, including punctuation marks; in whole-token mode,
            tokens.
        distinct_words: number of distinct words.
        cut_words: words over 100 characters, which are cut.
        forgotten_words: occurrences of rare words that were dropped to save memory.
        vocab_size_asked: the requested maximum.
        vocab_size: the number of entries.
        left_out: characters (in whole-token mode, tokens) without an entry.
        left_out_most_frequent: the most frequent of them, with counts.
        unk_rate: share of the words that become [UNK]; None without text.
        pieces_per_word: mean number of pieces; None without text. Extra tokens with punctuation
            count as several words.
    """

    corpus: CorpusReport = field(default_factory=CorpusReport)
    sample: Sample = field(default_factory=Sample)
    words: int = 0
    distinct_words: int = 0
    cut_words: int = 0
    forgotten_words: int = 0
    vocab_size_asked: int
    vocab_size: int
    left_out: int = 0
    left_out_most_frequent: tuple[tuple[str, int], ...] = ()
    unk_rate: float | None = None
    pieces_per_word: float | None = None


def build_vocab(
    inputs: Sequence[str | Path],
    output: str | Path,
    config: BuildVocab,
    *,
    seed: int = 0,
    overwrite: bool = False,
    on_progress: Callable[[int, int | None], None] | None = None,
) -> VocabReport:
    """Build a tokenizer folder from text; the same text and options give the same bytes.

    Args:
        inputs: files and folders with text; may be empty with ``config.vocab_file``.
        output: the folder to create.
        config: the stage's options.
        seed: the seed for sampling documents of a large corpus.
        overwrite: replace an existing tokenizer folder.
        on_progress: called with the percentage of work done, and 100.

    Raises:
        CorpusError: the input cannot be read, has no words, or gives too many [UNK].
        TokenizerError: the extra tokens or the given vocabulary are invalid.
        ConfigError: the output exists, or there is no input.
    """
    options, rules = _options_of(config), _rules_of(config)

    def tell(percent: float) -> None:
        if on_progress is not None:
            on_progress(round(percent), 100)

    identity = fingerprint([options, seed])
    with stage_folder(
        Path(output), kind="tokenizer", overwrite=overwrite, identity=identity
    ) as work:
        extra, given = ExtraTokens(), None
        if config.extra_tokens is not None:
            extra = read_extra_tokens(Path(config.extra_tokens), rules)
            rules = replace(rules, kept_whole=extra.kept_whole)
        if config.vocab_file is not None:
            given = read_vocab(Path(config.vocab_file))
        elif not inputs:
            raise ConfigError("no text to build a vocabulary from", "name files or folders")
        counted = None
        if inputs:
            counted = count_words(
                inputs, config, rules, seed=seed, on_progress=lambda share: tell(_COUNTED * share)
            )
        left_out = None
        if given is not None:
            tokens = list(dict.fromkeys([*given, *extra.tokens]))
        else:
            assert counted is not None
            tokens, left_out = _choose_tokens(counted, config, rules, extra=extra, tell=tell)
        asked = config.vocab_size if given is None else len(tokens)
        report = VocabReport(vocab_size_asked=asked, vocab_size=len(tokens))
        if counted is not None:
            report = _describe(report, counted, tokens, left_out, is_whole=rules.whole)
        tell(100)
        _check_unknown(report, config, is_given=given is not None)
        write_tokenizer_folder(work, tokens, rules)
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


def _options_of(config: BuildVocab) -> dict[str, Any]:
    options = config_to_dict(config)
    for name in ("extra_tokens", "vocab_file"):
        path = options[name]
        # A manifest must not contain paths.
        if path is not None and Path(path).is_file():
            options[name] = fingerprint_file(Path(path))
    return options


def _rules_of(config: BuildVocab) -> Rules:
    kmer = parse_kmer(config.token_mode)
    return Rules(
        whole=config.token_mode == "whole" or kmer is not None,
        lowercase=config.lowercase,
        strip_accents=config.strip_accents,
        kmer=kmer,
    )


def _choose_tokens(
    counted: Counted,
    config: BuildVocab,
    rules: Rules,
    *,
    extra: ExtraTokens,
    tell: Callable[[float], None],
) -> ChosenTokens:
    """Choose the entries after special and extra tokens."""
    room = config.vocab_size - len(SPECIAL_TOKENS) - len(extra.tokens)
    if room < 1:
        raise ConfigError(
            f"{len(extra.tokens):,} extra tokens leave no room in a vocabulary of "
            f"{config.vocab_size:,} entries",
            "raise --vocab-size",
        )
    there = frozenset(extra.tokens)
    if rules.whole:
        chosen = choose_whole_tokens(
            counted.words, room=room, min_frequency=config.min_frequency, already=there
        )
    else:
        chosen = choose_pieces(
            counted.words,
            counted.totals,
            room=room,
            min_frequency=config.min_frequency,
            on_progress=lambda share: tell(_COUNTED + (_FED - _COUNTED) * share),
        )
    more = [token for token in chosen.tokens if token not in there]
    return chosen._replace(tokens=[*SPECIAL_TOKENS, *extra.tokens, *more])


def _describe(
    report: VocabReport,
    counted: Counted,
    tokens: list[str],
    left_out: list[tuple[str, int]] | None,
    *,
    is_whole: bool,
) -> VocabReport:
    """Add the counts, and how well the tokens fit them."""
    totals, known = counted.totals, set(tokens)
    if is_whole:
        # A literal "[MASK]" in text is not the special token.
        known -= set(SPECIAL_TOKENS)
        unknown = totals.total - sum(count for word, count in counted.words if word in known)
        pieces = totals.total
    else:
        unknown, pieces = measure(counted.words, tokens)
    if left_out is None:
        candidates = counted.words if is_whole else totals.characters.items()
        left_out = [(what, count) for what, count in candidates if what not in known]
        left_out.sort(key=lambda item: (-item[1], item[0]))
    return replace(
        report,
        corpus=counted.corpus,
        sample=counted.sample,
        words=totals.total,
        distinct_words=totals.distinct,
        cut_words=totals.cut_words,
        forgotten_words=totals.forgotten,
        left_out=len(left_out),
        left_out_most_frequent=tuple(left_out[:_MOST_FREQUENT_SHOWN]),
        unk_rate=unknown / totals.total,
        pieces_per_word=pieces / totals.total,
    )


def _check_unknown(report: VocabReport, config: BuildVocab, *, is_given: bool) -> None:
    if report.unk_rate is not None and report.unk_rate > config.max_unknown_share:
        unit = "characters" if config.token_mode == "wordpiece" else "tokens"
        named = ", ".join(f"{what!r} {count:,}" for what, count in report.left_out_most_frequent)
        if is_given:
            way_out = "use a vocabulary for this kind of text, with the right casing"
        elif config.token_mode == "wordpiece":
            way_out = "raise --vocab-size"
        else:
            way_out = "raise --vocab-size or lower --min-frequency, or use --token-mode wordpiece"
        raise CorpusError(
            f"{report.unk_rate:.1%} of the {report.words:,} words would become [UNK], from which a "
            f"model learns nothing; expected at most {config.max_unknown_share:.0%}; "
            f"{report.left_out:,} {unit} have no entry, most frequently {named}",
            f"{way_out}; or allow it with --max-unknown-share",
        )
    if report.forgotten_words:
        log.warning(
            "%s occurrences of rare words (%.2f %%) were dropped to save memory",
            f"{report.forgotten_words:,}",
            100 * report.forgotten_words / report.words,
        )
