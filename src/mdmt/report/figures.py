"""The figures of a study: charts, clouds and matrices, computed once for the page and the files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from mdmt.report import features
from mdmt.report.charts import CHARTS, Chart
from mdmt.report.study import Array, Entry, Run, Study

MAX_SHOWN_TASKS = 40  # longer streams are sampled
MOST_LINES = 8  # of earlier tasks along the steps
MOST_POINTS = 400  # of such a line
Clouds = dict[str, dict[str, Array]]  # method -> group -> points


@dataclass(frozen=True)
class MeanMatrix:
    """A square matrix of one method: mean and population standard deviation over seeds."""

    names: list[str]  # of rows and columns alike
    mean: Array
    std: Array
    seeds: int = 1


Matrices = dict[str, MeanMatrix]  # by method


@dataclass(frozen=True)
class TaskAccuracies:
    """The accuracy (%) of one method on each task, mean over seeds; NaN if not evaluated."""

    tasks: list[int]  # counted from 1; a sample of many
    after: Array  # right after the task was learned
    end: Array  # after the last task


@dataclass(frozen=True)
class TaskLines:
    """The accuracy (%) of one method on earlier tasks along the steps, mean over seeds."""

    lines: dict[int, tuple[Array, Array]]  # steps and accuracies, by task, counted from 1
    boundaries: list[int]  # the steps at which a task ends and the next one begins


@dataclass(frozen=True)
class Figures:
    """A study with its figures."""

    study: Study
    number: int  # of the study in the report, from 0
    charts: dict[str, Chart]
    clouds: dict[str, Clouds]  # Fig. 5 and 6

    @cached_property
    def accuracies(self) -> Matrices:
        """Accuracy (%) on each task (columns) after each task (rows)."""
        return self._task_matrices(lambda run: 100 * run.accuracy)

    @cached_property
    def by_task(self) -> dict[str, TaskAccuracies]:
        """What each method knew of each task, right after learning it and at the end."""
        sample = task_sample(self.study.tasks)
        numbers = [number + 1 for number in sample]
        return {
            label: TaskAccuracies(numbers, one.mean.diagonal()[sample], one.mean[-1, sample])
            for label, one in self.accuracies.items()
        }

    @cached_property
    def along_steps(self) -> dict[str, TaskLines]:
        """The accuracy on earlier tasks along the steps, of the methods that measured it."""
        found = {entry.label: task_lines(entry) for entry in self.study.entries}
        return {label: lines for label, lines in found.items() if lines is not None}

    @cached_property
    def drifts(self) -> Matrices:
        """Drift of each task (columns) after each task (rows), of the methods that have any."""
        if self.study.tasks == 1:
            return {}
        matrices = self._task_matrices(lambda run: run.drift)
        return {name: one for name, one in matrices.items() if np.isfinite(one.mean).any()}

    @cached_property
    def centres(self) -> Matrices:
        """Fig. 3b: degrees between class centres, of the methods that kept features."""
        matrices = {}
        for entry in self.study.entries:
            centres = features.class_centres(features.first_run(entry))
            if centres is not None:
                names, vectors = centres
                angles = features.centre_angles(vectors)
                matrices[entry.label] = MeanMatrix(names, angles, np.zeros_like(angles))
        return matrices

    def _task_matrices(self, values: Callable[[Run], Array]) -> Matrices:
        names = [f"task {number + 1}" for number in range(self.study.tasks)]
        matrices = {}
        for entry in self.study.entries:
            seeds = np.array([values(run) for run in entry.runs])
            mean = seeds.mean(axis=0)
            matrices[entry.label] = MeanMatrix(names, mean, seeds.std(axis=0), len(seeds))
        return matrices


def task_lines(entry: Entry) -> TaskLines | None:
    """The accuracy on tasks of a method after it has learned them; None if it was not measured.

    Seeds are averaged if they were measured at the same steps, else it is that of the first.
    """
    points = [run.record.anytime for run in entry.runs if run.record.anytime is not None]
    steps = [(one["steps"], [len(row) for row in one["accuracy"]]) for one in points]
    if not steps or len(set(steps[0][1])) == 1:  # no earlier task
        return None
    x, seen = np.array(steps[0][0]), np.array(steps[0][1])
    seeds = [one for one, its in zip(points, steps, strict=True) if its == steps[0]]
    starts = np.flatnonzero(np.diff(seen)) + 1  # the first point of each task but the first
    lines = {}
    for place in _some(len(starts)):
        end = starts[place] - 1  # of the task that is followed
        task = int(seen[end])
        rows = [[row[task - 1] for row in one["accuracy"][end:]] for one in seeds]
        mean = 100 * np.array(rows, dtype=float).mean(axis=0)
        if np.isfinite(mean).any():
            lines[task] = thinned(x[end:].astype(float), mean)
    return TaskLines(lines, x[starts].tolist()) if lines else None


def thinned(x: Array, y: Array) -> tuple[Array, Array]:
    """At most MOST_POINTS points; of several in a row the first and the lowest, since falls count.

    >>> [list(map(float, one)) for one in thinned(np.arange(4.0), np.array([3, 1, 2, 4.0]))]
    [[0.0, 1.0, 2.0, 3.0], [3.0, 1.0, 2.0, 4.0]]
    """
    if len(x) <= MOST_POINTS:
        return x, y
    kept = {len(x) - 1}
    for part in np.array_split(np.arange(len(x)), MOST_POINTS // 2):
        kept |= {int(part[0]), int(part[np.argmin(np.nan_to_num(y[part], nan=np.inf))])}
    places = sorted(kept)
    return x[places], y[places]


def _some(number: int) -> list[int]:
    """At most MOST_LINES of so many, evenly spaced from first to last."""
    return sorted({round(k) for k in np.linspace(0, number - 1, min(number, MOST_LINES))})


def task_sample(tasks: int) -> list[int]:
    """The tasks that a figure shows, counted from 0: evenly spaced from first to last."""
    return sorted({round(k) for k in np.linspace(0, tasks - 1, min(tasks, MAX_SHOWN_TASKS))})


def figures_of(studies: list[Study], cache: Path | None, *, compute: bool = True) -> list[Figures]:
    """The figures of each study; without `compute`, only the t-SNE results in the cache."""
    return [
        Figures(study, number, charts_of(study), clouds_of(study, cache, compute=compute))
        for number, study in enumerate(studies)
    ]


def charts_of(study: Study) -> dict[str, Chart]:
    """The charts of a study by name, without charts and series that have no numbers.

    A setting that failed is named below a chart and not drawn, because it would spoil the scale.
    """
    failed = [entry.label for entry in study.failed]
    reason = f" Not drawn, because it ends at chance: {', '.join(failed)}." if failed else ""
    charts = {}
    for chart in (make(study) for make in (*CHARTS, features.angles)):
        if chart is None:
            continue
        finite = [one for one in chart.series if np.isfinite(one.y).any()]
        series = [one for one in finite if chart.failed_too or one.label not in failed]
        if series:
            note = chart.note if len(series) == len(finite) else chart.note + reason
            charts[chart.name] = replace(chart, series=series, note=note)
    return charts


def clouds_of(study: Study, cache: Path | None, *, compute: bool = True) -> dict[str, Clouds]:
    """The points of Fig. 5 and 6 by method; methods without features are left out."""
    clouds: dict[str, Clouds] = {}
    for name, groups in (("fig5", features.groups_by_task), ("fig6", features.groups_by_time)):
        clouds[name] = {}
        for entry in study.entries:
            points = features.embed(groups(features.first_run(entry)), cache, compute=compute)
            if points is not None:
                clouds[name][entry.label] = points
    return clouds


def group_names(clouds: Clouds) -> list[str]:
    """The groups of all methods in the order of their tasks; `joint` has only the last one.

    >>> both = {"after task 1": [], "after task 3": []}
    >>> group_names({"joint": {"after task 3": []}, "van": both})
    ['after task 1', 'after task 3']
    """
    names = set().union(*clouds.values())
    return sorted(names, key=lambda name: int(name.split()[-1]))
