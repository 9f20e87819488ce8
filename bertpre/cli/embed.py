"""``bertpre embed``."""

from pathlib import Path
from typing import Annotated

import typer

from bertpre.cli.options import Options, Overwrite, takes_options

_FLAGS = (
    *("text_column", "pair_column", "format", "header", "quoting", "encoding", "on_bad_bytes"),
    *("on_bad_rows", "pooling", "normalize", "max_seq_length", "device", "precision"),
)


@takes_options("embed", _FLAGS)
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
    output: Annotated[Path, typer.Option("--output", help="File to create: .npy or .tsv.")],
    options: Options,
    overwrite: Overwrite = False,
) -> None:
    """Write a sentence vector for every row of a table.

    Example: bertpre embed run texts.tsv --output vectors.npy
    """
    config = options.read()
    from bertpre.cli import render
    from bertpre.inference.embed import embed

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
    rows = {
        "rows": report.num_rows,
        "numbers per row": report.size,
        "texts truncated": report.num_truncated,
    }
    if report.num_skipped:
        rows["rows without a vector"] = report.num_skipped
    render.table(f"{output}", {name: f"{count:,}" for name, count in rows.items()})
