"""Sections drawn as pictures for pages that nothing else draws: SVG, small and sharp."""

import io
from typing import Any

from bertpre.inspection.sections import Curves

_COLORS = {"held out": "#c2410c", "dev": "#c2410c", "word frequencies alone": "#6b7280"}
_SETTINGS = {
    "svg.hashsalt": "bertpre",  # or ids would differ each time
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
}


def draw_curves_svg(curves: Curves) -> bytes:
    """Draw curves as an SVG file; equal curves give equal bytes."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    settings: Any = _SETTINGS
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=(5.6, 3.1), layout="constrained")
        axes = figure.subplots()
        for name, points in curves.lines.items():
            color = _COLORS.get(name, "#1d4ed8")
            x, y = zip(*points, strict=True)
            few = len(points) <= 60 and name != "word frequencies alone"
            style: dict[str, Any] = {"marker": "o", "ms": 3} if few else {"lw": 1.2}
            if name == "word frequencies alone":
                style["ls"] = "--"
            axes.plot(x, y, label=name, color=color, **style)
        axes.set_xlabel(curves.x_label)
        # There is no epoch 1.5.
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        if len(curves.lines) > 1:
            axes.legend(frameon=False)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()
