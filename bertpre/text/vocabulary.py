"""The build-vocab stage: text to a tokenizer folder and a report of how well it fits."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bertpre.artefacts import fingerprint, stage_folder, write_manifest
from bertpre.config.load import config_to_dict
from bertpre.config.schema import BuildVocab
from bertpre.errors import CorpusError
from bertpre.text.corpus import read_records
from bertpre.text.corpus_report import CorpusReport
from bertpre.text.entries import choose_pieces, choose_whole_tokens, measure
from bertpre.text.pipeline import SPECIAL_TOKENS, Rules
from bertpre.text.tokenizer_files import write_tokenizer_folder
from bertpre.text.word_counts import WordCounts

log = logging.getLogger(__name__)

_UNK_RATE_WARNED = 0.05
_MOST_FREQUENT_SHOWN = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class VocabReport:
    """What a vocabulary was made from, and how well it fits.

    Attributes:
        corpus: what was read.
        words: running words as the model will see them, punctuation marks among them; in
            whole-token mode, running tokens.
        distinct_words: how many of these differ.
        cut_words: runs over 100 characters, which are cut there.
        forgotten_words: occurrences of rare words that did not fit in memory.
        vocab_size_asked: the cap.
        vocab_size: entries found.
        left_out: characters (in whole-token mode, tokens) that have no entry.
        left_out_most_frequent: the first of them, with their counts.
        unk_rate: share of the words that become [UNK].
        pieces_per_word: mean over the words.
    """

    corpus: CorpusReport
    words: int
    distinct_words: int
    cut_words: int
    forgotten_words: int
    vocab_size_asked: int
    vocab_size: int
    left_out: int
    left_out_most_frequent: tuple[tuple[str, int], ...]
    unk_rate: float
    pieces_per_word: float


def build_vocab(
    inputs: Sequence[str | Path],
    output: str | Path,
    config: BuildVocab,
    *,
    overwrite: bool = False,
    on_progress: Callable[[int, int | None], None] | None = None,
) -> VocabReport:
    """Make a tokenizer folder from text; equal text and options give equal bytes.

    Args:
        inputs: files and folders of text.
        output: the folder to make.
        config: the stage's options.
        overwrite: replace a finished folder.
        on_progress: told the bytes read on disk so far, and in all.

    Raises:
        CorpusError: the input cannot be read, or holds no words.
        ConfigError: the output exists.
    """
    options = config_to_dict(config)
    rules = Rules(
        whole=config.token_mode == "whole",
        lowercase=config.lowercase,
        strip_accents=config.strip_accents,
    )
    with stage_folder(Path(output), overwrite=overwrite, identity=fingerprint(options)) as work:
        corpus = CorpusReport()
        totals = WordCounts(rules)
        for record in read_records(inputs, config.text, report=corpus, on_progress=on_progress):
            totals.add(record.text)
        words = totals.finish()
        if not words:
            raise CorpusError(
                f"no words in the input: all of its {corpus.characters:,} characters are control "
                "characters or the like, which normalising removes",
                "check the files, and --format and --text-column",
            )
        room, least = config.vocab_size - len(SPECIAL_TOKENS), config.min_frequency
        if rules.whole:
            entries, left_out = choose_whole_tokens(words, room=room, min_frequency=least)
            known = set(entries)
            unknown = totals.total - sum(count for word, count in words if word in known)
            pieces = totals.total
        else:
            entries, left_out = choose_pieces(words, totals, room=room, min_frequency=least)
            unknown, pieces = measure(words, [*SPECIAL_TOKENS, *entries])
        report = VocabReport(
            corpus=corpus,
            words=totals.total,
            distinct_words=len(words),
            cut_words=totals.cut_words,
            forgotten_words=totals.forgotten,
            vocab_size_asked=config.vocab_size,
            vocab_size=len(SPECIAL_TOKENS) + len(entries),
            left_out=len(left_out),
            left_out_most_frequent=tuple(left_out[:_MOST_FREQUENT_SHOWN]),
            unk_rate=unknown / totals.total,
            pieces_per_word=pieces / totals.total,
        )
        _warn(report, whole=rules.whole)
        write_tokenizer_folder(work, [*SPECIAL_TOKENS, *entries], rules)
        write_manifest(
            work,
            "tokenizer",
            {
                "options": options,
                "vocab_size": report.vocab_size,
                "words_fingerprint": words.fingerprint(),
                "report": asdict(report),
            },
        )
    return report


def _warn(report: VocabReport, *, whole: bool) -> None:
    if report.unk_rate > _UNK_RATE_WARNED:
        way_out = "raise --vocab-size"
        if whole:
            way_out += " or lower --min-frequency, or use --token-mode wordpiece"
        log.warning(
            "%.1f %% of the words become [UNK], which a model cannot learn from; %s",
            100 * report.unk_rate,
            way_out,
        )
    if report.forgotten_words:
        log.warning(
            "%s occurrences of rare words (%.2f %%) were not counted, to bound memory",
            f"{report.forgotten_words:,}",
            100 * report.forgotten_words / report.words,
        )
