"""Panels, a method each: clouds of points (Fig. 5 and 6) and, for files, matrices (Fig. 3b)."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from mdmt.report.drawing import RC, plain
from mdmt.report.folders import Array
from mdmt.report.style import TASK_MARKERS, TASKS

Clouds = dict[str, dict[str, Array]]  # method -> group -> points
Matrices = dict[str, tuple[Sequence[str], Array]]  # method -> names, square matrix


def scatter(groups: dict[str, Array]) -> Figure:
    """One panel of Fig. 5 or 6. The plane of t-SNE has no units: no ticks."""
    with mpl.rc_context(RC):
        figure = Figure(figsize=(2.6, 2.4))
        _cloud(figure.add_axes((0.01, 0.01, 0.98, 0.98)), groups)
    return figure


def _cloud(axes: Axes, groups: dict[str, Array]) -> None:
    for number, points in enumerate(groups.values()):
        marks = axes.scatter(
            points[:, 0], points[:, 1], s=9, marker=TASK_MARKERS[number % 3], color=TASKS[number % 3], alpha=0.8, linewidths=0
        )  # fmt: skip
        marks.set_gid(f"series-{number}")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_frame_on(False)


def scatters(title: str, clouds: Clouds) -> Figure:
    """All panels side by side, for a file."""
    with mpl.rc_context(RC):
        figure, panels = _panels(title, list(clouds), 0.7)
        for axes, groups in zip(panels, clouds.values(), strict=True):
            _cloud(axes, groups)
        names = list(next(iter(clouds.values()), {}))
        handles = [
            Line2D([], [], color=TASKS[i % 3], marker=TASK_MARKERS[i % 3], linestyle="none") for i in range(len(names))
        ]
        figure.legend(handles, names, loc="outside lower center", ncols=max(1, len(names)))
    return figure


def matrices(title: str, unit: str, found: Matrices) -> Figure:
    """Matrices side by side with one scale, for a file."""
    with mpl.rc_context(RC | {"axes.grid": False}):
        figure, panels = _panels(title, list(found), 0.3)
        values = [matrix for _, matrix in found.values()]
        low, high = min(map(np.nanmin, values)), max(map(np.nanmax, values))
        for axes, (names, matrix) in zip(panels, found.values(), strict=True):
            image = axes.pcolormesh(matrix, vmin=low, vmax=high, cmap="cividis", rasterized=True)
            axes.invert_yaxis()
            axes.set_aspect("equal")
            step = max(1, len(names) // 3)
            axes.set_xticks([])
            axes.set_yticks(np.arange(0, len(names), step) + 0.5, [plain(n) for n in names[::step]], fontsize=7)
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
        axes.set_title(plain(label), fontsize=9)
    return figure, grid[: len(labels)]
