"""``bertpre fill-mask``."""

from pathlib import Path
from typing import Annotated

import typer


def command(
    checkpoint: Annotated[
        Path,
        typer.Argument(
            metavar="CHECKPOINT", help="Checkpoint, run folder, or Hugging Face BERT folder."
        ),
    ],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Text with at least one [MASK].")],
    pair: Annotated[
        str | None,
        typer.Option("--pair", metavar="TEXT", help="A second text, for the other segment."),
    ] = None,
    top_k: Annotated[int, typer.Option("--top-k", min=1, help="Tokens to show for each mask.")] = 5,
) -> None:
    """Show the tokens that a pretrained model predicts for each [MASK].

    Example: bertpre fill-mask run "The ship left the [MASK] at dawn."
    """
    from bertpre.cli import render
    from bertpre.inference.fill_mask import MASK, fill_mask, filled_text

    render.show_log()
    fillings = fill_mask(checkpoint, text, pair=pair, top_k=top_k)
    rows = [
        [number, filling.token, f"{filling.probability:.4f}"]
        for number, candidates in enumerate(fillings, start=1)
        for filling in candidates
    ]
    render.columns("fill-mask", ["mask", "token", "probability"], rows)
    first = text.count(MASK)
    render.out.print(filled_text(text, fillings[:first]))
    if pair is not None:
        render.out.print(filled_text(pair, fillings[first:]))
