"""``bertpre embed``."""

from pathlib import Path
from typing import Annotated

import typer

from bertpre.cli.options import ConfigFile, Overwrite, Seed, Sets, number_or_name, option
from bertpre.config.load import load_config


def command(
    model: Annotated[
        Path,
        typer.Argument(metavar="MODEL", help="Checkpoint, run folder, or fine-tuned model."),
    ],
    table: Annotated[
        str,
        typer.Argument(
            metavar="INPUT",
            help="Table of texts, or - for standard input; other columns are ignored.",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", help="File to make: .npy or .tsv.")],
    text_column: Annotated[str | None, option("embed.text_column", "--text-column")] = None,
    pair_column: Annotated[str | None, option("embed.pair_column", "--pair-column")] = None,
    table_format: Annotated[str | None, option("embed.format", "--format")] = None,
    no_header: Annotated[
        bool, typer.Option("--no-header", help="The table starts with a row, not column names.")
    ] = False,
    quoting: Annotated[str | None, option("embed.quoting", "--quoting")] = None,
    encoding: Annotated[str | None, option("embed.encoding", "--encoding")] = None,
    on_bad_bytes: Annotated[str | None, option("embed.on_bad_bytes", "--on-bad-bytes")] = None,
    pooling: Annotated[str | None, option("embed.pooling", "--pooling")] = None,
    normalize: Annotated[
        bool | None, option("embed.normalize", "--normalize/--no-normalize")
    ] = None,
    max_seq_length: Annotated[
        int | None, option("embed.max_seq_length", "--max-seq-length")
    ] = None,
    device: Annotated[str | None, option("embed.device", "--device")] = None,
    precision: Annotated[str | None, option("embed.precision", "--precision")] = None,
    config_file: ConfigFile = None,
    sets: Sets = None,
    seed: Seed = None,
    overwrite: Overwrite = False,
) -> None:
    """Write a sentence vector for every row of a table.

    Example: bertpre embed run texts.tsv --output vectors.npy
    """
    config = load_config(
        config_file,
        sets=sets or [],
        flags={
            "seed": seed,
            "embed.text_column": number_or_name(text_column),
            "embed.pair_column": number_or_name(pair_column),
            "embed.format": table_format,
            "embed.header": False if no_header else None,
            "embed.quoting": quoting,
            "embed.encoding": encoding,
            "embed.on_bad_bytes": on_bad_bytes,
            "embed.pooling": pooling,
            "embed.normalize": normalize,
            "embed.max_seq_length": max_seq_length,
            "embed.device": device,
            "embed.precision": precision,
        },
    )
    from bertpre.cli import render
    from bertpre.finetuning.embed import embed

    render.show_log()
    with render.progress("embed", "rows") as on_progress:
        report = embed(
            model,
            table,
            output=output,
            config=config.embed,
            overwrite=overwrite,
            on_rows=lambda rows: on_progress(rows, None),
        )
    render.table(
        f"{output}",
        {
            "rows": f"{report.num_rows:,}",
            "numbers a row": f"{report.size:,}",
            "texts cut at the end": f"{report.num_truncated:,}",
        },
    )
