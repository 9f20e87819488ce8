"""Printing of folder descriptions, on a terminal or as plain lines and tables."""

import itertools
from collections.abc import Sequence

from rich.text import Text

from bertpre.cli import render
from bertpre.inspection.sections import Bars, Curves, Examples, Grid, Picture, Section
from bertpre.interop.facts import Facts

_WIDTH, _HEIGHT = 72, 14  # of a plot, in characters
_BAR = 40
_PLAIN_POINTS = 12
_STYLES = ("blue", "bold yellow", "dim", "magenta")
# The eight dots of a braille character, by row and column. Source: Unicode, block U+2800.
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


def sections(parts: Sequence[Section]) -> None:
    """Print sections one after another."""
    for part in parts:
        if isinstance(part, Facts):
            render.table(part.title, part.rows)
        elif isinstance(part, Grid):
            if not render.out.is_terminal:  # where `columns` prints no title
                render.out.print(f"{part.title}:")
            render.columns(part.title, part.header, part.rows)
        elif isinstance(part, Bars):
            _bars(part)
        elif isinstance(part, Curves):
            _curves(part)
        elif isinstance(part, Examples):
            render.examples(part.lines)
        elif isinstance(part, Picture):
            render.out.print(f"{part.title}: {part.path}")


def _bars(bars: Bars) -> None:
    if not render.out.is_terminal:
        render.columns(bars.title, [bars.title, "number"], bars.bars)
        return
    render.out.print(Text(bars.title, style="bold"))
    most = max((count for _, count in bars.bars), default=0) or 1
    width = max((len(name) for name, _ in bars.bars), default=0)
    for name, count in bars.bars:
        bar = "█" * round(_BAR * count / most) or ("▏" if count else "")
        line = Text.assemble((f"{name:>{width}} ", "cyan"), (bar, "blue"), f" {count:,}")
        render.out.print(line)


def _curves(curves: Curves) -> None:
    if not render.out.is_terminal:
        for name, points in curves.lines.items():
            step = -(-len(points) // _PLAIN_POINTS)
            # The last point matters most.
            shown = [*points[:-1:step], points[-1]]
            header = [curves.x_label, f"{curves.title}, {name}"]
            render.columns("", header, [[f"{x:g}", f"{y:.4g}"] for x, y in shown])
        return
    render.out.print(Text(curves.title, style="bold"))
    for line in _plot(curves):
        render.out.print(line)


def _plot(curves: Curves) -> list[Text]:
    """Draw lines with braille dots: two columns and four rows of dots to a character."""
    points = [point for line in curves.lines.values() for point in line]
    left, right = min(x for x, _ in points), max(x for x, _ in points)
    low, high = min(y for _, y in points), max(y for _, y in points)
    dots = [[0] * _WIDTH for _ in range(_HEIGHT)]
    styles = [[""] * _WIDTH for _ in range(_HEIGHT)]
    for number, line in enumerate(curves.lines.values()):
        for x, y in _dense(line, (right - left) / (2 * _WIDTH - 1)):
            column = _place(x, left, right, 2 * _WIDTH)
            row = 4 * _HEIGHT - 1 - _place(y, low, high, 4 * _HEIGHT)
            dots[row // 4][column // 2] |= _DOTS[row % 4][column % 2]
            styles[row // 4][column // 2] = _STYLES[number % len(_STYLES)]
    labels = {0: f"{high:.4g}", _HEIGHT - 1: f"{low:.4g}"}
    lines = []
    for row in range(_HEIGHT):
        text = Text(f"{labels.get(row, ''):>9} ", style="cyan")
        for dot, style in zip(dots[row], styles[row], strict=True):
            text.append(chr(0x2800 + dot) if dot else " ", style=style)
        lines.append(text)
    ends = f"{left:,g}", f"{curves.x_label} {right:,g}"
    lines.append(Text(f"{'':>10}{ends[0]}{ends[1]:>{_WIDTH - len(ends[0])}}", style="cyan"))
    legend = Text(" " * 10)
    for number, name in enumerate(curves.lines):
        legend.append(f"● {name}   ", style=_STYLES[number % len(_STYLES)])
    return [*lines, legend]


def _dense(line: Sequence[tuple[float, float]], step: float) -> list[tuple[float, float]]:
    """Interpolate the points of a line, so that it has no gaps."""
    found = [line[0]]
    for (x0, y0), (x1, y1) in itertools.pairwise(line):
        parts = max(1, min(2 * _WIDTH, round((x1 - x0) / step))) if step > 0 else 1
        for i in range(1, parts + 1):
            found.append((x0 + (x1 - x0) * i / parts, y0 + (y1 - y0) * i / parts))
    return found


def _place(value: float, low: float, high: float, number: int) -> int:
    return round((value - low) / (high - low) * (number - 1)) if high > low else number // 2
