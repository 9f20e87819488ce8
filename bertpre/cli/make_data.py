"""``bertpre make-data``."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertpre.cli.options import TEXT_OPTIONS, Options, Overwrite, flag_of, takes_options
from bertpre.errors import ConfigError

if TYPE_CHECKING:
    from bertpre.data.report import DataReport

log = logging.getLogger(__name__)

# Options of the examples, not of the tokens: --part does not use them.
_OF_EXAMPLES = (
    *("max_seq_length", "objective", "dupe_factor", "balance_nsp", "short_seq_prob", "masking"),
    *("mlm_probability", "whole_word_masking", "mask_spans", "eval_fraction"),
    "max_unknown_share",
)
_FLAGS = (*_OF_EXAMPLES, "word_segmenter", "workers", *TEXT_OPTIONS)
_SHOWN_EXAMPLES = 3


@takes_options("make_data", _FLAGS)
def command(
    output: Annotated[Path, typer.Option("--output", help="Data folder to create.")],
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="INPUT",
            help="Files, folders, patterns, or - for standard input; the parts for --merge.",
        ),
    ] = None,
    tokenizer: Annotated[
        Path | None, typer.Option("--tokenizer", help="Tokenizer folder, from build-vocab.")
    ] = None,
    *,
    tokens: Annotated[
        Path | None,
        typer.Option(
            "--tokens",
            metavar="DATA",
            help="Build new examples from the tokens of this data folder instead of from text.",
        ),
    ] = None,
    part: Annotated[
        str | None,
        typer.Option(
            "--part",
            metavar="I/N",
            help="Only tokenise part I of N of the text; --merge combines the parts.",
        ),
    ] = None,
    merge: Annotated[
        bool,
        typer.Option("--merge", help="Combine parts; the result is the same as without parts."),
    ] = False,
    export_jsonl: Annotated[
        Path | None,
        typer.Option("--export-jsonl", help="Also write masked training examples to this file."),
    ] = None,
    options: Options,
    overwrite: Overwrite = False,
) -> None:
    """Turn text into pretraining data: tokens, and an index of examples.

    Example: bertpre make-data corpus.txt --tokenizer tokenizer --output data
    """
    config = options.read()
    source = _check_source(inputs or [], tokenizer, tokens=tokens, part=part, merge=merge)
    if part is not None and export_jsonl is not None:
        raise ConfigError("--part makes no examples to export", "pass --export-jsonl with --merge")

    from bertpre.cli import render
    from bertpre.data.make_data import index_tokens, make_data, merge_parts
    from bertpre.data.parts import make_part
    from bertpre.data.tokenizing import Part

    render.show_log()
    common: dict[str, Any] = {"output": output, "config": config.make_data, "overwrite": overwrite}
    of_text: dict[str, Any] = common | {"tokenizer": tokenizer or ""}
    of_index: dict[str, Any] = {"seed": config.seed, "export_jsonl_to": export_jsonl}
    if part is not None:
        which = Part.parse(part)
        _warn_of_flags_for_examples(options)
        with render.progress("make-data", "bytes") as on_progress:
            made = make_part(source, part=which, on_progress=on_progress, **of_text)
        shares = f"{made.own_shards} of {made.shards} shards, part {which.number} of {which.of}"
        render.table(f"{output}", {"tokens": shares} | render.corpus_rows(made.corpus))
        return
    if tokens is not None:
        report = index_tokens(tokens, **common, **of_index)
    elif merge:
        report = merge_parts(source, **common, **of_index)
    else:
        with render.progress("make-data", "bytes") as on_progress:
            report = make_data(source, on_progress=on_progress, **of_text, **of_index)
    show_result(output, report, max_seq_length=config.make_data.max_seq_length)


def show_result(output: Path, report: "DataReport", *, max_seq_length: int) -> None:
    """Print a summary of the data, and some examples.

    Args:
        output: the data folder.
        report: its report.
        max_seq_length: the most tokens allowed in an example.
    """
    from bertpre.cli import render
    from bertpre.data.dataset import PretrainingData, decode_examples

    render.table(f"{output}", _rows(report, max_seq_length))
    data = PretrainingData(output, check_content=False)
    render.examples([str(example) for example in decode_examples(data, _SHOWN_EXAMPLES)])


def _warn_of_flags_for_examples(options: Options) -> None:
    names = [
        name for name in sorted(_OF_EXAMPLES) if options.flags[f"make_data.{name}"] is not None
    ]
    if names:
        log.warning(
            "--part makes tokens only; these options have no effect here, pass them with --merge: "
            "%s",
            ", ".join(map(flag_of, names)),
        )


def _check_source(
    inputs: list[str], tokenizer: Path | None, *, tokens: Path | None, part: str | None, merge: bool
) -> list[str]:
    """Return the inputs if exactly those needed were given.

    Raises:
        ConfigError: something is missing or superfluous.
    """
    ways = {"--tokens": tokens is not None, "--part": part is not None, "--merge": merge}
    stated = [name for name, is_stated in ways.items() if is_stated]
    if len(stated) > 1:
        raise ConfigError(f"{' and '.join(stated)} exclude each other", "pass one of them")
    if tokens is not None and (inputs or tokenizer):
        raise ConfigError(
            f"--tokens {tokens} already has a text and a tokenizer, but found "
            f"{'INPUT ' + inputs[0] if inputs else f'--tokenizer {tokenizer}'}",
            "leave one of the two out",
        )
    if merge and tokenizer:
        raise ConfigError(
            f"--merge uses the tokenizer of the parts, but found --tokenizer {tokenizer}",
            "leave it out",
        )
    if not inputs and tokens is None:
        what = "the folders of all parts" if merge else "files or folders of text"
        raise ConfigError(f"no INPUT: expected {what}", "pass them before the options")
    if tokenizer is None and tokens is None and not merge:
        raise ConfigError(
            "--tokenizer is missing: text needs one", "create one with `bertpre build-vocab`"
        )
    return inputs


def _rows(report: "DataReport", max_seq_length: int) -> dict[str, str]:
    count, sample = report.training_examples, report.mask_sample
    unknown = ""
    if report.unknown_most_frequent:
        most = ", ".join(f"{what!r} {number:,}" for what, number in report.unknown_most_frequent)
        unknown = f", most often for {most}"
    from bertpre.cli.render import corpus_rows, spread

    rows = {
        "tokens": f"{report.tokens:,}, {report.unknown_share:.3%} of them [UNK]{unknown}",
        "pieces per word": f"{report.pieces_per_word:.3f}",
        "tokens per sentence": spread(report.sentence_length_quantiles),
        "split": f"{report.training_documents:,} training documents, "
        f"{report.held_out_documents:,} held out",
        "training examples": f"{count:,}, passes: {report.passes:,}",
        "held-out examples": f"{report.held_out_examples:,}",
        "length": f"{report.mean_length:.1f} tokens on average, {report.longest} at most, "
        f"{report.full_length_examples / count:.0%} of {max_seq_length}",
        "epoch": f"{report.tokens_per_epoch:,} tokens, "
        f"{report.predictions_per_epoch:,} of them predicted",
        "text used per pass": f"{report.used_share:.1%}; "
        f"{report.truncated_share:.1%} truncated, {report.unused_share:.1%} in no example",
        "masking": f"{sample.predicted:.1%} of the tokens predicted, {sample.masked:.1%} of "
        f"these [MASK], {sample.random:.1%} random, {sample.kept:.1%} kept; "
        f"{sample.run_length:.2f} adjacent on average",
        "on disk": f"{report.tokens_bytes:,} bytes of tokens, {report.index_bytes:,} of examples, "
        f"{(report.tokens_bytes + report.index_bytes) / report.text_bytes:.2f} per byte of text",
    }
    if report.random_next_share is not None:
        rows["random next sentences"] = f"{report.random_next_share:.1%} of the pairs"
    if report.swapped_share is not None:
        rows["swapped"] = f"{report.swapped_share:.1%} of the pairs"
    only_if_any = {
        "sentences without tokens": report.empty_sentences,
        "documents without tokens": report.empty_documents,
    }
    rows = corpus_rows(report.corpus) | rows
    return rows | {name: f"{number:,}" for name, number in only_if_any.items() if number}
