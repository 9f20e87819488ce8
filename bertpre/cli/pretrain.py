"""``bertpre pretrain``."""

import signal
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from bertpre.cli.options import ConfigFile, Overwrite, Seed, Sets, option
from bertpre.config.load import load_config


def command(
    data: Annotated[Path, typer.Option("--data", help="Data folder, from make-data.")],
    output: Annotated[
        Path, typer.Option("--output", help="Run folder; an unfinished run is gone on with.")
    ],
    max_steps: Annotated[int | None, option("pretrain.max_steps", "--max-steps")] = None,
    save_every_steps: Annotated[
        int | None, option("pretrain.save_every_steps", "--save-every-steps")
    ] = None,
    device: Annotated[str | None, option("pretrain.device", "--device")] = None,
    precision: Annotated[str | None, option("pretrain.precision", "--precision")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, show the summary, and stop.")
    ] = False,
    config_file: ConfigFile = None,
    sets: Sets = None,
    seed: Seed = None,
    overwrite: Overwrite = False,
) -> None:
    """Pretrain a BERT on a data folder; the same command again goes on where it stopped.

    Ctrl-C (or SIGTERM) saves a checkpoint and stops; a second one stops at once.

    Example: bertpre pretrain --data data --output run --config configs/tiny.yaml
    """
    config = load_config(
        config_file,
        sets=sets or [],
        flags={
            "seed": seed,
            "pretrain.max_steps": max_steps,
            "pretrain.save_every_steps": save_every_steps,
            "pretrain.device": device,
            "pretrain.precision": precision,
        },
    )
    from bertpre.training.checks import check_pretraining

    # Once more inside pretrain, but here before the seconds that importing PyTorch takes.
    check_pretraining(data, output=output, config=config, overwrite=overwrite)
    from bertpre.cli import render
    from bertpre.training.pretrain import pretrain

    render.show_log()
    received: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        received.append(number)
        render.err.print("stopping: this update ends, then a checkpoint is saved; again: at once")
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, remember)
    with render.training() as show:
        result = pretrain(
            data,
            output=output,
            config=config,
            overwrite=overwrite,
            dry_run=dry_run,
            should_stop=lambda: bool(received),
            on_event=show,
        )
    if result.was_finished:
        render.out.print(f"{output} is finished: {result.step:,} steps; model in {result.model}")
    elif result.is_finished:
        render.out.print(f"done: {result.step:,} steps; model in {result.model}")
    elif received:
        render.err.print(
            f"stopped after step {result.step:,}; saved {result.model}; "
            "the same command goes on from there"
        )
        raise typer.Exit(128 + received[0])
