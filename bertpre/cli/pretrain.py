"""``bertpre pretrain``."""

import functools
import os
import signal
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from bertpre.cli.options import ConfigFiles, Overwrite, Seed, Sets, option
from bertpre.config.load import load_config


def command(
    data: Annotated[Path, typer.Option("--data", help="Data folder, from make-data.")],
    output: Annotated[
        Path, typer.Option("--output", help="Run folder; an unfinished run is gone on with.")
    ],
    max_steps: Annotated[int | None, option("pretrain.max_steps", "--max-steps")] = None,
    max_epochs: Annotated[float | None, option("pretrain.max_epochs", "--max-epochs")] = None,
    max_tokens: Annotated[float | None, option("pretrain.max_tokens", "--max-tokens")] = None,
    max_hours: Annotated[float | None, option("pretrain.max_hours", "--max-hours")] = None,
    stop_after_hours: Annotated[
        float | None, option("pretrain.stop_after_hours", "--stop-after-hours")
    ] = None,
    extend_to: Annotated[
        int | None,
        typer.Option(
            "--extend-to",
            metavar="STEPS",
            help="Go on with a run, finished or not, to more steps; for the schedules constant "
            "and wsd.",
        ),
    ] = None,
    init_from: Annotated[
        str | None, option("pretrain.init_from", "--init-from", metavar="DIR")
    ] = None,
    reset_embeddings: Annotated[
        bool | None,
        option("pretrain.reset_embeddings", "--reset-embeddings/--no-reset-embeddings"),
    ] = None,
    save_every_steps: Annotated[
        int | None, option("pretrain.save_every_steps", "--save-every-steps")
    ] = None,
    device: Annotated[str | None, option("pretrain.device", "--device")] = None,
    precision: Annotated[str | None, option("pretrain.precision", "--precision")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, show the summary, and stop.")
    ] = False,
    config_files: ConfigFiles = None,
    sets: Sets = None,
    seed: Seed = None,
    overwrite: Overwrite = False,
) -> None:
    """Pretrain a BERT on a data folder; the same command again goes on where it stopped.

    Ctrl-C (or SIGTERM) saves a checkpoint and stops; a second one stops at once.

    Example: bertpre pretrain --data data --output run --config configs/tiny.yaml
    """
    lengths = {
        "pretrain.max_steps": max_steps,
        "pretrain.max_epochs": max_epochs,
        "pretrain.max_tokens": max_tokens,
        "pretrain.max_hours": max_hours,
    }
    sets = list(sets or [])
    if any(value is not None for value in lengths.values()):
        # One length by a flag goes before another one in the file.
        sets = [f"{name}=null" for name in lengths] + sets
    read_config = functools.partial(
        load_config,
        config_files,
        sets=sets,
        flags={
            "seed": seed,
            **lengths,
            "pretrain.stop_after_hours": stop_after_hours,
            "pretrain.init_from": init_from,
            "pretrain.reset_embeddings": reset_embeddings,
            "pretrain.save_every_steps": save_every_steps,
            "pretrain.device": device,
            "pretrain.precision": precision,
        },
    )
    from bertpre.training.checks import check_pretraining
    from bertpre.training.init_from import checkpoint_shape

    config = read_config()
    if config.pretrain.init_from is not None:
        run = None if overwrite else output
        shape = checkpoint_shape(config.pretrain.init_from, run=run)
        config = read_config(derived={f"model.{name}": value for name, value in shape.items()})
    # Once more inside pretrain, but here before the seconds that importing PyTorch takes.
    check_pretraining(data, output=output, config=config, overwrite=overwrite, extend_to=extend_to)
    from bertpre.cli import render
    from bertpre.cli.render_training import training
    from bertpre.training.pretrain import pretrain

    # Of the processes that torchrun starts, one speaks.
    is_first = os.environ.get("RANK", "0") == "0"
    render.show_log(is_quiet=not is_first)
    received: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if is_first:
            render.err.print(
                "stopping: this update ends, then a checkpoint is saved; again: at once"
            )
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, remember)
    with training() as show:
        result = pretrain(
            data,
            output=output,
            config=config,
            overwrite=overwrite,
            extend_to=extend_to,
            dry_run=dry_run,
            should_stop=lambda: bool(received),
            on_event=show,
        )
    if is_first:
        _show_end(output, result)
        if received and not result.step:
            render.err.print("stopped before the first update: nothing was written")
    if received and not result.is_finished:
        raise typer.Exit(128 + received[0])


def _show_end(output: Path, result: Any) -> None:
    from bertpre.cli import render

    if result.was_finished:
        render.out.print(f"{output} is finished: {result.step:,} steps; model in {result.model}")
    elif result.is_finished:
        render.out.print(f"done: {result.step:,} steps; model in {result.model}")
    elif result.step:
        render.err.print(
            f"stopped after step {result.step:,}; saved {result.model}; "
            "the same command goes on from there"
        )
