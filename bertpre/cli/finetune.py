"""``bertpre finetune``."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from bertpre.cli.options import ConfigFile, Overwrite, Seed, Sets, number_or_name, option
from bertpre.config.load import load_config

_BASELINES = {"majority": "always the commonest", "tfidf_linear": "TF-IDF + linear"}


def command(
    checkpoint: Annotated[
        Path,
        typer.Argument(
            metavar="CHECKPOINT", help="Checkpoint, run folder, or Hugging Face BERT folder."
        ),
    ],
    train: Annotated[
        Path, typer.Option("--train", help="Table of texts and labels to learn from.")
    ],
    output: Annotated[Path, typer.Option("--output", help="Model folder to make.")],
    dev: Annotated[
        Path | None,
        typer.Option(
            "--dev", help="Table that chooses the epoch; default: a share of the training rows."
        ),
    ] = None,
    test: Annotated[
        Path | None, typer.Option("--test", help="Table that is only scored, at the end.")
    ] = None,
    text_column: Annotated[str | None, option("finetune.text_column", "--text-column")] = None,
    label_column: Annotated[str | None, option("finetune.label_column", "--label-column")] = None,
    table_format: Annotated[str | None, option("finetune.format", "--format")] = None,
    no_header: Annotated[
        bool, typer.Option("--no-header", help="Tables start with a row, not with column names.")
    ] = False,
    num_epochs: Annotated[int | None, option("finetune.num_epochs", "--num-epochs")] = None,
    learning_rate: Annotated[
        float | None, option("finetune.learning_rate", "--learning-rate")
    ] = None,
    batch_size: Annotated[int | None, option("finetune.batch_size", "--batch-size")] = None,
    max_seq_length: Annotated[
        int | None, option("finetune.max_seq_length", "--max-seq-length")
    ] = None,
    pooling: Annotated[str | None, option("finetune.pooling", "--pooling")] = None,
    from_scratch: Annotated[
        bool | None, option("finetune.from_scratch", "--from-scratch/--no-from-scratch")
    ] = None,
    device: Annotated[str | None, option("finetune.device", "--device")] = None,
    precision: Annotated[str | None, option("finetune.precision", "--precision")] = None,
    config_file: ConfigFile = None,
    sets: Sets = None,
    seed: Seed = None,
    overwrite: Overwrite = False,
) -> None:
    """Train a classifier on a labelled table and score it beside what needs no network.

    Example: bertpre finetune run --train train.tsv --dev dev.tsv --test test.tsv --output model
    """
    config = load_config(
        config_file,
        sets=sets or [],
        flags={
            "seed": seed,
            "finetune.text_column": number_or_name(text_column),
            "finetune.label_column": number_or_name(label_column),
            "finetune.format": table_format,
            "finetune.header": False if no_header else None,
            "finetune.num_epochs": num_epochs,
            "finetune.learning_rate": learning_rate,
            "finetune.batch_size": batch_size,
            "finetune.max_seq_length": max_seq_length,
            "finetune.pooling": pooling,
            "finetune.from_scratch": from_scratch,
            "finetune.device": device,
            "finetune.precision": precision,
        },
    )
    from bertpre.cli import render
    from bertpre.finetuning.finetune import finetune

    render.show_log()
    with _events() as show:
        result = finetune(
            checkpoint,
            train=train,
            dev=dev,
            test=test,
            output=output,
            config=config.finetune,
            seed=config.seed,
            overwrite=overwrite,
            on_event=show,
        )
    render.columns(f"{output}", ["", "part", "accuracy", "macro-F1", "loss"], list(_rows(result)))


@contextlib.contextmanager
def _events() -> Iterator[Callable[[Any], None]]:
    from bertpre.cli import render
    from bertpre.finetuning.finetune import Progress

    with contextlib.ExitStack() as bar:
        stage, on_progress = "", None

        def show(event: Any) -> None:
            nonlocal stage, on_progress
            if isinstance(event, dict):
                bar.close()
                render.table("fine-tuning", event)
            elif isinstance(event, Progress):
                if on_progress is None or event.stage != stage:
                    bar.close()
                    stage = event.stage
                    on_progress = bar.enter_context(render.progress(event.stage, event.unit))
                on_progress(event.done, event.total)
            else:
                render.err.print(
                    f"epoch {event.epoch}: training loss {event.train_loss:.4f} | "
                    f"dev loss {event.dev.loss:.4f}, accuracy {event.dev.accuracy:.4f}, "
                    f"macro-F1 {event.dev.macro_f1:.4f}"
                )

        yield show


def _rows(result: Any) -> Iterator[list[str]]:
    for part, scores in (("dev", result.dev), ("test", result.test)):
        if scores is None:
            continue
        shown = f"{scores.accuracy:.4f}", f"{scores.macro_f1:.4f}", f"{scores.loss:.4f}"
        yield [f"best epoch ({result.best_epoch})", part, *shown]
        for name, found in result.baselines.items():
            accuracy, macro_f1 = found[part]
            yield [_BASELINES[name], part, f"{accuracy:.4f}", f"{macro_f1:.4f}", ""]
