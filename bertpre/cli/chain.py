"""``bertpre chain``."""

import contextlib
import dataclasses
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertpre.cli import build_vocab, finetune, make_data, pretrain
from bertpre.cli.options import TEXT_OPTIONS, Dev, Options, Test, takes_options
from bertpre.config.schema import Config

if TYPE_CHECKING:
    from bertpre.chaining.chain import ChainEvent

_FLAGS = (
    *(f"build_vocab.{name}" for name in TEXT_OPTIONS),
    *("pretrain.max_steps", "pretrain.max_hours", "finetune.label_column"),
)
_COMMANDS = {
    "tokenizer": "build-vocab",
    "data": "make-data",
    "run": "pretrain",
    "model": "finetune",
}


@takes_options(None, _FLAGS)
def command(
    texts: Annotated[
        list[str],
        typer.Argument(metavar="TEXT...", help="Files, folders or patterns; they are read twice."),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", help="Folder for the folders tokenizer, data, run and model."),
    ],
    train: Annotated[
        Path | None,
        typer.Option(
            "--train",
            help="Table of texts or file of tokens, with labels to fine-tune on; without it, the "
            "chain ends with the run. Set its columns with --set finetune.KEY=VALUE.",
        ),
    ] = None,
    dev: Dev = None,
    test: Test = None,
    *,
    options: Options,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            help="Redo the stages whose options or inputs have changed, and those after them.",
        ),
    ] = False,
) -> None:
    """Run build-vocab, make-data, pretrain and finetune one after another, in one folder.

    Everything that can be checked is checked before the first one starts. The same command again
    continues where it stopped, and skips finished stages. The flags for reading text apply to
    TEXT alone.

    Example: bertpre chain corpus.txt --train train.tsv --output work --config configs/demo.yaml
    """
    if os.environ.get("RANK", "0") != "0":
        raise typer.Exit(1)  # the first process of torchrun prints the error
    config = pretrain.read_config(_with_one_text_for_both(options), run=output / "run")
    from bertpre.chaining.chain import chain
    from bertpre.cli import render
    from bertpre.cli.main import Stopped

    render.show_log()
    received: list[int] = []
    try:
        with _events(output, config, received) as show:
            result = chain(
                texts,
                output=output,
                config=config,
                train=train,
                dev=dev,
                test=test,
                overwrite=overwrite,
                should_stop=lambda: bool(received),
                on_event=show,
            )
    except Stopped as stopped:
        (number,) = stopped.args
        render.err.print(
            f"stopped by {signal.Signals(number).name}: finished stages are kept; run the same "
            "command again to continue"
        )
        raise typer.Exit(128 + number) from None
    if received and not result.is_finished:
        raise typer.Exit(128 + received[0])


def _with_one_text_for_both(options: Options) -> Options:
    """Use the flags for reading text for make-data too."""
    flags = dict(options.flags)
    for name in TEXT_OPTIONS:
        flags[f"make_data.{name}"] = flags[f"build_vocab.{name}"]
    return dataclasses.replace(options, flags=flags)


@contextlib.contextmanager
def _events(
    output: Path, config: Config, received: list[int]
) -> Iterator[Callable[["ChainEvent"], None]]:
    """Show each stage as its own command does.

    Args:
        output: the chain's folder.
        config: the experiment.
        received: signals are appended while a run can be stopped with a checkpoint.
    """
    from bertpre.cli import render

    with contextlib.ExitStack() as stage:
        show: Callable[[Any], None] = print

        def show_event(event: "ChainEvent") -> None:
            nonlocal show
            folder = output / event.stage
            if event.what == "kept":
                render.out.print(f"{folder} is finished and unchanged: skipped")
            elif event.what == "begun":
                render.err.print(f"{_COMMANDS[event.stage]}: {folder}")
                show = stage.enter_context(_stage_events(event.stage, received))
            elif event.what == "told":
                show(event.value)
            else:
                stage.close()
                _show_result(event, folder, config, was_stopped=bool(received))

        yield show_event


@contextlib.contextmanager
def _stage_events(stage: str, received: list[int]) -> Iterator[Callable[[Any], None]]:
    from bertpre.cli import render
    from bertpre.cli.render_training import training

    if stage == "run":
        with pretrain.noting_signals(received), training() as show:
            yield show
    elif stage == "model":
        with finetune.training() as show:
            yield show
    else:
        unit = "percent" if stage == "tokenizer" else "bytes"
        with render.progress(_COMMANDS[stage], unit) as on_progress:
            yield lambda done_of_total: on_progress(*done_of_total)


def _show_result(event: "ChainEvent", folder: Path, config: Config, *, was_stopped: bool) -> None:
    if event.stage == "tokenizer":
        build_vocab.show_result(folder, event.value, token_mode=config.build_vocab.token_mode)
    elif event.stage == "data":
        max_seq_length = config.make_data.max_seq_length
        make_data.show_result(folder, event.value, max_seq_length=max_seq_length)
    elif event.stage == "run":
        pretrain.show_result(folder, event.value, was_stopped=was_stopped)
    else:
        finetune.show_result(folder, event.value)
