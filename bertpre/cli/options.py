"""Options that several commands share; help texts and defaults come from the schema."""

from pathlib import Path
from typing import Annotated, Any

import typer

from bertpre.config.load import describe


def option(name: str, *declarations: str, metavar: str | None = None) -> Any:
    """Declare a flag for the option of that dotted name, with its description and default."""
    description, default = describe(name)
    shown = None if default is None or default in ("", "auto") else f" [default: {default}]"
    if isinstance(default, bool):
        shown = f" [default: {'yes' if default else 'no'}]"
    return typer.Option(
        *declarations, help=description + (shown or ""), show_default=False, metavar=metavar
    )


def number_or_name(column: str | None) -> str | int | None:
    """Read a column option: digits are a number from 1, anything else is a name."""
    return int(column) if column is not None and column.isdigit() else column


ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", help="YAML file with the options of a whole experiment."),
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Set any option; repeatable."),
]
Seed = Annotated[int | None, option("seed", "--seed")]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace the output folder if it exists.")
]
