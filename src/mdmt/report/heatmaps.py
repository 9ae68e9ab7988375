"""Heat maps as tables: each cell a number, a shade and a sentence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mdmt.experiments.comparison import differences
from mdmt.metrics import A_T
from mdmt.report.features import centre_angles, class_centres, first_run
from mdmt.report.folders import Array
from mdmt.report.study import Entry, Study
from mdmt.report.text import format_difference
from mdmt.words import count

MOST = 40  # tasks in one map; of longer streams so many are shown, evenly


@dataclass(frozen=True)
class Cell:
    """What a map shows at one place."""

    text: str
    shade: int  # 0 to 100; below zero: the other colour, where there are two
    says: str


@dataclass(frozen=True)
class Heat:
    """A map with the names of its columns and rows."""

    label: str
    columns: Sequence[str]
    rows: list[tuple[str, list[Cell | None]]]
    dense: bool = False  # too many for numbers in the cells
    breaks: frozenset[int] = frozenset()  # columns and rows that begin a new group
    most: str = ""  # what the strongest colour stands for
    note: str = ""


def shown(tasks: int) -> list[int]:
    """The tasks that a map has room for, counted from 0; the first and the last among them."""
    return sorted({round(k) for k in np.linspace(0, tasks - 1, min(tasks, MOST))})


def task_map(entry: Entry, values: Array, text: Callable[[float], str], scale: float, words: str) -> Heat:
    """A map of mean values over seeds: after task i (rows), of task j (columns)."""
    mean, std = values.mean(axis=0), values.std(axis=0)
    numbers = shown(len(mean))
    rows: list[tuple[str, list[Cell | None]]] = []
    for i in numbers:
        cells: list[Cell | None] = []
        for j in numbers:
            spread = f" ± {text(std[i, j])}" if len(values) > 1 else ""
            says = f"{words.format(j=j + 1, i=i + 1)}: {text(mean[i, j])}{spread}"
            cells.append(
                Cell(text(mean[i, j]), _percent(mean[i, j] / scale), says) if np.isfinite(mean[i, j]) else None
            )
        rows.append((str(i + 1), cells))
    return Heat(entry.label, [str(j + 1) for j in numbers], rows, dense=len(numbers) > 10, most=text(scale))


def _percent(value: float) -> int:
    return round(100 * min(1.0, max(0.0, value)))


def accuracies(study: Study) -> list[Heat]:
    """The accuracy matrices, as in the paper's appendix."""
    words = "accuracy on task {j} after task {i} (%)"
    return [
        task_map(e, 100 * np.array([r.accuracy for r in e.runs]), lambda v: f"{v:.1f}", 100.0, words)
        for e in study.entries
    ]


def drifts(study: Study) -> list[Heat]:
    """How far each task's features have moved, after each task; one scale for all methods."""
    found = [(entry, np.array([run.drift for run in entry.runs])) for entry in study.entries]
    finite = np.concatenate([values[np.isfinite(values)] for _, values in found])
    most = float(finite.max()) if len(finite) and finite.max() > 0 else 1.0
    words = "drift of task {j} after task {i}"
    return [
        task_map(entry, values, lambda v: f"{v:.3f}", most, words)
        for entry, values in found
        if len(values[0]) > 1 and np.isfinite(values).any()
    ]


def centres(study: Study) -> tuple[list[Heat], bool]:
    """Fig. 3b: angles between class centres; and whether these are class means for want of heads of their own."""
    kept = [(entry, class_centres(first_run(entry))) for entry in study.entries]
    found = [(entry.label, c[0], centre_angles(c[1]), c[2]) for entry, c in kept if c is not None]
    most = max((float(angles.max()) for _, _, angles, _ in found), default=1.0) or 1.0
    return [_centre_map(label, names, angles, most) for label, names, angles, _ in found], any(c[3] for c in found)


def _centre_map(label: str, names: list[str], angles: Array, most: float) -> Heat:
    """Classes are named 9.2, the second class of task 9, and in sentences in full."""
    short = [name.removeprefix("task ").replace(", class ", ".") for name in names]
    groups = np.array([name.split(".")[0] for name in short])
    rows: list[tuple[str, list[Cell | None]]] = []
    for i, name in enumerate(names):
        cells: list[Cell | None] = [
            Cell(f"{a:.0f}", _percent(a / most), f"{name} and {names[j]}: {a:.1f}°") for j, a in enumerate(angles[i])
        ]
        rows.append((short[i], cells))
    own = groups[:, None] == groups
    parts = {"within tasks": angles[own & ~np.eye(len(own), dtype=bool)], "between": angles[~own]}
    note = ", ".join(f"{where} {part.mean():.0f}°" for where, part in parts.items() if len(part))
    breaks = frozenset((np.flatnonzero(groups[1:] != groups[:-1]) + 1).tolist())
    return Heat(label, short, rows, dense=len(names) > 12, breaks=breaks, most=f"{most:.0f}°", note=note)


def pairs(study: Study) -> Heat:
    """A_T of each method less that of each other, in percentage points."""
    size = len(study.entries)
    means, words = np.full((size, size), np.nan), [[""] * size for _ in range(size)]
    for i, mine in enumerate(study.entries):
        for j, other in enumerate(study.entries):
            cell = None if i == j else differences(mine.row, other.row).metrics[A_T.name]
            if cell is not None:
                means[i, j] = 100 * cell["mean"]
                seeds = count("seed", len(cell["runs"]))
                words[i][j] = f"{mine.label} less {other.label}: {format_difference(A_T, cell)}, {seeds}"
    most = float(np.nanmax(np.abs(means))) if np.isfinite(means).any() else 0.0
    names = [entry.label for entry in study.entries]
    rows: list[tuple[str, list[Cell | None]]] = []
    for i, name in enumerate(names):
        cells: list[Cell | None] = [
            Cell(f"{v:+.1f}", round(100 * v / most) if most else 0, words[i][j]) if np.isfinite(v) else None
            for j, v in enumerate(means[i])
        ]
        rows.append((name, cells))
    return Heat("A_T, row less column", names, rows)
