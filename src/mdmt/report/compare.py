"""Differences between methods, paired by seed, with intervals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import mdmt.metrics as metrics
from mdmt.experiments.comparison import differences
from mdmt.metrics import A_T, Metric
from mdmt.report.folders import Array
from mdmt.report.study import Entry, Study
from mdmt.words import count

LEVEL = 0.95


def interval(values: list[float]) -> tuple[float, float] | None:
    """Where the mean lies with 95 % confidence (Student's t); None with fewer than two values.

    >>> [round(end, 4) for end in interval([1.0, 2.0, 3.0])]
    [-0.4841, 4.4841]
    >>> interval([1.0]) is None
    True
    """
    from scipy.special import stdtrit

    if len(values) < 2:
        return None
    half = float(stdtrit(len(values) - 1, (1 + LEVEL) / 2)) * np.std(values, ddof=1) / math.sqrt(len(values))
    return float(np.mean(values) - half), float(np.mean(values) + half)


def reference(study: Study) -> Entry:
    """The method that the others are compared with: MDMT-R where it is there, else the most accurate."""
    ours = [entry for entry in study.entries if entry.method == "mdmt-r"]
    return ours[0] if ours else max(study.entries, key=accuracy)


def accuracy(entry: Entry) -> float:
    """Its mean A_T; the lowest there is where it is not known."""
    cell = entry.row["metrics"][A_T.name]
    return -math.inf if cell is None else float(cell["mean"])


def against(entry: Entry, other: Entry) -> dict[str, Any]:
    """Each metric of a method less that of another: mean, interval and number of pairs, or None."""
    found = differences(entry.row, other.row)
    cells = {metric.name: found[metric.name] for metric in metrics.METRICS}
    return {
        name: None
        if cell is None
        else {"mean": cell["mean"], "interval": interval(cell["runs"]), "pairs": len(cell["runs"])}
        for name, cell in cells.items()
    }


def pairs(study: Study) -> tuple[Array, list[list[str]]]:
    """A_T of each method less that of each other, in percentage points, and the same in words."""
    size = len(study.entries)
    means, words = np.full((size, size), np.nan), [[""] * size for _ in range(size)]
    for i, mine in enumerate(study.entries):
        for j, other in enumerate(study.entries):
            cell = None if i == j else against(mine, other)[A_T.name]
            if cell is not None:
                means[i, j] = 100 * cell["mean"]
                words[i][j] = f"{mine.label} less {other.label}: {told(A_T, cell)}, {count('seed', cell['pairs'])}"
    return means, words


def told(metric: Metric, cell: dict[str, Any] | None) -> str:
    """A difference for people: the mean, and its interval where there is one.

    >>> told(A_T, {"mean": 0.0125, "interval": (0.01, 0.015), "pairs": 5})
    '+1.25 [+1.00, +1.50]'
    """
    if cell is None:
        return "-"
    mean = metric.text(cell["mean"], signed=True)
    if cell["interval"] is None:
        return mean
    low, high = (metric.text(end, signed=True) for end in cell["interval"])
    return f"{mean} [{low}, {high}]"
