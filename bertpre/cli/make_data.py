"""``bertpre make-data``."""

import logging
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
    spread,
    takes_text_options,
)
from bertpre.config.load import load_config
from bertpre.errors import ConfigError

log = logging.getLogger(__name__)

_SHOWN_EXAMPLES = 3


@takes_text_options("make_data")
def command(
    output: Annotated[Path, typer.Option("--output", help="Data folder to make.")],
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="INPUT",
            help="Files, folders, patterns, or - for standard input; with --merge, the parts.",
        ),
    ] = None,
    tokenizer: Annotated[
        Path | None, typer.Option("--tokenizer", help="Tokenizer folder, from build-vocab.")
    ] = None,
    max_seq_length: Annotated[
        int | None, option("make_data.max_seq_length", "--max-seq-length")
    ] = None,
    objective: Annotated[str | None, option("make_data.objective", "--objective")] = None,
    dupe_factor: Annotated[int | None, option("make_data.dupe_factor", "--dupe-factor")] = None,
    balance_nsp: Annotated[
        bool | None, option("make_data.balance_nsp", "--balance-nsp/--no-balance-nsp")
    ] = None,
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
    mask_spans: Annotated[str | None, option("make_data.mask_spans", "--mask-spans")] = None,
    word_segmenter: Annotated[
        str | None, option("make_data.word_segmenter", "--word-segmenter")
    ] = None,
    eval_fraction: Annotated[
        float | None, option("make_data.eval_fraction", "--eval-fraction")
    ] = None,
    max_unknown_share: Annotated[
        float | None, option("make_data.max_unknown_share", "--max-unknown-share")
    ] = None,
    workers: Annotated[int | None, option("make_data.workers", "--workers")] = None,
    tokens: Annotated[
        Path | None,
        typer.Option(
            "--tokens",
            metavar="DATA",
            help="Draw another index over the tokens of this data folder, instead of text.",
        ),
    ] = None,
    part: Annotated[
        str | None,
        typer.Option(
            "--part",
            metavar="I/N",
            help="Only tokenise part I of N parts of the text, to be put together by --merge.",
        ),
    ] = None,
    merge: Annotated[
        bool,
        typer.Option("--merge", help="Put parts together; the bytes are those of one run."),
    ] = False,
    export_jsonl: Annotated[
        Path | None,
        typer.Option("--export-jsonl", help="Also write masked training examples to this file."),
    ] = None,
    config_files: ConfigFiles = None,
    sets: Sets = None,
    seed: Seed = None,
    overwrite: Overwrite = False,
    *,
    text_flags: dict[str, object],
) -> None:
    """Turn text into examples for pretraining: tokens once, and an index of sentence pairs.

    Example: bertpre make-data corpus.txt --tokenizer tokenizer --output data
    """
    flags: dict[str, object] = {
        "max_seq_length": max_seq_length,
        "objective": objective,
        "dupe_factor": dupe_factor,
        "balance_nsp": balance_nsp,
        "short_seq_prob": short_seq_prob,
        "masking": masking,
        "mlm_probability": mlm_probability,
        "whole_word_masking": whole_word_masking,
        "mask_spans": mask_spans,
        "eval_fraction": eval_fraction,
        "max_unknown_share": max_unknown_share,
    }
    config = load_config(
        config_files,
        sets=sets or [],
        flags={
            "seed": seed,
            **{f"make_data.{name}": value for name, value in flags.items()},
            "make_data.word_segmenter": word_segmenter,
            "make_data.workers": workers,
            **text_flags,
        },
    )
    source = _check_source(inputs or [], tokenizer, tokens=tokens, part=part, merge=merge)
    if part is not None and export_jsonl is not None:
        raise ConfigError("--part makes no examples to export", "pass --export-jsonl with --merge")

    from bertpre.cli import render
    from bertpre.data.dataset import PretrainingData
    from bertpre.data.make_data import index_tokens, make_data, merge_parts
    from bertpre.data.parts import make_part
    from bertpre.data.samples import decode_examples
    from bertpre.data.tokenizing import Part

    render.show_log()
    common: dict[str, Any] = {"output": output, "config": config.make_data, "overwrite": overwrite}
    of_index: dict[str, Any] = {"seed": config.seed, "export_jsonl_to": export_jsonl}
    if part is not None:
        which = Part.parse(part)
        if of_examples := [name for name, value in flags.items() if value is not None]:
            log.warning(
                "--part makes tokens only; without effect here, and for --merge to say: %s",
                ", ".join(f"--{name.replace('_', '-')}" for name in sorted(of_examples)),
            )
        with render.progress("make-data", "bytes") as on_progress:
            made = make_part(
                source, tokenizer=tokenizer or "", part=which, on_progress=on_progress, **common
            )
        shares = f"{made.own_shards} of {made.shards} shards, part {which.number} of {which.of}"
        render.table(f"{output}", {"tokens": shares} | corpus_rows(made.corpus))
        return
    if tokens is not None:
        report = index_tokens(tokens, **common, **of_index)
    elif merge:
        report = merge_parts(source, **common, **of_index)
    else:
        with render.progress("make-data", "bytes") as on_progress:
            report = make_data(
                source, tokenizer=tokenizer or "", on_progress=on_progress, **common, **of_index
            )
    render.table(f"{output}", _rows(report, config.make_data.max_seq_length))
    data = PretrainingData(output, check_content=False)
    render.examples([str(example) for example in decode_examples(data, _SHOWN_EXAMPLES)])


def _check_source(
    inputs: list[str], tokenizer: Path | None, *, tokens: Path | None, part: str | None, merge: bool
) -> list[str]:
    """Return the inputs, if there are those that the way of making data needs, and no others.

    Raises:
        ConfigError: something is missing or too much.
    """
    ways = {"--tokens": tokens is not None, "--part": part is not None, "--merge": merge}
    stated = [name for name, is_stated in ways.items() if is_stated]
    if len(stated) > 1:
        raise ConfigError(f"{' and '.join(stated)} exclude each other", "pass one of them")
    if tokens is not None and (inputs or tokenizer):
        raise ConfigError(
            f"--tokens {tokens} has its text and its tokenizer already, found "
            f"{'INPUT ' + inputs[0] if inputs else f'--tokenizer {tokenizer}'} beside it",
            "leave one of the two out",
        )
    if merge and tokenizer:
        raise ConfigError(
            f"--merge takes the tokenizer of the parts, found --tokenizer {tokenizer} beside it",
            "leave it out",
        )
    if not inputs and tokens is None:
        what = "the folders of all parts" if merge else "files or folders of text"
        raise ConfigError(f"no INPUT: expected {what}", "name them before the options")
    if tokenizer is None and tokens is None and not merge:
        raise ConfigError(
            "--tokenizer is missing: text needs one", "make one with `bertpre build-vocab`"
        )
    return inputs


def _rows(report: Any, max_seq_length: int) -> dict[str, str]:
    count, sample = report.training_examples, report.mask_sample
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
        "of the text in each pass": f"{report.used_share:.1%} used, "
        f"{report.truncated_share:.1%} cut off to fit, {report.unused_share:.1%} in no example",
        "masks as drawn": f"{sample.predicted:.1%} of the tokens predicted, {sample.masked:.1%} of "
        f"these [MASK], {sample.random:.1%} random, {sample.kept:.1%} kept; "
        f"{sample.run_length:.2f} side by side",
        "on disk": f"{report.tokens_bytes:,} bytes of tokens, {report.index_bytes:,} of examples, "
        f"{(report.tokens_bytes + report.index_bytes) / report.text_bytes:.2f} for each byte of "
        "text",
    }
    if report.random_next_share is not None:
        rows["random next sentences"] = f"{report.random_next_share:.1%} of the pairs"
    if report.swapped_share is not None:
        rows["swapped"] = f"{report.swapped_share:.1%} of the pairs"
    only_if_any = {
        "sentences without a token": report.empty_sentences,
        "documents without a token": report.empty_documents,
    }
    rows = corpus_rows(report.corpus) | rows
    return rows | {name: f"{number:,}" for name, number in only_if_any.items() if number}
