"""``bertpre predict``."""

from pathlib import Path
from typing import Annotated

import typer

from bertpre.cli.options import ConfigFile, Overwrite, Seed, Sets, number_or_name, option
from bertpre.config.load import load_config


def command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Model folder, from finetune.")],
    table: Annotated[
        Path, typer.Argument(metavar="INPUT", help="Table of texts; other columns are ignored.")
    ],
    output: Annotated[Path, typer.Option("--output", help="TSV file to make.")],
    text_column: Annotated[
        str | None,
        typer.Option(
            "--text-column",
            help="Column with the text: name, or number from 1; default: as in training.",
        ),
    ] = None,
    table_format: Annotated[str | None, option("finetune.format", "--format")] = None,
    header: Annotated[
        bool | None,
        typer.Option(
            "--header/--no-header",
            help="Whether the table starts with column names; default: as in training.",
            show_default=False,
        ),
    ] = None,
    device: Annotated[str | None, option("finetune.device", "--device")] = None,
    precision: Annotated[str | None, option("finetune.precision", "--precision")] = None,
    config_file: ConfigFile = None,
    sets: Sets = None,
    seed: Seed = None,
    overwrite: Overwrite = False,
) -> None:
    """Classify every row of a table: the likeliest label, then the probability of each.

    The section finetune of a config applies to the table and the device.

    Example: bertpre predict model new.tsv --output predictions.tsv
    """
    from bertpre.artefacts import read_manifest
    from bertpre.cli import render
    from bertpre.finetuning.predict import predict, table_options

    stored = table_options(read_manifest(model, "model"))
    config = load_config(
        config_file,
        sets=sets or [],
        flags={
            "seed": seed,
            "finetune.text_column": number_or_name(text_column),
            "finetune.format": table_format,
            "finetune.header": header,
            "finetune.device": device,
            "finetune.precision": precision,
        },
        derived={f"finetune.{name}": value for name, value in stored.items()},
    )
    render.show_log()
    with render.progress("predict", "rows") as on_progress:
        report = predict(
            model,
            table,
            output=output,
            config=config.finetune,
            overwrite=overwrite,
            on_rows=lambda rows: on_progress(rows, None),
        )
    render.table(
        f"{output}",
        {
            "rows": f"{report.num_rows:,}",
            "texts cut at the end": f"{report.num_truncated:,}",
            "texts without a token": f"{report.num_empty:,}",
        },
    )
