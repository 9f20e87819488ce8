"""One HTML page about a whole chain: tokenizer, data, run and fine-tuned models."""

import base64
import io
import itertools
import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup, escape

from bertpre.artefacts import check_output_file, whole_file
from bertpre.errors import BertpreError
from bertpre.inspection.inspection import inspect
from bertpre.inspection.lineage import Chain, find_chain
from bertpre.inspection.sections import Curves, Grid, Picture, Section
from bertpre.interop.facts import Facts

log = logging.getLogger(__name__)

_MOST_COMPARED = 3  # the model and two baselines
# Key figures at the top of the page: chapter, title, name, and name on the page.
_OVERVIEW = (
    ("Tokenizer", "tokenizer", "entries", "vocabulary"),
    ("Data", "what make-data found", "documents", "documents"),
    ("Data", "what make-data found", "tokens", "tokens"),
    ("Run", "run", "steps", "steps"),
    ("Run", "run", "held out, best", "best held-out"),
    ("Run", "run", "word frequencies alone", "word frequencies alone"),
)
_COLORS = {"held out": "#c2410c", "dev": "#c2410c", "word frequencies alone": "#6b7280"}
_SVG_SETTINGS: Any = {
    "svg.hashsalt": "bertpre",  # makes ids reproducible
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
}


class Report(NamedTuple):
    """What the page contains.

    Attributes:
        output: the page.
        chain: the folders on it.
        missing: kinds of folders that were not found.
    """

    output: Path
    chain: Chain
    missing: tuple[str, ...]


class Chapter(NamedTuple):
    """A folder of the chain: its kind, its name and its description."""

    name: str
    folder: str
    sections: Sequence[Section]


def report(
    run: str | Path,
    output: str | Path,
    *,
    tokenizer: str | Path | None = None,
    data: str | Path | None = None,
    models: Sequence[str | Path] = (),
    overwrite: bool = False,
) -> Report:
    """Write one page, with embedded images, about everything that belongs to a run.

    Related folders beside the run are found by their fingerprints.

    Args:
        run: a run folder, finished or not.
        output: the HTML file.
        tokenizer, data: their folders if not beside the run.
        models: fine-tuned models that are not beside the run.
        overwrite: replace an existing file.

    Raises:
        BertpreError: the output exists, or a folder is incomplete or belongs to another run.
    """
    output = Path(output)
    check_output_file(output, overwrite=overwrite)
    chain = find_chain(run, tokenizer=tokenizer, data=data, models=models)
    chapters = _chapters(chain, required={chain.run, *map(Path, models)})
    text = render_page(f"{chain.run.resolve().name}: bertpre report", _overview(chapters), chapters)
    with whole_file(output) as file:
        file.write(text.encode())
    named = (("tokenizer", chain.tokenizer), ("data", chain.data), ("model", chain.models))
    return Report(output, chain, tuple(name for name, found in named if not found))


def _chapters(chain: Chain, *, required: set[Path]) -> list[Chapter]:
    tokenizer = chain.tokenizer
    if tokenizer is None and chain.data is not None:
        tokenizer = chain.data / "tokenizer"  # a copy without its report
    folders = [("Tokenizer", tokenizer), ("Data", chain.data), ("Run", chain.run)]
    folders += [("Model", model) for model in chain.models]
    chapters = []
    for name, folder in folders:
        if folder is None:
            continue
        try:
            sections = inspect(folder).sections
        except BertpreError as error:
            # A damaged folder that just lies beside the run must not prevent the page.
            if folder in required:
                raise
            log.warning("%s: left out of the page: %s", folder, error.message)
            continue
        if any(isinstance(section, Curves) for section in sections):
            # The page plots the curves itself.
            sections = tuple(
                s for s in sections if not (type(s) is Picture and s.title == "curves")
            )
        chapters.append(Chapter(name, folder.name or str(folder), sections))
    return chapters


def _overview(chapters: Sequence[Chapter]) -> list[tuple[str, str]]:
    figures = []
    for chapter in chapters:
        facts = {s.title: s.rows for s in chapter.sections if isinstance(s, Facts)}
        for kind, title, name, shown in _OVERVIEW:
            if chapter.name == kind and name in facts.get(title, {}):
                figures.append((shown, facts[title][name]))
        for section in chapter.sections:
            if chapter.name == "Model" and isinstance(section, Grid) and section.title == "scores":
                figures += _best_scores(chapter.folder, section)
    return figures


def _best_scores(model: str, scores: Grid) -> list[tuple[str, str]]:
    """Return the first score of a model and its baselines, which precede its members."""
    if not scores.rows or len(scores.header) < 3:
        return []
    part = "test" if any(row[1] == "test" for row in scores.rows) else "dev"
    found = [row for row in scores.rows if row[1] == part and row[2]][:_MOST_COMPARED]
    shown = [f"{row[2]} ({row[0]})" for row in found]
    return [(f"{model}: {part} {scores.header[2]}", ", ".join(shown))] if shown else []


def render_page(
    title: str, overview: Sequence[tuple[str, str]], chapters: Sequence[Chapter]
) -> str:
    """Render a page; equal content gives equal text.

    Args:
        title: of the page.
        overview: names and values of the key figures at the top.
        chapters: in order.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("bertpre.inspection", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    for function in (groups_of_a_kind, column_styles, mark_tokens, data_uri):
        environment.filters[function.__name__] = function
    template = environment.get_template("page.html.jinja")
    return template.render(title=title, overview=overview, chapters=chapters)


def groups_of_a_kind(sections: Sequence[Section]) -> Iterator[tuple[str, list[Section]]]:
    """Group consecutive sections of the same kind, under the name of the kind."""
    for kind, group in itertools.groupby(sections, key=type):
        yield kind.__name__, list(group)


def column_styles(grid: Grid) -> list[str]:
    """Return the HTML attribute of the cells in each column: numbers are right-aligned."""
    columns = [[row[place] for row in grid.rows] for place in range(len(grid.header))]
    return [
        " class=number" if all(re.fullmatch(r"[\d.,% -]*", cell) for cell in column) else ""
        for column in columns
    ]


def mark_tokens(example: str) -> Markup:
    """Highlight the special tokens and the predicted tokens of a decoded example."""
    text = re.sub(r"\[(CLS|SEP)\]", r"<em>[\1]</em>", str(escape(example)))
    return Markup(re.sub(r"\{(\S+?)→(\S+?)\}", r"<b>{\1→\2}</b>", text))


def data_uri(section: Curves | Picture) -> str:
    """Return a picture as a data URI."""
    if isinstance(section, Curves):
        content, kind = draw_curves_svg(section), "svg+xml"
    else:
        content, kind = section.path.read_bytes(), "png"
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def draw_curves_svg(curves: Curves) -> bytes:
    """Plot curves as an SVG file; equal curves give equal bytes."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    with matplotlib.rc_context(_SVG_SETTINGS):
        figure = Figure(figsize=(5.6, 3.1), layout="constrained")
        axes = figure.subplots()
        for name, points in curves.lines.items():
            is_reference = name == "word frequencies alone"
            x, y = zip(*points, strict=True)
            few = len(points) <= 60 and not is_reference
            style: dict[str, Any] = {"marker": "o", "ms": 3} if few else {"lw": 1.2}
            if is_reference:
                style["ls"] = "--"
            axes.plot(x, y, label=name, color=_COLORS.get(name, "#1d4ed8"), **style)
        axes.set_xlabel(curves.x_label)
        # Steps and epochs are integers.
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        if len(curves.lines) > 1:
            axes.legend(frameon=False)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()
