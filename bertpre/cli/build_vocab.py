"""``bertpre build-vocab``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertpre.cli.options import TEXT_OPTIONS, Options, Overwrite, takes_options

if TYPE_CHECKING:
    from bertpre.tokenizer.vocabulary import VocabReport

_FLAGS = (
    *("vocab_size", "min_frequency", "token_mode", "lowercase", "strip_accents"),
    *("max_unknown_share", "extra_tokens", "vocab_file", "sample_bytes"),
    *TEXT_OPTIONS,
)


@takes_options("build_vocab", _FLAGS)
def command(
    output: Annotated[Path, typer.Option("--output", help="Tokenizer folder to create.")],
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="INPUT...",
            help="Files, folders, patterns, or - for standard input; optional with --vocab-file.",
        ),
    ] = None,
    *,
    options: Options,
    overwrite: Overwrite = False,
) -> None:
    """Build a vocabulary from text: WordPiece, whole tokens, or k-mers of sequences.

    Example: bertpre build-vocab corpus.txt --output tokenizer --vocab-size 8000
    """
    config = options.read()
    from bertpre.cli import render
    from bertpre.tokenizer.vocabulary import build_vocab

    render.show_log()
    with render.progress("build-vocab", "percent") as on_progress:
        report = build_vocab(
            inputs or [],
            output,
            config.build_vocab,
            seed=config.seed,
            overwrite=overwrite,
            on_progress=on_progress,
        )
    show_result(output, report, token_mode=config.build_vocab.token_mode)


def show_result(output: Path, report: "VocabReport", *, token_mode: str) -> None:
    """Print a summary of the text and the vocabulary.

    Args:
        output: the tokenizer folder.
        report: its report.
        token_mode: what an entry of the vocabulary is.
    """
    from bertpre.cli import render

    rows = render.corpus_rows(report.corpus) if report.corpus.documents else {}
    unit = "characters" if token_mode == "wordpiece" else "tokens"
    render.table(f"{output}", rows | _vocabulary_rows(report, unit))


def _vocabulary_rows(report: "VocabReport", unit: str) -> dict[str, str]:
    sample = report.sample
    if report.unk_rate is None:
        return {"vocabulary": f"{report.vocab_size:,} entries, as given"}
    left_out = f"{report.left_out:,}"
    if report.left_out:
        most = ", ".join(f"{what!r} {count:,}" for what, count in report.left_out_most_frequent)
        left_out += f", most frequently {most}"
    rows = {
        "sample": f"{sample.documents:,} documents, {sample.bytes:,} of "
        f"{sample.corpus_bytes:,} bytes",
        "words": f"{report.words:,} ({report.distinct_words:,} distinct)",
        "vocabulary": f"{report.vocab_size:,} entries of {report.vocab_size_asked:,} requested",
        f"{unit} left out": left_out,
        "words that become [UNK]": f"{100 * report.unk_rate:.3f} %",
        "pieces per word": f"{report.pieces_per_word:.3f}",
    }
    if sample.share == 1:
        del rows["sample"]
    only_if_any = {
        "words over 100 characters, cut": report.cut_words,
        "rare words not counted": report.forgotten_words,
    }
    return rows | {name: f"{count:,}" for name, count in only_if_any.items() if count}
