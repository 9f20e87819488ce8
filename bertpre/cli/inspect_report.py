"""``bertpre inspect`` and ``bertpre report``: the contents of a folder, and of a whole chain."""

from pathlib import Path
from typing import Annotated

import typer

from bertpre.cli.options import Overwrite


def inspect_command(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER",
            help="Tokenizer, data, run, checkpoint or model folder, also from other libraries.",
        ),
    ],
    text: Annotated[
        list[str] | None,
        typer.Option("--text", help="Text to tokenise with the folder's tokenizer; repeatable."),
    ] = None,
    examples: Annotated[
        int, typer.Option("--examples", min=0, help="Examples of a data folder to show.")
    ] = 5,
) -> None:
    """Show the contents of a folder: reports, lengths, examples, curves, shapes, labels, scores.

    Example: bertpre inspect run
    """
    from bertpre.cli import render, render_sections
    from bertpre.inspection.inspection import inspect

    render.show_log()
    found = inspect(folder, texts=text or (), num_examples=examples)
    render.out.print(f"{found.path}: {found.kind}")
    render_sections.sections(found.sections)


def report_command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder, from pretrain.")],
    output: Annotated[Path, typer.Option("--output", help="HTML file to create.")],
    tokenizer: Annotated[
        Path | None, typer.Option("--tokenizer", help="Its tokenizer folder, if not beside RUN.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", help="Its data folder, if not beside RUN.")
    ] = None,
    model: Annotated[
        list[Path] | None,
        typer.Option("--model", help="A model fine-tuned from it, if not beside RUN; repeatable."),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Write one HTML page about a chain: tokenizer, data, run, models, with plots and tables.

    Folders beside RUN that belong to it are found by their fingerprints.

    Example: bertpre report run --output report.html
    """
    from bertpre.cli import render
    from bertpre.inspection.report import report

    render.show_log()
    result = report(
        run, output, tokenizer=tokenizer, data=data, models=model or (), overwrite=overwrite
    )
    chain = result.chain
    rows = {
        "tokenizer": str(chain.tokenizer or "not beside the run; pass it with --tokenizer"),
        "data": str(chain.data or "not beside the run; pass it with --data"),
        "run": str(chain.run),
        "models": ", ".join(map(str, chain.models)) or "none beside the run; pass with --model",
        "bytes": f"{result.output.stat().st_size:,}",
    }
    render.table(f"{output}", rows)
