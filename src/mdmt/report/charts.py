"""The numbers of each chart, as plain data. Accuracies are in percent here, as people read them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mdmt.metrics import A_T, BETA, average_accuracy, learning_curve_area
from mdmt.report.folders import Array, Run
from mdmt.report.study import Study


@dataclass(frozen=True)
class Series:
    """One method's points, each with the ends of its spread; NaN where there is none."""

    label: str
    x: Array
    y: Array
    low: Array
    high: Array


@dataclass(frozen=True)
class Chart:
    """What is drawn, and what stands around it."""

    name: str  # of its file and its place on the page
    title: str
    x_label: str
    y_label: str
    series: list[Series]
    note: str  # how to read it
    digits: int = 1
    log_x: bool = False
    points: bool = False  # a point for each method, and x is a measurement too
    overlap: bool = False  # its bands lie on each other, and are faint until one is picked

    def says(self) -> str:
        """Its main numbers as a sentence."""
        ends = [(one, np.flatnonzero(np.isfinite(one.y))) for one in self.series]
        last = sorted(((one, k[-1]) for one, k in ends if len(k)), key=lambda e: -e[0].y[e[1]])
        if self.points:
            told = (f"{one.label} {one.y[k]:.{self.digits}f} at {one.x[k]:.3g}" for one, k in last)
        else:
            told = (f"{one.label} {one.y[k]:.{self.digits}f}" for one, k in last)
        where = "" if self.points or not last else f" at the last {self.x_label} ({last[0][0].x[last[0][1]]:g})"
        return f"{self.y_label}{where}, highest first: {'; '.join(told)}." if last else "No run has these numbers."


TASK = "tasks learned"


def spread(study: Study, what: str = "Bands") -> str:
    """What the bands of a chart are; with a single seed there are none."""
    return f"{what}: one standard deviation over seeds." if any(len(e.runs) > 1 for e in study.entries) else "One seed."


def over_seeds(
    study: Study, x: Array, values: Callable[[Run], Array | list[float | None]], factor: float = 1.0
) -> list[Series]:
    """For each method the mean over its seeds, and one population standard deviation to each side."""
    made = []
    for entry in study.entries:
        of_seed = factor * np.array([values(run) for run in entry.runs], dtype=float)
        mean, std = of_seed.mean(axis=0), of_seed.std(axis=0)
        made.append(Series(entry.label, x, mean, mean - std, mean + std))
    return made


def trend(study: Study) -> Chart:
    """Fig. 4: A_1..A_T."""
    numbers = range(1, study.tasks + 1)
    found = over_seeds(
        study, np.array(numbers, dtype=float), lambda r: [average_accuracy(r.accuracy, t) for t in numbers], 100
    )
    return Chart(
        "fig4", "Average accuracy along learning (Fig. 4)", TASK, "average accuracy A_t (%)", found,
        f"A_t is the mean accuracy over tasks 1 to t after learning task t. Higher is better. {spread(study)}",
    )  # fmt: skip


def learning_speed(study: Study) -> Chart:
    """Fig. 7: LCA_b for b = 0..10."""
    numbers = range(BETA + 1)
    found = over_seeds(
        study, np.arange(BETA + 1.0), lambda r: [learning_curve_area(r.curve, b) if len(r.curve) else None for b in numbers]
    )  # fmt: skip
    return Chart(
        "fig7", "How fast a new task is learned (Fig. 7)", "mini-batches b of a new task", "learning curve area LCA_b", found,
        f"LCA_b is the area under the mean accuracy on a task after its first b mini-batches. Higher is faster. {spread(study)}",
        digits=3,
    )  # fmt: skip


def forgotten(a: Array) -> Array:
    """Of each task but the last: its best accuracy before the last task less that after it (the terms of F_T).

    >>> forgotten(np.array([[0.75, 0.25], [0.5, 0.75]]))
    array([0.25])
    """
    return np.asarray(np.fmax.reduce(a[:-1, :-1], axis=0) - a[-1, :-1], dtype=float)


def forgetting(study: Study) -> Chart | None:
    """How much of each task was lost; None where there is but one task."""
    if study.tasks == 1:
        return None
    found = over_seeds(study, np.arange(1.0, study.tasks), lambda r: forgotten(r.accuracy), 100)
    return Chart(
        "forgetting", "Forgetting, task by task", "task", "accuracy lost (percentage points)", found,
        "The best accuracy a task had before the last task was learned, less its accuracy at the end; the mean over "
        f"tasks is F_T. Lower is better; below zero, later tasks helped it. {spread(study)}",
    )  # fmt: skip


def mean_drift(d: Array) -> Array:
    """After each task from the second: the mean drift of the tasks before it.

    >>> mean_drift(np.array([[0, np.nan, np.nan], [0.2, 0, np.nan], [0.4, 0.2, 0]]))
    array([0.2, 0.3])
    """
    return np.array([d[i, :i].mean() for i in range(1, len(d))])


def drift(study: Study) -> Chart | None:
    """How far the features of earlier tasks have moved; None where there is but one task."""
    if study.tasks == 1:
        return None
    found = over_seeds(study, np.arange(2.0, study.tasks + 1), lambda r: mean_drift(r.drift))
    return Chart(
        "drift", "Drift of earlier tasks' features", TASK, "mean drift (1 - cosine)", found,
        "1 - cosine between the features of an example now and right after its task was learned, on a fixed sample, "
        f"mean over the earlier tasks. This domain shift is what MDMT-R is made against. Lower is better. {spread(study)}",
        digits=3,
    )  # fmt: skip


def cost(study: Study) -> list[Chart]:
    """Accuracy against the seconds that learning took, and against the bytes of the memory."""
    made = []
    for name, title, label, of in (
        ("cost-seconds", "Accuracy against time", "seconds of learning", "seconds"),
        ("cost-bytes", "Accuracy against memory", "memory (MB)", "memory_bytes"),
    ):
        series = []
        for entry in study.entries:
            x = np.array([run.record[of] for run in entry.runs], dtype=float) / (1e6 if of == "memory_bytes" else 1)
            y = 100 * np.array([run.record["metrics"][A_T.name] for run in entry.runs], dtype=float)
            mean, std = y.mean(keepdims=True), y.std(keepdims=True)
            series.append(Series(entry.label, x.mean(keepdims=True), mean, mean - std, mean + std))
        xs = [float(one.x[0]) for one in series]
        what = "Learning alone, without evaluation" if of == "seconds" else "Stored examples and representations"
        made.append(
            Chart(
                name, title, label, "average accuracy A_T (%)", series,
                f"{what}. Up and to the left is better. {spread(study, 'Bars')}",
                log_x=min(xs) > 0 and max(xs) > 10 * min(xs), points=True,
            )
        )  # fmt: skip
    return made
