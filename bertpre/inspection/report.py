"""One HTML page of a whole chain: tokenizer, data, run, and the models made from it."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bertpre.artefacts import check_output_file, whole_file
from bertpre.errors import BertpreError
from bertpre.inspection.html import Chapter, render_page
from bertpre.inspection.inspection import inspect
from bertpre.inspection.lineage import Chain, find_chain
from bertpre.inspection.sections import Curves, Grid, Picture, Section
from bertpre.interop.facts import Facts

log = logging.getLogger(__name__)

_MOST_COMPARED = 3  # the model and two baselines


class Report(NamedTuple):
    """What the page holds.

    Attributes:
        output: the page.
        chain: the folders that it shows.
        missing: kinds of folders that were not found.
    """

    output: Path
    chain: Chain
    missing: tuple[str, ...]


def report(
    run: str | Path,
    output: str | Path,
    *,
    tokenizer: str | Path | None = None,
    data: str | Path | None = None,
    models: Sequence[str | Path] = (),
    overwrite: bool = False,
) -> Report:
    """Write one page, with its pictures in it, of everything that belongs to a run.

    Folders beside the run that it was made from, or that were fine-tuned from it, are found by
    their fingerprints.

    Args:
        run: a run folder, finished or not.
        output: the HTML file.
        tokenizer, data: where they are if not beside the run.
        models: fine-tuned models that are not beside the run.
        overwrite: replace an existing file.

    Raises:
        BertpreError: the output exists, a folder is not whole, or belongs to another run.
    """
    output = Path(output)
    check_output_file(output, overwrite=overwrite)
    chain = find_chain(run, tokenizer=tokenizer, data=data, models=models)
    pieces = chain.tokenizer
    if pieces is None and chain.data is not None:
        pieces = chain.data / "tokenizer"  # a copy without its report
    folders = [
        ("Tokenizer", pieces),
        ("Data", chain.data),
        ("Run", chain.run),
        *(("Model", model) for model in chain.models),
    ]
    chapters = []
    for name, folder in folders:
        if folder is None:
            continue
        try:
            sections = _for_a_page(inspect(folder).sections)
        except BertpreError as error:
            # A damaged folder that only lies beside the run is no reason to have no page.
            if folder not in (chain.run, *map(Path, models)):
                log.warning("%s: left out of the page: %s", folder, error.message)
                continue
            raise
        chapters.append(Chapter(name, folder.name or str(folder), sections))
    text = render_page(f"{chain.run.resolve().name}: bertpre report", _overview(chapters), chapters)
    with whole_file(output) as file:
        file.write(text.encode())
    named = (("tokenizer", chain.tokenizer), ("data", chain.data), ("model", chain.models))
    return Report(output, chain, tuple(name for name, found in named if not found))


def _for_a_page(sections: Sequence[Section]) -> tuple[Section, ...]:
    """Leave out a folder's own picture of curves where the page draws them from the figures."""
    is_drawn = any(isinstance(section, Curves) for section in sections)
    return tuple(
        section
        for section in sections
        if not (is_drawn and isinstance(section, Picture) and section.title == "curves")
    )


def _overview(chapters: Sequence[Chapter]) -> list[tuple[str, str]]:
    """Pick the few figures that one looks for first."""
    wanted = {
        "Tokenizer": (("tokenizer", "entries", "vocabulary"),),
        "Data": (
            ("what make-data found", "documents", "documents"),
            ("what make-data found", "tokens", "tokens"),
        ),
        "Run": (
            ("run", "steps", "steps"),
            ("run", "held out, best", "best held-out"),
            ("run", "word frequencies alone", "word frequencies alone"),
        ),
    }
    figures = []
    for chapter in chapters:
        facts = {s.title: s.rows for s in chapter.sections if isinstance(s, Facts)}
        for title, name, shown in wanted.get(chapter.name, ()):
            if name in facts.get(title, {}):
                figures.append((shown, facts[title][name]))
        for section in chapter.sections:
            if chapter.name == "Model" and isinstance(section, Grid) and section.title == "scores":
                figures += _best_scores(chapter.folder, section)
    return figures


def _best_scores(model: str, scores: Grid) -> list[tuple[str, str]]:
    """Give a model's first score beside those of the baselines, which stand before its parts'."""
    if not scores.rows or len(scores.header) < 3:
        return []
    part = "test" if any(row[1] == "test" for row in scores.rows) else "dev"
    found = [row for row in scores.rows if row[1] == part and row[2]][:_MOST_COMPARED]
    shown = [f"{row[2]} ({row[0]})" for row in found]
    return [(f"{model}: {part} {scores.header[2]}", ", ".join(shown))] if shown else []
