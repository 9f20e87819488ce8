"""``bertpre export``."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from bertpre.cli.options import Overwrite


def command(
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
    output: Annotated[Path, typer.Option("--output", help="Folder to make.")],
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
