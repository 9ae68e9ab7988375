"""The metrics of the paper (Eq. 11 to 16): accuracy, forgetting, learning speed, remembering.

`a` is a T x T array: a[i][j] is the accuracy on task j after learning task i, NaN or None if it was
not evaluated. `z` is the curve Z_0..Z_beta, or one row per task. Accuracies are fractions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mdmt.errors import Mistake

Rows = ArrayLike | Sequence[Sequence[float | None]]  # None stands for NaN

BETA = 10  # the last point Z_b of the learning curve, after ten of the published mini-batches
EXAMPLES = 10  # between two points: the published mini-batch


def average_accuracy(a: Rows, t: int | None = None) -> float:
    """A_t (Eq. 11): the mean accuracy over tasks 1..t after learning task t; by default A_T.

    >>> average_accuracy([[0.75, 0.25], [0.5, 0.75]])
    0.625
    """
    a, t = _matrix(a, t)
    return float(np.mean(a[t - 1, :t]))


def forgetting(a: Rows, t: int | None = None) -> float | None:
    """F_t (Eq. 12-13): the mean over tasks j < t of max_{l < t} a[l][j] - a[t][j].

    None with one task. The maximum leaves out the last row, so F_t is negative if earlier tasks
    still improve.

    >>> forgetting([[0.75, 0.25], [0.5, 0.75]])
    0.25
    """
    a, t = _matrix(a, t)
    if t == 1:
        return None
    # NaN for a task that was never evaluated before.
    best = np.fmax.reduce(a[: t - 1, : t - 1], axis=0)
    return float(np.mean(best - a[t - 1, : t - 1]))


def learning_curve_area(
    z: Rows, beta: int = BETA, form: Literal["trapezoid", "sum"] = "trapezoid"
) -> float | None:
    """LCA_beta (Eq. 14-15): the area under Z_b, the accuracy on a task after b mini-batches.

    A mini-batch counts as ten examples, as `curve_stride` explains. The form `trapezoid` is that of
    the published numbers: the trapezoid rule over b = 0..beta, divided by beta. The form `sum` is
    that of the printed equation: the mean of Z_0..Z_beta. LCA_0 is Z_0. None if no task was long
    enough.

    >>> learning_curve_area([0.0, 0.5, 1.0], beta=2), learning_curve_area([0.1, 0.7], beta=0)
    (0.5, 0.1)
    """
    rows = np.atleast_2d(np.array(z, dtype=float))
    if rows.shape[1] <= beta:
        return None
    rows = rows[~np.isnan(rows[:, : beta + 1]).any(axis=1), : beta + 1]
    if not len(rows):
        return None
    curve = rows.mean(axis=0)
    if beta == 0 or form == "sum":
        return float(curve.mean())
    return float((curve[1:] + curve[:-1]).sum() / (2 * beta))


def curve_stride(batch: int) -> int:
    """The number of a run's mini-batches between two points of its learning curve.

    They add up to ten examples, the published mini-batch, so a method that learns one example at a
    time has seen as many at Z_b as the others. A batch size that does not divide ten gets one point
    per mini-batch, and its LCA is not comparable with that of other sizes.

    >>> curve_stride(10), curve_stride(1), curve_stride(32)
    (1, 10, 1)
    """
    return EXAMPLES // batch if EXAMPLES % batch == 0 else 1


def long_term_remembering(a: Rows) -> float | None:
    """LTR (Eq. 16): -1/(T-1) sum_{j<T} (T - j) min(0, a[T][j] - a[j][j]); None with one task.

    >>> long_term_remembering([[0.75, 0.25], [0.5, 0.75]])
    0.25
    """
    a, t = _matrix(a, None)
    if t == 1:
        return None
    drop = np.maximum(0.0, np.diagonal(a) - a[t - 1])[: t - 1]
    return float((drop * np.arange(t - 1, 0, -1)).sum() / (t - 1))


def backward_transfer(a: Rows) -> float | None:
    """BWT (Lopez-Paz and Ranzato, 2017): the mean over tasks j < T of a[T][j] - a[j][j].

    What later tasks did to earlier ones: negative is forgetting. None with one task.

    >>> backward_transfer([[0.75, 0.25], [0.5, 0.75]])
    -0.25
    """
    a, t = _matrix(a, None)
    if t == 1:
        return None
    return float(np.mean(a[t - 1, : t - 1] - np.diagonal(a)[: t - 1]))


def forward_transfer(a: Rows, before: ArrayLike) -> float | None:
    """FWT (Lopez-Paz and Ranzato, 2017): the mean over tasks j > 1 of a[j-1][j] - before[j].

    `before` has the accuracy on each task before any learning; a record does not hold it. None with
    one task, or if a task was not evaluated before it was learned.

    >>> forward_transfer([[0.75, 0.25], [0.5, 0.75]], before=[0.1, 0.125])
    0.125
    """
    a, t = _matrix(a, None)
    untrained = np.array(before, dtype=float)
    if untrained.shape != (t,):
        raise Mistake(f"before must have one accuracy for each of {t} tasks")
    if t == 1:
        return None
    value = float(np.mean(np.diagonal(a, 1) - untrained[1:]))
    return None if np.isnan(value) else value


Points = Sequence[Sequence[float | None]]  # accuracies along the steps, on the tasks seen so far


def average_anytime_accuracy(points: Points) -> float | None:
    """AAA (Caccia et al., 2022): the mean over points of the mean accuracy on tasks seen so far.

    A point has the accuracy on each task learned so far and on the current one, with the task
    given. None if nothing was measured.

    >>> average_anytime_accuracy([[0.5], [1.0], [0.5, 1.0]])
    0.75
    """
    means = [np.mean(known) for point in points if (known := _known(point))]
    return float(np.mean(means)) if means else None


def stability_gap(points: Points) -> float | None:
    """The stability gap (De Lange et al., 2023): how far accuracy falls while a task is learned.

    For each boundary between two tasks and each task before it: the accuracy right before the
    boundary minus the lowest accuracy until the next boundary; the mean over all of them. None with
    one task.

    >>> stability_gap([[1.0], [1.0, 0.0], [0.25, 0.5], [0.75, 1.0]])
    0.75
    """
    gaps: list[float] = []
    for before, after in pairwise(_by_task(points)):
        for task, accuracy in enumerate(before[-1]):
            lowest = _lowest(after, task)
            if accuracy is not None and lowest is not None:
                gaps.append(accuracy - lowest)
    return float(np.mean(gaps)) if gaps else None


def min_accuracy(points: Points) -> float | None:
    """min-ACC (De Lange et al., 2023): the mean over tasks j < T of the lowest accuracy on j.

    The lowest of all points after task j was learned: the worst that a user of it meets. None with
    one task.

    >>> min_accuracy([[1.0], [1.0, 0.0], [0.25, 0.5], [0.75, 1.0]])
    0.25
    """
    stretches = _by_task(points)
    worst: list[float] = []
    for number, (before, _) in enumerate(pairwise(stretches)):
        later = [point for stretch in stretches[number + 1 :] for point in stretch]
        known = len(stretches[number - 1][-1]) if number else 0
        lowest = [_lowest(later, task) for task in range(known, len(before[-1]))]
        worst += [one for one in lowest if one is not None]
    return float(np.mean(worst)) if worst else None


def _by_task(points: Points) -> list[Points]:
    """The points while each task was learned: each adds at least one task to those seen."""
    return [list(stretch) for _, stretch in groupby(points, key=len)]


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _lowest(points: Points, task: int) -> float | None:
    return min(_known(point[task] for point in points), default=None)


@dataclass(frozen=True)
class Metric:
    """A metric: its name, function, wording and format, for all tables, files and pages."""

    name: str  # in tables and files
    function: Callable[[Any], float | None]
    formula: str
    meaning: str
    better: Literal["higher", "lower"]
    percent: bool = False  # in tables; code and files hold fractions
    matrix: str = "accuracy"  # the matrix of a record that it is computed from

    @property
    def heading(self) -> str:
        return f"{self.name} (%)" if self.percent else self.name

    @property
    def arrow(self) -> str:
        """The direction that is better."""
        return "↑" if self.better == "higher" else "↓"

    def of(self, record: object) -> float | None:
        """The value for a record; None if it is undefined or the record lacks the matrix."""
        matrix = getattr(record, self.matrix, None)
        if matrix is None:
            return None
        value = self.function(matrix)
        return None if value is None or np.isnan(value) else float(value)

    def text(self, value: float, *, signed: bool = False) -> str:
        """A value in the format of the tables.

        >>> METRICS[0].text(0.8951), METRICS[1].text(0.0125, signed=True)
        ('89.51', '+0.013')
        """
        sign = "+" if signed else ""
        return f"{100 * value:{sign}.2f}" if self.percent else f"{value:{sign}.3f}"


METRICS = (
    Metric(
        "A_T",
        average_accuracy,
        "mean_j a[T][j]",
        "mean accuracy over all tasks after the last one",
        better="higher",
        percent=True,
    ),
    Metric(
        "F_T",
        forgetting,
        "mean_{j<T} (max_{l<T} a[l][j] - a[T][j])",
        "how much of the best accuracy was lost in the end",
        better="lower",
    ),
    Metric(
        "LCA_10",
        learning_curve_area,
        "trapezoid of Z_0..Z_10, over 10",
        "how fast a new task is learned in its first ten mini-batches of ten",
        better="higher",
        matrix="curve",
    ),
    Metric(
        "LTR",
        long_term_remembering,
        "-1/(T-1) sum_{j<T} (T-j) min(0, a[T][j] - a[j][j])",
        "accuracy lost, weighted by how long ago the task was learned",
        better="lower",
    ),
    Metric(
        "A_free",
        average_accuracy,
        "mean_j a[T][j], task not given",
        "A_T where the task is not given: the classes of all tasks compete",
        better="higher",
        percent=True,
        matrix="accuracy_task_free",
    ),
)
BWT = Metric(  # shown beside the accuracies of each task, not in the tables
    "BWT",
    backward_transfer,
    "mean_{j<T} (a[T][j] - a[j][j])",
    "what later tasks did to earlier ones",
    better="higher",
)
ANYTIME = (  # of runs with --evaluate-every alone
    Metric(
        "AAA",
        average_anytime_accuracy,
        "mean over points of mean_{j seen} a[j]",
        "mean accuracy on the tasks seen so far, at all points along the steps",
        better="higher",
        percent=True,
        matrix="anytime_accuracy",
    ),
    Metric(
        "gap",
        stability_gap,
        "mean over boundaries and earlier tasks of (before - lowest until the next)",
        "stability gap: how far accuracy on earlier tasks falls while a task is learned",
        better="lower",
        matrix="anytime_accuracy",
    ),
    Metric(
        "min-ACC",
        min_accuracy,
        "mean_{j<T} min over points after task j of a[j]",
        "the lowest accuracy on a task since it was learned",
        better="higher",
        percent=True,
        matrix="anytime_accuracy",
    ),
)
GAP = ANYTIME[1]
A_T, F_T = METRICS[:2]  # methods are ranked by A_T
A_FREE = METRICS[4]


def metrics_of(record: object) -> dict[str, float | None]:
    """The value of each metric, by name; those along the steps only where they were measured."""
    return {metric.name: metric.of(record) for metric in measured([record])}


def measured(records: Iterable[object]) -> tuple[Metric, ...]:
    """METRICS, and ANYTIME if any of these records has points along the steps."""
    has_points = any(getattr(record, "anytime_accuracy", None) for record in records)
    return METRICS + ANYTIME if has_points else METRICS


def _matrix(a: Rows, t: int | None) -> tuple[NDArray[np.float64], int]:
    matrix = np.array(a, dtype=float)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise Mistake(f"accuracies must be a square T x T array, not one of shape {matrix.shape}")
    if t is not None and not 1 <= t <= len(matrix):
        raise Mistake(f"t={t}: must be from 1 to {len(matrix)}")
    return matrix, len(matrix) if t is None else t
