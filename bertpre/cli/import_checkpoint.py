"""``bertpre import``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from bertpre.cli.options import Overwrite, Seed
from bertpre.config.load import load_config


def command(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER", help="BERT in Hugging Face form: config, vocabulary, weights."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", help="Checkpoint folder to make.")],
    add_rows: Annotated[
        bool,
        typer.Option(
            "--add-rows",
            help="Give entries of the vocabulary that the weights have no row for a random one.",
        ),
    ] = False,
    seed: Seed = None,
    overwrite: Overwrite = False,
) -> None:
    """Bring in a BERT that others trained: safetensors or legacy weights, under any of its names.

    Example: bertpre import bert-base-chinese --output checkpoint
    """
    config = load_config(flags={"seed": seed})
    from bertpre.cli import render
    from bertpre.interop.import_checkpoint import import_checkpoint

    render.show_log()
    report = import_checkpoint(
        folder, output, add_rows=add_rows, seed=config.seed, overwrite=overwrite
    )
    rows = [["loaded", name, _size(shape)] for name, shape in report.shapes.items()]
    rows += [["unused", name, ""] for name in report.unused]
    rows += [["absent", name, ""] for name in report.absent]
    render.columns("tensors", ["", "name", "shape"], rows)
    render.table(f"{output}", _summary(report))


def _size(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _summary(report: Any) -> dict[str, str]:
    kinds = {"checkpoint": "a checkpoint", "model": "a fine-tuned model"}
    rows = {
        "made": f"{kinds[report.kind]}, {report.architecture}",
        "tensors": f"{len(report.shapes)} loaded, {len(report.unused)} of the folder not used",
    }
    if report.new_entries:
        shown = ", ".join(map(repr, report.new_entries[:5]))
        rows["entries with a random row"] = f"{len(report.new_entries):,}: {shown}"
    if report.spare_rows:
        rows["rows without an entry"] = f"{report.spare_rows:,}"
    return rows
