"""``bertpre predict``."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from bertpre.cli.options import ConfigFiles, Overwrite, Seed, Sets, number_or_name, option
from bertpre.config.load import load_config


def command(
    models: Annotated[
        list[Path],
        typer.Argument(
            metavar="MODEL...",
            help="Model folder, from finetune; several of the same labels are averaged.",
        ),
    ],
    table: Annotated[
        str,
        typer.Argument(
            metavar="INPUT",
            help="Table of texts, or - for standard input; other columns are ignored.",
        ),
    ],
    output: Annotated[
        str, typer.Option("--output", help="TSV file to make, or - for standard output.")
    ],
    text_column: Annotated[
        str | None,
        typer.Option(
            "--text-column",
            help="Column with the text: name, or number from 1; default: as in training.",
        ),
    ] = None,
    pair_column: Annotated[
        str | None,
        typer.Option(
            "--pair-column", help="Column with the second text of a pair; default: as in training."
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
    quoting: Annotated[str | None, option("finetune.quoting", "--quoting")] = None,
    encoding: Annotated[str | None, option("finetune.encoding", "--encoding")] = None,
    on_bad_bytes: Annotated[str | None, option("finetune.on_bad_bytes", "--on-bad-bytes")] = None,
    on_bad_rows: Annotated[
        str | None,
        typer.Option(
            "--on-bad-rows",
            help="What rows that cannot be read do. error: stop. skip: have an empty prediction. "
            "[default: error]",
            show_default=False,
        ),
    ] = None,
    device: Annotated[str | None, option("finetune.device", "--device")] = None,
    precision: Annotated[str | None, option("finetune.precision", "--precision")] = None,
    config_files: ConfigFiles = None,
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
    from bertpre.inference.predict import predict, table_options

    stored = table_options(read_manifest(models[0], "model"))
    config = load_config(
        config_files,
        sets=sets or [],
        flags={
            "seed": seed,
            "finetune.text_column": number_or_name(text_column),
            "finetune.pair_column": number_or_name(pair_column),
            "finetune.format": table_format,
            "finetune.header": header,
            "finetune.quoting": quoting,
            "finetune.encoding": encoding,
            "finetune.on_bad_bytes": on_bad_bytes,
            "finetune.on_bad_rows": on_bad_rows,
            "finetune.device": device,
            "finetune.precision": precision,
        },
        derived={f"finetune.{name}": value for name, value in stored.items()},
    )
    render.show_log()
    to_stdout = output == "-"
    with render.progress("predict", "rows") as on_progress:
        report = predict(
            models,
            table,
            output=sys.stdout if to_stdout else output,
            config=config.finetune,
            overwrite=overwrite,
            on_rows=lambda rows: on_progress(rows, None),
        )
    if to_stdout:
        return
    rows = {"rows": report.num_rows}
    if report.num_models > 1:
        rows["models averaged"] = report.num_models
    rows["texts not read whole"] = report.num_truncated
    if report.num_windowed:
        rows["texts in several windows"] = report.num_windowed
    rows["texts without a token"] = report.num_empty
    if report.num_skipped:
        rows["rows without a prediction"] = report.num_skipped
    render.table(output, {name: f"{count:,}" for name, count in rows.items()})
