"""``bertpre make-data``."""

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
    spread,
    takes_text_options,
)
from bertpre.config.load import load_config

_SHOWN_EXAMPLES = 3


@takes_text_options("make_data")
def command(
    inputs: Inputs,
    tokenizer: Annotated[
        Path, typer.Option("--tokenizer", help="Tokenizer folder, from build-vocab.")
    ],
    output: Annotated[Path, typer.Option("--output", help="Data folder to make.")],
    max_seq_length: Annotated[
        int | None, option("make_data.max_seq_length", "--max-seq-length")
    ] = None,
    objective: Annotated[str | None, option("make_data.objective", "--objective")] = None,
    dupe_factor: Annotated[int | None, option("make_data.dupe_factor", "--dupe-factor")] = None,
    short_seq_prob: Annotated[
        float | None, option("make_data.short_seq_prob", "--short-seq-prob")
    ] = None,
    masking: Annotated[str | None, option("make_data.masking", "--masking")] = None,
    mlm_probability: Annotated[
        float | None, option("make_data.mlm_probability", "--mlm-probability")
    ] = None,
    whole_word_masking: Annotated[
        bool | None,
        option("make_data.whole_word_masking", "--whole-word-masking/--no-whole-word-masking"),
    ] = None,
    eval_fraction: Annotated[
        float | None, option("make_data.eval_fraction", "--eval-fraction")
    ] = None,
    max_unknown_share: Annotated[
        float | None, option("make_data.max_unknown_share", "--max-unknown-share")
    ] = None,
    workers: Annotated[int | None, option("make_data.workers", "--workers")] = None,
    export_jsonl: Annotated[
        Path | None,
        typer.Option("--export-jsonl", help="Also write masked training examples to this file."),
    ] = None,
    config_file: ConfigFile = None,
    sets: Sets = None,
    seed: Seed = None,
    overwrite: Overwrite = False,
    *,
    text_flags: dict[str, object],
) -> None:
    """Turn text into examples for pretraining: tokens once, and an index of sentence pairs.

    Example: bertpre make-data corpus.txt --tokenizer tokenizer --output data
    """
    config = load_config(
        config_file,
        sets=sets or [],
        flags={
            "seed": seed,
            "make_data.max_seq_length": max_seq_length,
            "make_data.objective": objective,
            "make_data.dupe_factor": dupe_factor,
            "make_data.short_seq_prob": short_seq_prob,
            "make_data.masking": masking,
            "make_data.mlm_probability": mlm_probability,
            "make_data.whole_word_masking": whole_word_masking,
            "make_data.eval_fraction": eval_fraction,
            "make_data.max_unknown_share": max_unknown_share,
            "make_data.workers": workers,
            **text_flags,
        },
    )
    from bertpre.cli import render
    from bertpre.data.make_data import make_data
    from bertpre.data.samples import decode_examples

    render.show_log()
    with render.progress("make-data", "bytes") as on_progress:
        report = make_data(
            inputs,
            tokenizer=tokenizer,
            output=output,
            config=config.make_data,
            seed=config.seed,
            overwrite=overwrite,
            export_jsonl_to=export_jsonl,
            on_progress=on_progress,
        )
    render.table(f"{output}", _rows(report, config.make_data.max_seq_length))
    render.examples([str(example) for example in decode_examples(output, _SHOWN_EXAMPLES)])


def _rows(report: Any, max_seq_length: int) -> dict[str, str]:
    count = report.training_examples
    unknown = ""
    if report.unknown_most_frequent:
        most = ", ".join(f"{what!r} {number:,}" for what, number in report.unknown_most_frequent)
        unknown = f", most often for {most}"
    rows = {
        "tokens": f"{report.tokens:,}, {report.unknown_share:.3%} of them [UNK]{unknown}",
        "pieces per word": f"{report.pieces_per_word:.3f}",
        "tokens a sentence": spread(report.sentence_length_quantiles),
        "split": f"{report.training_documents:,} documents to train on, "
        f"{report.held_out_documents:,} held out",
        "training examples": f"{count:,}, passes: {report.passes:,}",
        "held-out examples": f"{report.held_out_examples:,}",
        "length": f"{report.mean_length:.1f} tokens on average, {report.longest} at most, "
        f"{report.full_length_examples / count:.0%} of {max_seq_length}",
        "an epoch": f"{report.tokens_per_epoch:,} tokens, "
        f"{report.predictions_per_epoch:,} of them predicted",
        "cut off to fit": f"{report.truncated_share:.1%} of the text in each pass",
    }
    if report.random_next_share is not None:
        rows["random next sentences"] = f"{report.random_next_share:.1%} of the pairs"
    only_if_any = {
        "sentences without a token": report.empty_sentences,
        "documents without a token": report.empty_documents,
    }
    rows = corpus_rows(report.corpus) | rows
    return rows | {name: f"{number:,}" for name, number in only_if_any.items() if number}
