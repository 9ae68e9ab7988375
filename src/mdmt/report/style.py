"""A colour, a line and a marker for each method: the same everywhere, distinct without colour too.

The colours are those of Okabe and Ito, the lighter ones darkened until they can be read on white.
On the page they are CSS variables, which have lighter values on a dark screen. Methods that
rehearse have solid lines, the others broken ones.
"""

from __future__ import annotations

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
TASKS = ("#5b3fa8", "#1d9a8a", "#a8324e")  # first, middle, last task: not the colours of methods
TASK_MARKERS = ("o", "^", "s")


Line = Literal["-", "--", "-.", ":"]


@dataclass(frozen=True)
class Style:
    """How a method is drawn."""

    colour: str
    line: Line  # as matplotlib names it
    marker: str


VARIABLES = {
    **{colour: f"var(--c{i})" for i, colour in enumerate(COLOURS)},
    **{colour: f"var(--t{i})" for i, colour in enumerate(TASKS)},
    INK: "currentColor",
    GRID: "var(--line)",
}
METHODS = {  # one that is not here gets one of the others
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
LINES: tuple[Line, ...] = ("-.", ":")
OTHERS = [Style(colour, line, marker) for line in LINES for marker in "8H" for colour in COLOURS]


def styles(studies: list[Study]) -> dict[str, Style]:
    """A style for each label: the first row of a method has the method's, all other rows have
    others.
    """
    own: dict[str, Style] = {}
    others: dict[str, None] = {}  # in order
    for study in studies:
        methods: set[str] = set()
        for entry in study.entries:
            if entry.method in METHODS and entry.method not in methods:
                own[entry.label] = METHODS[entry.method]
                methods.add(entry.method)
            else:
                others[entry.label] = None
    return own | {label: OTHERS[number % len(OTHERS)] for number, label in enumerate(others)}
