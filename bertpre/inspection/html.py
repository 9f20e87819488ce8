"""Sections as one HTML page that needs no other file, no script and no network."""

import base64
import html
import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

from bertpre.inspection.pictures import draw_curves_svg
from bertpre.inspection.sections import Bars, Curves, Examples, Grid, Picture, Section
from bertpre.interop.facts import Facts

_FOLDED_FROM = 14  # rows; longer tables are closed at first
_MASKED = re.compile(r"\{(\S+?)→(\S+?)\}")

_STYLE = """
:root { --ink: #1f2937; --soft: #6b7280; --line: #e5e7eb; --accent: #1d4ed8; --warm: #c2410c; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 68rem; padding: 1.5rem 1.25rem 4rem; color: var(--ink);
  background: #fff; font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .25rem; }
h2 { font-size: 1.3rem; margin: 2.5rem 0 .5rem; padding-top: .75rem;
  border-top: 2px solid var(--ink); }
h2 small { color: var(--soft); font-weight: normal; font-size: .95rem; }
h3 { font-size: 1rem; margin: 1.5rem 0 .4rem; }
nav a { color: var(--accent); margin-right: 1rem; text-decoration: none; }
nav a:hover { text-decoration: underline; }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(15rem, 1fr)); gap: .75rem;
  margin: 1.25rem 0; padding: 0; list-style: none; }
.cards li { border: 1px solid var(--line); border-radius: .5rem; padding: .6rem .8rem; }
.cards span { display: block; color: var(--soft); font-size: .8rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .88rem; }
th, td { text-align: left; vertical-align: top; padding: .2rem .9rem .2rem 0;
  border-bottom: 1px solid var(--line); }
thead th { color: var(--soft); font-weight: 600; }
tbody th { font-weight: 500; white-space: nowrap; color: var(--soft); }
td { font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
td.number, th.number { text-align: right; white-space: nowrap; }
.bars { display: grid; grid-template-columns: max-content 1fr max-content; gap: .15rem .6rem;
  align-items: center; max-width: 40rem; font-size: .82rem; }
.bars i { display: block; background: var(--accent); height: .8rem;
  border-radius: 2px; opacity: .8; }
.bars span { text-align: right; font-variant-numeric: tabular-nums; color: var(--soft); }
.examples p { font: .82rem/1.7 ui-monospace, monospace; margin: .4rem 0; padding: .4rem .7rem;
  background: #f9fafb; border-left: 3px solid var(--line); overflow-wrap: anywhere; }
.examples b { color: var(--warm); font-weight: 600; }
.examples em { color: var(--accent); font-style: normal; }
figure { margin: 0; display: inline-block; vertical-align: top; width: 100%; }
figcaption { font-size: .88rem; font-weight: 600; }
.beside { display: grid; grid-template-columns: repeat(auto-fit, minmax(26rem, 1fr));
  gap: 0 2rem; margin-top: .5rem; }
.columns { columns: 2 26rem; column-gap: 2rem; margin-top: 1rem; }
.columns section { break-inside: avoid; padding-bottom: 1.25rem; }
.columns h3 { margin-top: 0; }
.beside figure { margin-top: 1rem; max-width: 34rem; }
@media (max-width: 30rem) { .beside { grid-template-columns: 1fr; } }
img { max-width: 100%; height: auto; }
summary { cursor: pointer; color: var(--accent); font-size: .88rem; }
@media print { nav { display: none; } }
"""


class Chapter(NamedTuple):
    """A folder of the chain.

    Attributes:
        name: what it is.
        folder: what it is called.
        sections: what there is to see of it.
    """

    name: str
    folder: str
    sections: Sequence[Section]


def render_page(
    title: str, overview: Sequence[tuple[str, str]], chapters: Sequence[Chapter]
) -> str:
    """Write a page; equal content gives equal text.

    Args:
        title: of the page.
        overview: the few figures at the top, names and values.
        chapters: in the order to be read.
    """
    links, bodies = [], []
    for number, chapter in enumerate(chapters):
        name, folder = html.escape(chapter.name), html.escape(chapter.folder)
        links.append(f'<a href="#c{number}">{name}: {folder}</a>')
        bodies.append(f'<h2 id="c{number}">{name} <small>{folder}</small></h2>')
        bodies += _sections(chapter.sections)
    cards = [
        f"<li><span>{html.escape(name)}</span>{html.escape(value)}</li>" for name, value in overview
    ]
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{html.escape(title)}</h1>",
            f"<nav>{''.join(links)}</nav>",
            f'<ul class="cards">{"".join(cards)}</ul>',
            *bodies,
            "</body></html>",
            "",
        ]
    )


def _sections(sections: Sequence[Section]) -> list[str]:
    """Write sections; curves, or facts, that follow one another stand side by side."""
    parts = []
    for kind, group in itertools.groupby(sections, key=type):
        written = [_section(section) for section in group]
        if kind in (Facts, Curves, Picture):
            style = "columns" if kind is Facts else "beside"
            written = [f'<div class="{style}">{"".join(written)}</div>']
        parts += written
    return parts


def _section(section: Section) -> str:
    if isinstance(section, Curves):
        return _figure(section.title, draw_curves_svg(section), "svg+xml")
    if isinstance(section, Facts):
        return _facts(section)
    if isinstance(section, Grid):
        return _grid(section)
    if isinstance(section, Bars):
        return _bars(section)
    if isinstance(section, Examples):
        return _examples(section)
    assert isinstance(section, Picture)
    return _figure(section.title, section.path.read_bytes(), "png")


def _heading(title: str) -> str:
    return f"<h3>{html.escape(title)}</h3>"


def _facts(facts: Facts) -> str:
    rows = "".join(
        f"<tr><th scope=row>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
        for name, value in facts.rows.items()
    )
    return f"<section>{_heading(facts.title)}<table><tbody>{rows}</tbody></table></section>"


def _grid(grid: Grid) -> str:
    numeric = [
        all(re.fullmatch(r"[\d.,% -]*", row[place]) for row in grid.rows)
        for place in range(len(grid.header))
    ]

    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=number' if is_number else ''}>{html.escape(cell)}</{tag}>"
            for cell, is_number in zip(row, numeric, strict=True)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in grid.rows)
    table = (
        f"<table><thead><tr>{cells('th', grid.header)}</tr></thead><tbody>{body}</tbody></table>"
    )
    return _heading(grid.title) + _folded(table, len(grid.rows))


def _folded(table: str, num_rows: int) -> str:
    table = f'<div class="scroll">{table}</div>'
    if num_rows < _FOLDED_FROM:
        return table
    return f"<details><summary>{num_rows} rows</summary>{table}</details>"


def _bars(bars: Bars) -> str:
    most = max((count for _, count in bars.bars), default=0) or 1
    rows = "".join(
        f"<span>{html.escape(name)}</span>"
        f'<i style="width:{100 * count / most:.2f}%"></i><span>{count:,}</span>'
        for name, count in bars.bars
    )
    return f'{_heading(bars.title)}<div class="bars">{rows}</div>'


def _examples(examples: Examples) -> str:
    lines = []
    for line in examples.lines:
        text = html.escape(line, quote=False)
        text = re.sub(r"\[(CLS|SEP)\]", r"<em>[\1]</em>", text)
        text = _MASKED.sub(r"<b>{\1→\2}</b>", text)
        lines.append(f"<p>{text}</p>")
    return f'{_heading(examples.title)}<div class="examples">{"".join(lines)}</div>'


def _figure(title: str, content: bytes, kind: str) -> str:
    data, shown = base64.b64encode(content).decode(), html.escape(title)
    image = f'<img alt="{shown}" src="data:image/{kind};base64,{data}">'
    return f"<figure><figcaption>{shown}</figcaption>{image}</figure>"
