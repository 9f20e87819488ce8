"""``bertpre finetune``."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertpre.cli.options import Dev, Options, Overwrite, Test, takes_options

if TYPE_CHECKING:
    from bertpre.finetuning.results import FinetuneResult

_FLAGS = (
    *("task", "text_column", "pair_column", "label_column", "label_separator", "format", "header"),
    *("quoting", "encoding", "on_bad_bytes", "on_bad_rows", "dev_fraction", "folds", "seeds"),
    *("num_epochs", "learning_rate", "batch_size", "micro_batch_size", "warmup_ratio"),
    *("weight_decay", "max_grad_norm", "max_seq_length", "long_texts", "window_overlap", "pooling"),
    *("layer_decay", "hidden_dropout_prob", "mask_probability", "label_smoothing"),
    *("class_weights", "focal_gamma", "adversarial_epsilon", "ema_decay", "metric"),
    *("early_stopping", "crf", "constrained", "decoder", "num_decoder_layers", "num_beams"),
    *("length_penalty", "max_target_length", "min_target_length", "no_repeat_ngram", "num_best"),
    *("cider_sigma", "baseline", "from_scratch", "device", "precision"),
)
_MOST_CLASSES_SHOWN = 30
# Of the line of an epoch: the loss comes first, the others in the table at the end.
_LEFT_OUT = {"loss", "lenient_precision", "lenient_recall"}


@takes_options("finetune", _FLAGS)
def command(
    checkpoint: Annotated[
        Path,
        typer.Argument(
            metavar="CHECKPOINT", help="Checkpoint, run folder, or Hugging Face BERT folder."
        ),
    ],
    train: Annotated[
        Path,
        typer.Option(
            "--train", help="Table of texts, or file of tokens, with labels to learn from."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", help="Model folder to make.")],
    dev: Dev = None,
    test: Test = None,
    *,
    options: Options,
    overwrite: Overwrite = False,
) -> None:
    """Fine-tune a checkpoint to classify, tag or write texts; score it beside simple baselines.

    Example: bertpre finetune run --train train.tsv --dev dev.tsv --test test.tsv --output model
    """
    config = options.read()
    from bertpre.cli import render
    from bertpre.finetuning.finetune import finetune

    render.show_log()
    with training() as show:
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
    show_result(output, result)


def show_result(output: Path, result: "FinetuneResult") -> None:
    """Print the scores, also by class if there are few classes.

    Args:
        output: the model folder.
        result: the result of fine-tuning.
    """
    from bertpre.cli import render

    names = result.task.columns
    render.columns(f"{output}", ["", "part", *names.values(), "loss"], list(_rows(result)))
    part = list(result.scores)[-1]
    rows = list(_class_cells(result.class_rows[part]))
    if 0 < len(rows) <= _MOST_CLASSES_SHOWN:
        render.columns(
            f"{part} rows by class",
            ["class", "precision", "recall", "F1", result.task.class_unit],
            rows,
        )


@contextlib.contextmanager
def training() -> Iterator[Callable[[Any], None]]:
    """Show fine-tuning: its summary, its progress, and every epoch.

    Yields:
        A function that takes the events of `bertpre.finetuning.finetune.finetune`.
    """
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
                render.err.print(f"{event.name}: model {event.number} of {event.total}")
            else:
                scores = ", ".join(
                    f"{name.replace('_', '-')} {value:.4f}"
                    for name, value in event.dev.items()
                    if name not in _LEFT_OUT
                    # For classes, micro-F1 equals the accuracy.
                    and not (name == "micro_f1" and "matthews" in event.dev)
                )
                render.err.print(
                    f"epoch {event.epoch}: training loss {event.train_loss:.4f} | "
                    f"dev loss {event.dev['loss']:.4f}, {scores}"
                )

        yield show


def _rows(result: "FinetuneResult") -> Iterator[list[str]]:
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
            yield ["single models, mean ±sd", part, *shown]
        for name, found in result.baselines.items():
            values = (f"{found[part][score]:.4f}" for score in task.columns)
            yield [task.baseline_names[name], part, *values, ""]


def _class_cells(rows: Any) -> Iterator[list[str]]:
    for row in rows:
        shares = (f"{value:.4f}" for value in (row.precision, row.recall, row.f1))
        yield [row.name, *shares, f"{row.rows:,}"]
