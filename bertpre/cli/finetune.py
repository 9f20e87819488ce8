"""``bertpre finetune``."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from bertpre.cli.options import ConfigFiles, Overwrite, Seed, Sets, takes_options
from bertpre.config.load import load_config

_FLAGS: dict[str, type] = {
    "task": str,
    "text_column": str,
    "pair_column": str,
    "label_column": str,
    "label_separator": str,
    "format": str,
    "header": bool,
    "quoting": str,
    "encoding": str,
    "on_bad_bytes": str,
    "on_bad_rows": str,
    "dev_fraction": float,
    "folds": int,
    "seeds": int,
    "num_epochs": int,
    "learning_rate": float,
    "batch_size": int,
    "warmup_ratio": float,
    "weight_decay": float,
    "max_grad_norm": float,
    "max_seq_length": int,
    "long_texts": str,
    "window_overlap": float,
    "pooling": str,
    "layer_decay": float,
    "hidden_dropout_prob": float,
    "mask_probability": float,
    "label_smoothing": float,
    "class_weights": str,
    "focal_gamma": float,
    "adversarial_epsilon": float,
    "ema_decay": float,
    "metric": str,
    "early_stopping": int,
    "baseline": bool,
    "from_scratch": bool,
    "device": str,
    "precision": str,
}
_MOST_CLASSES_SHOWN = 30


@takes_options({f"finetune.{name}": kind for name, kind in _FLAGS.items()}, argument="flags")
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
    flags: dict[str, Any],
    dev: Annotated[
        Path | None,
        typer.Option(
            "--dev", help="Table that chooses the epoch; default: a share of the training rows."
        ),
    ] = None,
    test: Annotated[
        Path | None, typer.Option("--test", help="Table that is only scored, at the end.")
    ] = None,
    config_files: ConfigFiles = None,
    sets: Sets = None,
    seed: Seed = None,
    overwrite: Overwrite = False,
) -> None:
    """Train a classifier on a labelled table and score it beside what needs no network.

    Example: bertpre finetune run --train train.tsv --dev dev.tsv --test test.tsv --output model
    """
    config = load_config(config_files, sets=sets or [], flags={"seed": seed, **flags})
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
    names = result.task.columns
    render.columns(f"{output}", ["", "part", *names.values(), "loss"], list(_rows(result)))
    part = list(result.scores)[-1]
    rows = list(_class_cells(result.class_rows[part]))
    if 0 < len(rows) <= _MOST_CLASSES_SHOWN:
        render.columns(
            f"{part} rows by class", ["class", "precision", "recall", "F1", "rows"], rows
        )


@contextlib.contextmanager
def _events() -> Iterator[Callable[[Any], None]]:
    from bertpre.cli import render
    from bertpre.finetuning.results import MemberStart, Progress

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
            elif isinstance(event, MemberStart):
                bar.close()
                on_progress = None
                render.err.print(f"{event.name}: training {event.number} of {event.total}")
            else:
                scores = ", ".join(
                    f"{name.replace('_', '-')} {value:.4f}"
                    for name, value in event.dev.items()
                    # Of classes, micro-F1 is the accuracy again.
                    if name != "loss" and not (name == "micro_f1" and "matthews" in event.dev)
                )
                render.err.print(
                    f"epoch {event.epoch}: training loss {event.train_loss:.4f} | "
                    f"dev loss {event.dev['loss']:.4f}, {scores}"
                )

        yield show


def _rows(result: Any) -> Iterator[list[str]]:
    task = result.task
    names = [*task.columns, "loss"]
    many = len(result.members) > 1
    for part, scores in result.scores.items():
        what = f"best epoch ({result.members[0].best_epoch})"
        if many:
            what = f"mean prediction of {len(result.members)}"
        yield [what, part, *(f"{scores[name]:.4f}" for name in names)]
        if many:
            spread = result.spread()[part]
            shown = (f"{spread[name][0]:.4f} ±{spread[name][1]:.4f}" for name in names)
            yield ["each alone, mean ±sd", part, *shown]
        for name, found in result.baselines.items():
            values = (f"{found[part][score]:.4f}" for score in task.columns)
            yield [task.baseline_names[name], part, *values, ""]


def _class_cells(rows: Any) -> Iterator[list[str]]:
    for row in rows:
        shares = (f"{value:.4f}" for value in (row.precision, row.recall, row.f1))
        yield [row.name, *shares, f"{row.rows:,}"]
