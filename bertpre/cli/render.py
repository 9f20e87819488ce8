"""Printing of results, progress and errors.

Results go to stdout, progress and diagnostics to stderr; without a terminal both are plain lines.
"""

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from bertpre.corpus.report import CorpusReport
from bertpre.errors import BertpreError

# No markup and no emoji: a path may contain brackets, and a text ":100:".
# Lines wrap between words on a terminal, and not at all in a file.
out = Console(highlight=False, soft_wrap=not sys.stdout.isatty(), markup=False, emoji=False)
err = Console(
    stderr=True, highlight=False, soft_wrap=not sys.stderr.isatty(), markup=False, emoji=False
)

_SECONDS_BETWEEN_PLAIN_LINES = 10.0


class _WarningLines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        style = "yellow" if record.levelno >= logging.WARNING else "dim"
        prefix = "warning: " if record.levelno >= logging.WARNING else ""
        err.print(f"{prefix}{record.getMessage()}", style=style)


def show_log(*, is_quiet: bool = False) -> None:
    """Send the library's log to stderr, or nowhere."""
    log = logging.getLogger("bertpre")
    log.handlers = [logging.NullHandler() if is_quiet else _WarningLines()]
    log.setLevel(logging.INFO)
    log.propagate = False


def show_error(error: BertpreError) -> None:
    """Print an error and its hint."""
    err.print(Text.assemble(("error:", "bold red"), f" {error.message}"))
    if error.hint is not None:
        err.print(Text.assemble(("what to do:", "bold"), f" {error.hint}"))


def table(title: str, rows: Mapping[str, object]) -> None:
    """Print names and values."""
    if not out.is_terminal:
        out.print(f"{title}:")
        for name, value in rows.items():
            out.print(f"  {name}: {value}")
        return
    grid = Table(title=title, title_justify="left", show_header=False, title_style="bold")
    grid.add_column(style="cyan")
    grid.add_column()
    for name, value in rows.items():
        grid.add_row(name, str(value))
    out.print(grid)


def columns(title: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table with a header; tab-separated without a terminal."""
    if not out.is_terminal:
        for row in [header, *rows]:
            # Console.print would turn the tabs into spaces.
            out.file.write("\t".join(str(cell) for cell in row) + "\n")
        return
    grid = Table(title=title, title_justify="left", title_style="bold")
    for name in header:
        grid.add_column(name)
    for row in rows:
        grid.add_row(*(str(cell) for cell in row))
    out.print(grid)


@contextlib.contextmanager
def progress(what: str, unit: str) -> Iterator[Callable[[int, int | None], None]]:
    """Show the progress of a long step.

    Yields:
        A function to call with the count done and the total (None if unknown).
    """
    if not err.is_terminal:
        yield plain_progress(what, unit)
        return
    with bar(unit) as shown:
        task = shown.add_task(what, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)


def bar(unit: str) -> Progress:
    """Create a progress bar on stderr that disappears at the end."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=err,
        transient=True,
    )


def plain_progress(what: str, unit: str) -> Callable[[int, int | None], None]:
    """Return a function that prints a progress line now and then, without a terminal."""
    start = last = time.monotonic()

    def show(done: int, total: int | None) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _SECONDS_BETWEEN_PLAIN_LINES:
            last = now
            rate = done / (now - start)
            left = f", {(total - done) / rate:,.0f} s left" if total and rate > 0 else ""
            of = f" of {total:,}" if total else ""
            err.print(f"{what}: {done:,}{of} {unit}, {rate:,.0f} a second{left}")

    return show


def examples(lines: Sequence[str]) -> None:
    """Print decoded training examples, with predicted tokens ``{seen→was}`` in color."""
    out.print("examples, as {what the model sees→what it must predict}:")
    for line in lines:
        text = Text(f"  {line}")
        text.highlight_regex(r"\{\S+→\S+\}", "bold yellow")
        text.highlight_regex(r"\[(CLS|SEP)\]", "cyan")
        out.print(text)


def spread(quantiles: tuple[int, ...]) -> str:
    """Format lengths at the quantiles of `bertpre.corpus.report.QUANTILES`."""
    names = ("5 %", "25 %", "50 %", "75 %", "95 %", "99 %")
    pairs = zip(quantiles, names, strict=True)
    return ", ".join(f"{length:,} ({name})" for length, name in pairs)


def corpus_rows(corpus: CorpusReport) -> dict[str, str]:
    """Describe the text that a command read."""
    if corpus.documents == 0:  # as in a part of a small text
        return {"documents": "none"}
    rows = {
        "documents": f"{corpus.documents:,}, "
        f"{corpus.one_sentence_documents / corpus.documents:.0%} of them with only one sentence",
        "sentences": f"{corpus.sentences:,}",
        "characters": f"{corpus.characters:,}",
        "characters per sentence": spread(corpus.sentence_length_quantiles),
        "sentences per document": spread(corpus.document_length_quantiles),
        "longest line": f"{corpus.longest_record:,} characters",
        "exact duplicates": f"{corpus.duplicate_line_share:.1%} of the lines, "
        f"{corpus.duplicate_document_share:.1%} of the documents",
    }
    only_if_any = {
        "duplicate lines removed": corpus.removed_lines,
        "duplicate documents removed": corpus.removed_documents,
        "cuts of documents over 8,000,000 characters": corpus.cut_documents,
        "control characters": corpus.control_characters,
        "bad byte sequences": corpus.bad_bytes,
        "empty documents skipped": corpus.empty_documents,
        "unusable records skipped": corpus.bad_records,
    }
    return rows | {name: f"{count:,}" for name, count in only_if_any.items() if count}
