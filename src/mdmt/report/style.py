"""A colour, a line and a marker for each method: the same everywhere, distinct without colour too.

The colours are Okabe and Ito's, the lighter ones darkened to be readable on white. On the page
they are CSS variables, which have lighter values on a dark screen. Methods that rehearse have
solid lines, the others broken ones.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Literal

from mdmt.report.study import Study

INK, GRID = "#1b1f24", "#d5d9de"  # text and axes; lines behind the data
BLUE = "#0072b2"
RED = "#d55e00"
GREEN = "#009e73"
PINK = "#c0609a"
SKY = "#2d93cf"
AMBER = "#b98000"
GREY = "#5b6570"
COLOURS = (BLUE, RED, GREEN, PINK, SKY, AMBER, GREY)
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

        >>> Style(RED, "--", "x").name
        'look-1-1-2'
        """
        line = LINE_STYLES.index(self.line)
        return f"look-{COLOURS.index(self.colour)}-{line}-{MARKERS.index(self.marker)}"


CSS_VARIABLES = {
    **{colour: f"var(--c{i})" for i, colour in enumerate(COLOURS)},
    **{colour: f"var(--t{i})" for i, colour in enumerate(TASK_COLOURS)},
}
METHOD_STYLES = {  # a method that is missing here gets one of OTHERS
    "joint": Style(GREY, ":", "*"),
    "van": Style(GREY, "--", "x"),
    "ewc": Style(BLUE, "--", "v"),
    "mas": Style(GREEN, "--", "<"),
    "rwalk": Style(PINK, "--", ">"),
    "pi": Style(SKY, "--", "h"),
    "mer": Style(AMBER, "-", "P"),
    "gem": Style(SKY, "-", "D"),
    "a-gem": Style(GREEN, "-", "^"),
    "er": Style(PINK, "-", "X"),
    "mega": Style(BLUE, "-", "s"),
    "mdmt-r": Style(RED, "-", "o"),
    "der++": Style(AMBER, "--", "p"),
    "er-ace": Style(RED, "--", "d"),
}
OTHERS = [
    Style(colour, line, marker)
    for line, marker, colour in itertools.product(LINE_STYLES[2:], "8H", COLOURS)
]


def styles(studies: list[Study]) -> dict[str, Style]:
    """A style for each label; only the first row of a method gets the method's own."""
    own: dict[str, Style] = {}
    others: dict[str, None] = {}  # in order
    for study in studies:
        methods: set[str] = set()
        for entry in study.entries:
            if entry.method in METHOD_STYLES and entry.method not in methods:
                own[entry.label] = METHOD_STYLES[entry.method]
                methods.add(entry.method)
            else:
                others[entry.label] = None
    return own | {label: OTHERS[number % len(OTHERS)] for number, label in enumerate(others)}
