"""``bertpre import`` and ``bertpre export``: models from other libraries, and for them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from bertpre.cli.options import Overwrite, Seed
from bertpre.config.load import load_config

if TYPE_CHECKING:
    from bertpre.interop.import_checkpoint import ImportReport


def import_command(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER", help="Hugging Face BERT folder: config, vocabulary, weights."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", help="Checkpoint folder to create.")],
    add_rows: Annotated[
        bool,
        typer.Option(
            "--add-rows",
            help="Add random rows for vocabulary entries without a row in the weights.",
        ),
    ] = False,
    seed: Seed = None,
    overwrite: Overwrite = False,
) -> None:
    """Import a BERT that others trained, from safetensors or legacy weights.

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


def _summary(report: "ImportReport") -> dict[str, str]:
    kinds = {"checkpoint": "a checkpoint", "model": "a fine-tuned model"}
    rows = {
        "made": f"{kinds[report.kind]}, {report.architecture}",
        "tensors": f"{len(report.shapes)} loaded, {len(report.unused)} in the folder not used",
    }
    if report.new_entries:
        shown = ", ".join(map(repr, report.new_entries[:5]))
        rows["entries with random rows"] = f"{len(report.new_entries):,}: {shown}"
    if report.spare_rows:
        rows["rows without an entry"] = f"{report.spare_rows:,}"
    return rows


def export_command(
    checkpoint: Annotated[
        Path,
        typer.Argument(
            metavar="CHECKPOINT", help="Checkpoint, run folder, fine-tuned or imported model."
        ),
    ],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="[huggingface|onnx]",
            help="huggingface: for from_pretrained of transformers. onnx: model.onnx.",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", help="Folder to create.")],
    encoder_only: Annotated[
        bool, typer.Option("--encoder-only", help="Leave the heads out of the ONNX model.")
    ] = False,
    overwrite: Overwrite = False,
) -> None:
    """Write a model for use without bertpre, with a model card.

    Example: bertpre export run --to onnx --output exported
    """
    from bertpre.cli import render
    from bertpre.interop.export import export

    render.show_log()
    report = export(
        checkpoint, output, to=_target(to), encoder_only=encoder_only, overwrite=overwrite
    )
    rows: dict[str, Any] = {name: f"{size:,} bytes" for name, size in report.files.items()}
    if report.largest_difference is not None:
        rows["largest difference from ours"] = f"{report.largest_difference:.2g}"
    render.table(f"{output}", rows)


def _target(to: str) -> Literal["huggingface", "onnx"]:
    targets: tuple[Literal["huggingface", "onnx"], ...] = ("huggingface", "onnx")
    for target in targets:
        if to == target:
            return target
    raise typer.BadParameter(f"expected huggingface or onnx, found {to!r}", param_hint="--to")
