"""``bertpre pretrain``."""

import contextlib
import dataclasses
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from bertpre.cli.options import Options, Overwrite, takes_options
from bertpre.config.schema import Config

if TYPE_CHECKING:
    from bertpre.training.pretrain import PretrainResult

# The length of a run: only one of these may be given.
_LENGTHS = ("max_steps", "max_epochs", "max_tokens", "max_hours")
_FLAGS = (
    *_LENGTHS,
    *("stop_after_hours", "init_from", "reset_embeddings", "save_every_steps", "device"),
    "precision",
)


@takes_options("pretrain", _FLAGS)
def command(
    data: Annotated[Path, typer.Option("--data", help="Data folder, from make-data.")],
    output: Annotated[
        Path, typer.Option("--output", help="Run folder; an unfinished run is resumed.")
    ],
    *,
    extend_to: Annotated[
        int | None,
        typer.Option(
            "--extend-to",
            metavar="STEPS",
            help="Continue a run, finished or not, to more steps; for the schedules constant and "
            "wsd.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, show the summary, and stop.")
    ] = False,
    options: Options,
    overwrite: Overwrite = False,
) -> None:
    """Pretrain BERT on a data folder; the same command again resumes a stopped run.

    Ctrl-C (or SIGTERM) saves a checkpoint and stops; a second one stops at once.

    Example: bertpre pretrain --data data --output run --config configs/tiny.yaml
    """
    from bertpre.training.checks import check_pretraining

    config = read_config(options, run=None if overwrite else output)
    # Checked again by pretrain, but here before the seconds of importing PyTorch.
    check_pretraining(data, output=output, config=config, overwrite=overwrite, extend_to=extend_to)
    from bertpre.cli import render
    from bertpre.cli.render_training import training
    from bertpre.training.pretrain import pretrain

    # With torchrun, only one process prints.
    is_first = os.environ.get("RANK", "0") == "0"
    render.show_log(is_quiet=not is_first)
    received: list[int] = []
    with noting_signals(received, is_quiet=not is_first), training() as show:
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
        show_result(output, result, was_stopped=bool(received))
    if received and not result.is_finished:
        raise typer.Exit(128 + received[0])


def read_config(options: Options, *, run: Path | None) -> Config:
    """Read the options of a run; the shape comes from the checkpoint that it starts from, if any.

    Args:
        options: from the command line; a length given by a flag replaces another in a file.
        run: the run folder, if an existing run is resumed.
    """
    lengths = [f"pretrain.{name}" for name in _LENGTHS]
    if any(options.flags.get(name) is not None for name in lengths):
        sets = [f"{name}=null" for name in lengths] + options.sets
        options = dataclasses.replace(options, sets=sets)
    config = options.read()
    if config.pretrain.init_from is None:
        return config
    from bertpre.training.init_from import checkpoint_shape

    shape = checkpoint_shape(config.pretrain.init_from, run=run)
    return options.read(derived={f"model.{name}": value for name, value in shape.items()})


@contextlib.contextmanager
def noting_signals(received: list[int], *, is_quiet: bool = False) -> Iterator[None]:
    """Record the first signal, for a stop with a checkpoint; let a second one stop at once.

    Args:
        received: the signal is appended.
        is_quiet: print nothing.
    """
    from bertpre.cli import render

    def note(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if not is_quiet:
            render.err.print(
                "stopping after this update, with a checkpoint; a second signal stops at once"
            )
        signal.signal(number, signal.SIG_DFL)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)  # None: not set by Python


def show_result(output: Path, result: "PretrainResult", *, was_stopped: bool) -> None:
    """Print how the run ended.

    Args:
        output: the run folder.
        result: how it ended.
        was_stopped: whether a signal stopped it.
    """
    from bertpre.cli import render

    if result.was_finished:
        steps = f"{result.step:,} steps"
        render.out.print(f"{output} is already finished: {steps}; model in {result.model}")
    elif result.is_finished:
        render.out.print(f"done: {result.step:,} steps; model in {result.model}")
    elif result.step:
        render.err.print(
            f"stopped after step {result.step:,}; saved {result.model}; "
            "run the same command again to resume"
        )
    elif was_stopped:
        render.err.print("stopped before the first update: nothing was written")
