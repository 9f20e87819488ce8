"""``bertpre build-vocab``."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from bertpre.cli.options import (
    ConfigFile,
    Inputs,
    Overwrite,
    Seed,
    Sets,
    corpus_rows,
    option,
    takes_text_options,
)
from bertpre.config.load import load_config


@takes_text_options("build_vocab")
def command(
    inputs: Inputs,
    output: Annotated[Path, typer.Option("--output", help="Tokenizer folder to make.")],
    vocab_size: Annotated[int | None, option("build_vocab.vocab_size", "--vocab-size")] = None,
    min_frequency: Annotated[
        int | None, option("build_vocab.min_frequency", "--min-frequency")
    ] = None,
    token_mode: Annotated[str | None, option("build_vocab.token_mode", "--token-mode")] = None,
    lowercase: Annotated[
        bool | None, option("build_vocab.lowercase", "--lowercase/--no-lowercase")
    ] = None,
    strip_accents: Annotated[
        bool | None, option("build_vocab.strip_accents", "--strip-accents/--no-strip-accents")
    ] = None,
    config_file: ConfigFile = None,
    sets: Sets = None,
    seed: Seed = None,
    overwrite: Overwrite = False,
    *,
    text_flags: dict[str, object],
) -> None:
    """Make a vocabulary from text: WordPiece, or whole tokens.

    Example: bertpre build-vocab corpus.txt --output tokenizer --vocab-size 8000
    """
    config = load_config(
        config_file,
        sets=sets or [],
        flags={
            "seed": seed,
            "build_vocab.vocab_size": vocab_size,
            "build_vocab.min_frequency": min_frequency,
            "build_vocab.token_mode": token_mode,
            "build_vocab.lowercase": lowercase,
            "build_vocab.strip_accents": strip_accents,
            **text_flags,
        },
    )
    from bertpre.cli import render
    from bertpre.text.vocabulary import build_vocab

    render.show_log()
    with render.progress("build-vocab", "bytes") as on_progress:
        report = build_vocab(
            inputs,
            output,
            config.build_vocab,
            overwrite=overwrite,
            on_progress=on_progress,
        )
    unit = "tokens" if config.build_vocab.token_mode == "whole" else "characters"
    rows = corpus_rows(report.corpus) | _rows(asdict(report), unit)
    render.table(f"{output}", rows)


def _rows(report: dict[str, Any], unit: str) -> dict[str, str]:
    left_out = f"{report['left_out']:,}"
    if report["left_out"]:
        most = ", ".join(f"{what!r} {count:,}" for what, count in report["left_out_most_frequent"])
        left_out += f", the most frequent being {most}"
    rows = {
        "words": f"{report['words']:,} ({report['distinct_words']:,} distinct)",
        "vocabulary": f"{report['vocab_size']:,} entries of "
        f"{report['vocab_size_asked']:,} asked for",
        f"{unit} left out": left_out,
        "words that become [UNK]": f"{100 * report['unk_rate']:.3f} %",
        "pieces per word": f"{report['pieces_per_word']:.3f}",
    }
    only_if_any = {
        "words over 100 characters, cut": report["cut_words"],
        "rare words not counted": report["forgotten_words"],
    }
    return rows | {name: f"{count:,}" for name, count in only_if_any.items() if count}
