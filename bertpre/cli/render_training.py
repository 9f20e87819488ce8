"""Printing of a pretraining run: a live table on a terminal, else plain lines."""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.table import Table

from bertpre.cli import render

_LOSSES = (("mlm", "MLM"), ("nsp", "NSP"), ("sop", "SOP"))


@contextlib.contextmanager
def training() -> Iterator[Callable[[Any], None]]:
    """Show a pretraining run: its summary, its progress and its metrics.

    Yields:
        A function that takes the events of `bertpre.training.pretrain.pretrain`.
    """
    with contextlib.ExitStack() as stack:
        show_run = None

        def show(event: Any) -> None:
            nonlocal show_run
            if isinstance(event, dict):
                render.table("run", event)
                return
            # Not before the first update, or the bar would interrupt the summary.
            if show_run is None:
                form = _live if render.err.is_terminal else _plain
                show_run = stack.enter_context(form())
            show_run(event)

        yield show


@contextlib.contextmanager
def _plain() -> Iterator[Callable[[Any], None]]:
    on_progress = render.plain_progress("pretrain", "updates")

    def show(event: Any) -> None:
        if hasattr(event, "max_steps"):
            on_progress(event.step, event.max_steps)
        else:
            render.err.print(_line(event))

    yield show


@contextlib.contextmanager
def _live() -> Iterator[Callable[[Any], None]]:
    """Show the newest training metrics and a bar in place, and the evaluations above them."""
    bar, newest = render.bar("updates"), None
    task = bar.add_task("pretrain", total=None)
    with Live(bar, console=render.err, transient=True, refresh_per_second=4) as live:

        def show(event: Any) -> None:
            nonlocal newest
            if hasattr(event, "max_steps"):
                bar.update(task, completed=event.step, total=event.max_steps)
            elif event.split == "eval":
                render.err.print(_line(event), style="bold")
            else:
                newest = event
                live.update(Group(_grid(event), bar))

        yield show
    if newest is not None:
        render.err.print(_line(newest))


def _grid(line: Any) -> Table:
    # Three names and values per row fit in 80 columns.
    speed = [
        ("matmul peak", f"{line.matmul_peak_share:.0%}"),
        ("tokens/s", f"{line.tokens_per_second:,.0f}"),
        ("waiting for data", f"{line.data_wait_share:.1%}"),
    ]
    losses = _losses(line)
    rows = [
        [("step", f"{line.step:,}"), ("epoch", f"{line.epoch:.2f}")],
        *(
            [(f"{what} loss", f"{a:.3f}"), (f"{what} accuracy", f"{b:.3f}")]
            for what, a, b in losses
        ),
        [("rate", f"{line.learning_rate:.1e}"), ("gradient", _gradient(line))],
    ]
    grid = Table.grid(padding=(0, 2))
    for _ in range(3):
        grid.add_column(style="cyan")
        grid.add_column(justify="right")
    for row, last in itertools.zip_longest(rows, speed):
        grid.add_row(*(cell for pair in [*row, *([last] if last else [])] for cell in pair))
    return grid


def _gradient(line: Any) -> str:
    return "overflow" if line.grad_norm is None else f"{line.grad_norm:.2f}"


def _losses(line: Any) -> list[tuple[str, float, float]]:
    found = []
    for name, title in _LOSSES:
        loss, accuracy = getattr(line, f"{name}_loss"), getattr(line, f"{name}_accuracy")
        if loss is not None:
            found.append((title, loss, accuracy))
    return found


def _line(line: Any) -> str:
    parts = [f"step {line.step:>6,}", "held out" if line.split == "eval" else "training"]
    parts += [f"{what} loss {loss:.3f} accuracy {acc:.3f}" for what, loss, acc in _losses(line)]
    if line.mlm_perplexity is not None:
        parts.insert(3, f"perplexity {line.mlm_perplexity:,.1f}")
    if line.unigram_loss is not None:
        parts.append(f"(word frequencies alone: {line.unigram_loss:.3f})")
    if line.learning_rate is not None:
        parts.append(f"rate {line.learning_rate:.1e}")
        parts.append(f"{line.tokens_per_second:,.0f} tokens/s")
    return "  ".join(parts)
