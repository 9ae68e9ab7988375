"""Write the page's charts as SVG text.

A page defines the markers and legend swatches once (`definitions`); charts refer to them by the
name of their style. Colours are CSS variables, because a dark page has lighter ones. page.css
has the rules for the classes `grid`, `axis`, `line` and `cloud`.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

import numpy as np

from mdmt.report.axes import MOST_TICKS, Axis, padded_range
from mdmt.report.charts import Chart, Series
from mdmt.report.figures import TaskAccuracies, TaskLines
from mdmt.report.study import Array
from mdmt.report.style import CSS_VARIABLES, TASK_COLOURS, TASK_MARKERS, LineStyle, Style

WIDTH, HEIGHT = 374, 245  # of a chart; its text is 10 high
TOP, RIGHT, BOTTOM = 5, 371, 208  # edges of the plot area
LEFT = 50  # the left edge, further right if the numbers beside it are long
PANEL_WIDTH, PANEL_HEIGHT = 187, 173  # of a cloud of points
BARS_LEFT, BARS_BOTTOM = 26, 106  # edges of the bars of each task
LINES_LEFT, LINES_BOTTOM = 26, 150  # edges of the accuracies along the steps
SWATCH_WIDTH, SWATCH_HEIGHT = 30, 14
DIGIT = 6.2  # width of a digit, on a narrow screen too
GAP = 6  # between an axis and its tick labels
TITLE_GAP = 9  # between tick labels and the title beside them
TITLE_HEIGHT = 10

DASHES: dict[LineStyle, str] = {"-": "", "--": "6.3 2.7", "-.": "10.9 2.7 1.7 2.7", ":": "1.7 2.8"}
GLYPHS = {  # markers around 0 0, some 5.5 wide
    "o": "M-2.75 0a2.75 2.75 0 1 0 5.5 0a2.75 2.75 0 1 0-5.5 0z",
    "*": "M0-2.75-.62-.85H-2.62L-1 .32-1.62 2.22 0 1.05 1.62 2.22 1 .32 2.62-.85H.62z",
    "x": "M-2.75 2.75 2.75-2.75M-2.75-2.75 2.75 2.75",
    "v": "M0 2.75 2.75-2.75H-2.75z",
    "^": "M0-2.75 2.75 2.75H-2.75z",
    "<": "M-2.75 0 2.75-2.75V2.75z",
    ">": "M2.75 0-2.75-2.75V2.75z",
    "s": "M-2.75-2.75H2.75V2.75H-2.75z",
    "D": "M0-3.9 3.9 0 0 3.9-3.9 0z",
    "d": "M0-3.9 2.35 0 0 3.9-2.35 0z",
    "p": "M0-2.75-2.62-.85-1.62 2.22H1.62L2.62-.85z",
    "h": "M0-2.75-2.38-1.38V1.38L0 2.75 2.38 1.38V-1.38z",
    "H": "M-2.75 0-1.38 2.38H1.38L2.75 0 1.38-2.38H-1.38z",
    "8": "M-1.05-2.54-2.54-1.05V1.05L-1.05 2.54H1.05L2.54 1.05V-1.05L1.05-2.54z",
    "P": "M-.92-2.75H.92V-.92H2.75V.92H.92V2.75H-.92V.92H-2.75V-.92H-.92z",
    "X": "M-1.38-2.75 0-1.38 1.38-2.75 2.75-1.38 1.38 0 2.75 1.38 1.38 2.75 0 1.38-1.38 2.75"
    "-2.75 1.38-1.38 0-2.75-1.38z",
}


def definitions(styles: Iterable[Style]) -> str:
    """The markers and swatches of these styles, and the markers of clouds.

    A style named `x` has its marker's shape as #x, the marker as #x-m and the swatch as #x-s.
    """
    parts = [_define(style) for style in dict.fromkeys(styles)]
    for number, (shape, colour) in enumerate(zip(TASK_MARKERS, TASK_COLOURS, strict=True)):
        look = f"fill:{CSS_VARIABLES[colour]};fill-opacity:.8"
        parts += [
            f'<path id="task-{number}" d="{GLYPHS[shape]}" transform="scale(.55)" style="{look}"/>',
            _marker(f"task-{number}-m", f'<use href="#task-{number}"/>'),
        ]
    return "\n".join(parts)


def _define(style: Style) -> str:
    name = style.name
    colour = f'style="color:{CSS_VARIABLES[style.colour]}"'
    middle = SWATCH_HEIGHT // 2
    return (
        f'<path id="{name}" d="{GLYPHS[style.marker]}" fill="currentColor" stroke="currentColor"'
        f' stroke-width="{style.outline}"/>'
        + _marker(f"{name}-m", f'<use href="#{name}" {colour}/>')
        + f'<symbol id="{name}-s" viewBox="0 0 {SWATCH_WIDTH} {SWATCH_HEIGHT}"><g {colour}>'
        f'<path class="line" d="M0 {middle}H{SWATCH_WIDTH}"{_dashes(style)}/>'
        f'<use href="#{name}" x="{SWATCH_WIDTH // 2}" y="{middle}"/></g></symbol>'
    )


def _marker(name: str, content: str) -> str:
    return f'<marker id="{name}" markerUnits="userSpaceOnUse" overflow="visible">{content}</marker>'


def _dashes(style: Style) -> str:
    dashes = DASHES[style.line]
    return f' stroke-dasharray="{dashes}"' if dashes else ""


def swatch(style: Style) -> str:
    """A method's line and marker, for a legend."""
    return f'<svg aria-hidden="true"><use href="#{style.name}-s"/></svg>'


def chart_svg(chart: Chart, styles: dict[str, Style], name: str) -> str:
    """A chart of lines or points; `name` makes its identifiers unique in the page."""
    finite = [_finite(series) for series in chart.series]
    x, y = _axes(chart, finite)
    parts = _frame(chart, x, y)
    numbered = list(enumerate(finite))
    parts += [_spread(k, one, x, y, styles[one.label], chart) for k, one in numbered]
    parts += [_marks(k, one, x, y, styles[one.label], chart) for k, one in numbered]
    return _picture(WIDTH, HEIGHT, name, chart.title, chart.summary(), parts)


def _finite(series: Series) -> Series:
    there = np.isfinite(series.y)
    columns = (series.x, series.y, series.low, series.high)
    return Series(series.label, *(column[there] for column in columns))


def _axes(chart: Chart, finite: list[Series]) -> tuple[Axis, Axis]:
    xs = np.concatenate([series.x for series in finite])
    ys = np.concatenate([np.concatenate([one.low, one.y, one.high]) for one in finite])
    y = Axis(*padded_range(ys), BOTTOM, TOP)
    left = max(LEFT, _beside(y.labels(y.ticks())) + TITLE_HEIGHT)
    return Axis(*padded_range(xs, log=chart.log_x), left, RIGHT, chart.log_x), y


def _labels_width(labels: list[str]) -> float:
    return DIGIT * max(map(len, labels), default=0)


def _beside(labels: list[str]) -> float:
    """The distance between a vertical axis and its title."""
    return GAP + _labels_width(labels) + TITLE_GAP


def _frame(chart: Chart, x: Axis, y: Axis) -> list[str]:
    """The grid, the axes, their tick labels and their titles."""
    x_ticks = _x_ticks(x, integers=not chart.points)
    y_ticks = y.ticks()
    x_places = x.positions(np.array(x_ticks))
    y_places = y.positions(np.array(y_ticks))
    y_labels = y.labels(y_ticks)
    left = _number(x.start)
    down = "".join(f"M{_number(place)} {TOP}V{BOTTOM}" for place in x_places)
    across = "".join(f"M{left} {_number(place)}H{RIGHT}" for place in y_places)
    middle = _number((x.start + RIGHT) / 2)
    side = f"{_number(x.start - _beside(y_labels))} {(TOP + BOTTOM) // 2}"
    return [
        f'<path class="grid" d="{down}{across}"/>',
        f'<path class="axis" d="M{left} {TOP}V{BOTTOM}H{RIGHT}"/>',
        '<g text-anchor="middle">',
        *_texts(x_places, [BOTTOM + 14.0] * len(x_ticks), x.labels(x_ticks)),
        f'<text x="{middle}" y="{BOTTOM + 30}">{escape(chart.x_label)}</text>',
        f'<text transform="translate({side})rotate(-90)">{escape(chart.y_label)}</text>',
        '</g><g text-anchor="end">',
        *_texts([x.start - GAP] * len(y_ticks), y_places + 3.5, y_labels),
        "</g>",
    ]


def _x_ticks(x: Axis, *, integers: bool) -> list[float]:
    """Ticks whose labels do not touch each other."""
    for most in range(MOST_TICKS, 1, -1):
        ticks = x.ticks(most, integers=integers)
        if len(ticks) * (_labels_width(x.labels(ticks)) + GAP) <= RIGHT - x.start:
            return ticks
    return x.ticks(1, integers=integers)


def _texts(x: Iterable[float], y: Iterable[float], labels: list[str]) -> list[str]:
    return [
        f'<text x="{_number(a)}" y="{_number(b)}">{label}</text>'
        for a, b, label in zip(x, y, labels, strict=True)
    ]


def _spread(number: int, series: Series, x: Axis, y: Axis, style: Style, chart: Chart) -> str:
    """A band around a line, or a bar through a point; empty if there is no spread."""
    places = x.positions(series.x)
    low = y.positions(series.low)
    high = y.positions(series.high)
    about = f'data-spread="{number}"'
    colour = CSS_VARIABLES[style.colour]
    if chart.points or len(places) == 1:
        bars = "".join(
            f"M{_number(place)} {_number(bottom)}V{_number(top)}"
            for place, bottom, top in zip(places, low, high, strict=True)
        )
        return f'<path {about} class="bar" style="color:{colour}" d="{bars}"/>'
    if (series.high <= series.low).all():
        return ""
    outline = _path(np.append(places, places[::-1]), np.append(high, low[::-1]))
    look = f"fill:{colour};fill-opacity:{chart.band_opacity}"
    return f'<path {about} style="{look}" d="{outline}z"/>'


def _marks(number: int, series: Series, x: Axis, y: Axis, style: Style, chart: Chart) -> str:
    """A line with a marker at each value, or the markers alone."""
    places = (x.positions(series.x), y.positions(series.y))
    colour = f"color:{CSS_VARIABLES[style.colour]}"
    line = 'class="cloud"' if chart.points else f'class="line"{_dashes(style)}'
    return _marked(number, *places, style.name, line, colour)


def _marked(number: int, x: Array, y: Array, marker: str, line: str, look: str = "") -> str:
    """A series of markers. Browsers draw none on a path of one point, so a `use` stands there."""
    about = f'data-series="{number}"'
    if len(x) == 1:
        place = f'x="{_number(x[0])}" y="{_number(y[0])}"'
        return f'<use {about} style="{look}" href="#{marker}" {place}/>'
    look = f"marker:url(#{marker}-m);{look}"
    return f'<path {about} {line} style="{look}" d="{_path(x, y)}"/>'


def cloud(groups: dict[str, Array], names: list[str], name: str, title: str, about: str) -> str:
    """A panel of Fig. 5 or 6; a group's place in `names` decides on its marker.

    There are no axes, because the plane of t-SNE has no units.
    """
    points = np.concatenate(list(groups.values()))
    x = Axis(*padded_range(points[:, 0]), 2, PANEL_WIDTH - 2)
    y = Axis(*padded_range(points[:, 1]), PANEL_HEIGHT - 2, 2)
    parts = []
    for group, own in groups.items():
        number = names.index(group)
        places = (x.positions(own[:, 0]), y.positions(own[:, 1]))
        parts.append(
            _marked(number, *places, f"task-{number % len(TASK_COLOURS)}", 'class="cloud"')
        )
    return _picture(PANEL_WIDTH, PANEL_HEIGHT, name, title, about, parts)


def task_bars(bars: TaskAccuracies, colour: str, name: str, title: str) -> str:
    """Two bars for each task: pale right after it was learned, in front of it dark at the end.

    All panels have one scale, from 0 to 100 %.
    """
    y = Axis(0, 100, BARS_BOTTOM, 6)
    levels = [0.0, 50.0, 100.0]
    places = y.positions(np.array(levels))
    slot = (PANEL_WIDTH - BARS_LEFT) / len(bars.tasks)
    across = "".join(f"M{BARS_LEFT} {_number(place)}H{PANEL_WIDTH}" for place in places)
    parts = [f'<path class="grid" d="{across}"/>', '<g text-anchor="end">']
    parts += [*_texts([BARS_LEFT - 4.0] * 3, places + 3.5, y.labels(levels)), "</g>"]
    for opacity, values in ((0.3, bars.after), (1, bars.end)):
        tops = y.positions(np.nan_to_num(values))
        shapes = "".join(
            f"M{_number(BARS_LEFT + k * slot + 0.1 * slot)} {BARS_BOTTOM}"
            f"V{_number(top)}h{_number(0.8 * slot)}V{BARS_BOTTOM}z"
            for k, top in enumerate(tops)
        )
        parts.append(f'<path style="fill:{colour};fill-opacity:{opacity}" d="{shapes}"/>')
    ends = sorted({0, len(bars.tasks) - 1})
    middles = [BARS_LEFT + (k + 0.5) * slot for k in ends]
    names = [str(bars.tasks[k]) for k in ends]
    parts += [
        '<g text-anchor="middle">',
        *_texts(middles, [BARS_BOTTOM + 12.0] * len(ends), names),
        "</g>",
    ]
    about = "; ".join(
        f"task {task}: {_percent(after)} after learning, {_percent(end)} at the end"
        for task, after, end in zip(bars.tasks, bars.after, bars.end, strict=True)
    )
    return _picture(PANEL_WIDTH, BARS_BOTTOM + 16, name, title, about, parts)


def task_lines(found: TaskLines, colour: str, name: str, title: str) -> str:
    """The accuracy on earlier tasks along the steps, the first task in the strongest colour.

    Dashed lines are the boundaries between tasks. All panels have one scale, from 0 to 100 %.
    """
    last = max(float(x[-1]) for x, _ in found.lines.values())
    across, up = Axis(0, last, LINES_LEFT, RIGHT), Axis(0, 100, LINES_BOTTOM, TOP)
    parts = _lines_frame(found, across, up)
    for place, (x, y) in reversed(list(enumerate(found.lines.values()))):
        known = np.isfinite(y)
        path = _path(across.positions(x[known]), up.positions(y[known]))
        look = f"color:{colour};opacity:{1 - 0.7 * place / max(1, len(found.lines) - 1):.2g}"
        parts.append(f'<path class="line" style="{look}" d="{path}"/>')
    about = "; ".join(
        f"task {task}: lowest {_percent(np.nanmin(y))}, {_percent(y[-1])} at the end"
        for task, (_, y) in found.lines.items()
    )
    return _picture(WIDTH, LINES_BOTTOM + 32, name, title, about, parts)


def _lines_frame(found: TaskLines, across: Axis, up: Axis) -> list[str]:
    """The grid, the boundaries between tasks, the tick labels."""
    levels = [0.0, 25.0, 50.0, 75.0, 100.0]
    heights = up.positions(np.array(levels))
    ticks = _x_ticks(across, integers=True)
    places = across.positions(np.array(ticks))
    ends = across.positions(np.array(found.boundaries, dtype=float))
    grid = "".join(f"M{LINES_LEFT} {_number(height)}H{RIGHT}" for height in heights)
    dashes = "".join(f"M{_number(end)} {TOP}V{LINES_BOTTOM}" for end in ends)
    return [
        f'<path class="grid" d="{grid}"/>',
        f'<path class="axis" stroke-dasharray="2 2" d="{dashes}"/>',
        '<g text-anchor="end">',
        *_texts([LINES_LEFT - 4.0] * len(levels), heights + 3.5, up.labels(levels)),
        '</g><g text-anchor="middle">',
        *_texts(places, [LINES_BOTTOM + 13.0] * len(ticks), across.labels(ticks)),
        f'<text x="{(LINES_LEFT + RIGHT) // 2}" y="{LINES_BOTTOM + 28}">steps</text></g>',
    ]


def _percent(value: float) -> str:
    return f"{value:.1f} %" if np.isfinite(value) else "unknown"


def _path(x: Array, y: Array) -> str:
    return "M" + " ".join(f"{_number(a)} {_number(b)}" for a, b in zip(x, y, strict=True))


def _number(value: float) -> str:
    """A position to tenths, finer than the eye sees.

    >>> _number(12.34), _number(12.0), _number(-0.01)
    ('12.3', '12', '0')
    """
    return f"{round(value, 1) + 0.0:g}"


def _picture(
    width: int, height: int, name: str, title: str, about: str, parts: Iterable[str]
) -> str:
    content = "\n".join(filter(None, parts))
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-labelledby="{name}-t"'
        f' aria-describedby="{name}-d"><title id="{name}-t">{escape(title)}</title>'
        f'<desc id="{name}-d">{escape(about)}</desc>\n{content}</svg>'
    )
