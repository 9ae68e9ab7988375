"""Heat maps as tables: each cell a number and a shade, and a sentence for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mdmt.metrics import A_T
from mdmt.report.features import centre_angles, class_centres, first_run
from mdmt.report.study import Array, Entry, Study
from mdmt.report.text import format_difference
from mdmt.runs.rows import differences
from mdmt.words import count

MAX_TASKS = 40  # in one map


@dataclass(frozen=True)
class Cell:
    """What a map shows at one place."""

    text: str
    shade: int  # 0 to 100; below zero: the other colour, where there are two
    exact: str  # the same in full


Line = tuple[str, list[Cell | None]]  # the name of a row, and its cells


@dataclass(frozen=True)
class Heatmap:
    """A map with the names of its columns and rows."""

    label: str
    columns: Sequence[str]
    rows: list[Line]
    sentence: str  # what a number is, of {row} and {column}
    dense: bool = False  # too many for numbers in the cells
    breaks: frozenset[int] = frozenset()  # columns and rows that begin a new group
    strongest: str = ""  # what the strongest colour stands for
    note: str = ""


def task_sample(tasks: int) -> list[int]:
    """The tasks that a map has room for, counted from 0: evenly spaced, from first to last."""
    return sorted({round(k) for k in np.linspace(0, tasks - 1, min(tasks, MAX_TASKS))})


def task_map(
    entry: Entry, values: Array, text: Callable[[float], str], largest: float, sentence: str
) -> Heatmap:
    """A map of mean values over seeds: after task i (rows), of task j (columns)."""
    mean, std = values.mean(axis=0), values.std(axis=0)
    numbers = task_sample(len(mean))
    rows: list[Line] = []
    for i in numbers:
        cells: list[Cell | None] = []
        for j in numbers:
            value = mean[i, j]
            if not np.isfinite(value):
                cells.append(None)
                continue
            spread = f" ± {text(std[i, j])}" if len(values) > 1 else ""
            cells.append(Cell(text(value), _percent(value / largest), text(value) + spread))
        rows.append((str(i + 1), cells))
    columns = [str(j + 1) for j in numbers]
    return Heatmap(
        entry.label, columns, rows, sentence, dense=len(numbers) > 10, strongest=text(largest)
    )


def _percent(value: float) -> int:
    return round(100 * min(1.0, max(0.0, value)))


def accuracies(study: Study) -> list[Heatmap]:
    """The accuracy matrices, as in the paper's appendix."""
    sentence = "accuracy on task {column} after task {row} (%)"
    maps = []
    for entry in study.entries:
        values = 100 * np.array([run.accuracy for run in entry.runs])
        maps.append(task_map(entry, values, lambda value: f"{value:.1f}", 100.0, sentence))
    return maps


def drifts(study: Study) -> list[Heatmap]:
    """How far each task's features have moved, after each task; one scale for all methods."""
    entries = [(entry, np.array([run.drift for run in entry.runs])) for entry in study.entries]
    finite = np.concatenate([values[np.isfinite(values)] for _, values in entries])
    largest = float(finite.max()) if len(finite) and finite.max() > 0 else 1.0
    sentence = "drift of task {column} after task {row}"
    return [
        task_map(entry, values, lambda value: f"{value:.3f}", largest, sentence)
        for entry, values in entries
        if len(values[0]) > 1 and np.isfinite(values).any()
    ]


def centres(study: Study) -> tuple[list[Heatmap], bool]:
    """Fig. 3b: angles between class centres, and whether these are class means (one shared
    head).
    """
    labels: list[str] = []
    names: list[list[str]] = []
    angles: list[Array] = []
    shared = False
    for entry in study.entries:
        classes = class_centres(first_run(entry))
        if classes is not None:
            labels.append(entry.label)
            names.append(classes[0])
            angles.append(centre_angles(classes[1]))
            shared |= classes[2]
    largest = max((float(matrix.max()) for matrix in angles), default=1.0) or 1.0
    maps = [_centre_map(*parts, largest) for parts in zip(labels, names, angles, strict=True)]
    return maps, shared


def _centre_map(label: str, names: list[str], angles: Array, largest: float) -> Heatmap:
    """Each pair of classes once; 9.2 is the second class of task 9."""
    short = [name.removeprefix("task ").replace(", class ", ".") for name in names]
    groups = np.array([name.split(".")[0] for name in short])
    rows: list[Line] = []
    for i, (name, line) in enumerate(zip(short, angles, strict=True)):
        cells: list[Cell | None] = [None] * len(short)
        for j, angle in enumerate(line[: i + 1]):
            cells[j] = Cell(f"{angle:.0f}", _percent(angle / largest), f"{angle:.1f}°")
        rows.append((name, cells))
    own = groups[:, None] == groups
    parts = {"within tasks": angles[own & ~np.eye(len(own), dtype=bool)], "between": angles[~own]}
    note = ", ".join(f"{where} {part.mean():.0f}°" for where, part in parts.items() if len(part))
    breaks = frozenset((np.flatnonzero(groups[1:] != groups[:-1]) + 1).tolist())
    dense = len(names) > 12
    sentence = "classes {row} and {column}"
    return Heatmap(
        label, short, rows, sentence, dense, breaks, strongest=f"{largest:.0f}°", note=note
    )


def pairs(study: Study) -> Heatmap:
    """A_T of each method less that of each other, in percentage points."""
    gaps = [
        [differences(row, other).metrics[A_T.name] for other in study.rows] for row in study.rows
    ]
    largest = max((abs(cell["mean"]) for line in gaps for cell in line if cell), default=0.0)
    rows: list[Line] = []
    for i, (row, line) in enumerate(zip(study.rows, gaps, strict=True)):
        cells: list[Cell | None] = []
        for j, cell in enumerate(line):
            if i == j or cell is None:
                cells.append(None)
                continue
            exact = f"{format_difference(A_T, cell)}, {count('seed', len(cell['runs']))}"
            shade = round(100 * cell["mean"] / largest) if largest else 0
            cells.append(Cell(f"{100 * cell['mean']:+.1f}", shade, exact))
        rows.append((row.label, cells))
    return Heatmap(
        "A_T, row less column", [row.label for row in study.rows], rows, "{row} less {column}"
    )
