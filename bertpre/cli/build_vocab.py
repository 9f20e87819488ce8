"""``bertpre build-vocab``."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from bertpre.cli.options import (
    ConfigFiles,
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
    output: Annotated[Path, typer.Option("--output", help="Tokenizer folder to make.")],
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="INPUT...",
            help="Files, folders, patterns, or - for standard input; none needed with "
            "--vocab-file.",
        ),
    ] = None,
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
    max_unknown_share: Annotated[
        float | None, option("build_vocab.max_unknown_share", "--max-unknown-share")
    ] = None,
    extra_tokens: Annotated[
        str | None, option("build_vocab.extra_tokens", "--extra-tokens", metavar="FILE")
    ] = None,
    vocab_file: Annotated[
        str | None, option("build_vocab.vocab_file", "--vocab-file", metavar="FILE")
    ] = None,
    sample_bytes: Annotated[
        int | None, option("build_vocab.sample_bytes", "--sample-bytes")
    ] = None,
    config_files: ConfigFiles = None,
    sets: Sets = None,
    seed: Seed = None,
    overwrite: Overwrite = False,
    *,
    text_flags: dict[str, object],
) -> None:
    """Make a vocabulary from text: WordPiece, whole tokens, or k-mers of sequences.

    Example: bertpre build-vocab corpus.txt --output tokenizer --vocab-size 8000
    """
    config = load_config(
        config_files,
        sets=sets or [],
        flags={
            "seed": seed,
            "build_vocab.vocab_size": vocab_size,
            "build_vocab.min_frequency": min_frequency,
            "build_vocab.token_mode": token_mode,
            "build_vocab.lowercase": lowercase,
            "build_vocab.strip_accents": strip_accents,
            "build_vocab.max_unknown_share": max_unknown_share,
            "build_vocab.extra_tokens": extra_tokens,
            "build_vocab.vocab_file": vocab_file,
            "build_vocab.sample_bytes": sample_bytes,
            **text_flags,
        },
    )
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
    unit = "characters" if config.build_vocab.token_mode == "wordpiece" else "tokens"
    rows = corpus_rows(report.corpus) if report.corpus.documents else {}
    render.table(f"{output}", rows | _rows(asdict(report), unit))


def _rows(report: dict[str, Any], unit: str) -> dict[str, str]:
    sample = report["sample"]
    if report["unk_rate"] is None:
        return {"vocabulary": f"{report['vocab_size']:,} entries, as they were given"}
    left_out = f"{report['left_out']:,}"
    if report["left_out"]:
        most = ", ".join(f"{what!r} {count:,}" for what, count in report["left_out_most_frequent"])
        left_out += f", the most frequent being {most}"
    rows = {
        "sample": f"{sample['documents']:,} documents, {sample['bytes']:,} bytes, drawn from "
        f"{sample['corpus_bytes']:,} bytes",
        "words": f"{report['words']:,} ({report['distinct_words']:,} distinct)",
        "vocabulary": f"{report['vocab_size']:,} entries of "
        f"{report['vocab_size_asked']:,} asked for",
        f"{unit} left out": left_out,
        "words that become [UNK]": f"{100 * report['unk_rate']:.3f} %",
        "pieces per word": f"{report['pieces_per_word']:.3f}",
    }
    if sample["share"] == 1:
        del rows["sample"]
    only_if_any = {
        "words over 100 characters, cut": report["cut_words"],
        "rare words not counted": report["forgotten_words"],
    }
    return rows | {name: f"{count:,}" for name, count in only_if_any.items() if count}
