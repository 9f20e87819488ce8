"""``bertpre inspect``."""

from pathlib import Path
from typing import Annotated

import typer


def command(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER",
            help="Tokenizer, data, run, checkpoint or model folder; of other libraries too.",
        ),
    ],
    text: Annotated[
        list[str] | None,
        typer.Option("--text", help="Show how the folder's tokenizer cuts this; repeatable."),
    ] = None,
    examples: Annotated[
        int, typer.Option("--examples", min=0, help="Examples of a data folder to show.")
    ] = 5,
) -> None:
    """Show what is in a folder: reports, lengths, examples, curves, shapes, labels, scores.

    Example: bertpre inspect run
    """
    from bertpre.cli import render, render_sections
    from bertpre.inspection.inspection import inspect

    render.show_log()
    found = inspect(folder, texts=text or (), num_examples=examples)
    render.out.print(f"{found.path}: {found.kind}")
    render_sections.sections(found.sections)
