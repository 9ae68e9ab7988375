"""The numbers of each chart as plain data, with accuracies in percent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mdmt.metrics import A_T, BETA, average_accuracy, learning_curve_area
from mdmt.report.study import Array, Run, Study

TASKS_LEARNED = "tasks learned"
HIGHER, LOWER = "↑ higher is better", "↓ lower is better"


@dataclass(frozen=True)
class Series:
    """One method's points and the ends of their spreads; NaN for missing ones."""

    label: str
    x: Array
    y: Array
    low: Array
    high: Array


@dataclass(frozen=True)
class Chart:
    """A chart's series and texts."""

    name: str  # of its file, and of its element on the page
    title: str
    x_label: str
    y_label: str
    series: list[Series]
    note: str  # how to read it
    section: Literal["learning", "angles", "cost"] = "learning"  # of the page
    digits: int = 1
    log_x: bool = False
    better: str = ""  # the direction that is better, as an arrow and words
    points: bool = False  # one point per method, whose x is a measurement too
    overlap: bool = False  # its bands lie on top of each other
    failed_too: bool = False  # settings that end at chance do not spoil its scale

    @property
    def band_opacity(self) -> float:
        """Many bands are faint, since they hide the lines; pointing at a name shows its band."""
        many = 3 if self.overlap else 6
        return 0.05 if len(self.series) > many else 0.13

    def summary(self) -> str:
        """The last value of each series as a sentence, for readers who cannot see the chart."""
        ends = [(line, np.flatnonzero(np.isfinite(line.y))) for line in self.series]
        last = [(line, places[-1]) for line, places in ends if len(places)]
        if not last:
            return "No values."
        last.sort(key=lambda end: -end[0].y[end[1]])
        values = [f"{line.label} {line.y[k]:.{self.digits}f}" for line, k in last]
        where = f" at the last {self.x_label} ({last[0][0].x[last[0][1]]:g})"
        if self.points:
            values = [
                f"{text} at {measured(line.x[k])}"
                for text, (line, k) in zip(values, last, strict=True)
            ]
            where = ""
        return f"{self.y_label}{where}, highest first: {'; '.join(values)}."


def measured(value: float) -> str:
    """Seconds or megabytes as text, without powers of ten.

    >>> measured(0.31234), measured(611.74), measured(11060.4)
    ('0.3123', '611.7', '11,060')
    """
    return f"{value:.4g}" if value < 1e4 else f"{value:,.0f}"


def band_note(study: Study, name: str = "Bands") -> str:
    """A sentence about the bands of a chart, or that there is only one seed."""
    if all(len(entry.runs) == 1 for entry in study.entries):
        return "One seed."
    return f"{name}: one standard deviation over seeds."


def over_seeds(
    study: Study, x: Array, values: Callable[[Run], Array | list[float | None]], factor: float = 1.0
) -> list[Series]:
    """For each method its mean over seeds, plus and minus one population std."""
    series = []
    for entry in study.entries:
        seeds = factor * np.array([values(run) for run in entry.runs], dtype=float)
        mean, std = seeds.mean(axis=0), seeds.std(axis=0)
        series.append(Series(entry.label, x, mean, mean - std, mean + std))
    return series


def trend(study: Study) -> Chart:
    """Fig. 4: A_1..A_T."""
    numbers = range(1, study.tasks + 1)

    def averages(run: Run) -> list[float | None]:
        return [average_accuracy(run.accuracy, t) for t in numbers]

    return Chart(
        "fig4",
        "Average accuracy along learning (Fig. 4)",
        TASKS_LEARNED,
        "average accuracy A_t (%)",
        over_seeds(study, np.array(numbers, dtype=float), averages, 100),
        f"A_t is the mean accuracy over tasks 1 to t after learning task t. {band_note(study)}",
        better=HIGHER,
    )


def free_trend(study: Study) -> Chart | None:
    """Accuracy without the task along learning; None if it is that with the task in all rows."""
    if all(run.record.accuracy_task_free == run.record.accuracy for run in study.runs):
        return None
    numbers = range(1, study.tasks + 1)

    def averages(run: Run) -> list[float | None]:
        return [average_accuracy(run.record.accuracy_task_free, t) for t in numbers]

    return Chart(
        "free",
        "Accuracy without the task, along learning",
        TASKS_LEARNED,
        "A_free after each task (%)",
        over_seeds(study, np.array(numbers, dtype=float), averages, 100),
        "The mean accuracy over the tasks so far if the task is not given, so that the classes of"
        f" all these tasks compete; at the end it is A_free. {band_note(study)}",
        better=HIGHER,
    )


def learning_speed(study: Study) -> Chart:
    """Fig. 7: LCA_b for b = 0..10."""

    def areas(run: Run) -> list[float | None]:
        has_curve = len(run.curve) > 0
        return [learning_curve_area(run.curve, b) if has_curve else None for b in range(BETA + 1)]

    return Chart(
        "fig7",
        "How fast a new task is learned (Fig. 7)",
        "mini-batches b of a new task, ten examples each",
        "learning curve area LCA_b",
        over_seeds(study, np.arange(BETA + 1.0), areas),
        "LCA_b is the area under the mean accuracy on a task after its first b mini-batches of"
        f" ten. {band_note(study)}",
        digits=3,
        better=HIGHER,
    )


def accuracy_loss(a: Array) -> Array:
    """The terms of F_T: each task's best accuracy before the last task minus its final accuracy.

    >>> accuracy_loss(np.array([[0.75, 0.25], [0.5, 0.75]]))
    array([0.25])
    """
    return np.asarray(np.fmax.reduce(a[:-1, :-1], axis=0) - a[-1, :-1], dtype=float)


def forgetting_chart(study: Study) -> Chart | None:
    """How much accuracy each task lost; None if there is only one task."""
    if study.tasks == 1:
        return None
    x = np.arange(1.0, study.tasks)
    return Chart(
        "forgetting",
        "Forgetting, task by task",
        "task",
        "accuracy lost (percentage points)",
        over_seeds(study, x, lambda run: accuracy_loss(run.accuracy), 100),
        "A task's best accuracy before the last task was learned, minus its final accuracy; the"
        " mean over tasks is F_T. Below zero, later tasks improved it."
        f" {band_note(study)}",
        better=LOWER,
    )


def mean_drift(d: Array) -> Array:
    """The mean drift of the earlier tasks after each task, from the second task on.

    >>> mean_drift(np.array([[0, np.nan, np.nan], [0.2, 0, np.nan], [0.4, 0.2, 0]]))
    array([0.2, 0.3])
    """
    return np.array([d[i, :i].mean() for i in range(1, len(d))])


def drift_chart(study: Study) -> Chart | None:
    """How far the features of earlier tasks have moved; None if there is only one task."""
    if study.tasks == 1:
        return None
    x = np.arange(2.0, study.tasks + 1)
    return Chart(
        "drift",
        "Drift of earlier tasks' features",
        TASKS_LEARNED,
        "mean drift (1 - cosine)",
        over_seeds(study, x, lambda run: mean_drift(run.drift)),
        "1 - cosine between the features of an example now and right after its task was learned,"
        " on a fixed sample, mean over the earlier tasks. MDMT-R is designed to reduce this domain"
        f" shift. {band_note(study)}",
        digits=3,
        better=LOWER,
    )


def dead_chart(study: Study) -> Chart:
    """The share of features that are dead after each task."""
    return Chart(
        "dead",
        "Dead features",
        TASKS_LEARNED,
        "dead features (%)",
        _at_task_ends(study, lambda run: run.record.dead_features, 100),
        "A dead feature is the same, mostly zero, for every example of a fixed sample of all tasks"
        f" so far: it tells none from another. {band_note(study)}",
        better=LOWER,
        failed_too=True,
    )


def rank_chart(study: Study) -> Chart:
    """The effective rank of the features after each task."""
    return Chart(
        "rank",
        "Effective rank of the features",
        TASKS_LEARNED,
        "effective rank",
        _at_task_ends(study, lambda run: run.record.feature_rank),
        "In how many directions features differ, on a fixed sample of all tasks so far: exp of the"
        " entropy of the normalised singular values of the centred features (Roy and Vetterli,"
        f" 2007). The sample grows with the first tasks, and the rank with it. {band_note(study)}",
        better=HIGHER,
        failed_too=True,
    )


def _at_task_ends(
    study: Study, values: Callable[[Run], list[float | None]], factor: float = 1.0
) -> list[Series]:
    return over_seeds(study, np.arange(1.0, study.tasks + 1), values, factor)


def cost_in_seconds(study: Study) -> Chart:
    """Accuracy against the time of learning."""
    return _cost(
        study, "cost-seconds", "Accuracy against time", "seconds of learning",
        lambda run: run.record.seconds, "Time of learning only, without evaluation",
    )  # fmt: skip


def cost_in_memory(study: Study) -> Chart:
    """Accuracy against the size of the memory."""
    return _cost(
        study, "cost-bytes", "Accuracy against memory", "memory (MB)",
        lambda run: run.record.stored_bytes / 1e6,
        "Stored examples, representations and everything else a method keeps of earlier tasks",
    )  # fmt: skip


def _cost(
    study: Study, name: str, title: str, x_label: str, cost: Callable[[Run], float], meaning: str
) -> Chart:
    series = []
    for entry in study.entries:
        x = np.array([cost(run) for run in entry.runs])
        y = 100 * np.array([run.record.metrics[A_T.name] for run in entry.runs], dtype=float)
        mean, std = y.mean(keepdims=True), y.std(keepdims=True)
        series.append(Series(entry.label, x.mean(keepdims=True), mean, mean - std, mean + std))
    costs = [float(point.x[0]) for point in series]
    return Chart(
        name,
        title,
        x_label,
        "average accuracy A_T (%)",
        series,
        f"{meaning}. {band_note(study, 'Bars')}",
        section="cost",
        better="↖ up and to the left is better",
        log_x=min(costs) > 0 and max(costs) > 10 * min(costs),
        points=True,
    )


CHARTS: tuple[Callable[[Study], Chart | None], ...] = (
    trend, free_trend, forgetting_chart, learning_speed, drift_chart, dead_chart, rank_chart,
    cost_in_seconds, cost_in_memory,
)  # fmt: skip
