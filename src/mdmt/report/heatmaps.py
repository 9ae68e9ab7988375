"""Heat maps as HTML tables: each cell has a number and a shade."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mdmt.metrics import A_T
from mdmt.report.figures import Figures, Matrices, MeanMatrix, task_sample
from mdmt.report.study import Study
from mdmt.report.text import format_difference
from mdmt.runs.differences import PairedDifferences
from mdmt.runs.rows import Spread
from mdmt.words import count

MAX_NUMBERED_TASKS = 10  # a larger map has no numbers in its cells
MAX_NUMBERED_CLASSES = 12


@dataclass(frozen=True)
class MapCell:
    """A value of a map: its text, its shade, and the text of its tooltip."""

    text: str
    shade: int  # 0 to 100; of the second colour if negative
    exact: str


# Its name and its cells up to the last value; None leaves one empty.
MapRow = tuple[str, list[MapCell | None]]


@dataclass(frozen=True)
class Heatmap:
    """A map with the names of its columns and rows."""

    label: str
    columns: list[str]
    rows: list[MapRow]
    sentence: str  # the tooltip, with {row} and {column}
    dense: bool = False  # too large for numbers in its cells
    breaks: frozenset[int] = frozenset()  # columns and rows that begin a new group
    strongest: str = ""  # the value of the strongest colour
    note: str = ""


def accuracy_maps(figures: Figures) -> list[Heatmap]:
    """The accuracy matrices, as in the paper's appendix."""
    sentence = "accuracy on task {column} after task {row} (%)"
    return _task_maps(figures.accuracies, lambda value: f"{value:.1f}", 100.0, sentence)


def drift_maps(figures: Figures) -> list[Heatmap]:
    """How far each task's features have moved after each task; one scale for all methods."""
    failed = [entry.label for entry in figures.study.failed]
    drifts = [one.mean for label, one in figures.drifts.items() if label not in failed]
    largest = max((float(np.nanmax(mean)) for mean in drifts), default=0.0)
    sentence = "drift of task {column} after task {row}"
    # Without any movement the scale ends at 1, since a share of 0 is not defined.
    return _task_maps(figures.drifts, lambda value: f"{value:.3f}", largest or 1.0, sentence)


def _task_maps(
    matrices: Matrices, text: Callable[[float], str], largest: float, sentence: str
) -> list[Heatmap]:
    """Maps of means over seeds: after task i (rows), of task j (columns)."""
    maps = []
    for label, matrix in matrices.items():
        numbers = task_sample(len(matrix.mean))
        names = [str(number + 1) for number in numbers]
        rows: list[MapRow] = [
            (name, _to_last_value([_task_cell(matrix, i, j, text, largest) for j in numbers]))
            for name, i in zip(names, numbers, strict=True)
        ]
        dense = len(numbers) > MAX_NUMBERED_TASKS
        maps.append(Heatmap(label, names, rows, sentence, dense, strongest=text(largest)))
    return maps


def _task_cell(
    matrix: MeanMatrix, i: int, j: int, text: Callable[[float], str], largest: float
) -> MapCell | None:
    value = matrix.mean[i, j]
    if not np.isfinite(value):
        return None
    spread = f" ± {text(matrix.std[i, j])}" if matrix.seeds > 1 else ""
    return MapCell(text(value), _percent(value / largest), text(value) + spread)


def _to_last_value(cells: list[MapCell | None]) -> list[MapCell | None]:
    while cells and cells[-1] is None:
        cells = cells[:-1]
    return cells


def _percent(value: float) -> int:
    return round(100 * min(1.0, max(0.0, value)))


def centre_maps(figures: Figures) -> list[Heatmap]:
    """Fig. 3b: angles between class centres; one scale for all methods."""
    matrices = figures.centres
    largest = max((float(one.mean.max()) for one in matrices.values()), default=0.0) or 1.0
    return [_centre_map(label, matrix, largest) for label, matrix in matrices.items()]


def _centre_map(label: str, matrix: MeanMatrix, largest: float) -> Heatmap:
    """Each pair of classes once; 9.2 is the second class of task 9."""
    short = [name.removeprefix("task ").replace(", class ", ".") for name in matrix.names]
    rows: list[MapRow] = []
    for i, (name, line) in enumerate(zip(short, matrix.mean, strict=True)):
        angles = line[: i + 1]
        cells = [MapCell(f"{one:.0f}", _percent(one / largest), f"{one:.1f}°") for one in angles]
        rows.append((name, list(cells)))
    tasks = np.array([name.split(".")[0] for name in short])
    same_task = tasks[:, None] == tasks
    pairs_of_task = same_task & ~np.eye(len(tasks), dtype=bool)
    parts = {"within tasks": matrix.mean[pairs_of_task], "between": matrix.mean[~same_task]}
    note = ", ".join(f"{where} {part.mean():.0f}°" for where, part in parts.items() if len(part))
    return Heatmap(
        label,
        short,
        rows,
        "classes {row} and {column}",
        dense=len(short) > MAX_NUMBERED_CLASSES,
        breaks=frozenset((np.flatnonzero(tasks[1:] != tasks[:-1]) + 1).tolist()),
        strongest=f"{largest:.0f}°",
        note=note,
    )


def pairs(study: Study) -> Heatmap:
    """A_T of each method minus that of each other method, in percentage points."""
    paired = PairedDifferences(study.rows, A_T.name)
    gaps = [
        [None if row is other else paired.between(row, other) for other in study.rows]
        for row in study.rows
    ]
    failed = [study.rows.index(entry.row) for entry in study.failed]
    means = [
        abs(gap["mean"])
        for (i, line), j in itertools.product(enumerate(gaps), range(len(gaps)))
        if (gap := line[j]) is not None and i not in failed and j not in failed
    ]
    largest = max(means, default=0.0) or 1.0
    labels = [row.label for row in study.rows]
    rows: list[MapRow] = [
        (label, [_gap_cell(gap, largest) for gap in line])
        for label, line in zip(labels, gaps, strict=True)
    ]
    return Heatmap("A_T, row minus column", labels, rows, "{row} minus {column}")


def _gap_cell(gap: Spread | None, largest: float) -> MapCell | None:
    if gap is None:
        return None
    exact = f"{format_difference(A_T, gap)}, {count('seed', len(gap['runs']))}"
    shade = max(-100, min(100, round(100 * gap["mean"] / largest)))
    return MapCell(f"{100 * gap['mean']:+.1f}", shade, exact)
