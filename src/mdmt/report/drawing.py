"""Charts drawn with matplotlib: as SVG for the page, as SVG and PNG files. The same numbers give the same bytes."""

from __future__ import annotations

import io
import re
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, ScalarFormatter

from mdmt.report.charts import Chart
from mdmt.report.style import GRID, INK, VARIABLES, Style

RC: Any = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "mdmt",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "axes.labelpad": 6,
    "lines.linewidth": 1.7,
    "lines.markersize": 5.5,
    "legend.frameon": False,
}


def draw(chart: Chart, styles: dict[str, Style], *, alone: bool = False) -> Figure:
    """A chart of lines or points; one that stands alone in a file has its title and legend inside."""
    with mpl.rc_context(RC):
        figure = Figure(figsize=(7.6, 4.2), layout="constrained") if alone else Figure(figsize=(5.2, 3.4))
        axes = figure.subplots() if alone else figure.add_axes((0.135, 0.15, 0.855, 0.83))
        for number, one in enumerate(chart.series):
            _series(axes, chart, number, styles[one.label])
        axes.set_xlabel(chart.x_label)
        axes.set_ylabel(chart.y_label)
        if chart.log_x:
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axes.xaxis.set_major_formatter(ScalarFormatter())
            axes.xaxis.set_minor_formatter(NullFormatter())
        elif not chart.points:
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            low, high = axes.get_xlim()
            axes.set_xlim(low - (high - low < 1), high + (high - low < 1))  # a single point has room around it
        if alone:
            axes.set_title(chart.title, loc="left", fontweight="bold", fontsize=11)
            handles = [_handle(styles[one.label], chart.points) for one in chart.series]
            figure.legend(handles, [plain(one.label) for one in chart.series], loc="outside right upper")
    return figure


def _series(axes: Axes, chart: Chart, number: int, style: Style) -> None:
    one = chart.series[number]
    known = np.isfinite(one.y)
    x, y, low, high = (values[known] for values in (one.x, one.y, one.low, one.high))
    line = "none" if chart.points else style.line
    (drawn,) = axes.plot(x, y, color=style.colour, linestyle=line, marker=style.marker, markeredgewidth=_edge(style))
    drawn.set_gid(f"series-{number}")
    if chart.points or len(x) == 1:
        bars = axes.vlines(x, low, high, color=style.colour, linewidth=1.2)
        bars.set_gid(f"spread-{number}")
    elif (high > low).any():
        faint = len(chart.series) > (3 if chart.overlap else 6)
        band = axes.fill_between(x, low, high, color=style.colour, alpha=0.05 if faint else 0.13, linewidth=0)
        band.set_gid(f"spread-{number}")


def swatch(style: Style, points: bool = False) -> str:
    """A method's line and marker, for a legend of the page."""
    with mpl.rc_context(RC):
        figure = Figure(figsize=(0.42, 0.2))
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        axes.set_axis_off()
        axes.add_line(_handle(style, points))
        axes.lines[0].set_data([0, 0.5, 1], [0.5, 0.5, 0.5])
        axes.lines[0].set_markevery([1])
        axes.set(xlim=(0, 1), ylim=(0, 1))
    return inline(figure, "")


def _handle(style: Style, points: bool) -> Line2D:
    return Line2D(
        [],
        [],
        color=style.colour,
        linestyle="none" if points else style.line,
        marker=style.marker,
        markeredgewidth=_edge(style),
    )


def _edge(style: Style) -> float:
    """A marker that is nothing but edge needs more of it."""
    return 1.4 if style.marker == "x" else 0.5


def plain(label: str) -> str:
    """Text that matplotlib takes as it is: a dollar is no mathematics, an underscore hides nothing."""
    return ("\u200b" if label.startswith("_") else "") + label.replace("$", r"\$")


def svg(figure: Figure) -> str:
    """As a file holds it, without a date."""
    text = io.StringIO()
    with mpl.rc_context(RC):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    return text.getvalue()


def png(figure: Figure) -> bytes:
    """For slides and papers, on white."""
    data = io.BytesIO()
    with mpl.rc_context(RC):
        figure.savefig(data, format="png", dpi=200, facecolor="white", metadata={"Software": None})
    return data.getvalue()


def inline(figure: Figure, name: str) -> str:
    """As the page holds it: its ids unlike those of other charts, its colours variables of the page's style.

    A series is marked `data-series`, so that a legend can point at it.
    """
    text = svg(figure)
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r'id="(series|spread)-(\d+)"', r'data-\1="\2"', text)
    text = re.sub(
        r'( id="(figure|axes|patch|matplotlib|xtick|ytick|line2d|text|PathCollection|LineCollection)[^"]*")', "", text
    )
    text = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{name}-", text)
    for colour, variable in VARIABLES.items():
        text = text.replace(colour, variable)
    return re.sub(r"\n\s*", "\n", text).strip()
