"""Fig. 3, 5 and 6 from the snapshots of a run: features of the first, the middle and the last task, and the head."""

from __future__ import annotations

import numpy as np

from mdmt.experiments.measurements import Snapshots
from mdmt.report.charts import TASK, Chart, Series
from mdmt.report.folders import Array, Run
from mdmt.report.study import Entry, Study


def followed(snapshots: Snapshots) -> list[int]:
    """The tasks whose features were kept, counted from 0.

    >>> followed({"features.0.0": 0, "features.0.1": 0, "features.1.1": 0, "head": 0})
    [0, 1]
    """
    return sorted({int(name.split(".")[1]) for name in snapshots if name.startswith("features.")})


def features(snapshots: Snapshots, task: int, after: int) -> Array | None:
    """Features of a task's sample after a task, at their true lengths; None where they were not kept or are not finite."""
    name = f"{task}.{after}"
    if f"features.{name}" not in snapshots or f"lengths.{name}" not in snapshots:
        return None
    found = snapshots[f"features.{name}"].astype(float) * snapshots[f"lengths.{name}"].astype(float)[:, None]
    return found if np.isfinite(found).all() else None


def unit(vectors: Array) -> Array:
    """Scaled to length 1; a vector of zeros stays."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1.0), dtype=float)


def degrees(cosines: Array) -> Array:
    """Angles of cosines."""
    return np.asarray(np.degrees(np.arccos(np.clip(cosines, -1.0, 1.0))), dtype=float)


def angles_to_own_centre(snapshots: Snapshots, after: int) -> Array:
    """Fig. 3a: the angle between each feature of task 1's sample and the weights of its class, after a task."""
    found, head = features(snapshots, 0, after), snapshots.get(f"head.0.{after}")
    if found is None or head is None or "labels.0" not in snapshots or "head_of_class" not in snapshots:
        return np.array([])
    rows = np.flatnonzero(snapshots["head_of_class"] == 0)[: len(head)]  # its classes were the first to get rows
    centres = unit(head[:, :-1].astype(float))[
        np.searchsorted(rows, snapshots["labels.0"])
    ]  # the last column is the bias
    return degrees((unit(found) * centres).sum(axis=1))


def angles(study: Study) -> Chart | None:
    """Fig. 3a for every method, over the samples of all its seeds; None where no run has snapshots."""
    made = []
    for entry in study.entries:
        spread: list[tuple[int, Array]] = []
        for after in range(study.tasks):
            of_seed = [angles_to_own_centre(run.snapshots, after) for run in entry.runs]
            if all(len(found) for found in of_seed):
                spread.append((after + 1, np.percentile(np.concatenate(of_seed), [10, 50, 90])))
        if spread:
            low, middle, high = np.array([values for _, values in spread]).T
            made.append(Series(entry.label, np.array([float(t) for t, _ in spread]), middle, low, high))
    if not made:
        return None
    return Chart(
        "fig3a", "Angle between a feature of task 1 and its class's weights (Fig. 3a)", TASK, "angle (degrees)", made,
        "The median over a fixed sample of task 1's test examples. Smaller means tighter classes; a line that rises shows "
        "features and weights drifting apart. Bands: the middle 80 % of the sample; point at a name to see its own.",
        overlap=True,
    )  # fmt: skip


def class_centres(run: Run, most: int = 10) -> tuple[list[str], Array, bool] | None:
    """Fig. 3b: the centres of the followed tasks' classes after the last task, with their names.

    They are the weights of the head, or with one shared head (the third value) the mean features of each class. Of each task
    at most so many classes are taken.
    """
    found, last = run.snapshots, len(run.record["tasks"]) - 1
    names: list[str] = []
    centres: list[Array] = []
    head, of_class = found.get("head"), found.get("head_of_class")
    shared = run.config.heads == "shared"
    for task in followed(found):
        here, labels = features(found, task, last), found.get(f"labels.{task}")
        if here is None or labels is None or head is None or of_class is None:
            return None
        rows = (np.unique(labels) if shared else np.flatnonzero(of_class == task))[:most]
        centres += [here[labels == row].mean(axis=0) if shared else head[row, :-1].astype(float) for row in rows]
        names += [f"task {task + 1}, class {number + 1}" for number in range(len(rows))]
    return (names, np.array(centres), shared) if len(names) > 1 else None


def centre_angles(centres: Array) -> Array:
    """Degrees between all pairs."""
    return degrees(unit(centres) @ unit(centres).T)


def first_run(entry: Entry) -> Run:
    """The run whose features are drawn: that of the first seed that kept some."""
    return next((run for run in entry.runs if run.snapshots), entry.runs[0])


def groups_by_task(run: Run) -> dict[str, Array]:
    """Fig. 5: the features of the followed tasks after the last one."""
    found, last = run.snapshots, len(run.record["tasks"]) - 1
    by_task = {f"task {task + 1}": features(found, task, last) for task in followed(found)}
    return {name: points for name, points in by_task.items() if points is not None}


def groups_by_time(run: Run) -> dict[str, Array]:
    """Fig. 6: the features of task 1 after each of the followed tasks."""
    found = run.snapshots
    by_time = {f"after task {task + 1}": features(found, 0, task) for task in followed(found)}
    return {name: points for name, points in by_time.items() if points is not None}
