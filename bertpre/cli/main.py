"""The ``bertpre`` command and its subcommands.

Exit codes: 0 success; 1 an error with a message; 2 wrong usage; 130 or 143 stopped by a signal.
"""

import io
import os
import signal
import sys
from types import FrameType
from typing import Annotated

import typer

from bertpre import __version__
from bertpre.cli import (
    build_vocab,
    chain,
    embed,
    fill_mask,
    finetune,
    import_export,
    inspect_report,
    make_data,
    predict,
    pretrain,
)
from bertpre.errors import BertpreError

app = typer.Typer(
    name="bertpre",
    help="Pretrain BERT on your own text and fine-tune models that classify, tag or write texts.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"bertpre {__version__}")
        raise typer.Exit


@app.callback()
def _bertpre(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


for name, command, summary in (
    ("build-vocab", build_vocab.command, "Build a vocabulary from text."),
    ("make-data", make_data.command, "Turn text into pretraining data."),
    ("pretrain", pretrain.command, "Pretrain BERT on a data folder."),
    ("finetune", finetune.command, "Fine-tune a checkpoint to classify, tag or write texts."),
    ("chain", chain.command, "Run the four commands above, one after another."),
    ("predict", predict.command, "Predict the label, tags or text of every row of a table."),
    ("fill-mask", fill_mask.command, "Show what a model expects at each [MASK]."),
    ("embed", embed.command, "Write a vector for every row of a table."),
    ("inspect", inspect_report.inspect_command, "Describe any folder."),
    ("report", inspect_report.report_command, "Write an HTML page about a run."),
    ("import", import_export.import_command, "Import a BERT that others trained."),
    ("export", import_export.export_command, "Export a model for use without bertpre."),
):
    app.command(name, short_help=summary, no_args_is_help=True)(command)


# How often a waiting thread of GNU OpenMP, which PyTorch uses on CPUs, checks again before it
# sleeps. With the default of 300,000, beside another busy process, threads wait for one that does
# not run, and training is 2 to 17 times slower than on one thread. The lower number costs 5 to 7 %
# on an idle machine.
_SPINS = "3000"


class Stopped(BaseException):
    """A signal asks to stop; not an Exception, so that no handler takes it for an error."""


def _stop(number: int, frame: FrameType | None) -> None:
    raise Stopped(number)


def main() -> None:
    """Run the command line; an error ends in one message and exit code 1."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that lacks a character must not lose the result.
            stream.reconfigure(errors="backslashreplace")
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)  # read when PyTorch is imported
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup sets it
            signal.signal(number, _stop)
    try:
        app()
    except Stopped as stopped:
        from bertpre.cli import render

        (number,) = stopped.args
        render.err.print(
            f"stopped by {signal.Signals(number).name}: no output was finished; "
            "run the same command again"
        )
        sys.exit(128 + number)
    except (BertpreError, OSError) as error:
        from bertpre.cli import render

        if isinstance(error, BrokenPipeError):  # the reader of our output has closed it
            sys.stdout = None
            sys.exit(1)
        if isinstance(error, OSError):
            what = f"{error.filename}: " if error.filename else ""
            error = BertpreError(
                f"{what}{error.strerror or error}", "check the path, its permissions and free space"
            )
        render.show_error(error)
        sys.exit(1)
