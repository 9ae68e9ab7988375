"""A colour, a line and a marker for each method: the same everywhere, distinct without colour too.

No two methods have one colour; the variants of a method share its colour and differ in line and
marker. All colours are readable on white. On the page they are CSS variables, which have lighter
values on a dark screen. Methods that rehearse have solid lines, the others broken ones.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from typing import Literal

from mdmt.report.study import Study

INK, GRID = "#1b1f24", "#d5d9de"  # text and axes; lines behind the data
METHOD_COLOURS = {
    "joint": "#888d92",
    "van": "#373b40",
    "ewc": "#5f87e7",
    "mas": "#47a34e",
    "rwalk": "#ca62a1",
    "pi": "#0999c9",
    "mer": "#999008",
    "gem": "#06a295",
    "a-gem": "#016517",
    "er": "#872465",
    "mega": "#284ba4",
    "mdmt-r": "#d55e00",
    "der++": "#774501",
    "er-ace": "#94221f",
}
OTHER_COLOURS = ("#a272d4", "#b98000", "#055b79", "#663693", "#5a5503")  # of a user's methods
COLOURS = (*METHOD_COLOURS.values(), *OTHER_COLOURS)
# Of the first, middle and last task: not the colours of methods.
TASK_COLOURS = ("#5b3fa8", "#1d9a8a", "#a8324e")
TASK_MARKERS = ("o", "^", "s")
MARKERS = "o*xv^<>sDdphH8PX"  # as matplotlib names them

LineStyle = Literal["-", "--", "-.", ":"]  # likewise
LINE_STYLES: tuple[LineStyle, ...] = ("-", "--", "-.", ":")


@dataclass(frozen=True)
class Style:
    """How a method is drawn."""

    colour: str
    line: LineStyle
    marker: str

    @property
    def outline(self) -> float:
        """The width of a marker's outline; a cross has no inside and needs more of it."""
        return 1.4 if self.marker == "x" else 0.5

    @property
    def name(self) -> str:
        """An identifier for the page.

        >>> Style(METHOD_COLOURS["ewc"], "--", "x").name
        'look-2-1-2'
        """
        line = LINE_STYLES.index(self.line)
        return f"look-{COLOURS.index(self.colour)}-{line}-{MARKERS.index(self.marker)}"


CSS_VARIABLES = {
    **{colour: f"var(--c{i})" for i, colour in enumerate(COLOURS)},
    **{colour: f"var(--t{i})" for i, colour in enumerate(TASK_COLOURS)},
}
LOOKS: dict[str, tuple[LineStyle, str]] = {
    "joint": (":", "*"),
    "van": ("--", "x"),
    "ewc": ("--", "v"),
    "mas": ("--", "<"),
    "rwalk": ("--", ">"),
    "pi": ("--", "h"),
    "mer": ("-", "P"),
    "gem": ("-", "D"),
    "a-gem": ("-", "^"),
    "er": ("-", "X"),
    "mega": ("-", "s"),
    "mdmt-r": ("-", "o"),
    "der++": ("-", "p"),
    "er-ace": ("-", "d"),
}
METHOD_STYLES = {name: Style(METHOD_COLOURS[name], *look) for name, look in LOOKS.items()}
MARKER_OF = {name: marker for name, (_, marker) in LOOKS.items()}
VARIANT_LOOKS: list[tuple[LineStyle, str]] = list(itertools.product(LINE_STYLES[::-1], "s^Dv*"))


def styles(studies: list[Study]) -> dict[str, Style]:
    """A style for each label; only the first row of a method gets the method's own."""
    own: dict[str, Style] = {}
    others: dict[str, str] = {}  # the method of each other label, in order
    for study in studies:
        methods: set[str] = set()
        for entry in study.entries:
            if entry.method in METHOD_STYLES and entry.method not in methods:
                own[entry.label] = METHOD_STYLES[entry.method]
                methods.add(entry.method)
            else:
                others[entry.label] = entry.method
    unknown = dict.fromkeys(method for method in others.values() if method not in METHOD_COLOURS)
    colours = METHOD_COLOURS | dict(zip(unknown, itertools.cycle(OTHER_COLOURS), strict=False))
    uses: Counter[str] = Counter()
    for label, method in others.items():
        colour = colours[method]
        looks = [look for look in VARIANT_LOOKS if look[1] != MARKER_OF.get(method)]
        own[label] = Style(colour, *looks[uses[colour] % len(looks)])
        uses[colour] += 1
    return own
