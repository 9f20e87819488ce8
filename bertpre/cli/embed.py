"""``bertpre embed``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from bertpre.cli.options import ConfigFiles, Overwrite, Seed, Sets, takes_options
from bertpre.config.load import load_config

_FLAGS: dict[str, type] = {
    "text_column": str,
    "pair_column": str,
    "format": str,
    "header": bool,
    "quoting": str,
    "encoding": str,
    "on_bad_bytes": str,
    "pooling": str,
    "normalize": bool,
    "max_seq_length": int,
    "device": str,
    "precision": str,
}


@takes_options({f"embed.{name}": kind for name, kind in _FLAGS.items()}, argument="flags")
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
    flags: dict[str, Any],
    config_files: ConfigFiles = None,
    sets: Sets = None,
    seed: Seed = None,
    overwrite: Overwrite = False,
) -> None:
    """Write a sentence vector for every row of a table.

    Example: bertpre embed run texts.tsv --output vectors.npy
    """
    config = load_config(config_files, sets=sets or [], flags={"seed": seed, **flags})
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
    render.table(
        f"{output}",
        {
            "rows": f"{report.num_rows:,}",
            "numbers a row": f"{report.size:,}",
            "texts cut at the end": f"{report.num_truncated:,}",
        },
    )
