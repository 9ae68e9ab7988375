"""Charts, clouds and matrices drawn with matplotlib. The same numbers give the same bytes."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, ScalarFormatter

from mdmt.report.charts import Chart
from mdmt.report.study import Array
from mdmt.report.style import GRID, INK, TASK_MARKERS, TASKS, VARIABLES, Style
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


LONGEST = 40  # letters of a label that leaves room for a chart beside it
PANEL_WIDTH = 32  # letters

Clouds = dict[str, dict[str, Array]]  # method -> group -> points
Matrices = dict[str, tuple[Sequence[str], Array]]  # method -> names, square matrix


def draw(chart: Chart, styles: dict[str, Style], *, standalone: bool = False) -> Figure:
    """A chart of lines or points; a standalone one has its title and legend inside."""
    with mpl.rc_context(RC):
        labels = [plain(series.label) for series in chart.series]
        beside = max(map(len, labels), default=0) <= LONGEST
        if standalone:
            height = 4.2 if beside else 4.2 + 0.22 * len(labels)
            figure = Figure(figsize=(7.6, height), layout="constrained")
            axes = figure.subplots()
        else:
            figure = Figure(figsize=(5.2, 3.4))
            axes = figure.add_axes((0.135, 0.15, 0.855, 0.83))
            axes.tick_params(which="both", length=0, pad=6)  # the grid says where they are
        for number, series in enumerate(chart.series):
            _draw_series(axes, chart, number, styles[series.label])
        axes.set_xlabel(chart.x_label)
        axes.set_ylabel(chart.y_label)
        _set_ticks(axes, chart)
        if standalone:
            axes.set_title(chart.title, loc="left", fontweight="bold", fontsize=11)
            handles = [_handle(styles[series.label], chart.points) for series in chart.series]
            figure.legend(
                handles, labels, loc="outside right upper" if beside else "outside lower left"
            )
    return figure


def _set_ticks(axes: Axes, chart: Chart) -> None:
    if chart.log_x:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter(ScalarFormatter())
        axes.xaxis.set_minor_formatter(NullFormatter())
    elif not chart.points:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        low, high = axes.get_xlim()
        if high - low < 1:  # a single point has room around it
            axes.set_xlim(low - 1, high + 1)


def _draw_series(axes: Axes, chart: Chart, number: int, style: Style) -> None:
    series = chart.series[number]
    finite = np.isfinite(series.y)
    x, y, low, high = (values[finite] for values in (series.x, series.y, series.low, series.high))
    (line,) = axes.plot(
        x,
        y,
        color=style.colour,
        linestyle="none" if chart.points else style.line,
        marker=style.marker,
        markeredgewidth=_edge(style),
    )
    line.set_gid(f"series-{number}")
    if chart.points or len(x) == 1:
        bars = axes.vlines(x, low, high, color=style.colour, linewidth=1.2)
        bars.set_gid(f"spread-{number}")
    elif (high > low).any():
        faint = len(chart.series) > (3 if chart.overlap else 6)
        alpha = 0.05 if faint else 0.13
        band = axes.fill_between(x, low, high, color=style.colour, alpha=alpha, linewidth=0)
        band.set_gid(f"spread-{number}")


def symbol(style: Style, name: str) -> str:
    """A method's line and marker, for the legends of the page to show by its name."""
    with mpl.rc_context(RC):
        figure = Figure(figsize=(0.42, 0.2))
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        axes.set_axis_off()
        axes.add_line(_handle(style, False))
        axes.lines[0].set_data([0, 0.5, 1], [0.5, 0.5, 0.5])
        axes.lines[0].set_markevery([1])
        axes.set(xlim=(0, 1), ylim=(0, 1))
    return (
        inline(figure, name).replace("<svg", f'<symbol id="{name}"').replace("</svg>", "</symbol>")
    )


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
    """Text that matplotlib takes as it is: a dollar is no formula, an underscore hides nothing."""
    return ("\u200b" if label.startswith("_") else "") + label.replace("$", r"\$")


def group_names(clouds: Clouds) -> list[str]:
    """The groups of all methods, by their tasks: one may lack some, as joint does, which has but
    its end.

    >>> both = {"after task 1": [], "after task 3": []}
    >>> group_names({"joint": {"after task 3": []}, "van": both})
    ['after task 1', 'after task 3']
    """
    names = {name for groups in clouds.values() for name in groups}
    return sorted(names, key=lambda name: int(name.split()[-1]))


def scatter(groups: dict[str, Array], names: list[str]) -> Figure:
    """One panel of Fig. 5 or 6, in the colours of the groups' places in `names`. The plane of t-SNE
    has no units.
    """
    with mpl.rc_context(RC):
        figure = Figure(figsize=(2.6, 2.4))
        _cloud(figure.add_axes((0.01, 0.01, 0.98, 0.98)), groups, names)
    return figure


def _cloud(axes: Axes, groups: dict[str, Array], names: list[str]) -> None:
    for name, points in groups.items():
        number = names.index(name)
        marks = axes.scatter(
            points[:, 0],
            points[:, 1],
            s=9,
            marker=TASK_MARKERS[number % 3],
            color=TASKS[number % 3],
            alpha=0.8,
            linewidths=0,
        )
        marks.set_gid(f"series-{number}")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_frame_on(False)


def scatters(title: str, clouds: Clouds) -> Figure:
    """All panels side by side, for a file."""
    with mpl.rc_context(RC):
        figure, panels = _panels(title, list(clouds), 0.7)
        names = group_names(clouds)
        for axes, groups in zip(panels, clouds.values(), strict=True):
            _cloud(axes, groups, names)
        handles = [
            Line2D([], [], color=TASKS[i % 3], marker=TASK_MARKERS[i % 3], linestyle="none")
            for i in range(len(names))
        ]
        figure.legend(handles, names, loc="outside lower center", ncols=max(1, len(names)))
    return figure


def matrices(title: str, unit: str, methods: Matrices) -> Figure:
    """Matrices side by side with one scale, for a file."""
    with mpl.rc_context(RC | {"axes.grid": False}):
        figure, panels = _panels(title, list(methods), 0.3)
        values = [matrix for _, matrix in methods.values()]
        low, high = min(map(np.nanmin, values)), max(map(np.nanmax, values))
        for axes, (names, matrix) in zip(panels, methods.values(), strict=True):
            image = axes.pcolormesh(matrix, vmin=low, vmax=high, cmap="cividis", rasterized=True)
            axes.invert_yaxis()
            axes.set_aspect("equal")
            step = max(1, len(names) // 3)
            axes.set_xticks([])
            ticks = np.arange(0, len(names), step) + 0.5
            axes.set_yticks(ticks, [plain(name) for name in names[::step]], fontsize=7)
        figure.colorbar(image, ax=panels, label=unit, shrink=0.8)
    return figure


def _panels(title: str, labels: list[str], extra: float) -> tuple[Figure, list[Axes]]:
    """Empty panels, four in a row, each with its method's name."""
    columns = min(4, len(labels))
    rows = -(-len(labels) // columns)
    figure = Figure(figsize=(2.6 * columns + 1.2, 2.5 * rows + extra), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", fontweight="bold", fontsize=11)
    grid = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in grid[len(labels) :]:
        axes.remove()
    for axes, label in zip(grid, labels, strict=False):
        axes.set_title("\n".join(fold(plain(label), PANEL_WIDTH)), fontsize=9)
    return figure, grid[: len(labels)]


def svg(figure: Figure) -> str:
    """As a file holds it, without a date."""
    text = io.StringIO()
    with mpl.rc_context(RC):
        figure.savefig(
            text, format="svg", metadata={"Date": None, "Creator": None}, transparent=True
        )
    return text.getvalue()


def png(figure: Figure) -> bytes:
    """For slides and papers, on white."""
    data = io.BytesIO()
    with mpl.rc_context(RC):
        figure.savefig(data, format="png", dpi=200, facecolor="white", metadata={"Software": None})
    return data.getvalue()


def inline(figure: Figure, name: str) -> str:
    """As the page holds it: its ids are unlike those of other charts, its colours are variables.

    A series is marked `data-series`, so that a legend can point at it. Axes are as wide as their
    data, so nothing needs to be cut off at them.
    """
    text = svg(figure)
    text = text[text.index("<svg") :]
    text = re.sub(
        r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", text, flags=re.DOTALL
    )
    text = re.sub(r'id="(series|spread)-(\d+)"', r'data-\1="\2"', text)
    text = re.sub(r"<clipPath.*?</clipPath>", "", text, flags=re.DOTALL)
    text = re.sub(r' clip-path="[^"]*"', "", text)
    text = _numbered(text.replace("xlink:href", "href"), name)
    for colour, variable in VARIABLES.items():
        text = text.replace(colour, variable)
    return _short(text)


def _numbered(text: str, name: str) -> str:
    """Without ids that nothing refers to; the others are numbers behind the name."""
    used = {
        old: f"{name}-{number}"
        for number, old in enumerate(dict.fromkeys(re.findall(r'href="#([^"]*)"', text)))
    }
    text = re.sub(
        r' id="([^"]*)"', lambda found: f' id="{used[found[1]]}"' if found[1] in used else "", text
    )
    return re.sub(r'href="#([^"]*)"', lambda found: f'href="#{used[found[1]]}"', text)


def _short(text: str) -> str:
    """The same picture in fewer letters: no more digits than are seen, no groups of nothing, a
    series as one path.
    """
    text = re.sub(r"-?\d+\.\d{2,}", _seen, text)
    text = re.sub(r"(font-size: 10px|font-family: [^;]*|stroke-dashoffset: 0); ?", "", text)
    text = re.sub(r' transform="rotate\(-0 [^"]*"| xmlns[^" ]*"[^"]*"| version="[^"]*"', "", text)
    # As large as the page has room for.
    text = re.sub(r'<svg width="[^"]*" height="[^"]*"', "<svg", text)
    # The ground of a picture without one.
    text = re.sub(r'<path d="[^"]*" style="fill: none"/>', "", text)
    text = re.sub(r"<defs>\s*</defs>|<g/>", "", _ungrouped(text))
    text = re.sub(r"\s*\n\s*", "\n", text).strip()
    text = re.sub(r"\n(?=[Cz\"])|\n?L(?= )|(?<=[MC]) ", "", text)
    text = re.sub(
        r'<use href="#([^"]*)"[^>]*?( style="[^"]*")/>(?:\n<use href="#\1"[^>]*\2/>)+',
        _corners,
        text,
    )
    mark = r"((?:<defs>\n[^\n]*\n</defs>\n)?<marker[^\n]*\n)"
    line, marks = (
        r'<path d="([^"]*)" style="([^"]*)"/>\n',
        r'<path d="\1" style="fill: none; (marker[^"]*)"/>',
    )
    return re.sub(line + mark + marks, r'\3<path d="\1" style="\2; \4"/>', text)


def _seen(number: re.Match[str]) -> str:
    """A place to tenths of a point, a shape to hundredths."""
    value = float(number[0])
    return f"{value:.{1 if abs(value) > 10 else 2}f}".rstrip("0").rstrip(".")


def _ungrouped(text: str) -> str:
    """Without the groups that say nothing about what is in them."""
    told: list[bool] = []

    def tag(found: re.Match[str]) -> str:
        if found[0] != "</g>":
            told.append(found[0] != "<g>")
            return found[0] if told[-1] else ""
        return found[0] if told.pop() else ""

    return re.sub(r"<g( [^>]*[^/])?>|</g>", tag, text)


def _corners(uses: re.Match[str]) -> str:
    """Uses of one mark in one style, as a path that has the mark at each of its corners."""
    places = re.findall(r' x="([^"]*)" y="([^"]*)"', uses[0])
    mark = (
        f'<marker id="{uses[1]}m" markerUnits="userSpaceOnUse" overflow="visible"><use'
        f' href="#{uses[1]}"{uses[2]}/></marker>'
    )
    corners = " ".join(f"{x} {y}" for x, y in places)
    return f'{mark}\n<path d="M{corners}" style="fill: none; marker: url(#{uses[1]}m)"/>'
