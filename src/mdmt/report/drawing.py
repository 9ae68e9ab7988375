"""Figures as files, drawn with matplotlib: charts, clouds and matrices as SVG and PNG.

The same numbers give the same bytes. The page does not load this module: see `svg.py`.
"""

from __future__ import annotations

import io
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, ScalarFormatter

from mdmt.report.charts import Chart, Series
from mdmt.report.figures import Clouds, Matrices, TaskAccuracies, group_names
from mdmt.report.study import Array
from mdmt.report.style import GRID, INK, TASK_COLOURS, TASK_MARKERS, Style
from mdmt.runs.picture import DPI, Picture
from mdmt.words import fold

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


LEGEND_LETTERS = 40  # a longer label puts the legend below the chart
PANEL_LETTERS = 32  # in a line of a panel's title


def draw_chart(chart: Chart, styles: dict[str, Style]) -> Picture:
    """A chart of lines or points with its title and legend."""
    with mpl.rc_context(RC):
        labels = [plain(series.label) for series in chart.series]
        beside = max(map(len, labels), default=0) <= LEGEND_LETTERS
        height = 4.2 if beside else 4.2 + 0.22 * len(labels)
        figure = Picture(figsize=(7.6, height), layout="constrained")
        draw_lines(figure.subplots(), chart, styles)
        handles = [_handle(styles[series.label], chart.points) for series in chart.series]
        figure.legend(
            handles, labels, loc="outside right upper" if beside else "outside lower left"
        )
    return figure


def draw_lines(axes: Axes, chart: Chart, styles: dict[str, Style]) -> None:
    """A chart without its legend."""
    for series in chart.series:
        _draw_series(axes, chart, series, styles[series.label])
    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(chart.y_label)
    _set_ticks(axes, chart)
    axes.set_title(chart.title, loc="left", fontweight="bold", fontsize=11)


def _set_ticks(axes: Axes, chart: Chart) -> None:
    if chart.log_x:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter(ScalarFormatter())
        axes.xaxis.set_minor_formatter(NullFormatter())
    elif not chart.points:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        low, high = axes.get_xlim()
        if high - low < 1:  # a single point gets room around it
            axes.set_xlim(low - 1, high + 1)


def _draw_series(axes: Axes, chart: Chart, series: Series, style: Style) -> None:
    finite = np.isfinite(series.y)
    x = series.x[finite]
    low = series.low[finite]
    high = series.high[finite]
    line = _handle(style, chart.points)
    line.set_data(x, series.y[finite])
    axes.add_line(line)
    if chart.points or len(x) == 1:
        axes.vlines(x, low, high, color=style.colour, linewidth=1.2)
    elif (high > low).any():
        opacity = chart.band_opacity
        axes.fill_between(x, low, high, color=style.colour, alpha=opacity, linewidth=0)
    axes.autoscale_view()


def _handle(style: Style, points: bool) -> Line2D:
    return Line2D(
        [],
        [],
        color=style.colour,
        linestyle="none" if points else style.line,
        marker=style.marker,
        markeredgewidth=style.outline,
    )


def plain(label: str) -> str:
    """A label in which matplotlib sees neither a formula nor a leading underscore."""
    return ("\u200b" if label.startswith("_") else "") + label.replace("$", r"\$")


def _cloud(axes: Axes, groups: dict[str, Array], names: list[str]) -> None:
    for name, points in groups.items():
        number = names.index(name)
        axes.scatter(
            points[:, 0],
            points[:, 1],
            s=9,
            marker=TASK_MARKERS[number % 3],
            color=TASK_COLOURS[number % 3],
            alpha=0.8,
            linewidths=0,
        )
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_frame_on(False)


def scatters(title: str, clouds: Clouds) -> Figure:
    """Fig. 5 or 6: the panels of all methods."""
    with mpl.rc_context(RC):
        figure, panels = _panels(title, list(clouds), 0.7)
        names = group_names(clouds)
        for axes, groups in zip(panels, clouds.values(), strict=True):
            _cloud(axes, groups, names)
        handles = [
            Line2D([], [], color=TASK_COLOURS[i % 3], marker=TASK_MARKERS[i % 3], linestyle="none")
            for i in range(len(names))
        ]
        figure.legend(handles, names, loc="outside lower center", ncols=max(1, len(names)))
    return figure


def matrices(title: str, unit: str, methods: Matrices) -> Figure:
    """The matrices of all methods with one colour scale."""
    with mpl.rc_context(RC | {"axes.grid": False}):
        figure, panels = _panels(title, list(methods), 0.3)
        values = [matrix.mean for matrix in methods.values()]
        low = min(map(np.nanmin, values))
        high = max(map(np.nanmax, values))
        for axes, matrix in zip(panels, methods.values(), strict=True):
            image = axes.pcolormesh(
                matrix.mean, vmin=low, vmax=high, cmap="cividis", rasterized=True
            )
            axes.invert_yaxis()
            axes.set_aspect("equal")
            step = max(1, len(matrix.names) // 3)
            axes.set_xticks([])
            ticks = np.arange(0, len(matrix.names), step) + 0.5
            axes.set_yticks(ticks, [plain(name) for name in matrix.names[::step]], fontsize=7)
        figure.colorbar(image, ax=panels, label=unit, shrink=0.8)
    return figure


def task_bars(methods: dict[str, TaskAccuracies], styles: dict[str, Style]) -> Figure:
    """The accuracy on each task, right after it was learned (pale) and at the end (dark)."""
    title = "Accuracy (%) on each task: pale after learning it, dark at the end"
    with mpl.rc_context(RC):
        figure, panels = _panels(title, list(methods), 0.3)
        for axes, (label, bars) in zip(panels, methods.items(), strict=True):
            for opacity, values in ((0.3, bars.after), (1.0, bars.end)):
                colour = styles[label].colour
                axes.bar(range(len(values)), values, 0.8, color=colour, alpha=opacity)
            ends = [0, len(bars.tasks) - 1]
            axes.set_xticks(ends, [str(bars.tasks[k]) for k in ends])
            axes.set_ylim(0, 100)
    return figure


def _panels(title: str, labels: list[str], extra: float) -> tuple[Figure, list[Axes]]:
    """Empty panels, four in a row, each with its method's name."""
    columns = min(4, len(labels))
    rows = -(-len(labels) // columns)
    figure = Picture(figsize=(2.6 * columns + 1.2, 2.5 * rows + extra), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", fontweight="bold", fontsize=11)
    grid = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in grid[len(labels) :]:
        axes.remove()
    for axes, label in zip(grid, labels, strict=False):
        axes.set_title("\n".join(fold(plain(label), PANEL_LETTERS)), fontsize=9)
    return figure, grid[: len(labels)]


def svg(figure: Figure) -> str:
    """The figure as SVG text without a date, so that it does not change from day to day."""
    text = io.StringIO()
    with mpl.rc_context(RC):
        figure.savefig(
            text, format="svg", metadata={"Date": None, "Creator": None}, transparent=True
        )
    return text.getvalue()


def png(figure: Figure) -> bytes:
    """The figure as PNG on white."""
    data = io.BytesIO()
    with mpl.rc_context(RC):
        figure.savefig(data, format="png", dpi=DPI, facecolor="white", metadata={"Software": None})
    return data.getvalue()
