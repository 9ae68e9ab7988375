"""Fig. 3, 5 and 6: the features of a few tasks and the head, from the snapshots of a run."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path

import numpy as np

from mdmt.report.charts import LOWER, TASKS_LEARNED, Chart, Series
from mdmt.report.study import Array, Entry, Run, Study
from mdmt.runs.snapshots import HEAD, HEAD_OF_CLASS, Snapshots, first_head_name, labels_name

TSNE = "perplexity 30, pca, seed 0"  # part of the names in the cache: change both together
MAX_CLASSES = 10  # per task in Fig. 3b


def unit_vectors(vectors: Array) -> Array:
    """Scale vectors to length 1; zero vectors stay zero."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1.0), dtype=float)


def degrees(cosines: Array) -> Array:
    return np.asarray(np.degrees(np.arccos(np.clip(cosines, -1.0, 1.0))), dtype=float)


def angles_to_own_centre(snapshots: Snapshots, after: int) -> Array:
    """Fig. 3a: the angle between each feature of task 1 and its class's weights after a task."""
    vectors, head = snapshots.features(0, after), snapshots.get(first_head_name(after))
    if vectors is None or head is None or not {labels_name(0), HEAD_OF_CLASS} <= set(snapshots):
        return np.array([])
    # In a shared head the classes of task 1 have the first rows; the last column is the bias.
    rows = np.flatnonzero(snapshots[HEAD_OF_CLASS] == 0)[: len(head)]
    labels = snapshots[labels_name(0)]
    if not np.isin(labels, rows).all():  # not those of a run
        return np.array([])
    which = np.searchsorted(rows, labels)
    centres = unit_vectors(head[:, :-1].astype(float))[which]
    return degrees((unit_vectors(vectors) * centres).sum(axis=1))


def angles(study: Study) -> Chart | None:
    """Fig. 3a over the samples of all seeds that have snapshots; None without any."""
    series = []
    for entry in study.entries:
        numbers: list[float] = []
        percentiles: list[Array] = []
        for after in range(study.tasks):
            samples = [
                angles_to_own_centre(run.snapshots, after) for run in entry.runs if run.snapshots
            ]
            if samples and all(len(sample) for sample in samples):
                numbers.append(after + 1.0)
                percentiles.append(np.percentile(np.concatenate(samples), [10, 50, 90]))
        if numbers:
            low, middle, high = np.array(percentiles).T
            series.append(Series(entry.label, np.array(numbers), middle, low, high))
    if not series:
        return None
    return Chart(
        "fig3a",
        "Angle between a feature of task 1 and its class's weights (Fig. 3a)",
        TASKS_LEARNED,
        "angle (degrees)",
        series,
        "The median over a fixed sample of task 1's test examples. Smaller means tighter classes; a"
        " rising line shows features and weights drifting apart. Bands: the middle 80 % of the"
        " sample; point at a name to highlight its band.",
        section="angles",
        overlap=True,
        better=LOWER,
    )


def class_centres(run: Run) -> tuple[list[str], Array] | None:
    """Fig. 3b: names and centres of the classes of a few tasks after the last task.

    A centre is the weights of a class in its head; with one shared head, its mean feature.
    """
    snapshots, last = run.snapshots, len(run.record.tasks) - 1
    head, head_of_class = snapshots.get(HEAD), snapshots.get(HEAD_OF_CLASS)
    shared = run.config.heads == "shared"
    names: list[str] = []
    centres: list[Array] = []
    for task in snapshots.tasks:
        vectors, labels = snapshots.features(task, last), snapshots.get(labels_name(task))
        if vectors is None or labels is None or head is None or head_of_class is None:
            return None
        rows = np.unique(labels) if shared else np.flatnonzero(head_of_class == task)
        for number, row in enumerate(rows[:MAX_CLASSES], 1):
            names.append(f"task {task + 1}, class {number}")
            mean = vectors[labels == row].mean(axis=0) if shared else head[row, :-1].astype(float)
            centres.append(mean)
    return (names, np.array(centres)) if len(names) > 1 else None


def centre_angles(centres: Array) -> Array:
    """The angle between each pair of centres, in degrees."""
    return degrees(unit_vectors(centres) @ unit_vectors(centres).T)


def first_run(entry: Entry) -> Run:
    """The run whose features are drawn: the first seed with snapshots."""
    return next((run for run in entry.runs if run.snapshots), entry.runs[0])


def groups_by_task(run: Run) -> dict[str, Array]:
    """Fig. 5: the features of a few tasks after the last task."""
    snapshots, last = run.snapshots, len(run.record.tasks) - 1
    groups = {f"task {task + 1}": snapshots.features(task, last) for task in snapshots.tasks}
    return {name: vectors for name, vectors in groups.items() if vectors is not None}


def groups_by_time(run: Run) -> dict[str, Array]:
    """Fig. 6: the features of task 1 after each of these tasks."""
    snapshots = run.snapshots
    groups = {f"after task {task + 1}": snapshots.features(0, task) for task in snapshots.tasks}
    return {name: vectors for name, vectors in groups.items() if vectors is not None}


def embed(
    groups: dict[str, Array], cache: Path | None, *, compute: bool = True
) -> dict[str, Array] | None:
    """Embed all groups in one plane by t-SNE, the only slow part of a report, with a cache.

    None if there are too few points, or if they are not in the cache and `compute` is False.
    """
    if sum(map(len, groups.values())) < 5:
        return None
    vectors = np.concatenate(list(groups.values())).astype(np.float32)
    about = repr((TSNE, vectors.shape)).encode()
    digest = hashlib.sha256(about + vectors.tobytes()).hexdigest()[:32]
    path = None if cache is None else cache / f"{digest}.npy"
    points = None if path is None else _read_points(path, len(vectors))
    if points is None:
        if not compute:
            return None
        points = _tsne(vectors)
        if path is not None:
            _write_points(path, points)
    ends = np.cumsum([len(group) for group in groups.values()])[:-1]
    return dict(zip(groups, np.split(points, ends), strict=True))


def _tsne(vectors: np.ndarray) -> Array:
    from sklearn.manifold import TSNE as Embedding

    if np.ptp(vectors, axis=0).max() == 0:  # t-SNE divides by zero if all points are equal
        return np.zeros((len(vectors), 2))
    perplexity = min(30.0, (len(vectors) - 1) / 3)
    embedding = Embedding(perplexity=perplexity, init="pca", random_state=0)
    return np.asarray(embedding.fit_transform(vectors), dtype=float)


def _read_points(path: Path, count: int) -> Array | None:
    """The points in the cache; None if they are missing or damaged, however that shows."""
    try:
        # Mapped: a header that claims more than the file has allocates nothing.
        mapped = np.lib.format.open_memmap(path, mode="r")
        if mapped.shape != (count, 2) or mapped.dtype.kind != "f":
            return None
        points = np.array(mapped, dtype=float)
    except Exception:  # a damaged file can raise almost anything
        return None
    return points if np.isfinite(points).all() else None


def _write_points(path: Path, points: Array) -> None:
    with suppress(OSError):  # without a cache the next report only takes longer
        path.parent.mkdir(exist_ok=True)
        part = path.with_suffix(".part.npy")
        np.save(part, points)
        part.replace(path)
