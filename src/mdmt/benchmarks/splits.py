"""Parts of several streams: classes split into tasks, balanced subsets, and their reductions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mdmt.data.images import OnImage, load_images
from mdmt.data.readers import ImageList, LabelledImages
from mdmt.errors import Mistake
from mdmt.tasks import HeadKind, RowView, Stream, Task

TASKS = 17
HELD_OUT = 3  # further tasks, for cross-validation only
SUBSTITUTE = "substitute images"
ReductionValue = str | int | bool
NetworkSpec = dict[str, Any]  # the name and arguments of a network, as run folders hold them
# In the order blue, green, red, but applied to RGB: the published programs do the same.
IMAGENET_MEAN = torch.tensor([103.94, 116.78, 123.68]).view(3, 1, 1)


def shuffle_classes(seed: int, pool: range, per_task: int) -> list[list[int]]:
    """Shuffle a pool of labels with numpy's legacy generator, and cut it into tasks."""
    labels = np.arange(pool.start, pool.stop)
    np.random.RandomState(seed).shuffle(labels)
    tasks: list[list[int]] = labels.reshape(-1, per_task).tolist()
    return tasks


def check_count(name: str, tasks: int, limit: int) -> None:
    """Refuse a number of tasks outside 1 to `limit`."""
    if not isinstance(tasks, int) or isinstance(tasks, bool) or not 1 <= tasks <= limit:
        raise Mistake(f"tasks={tasks!r}: {name} takes 1 to {limit}")


def count_tasks(name: str, tasks: int, cross_validation: bool) -> int:
    """Check the number of tasks; cross-validation has classes for at most three."""
    check_count(name, tasks, TASKS)
    return min(tasks, HELD_OUT) if cross_validation else tasks


def task_name(data: str, number: int, cross_validation: bool) -> str:
    """The name of a task, from its number counted from 0."""
    return f"{data} {'held-out ' if cross_validation else ''}{number + 1}"


def rows_of_classes(labels: Tensor, classes: Sequence[int], among: Tensor | None = None) -> Tensor:
    """Indices of the examples of some classes, in the order of the data set.

    With `among`, only these rows are searched.
    """
    if among is None:
        among = torch.arange(len(labels))
    return among[torch.isin(labels[among], torch.tensor(classes))]


def draw_rows(labels: Tensor, count: int | None, seed: int, number: int = 0) -> Tensor:
    """Draw the indices of at most `count` examples, balanced over the classes; None draws all.

    >>> labels = torch.tensor([0, 0, 0, 0, 1, 1, 1, 2])
    >>> labels[draw_rows(labels, 5, seed=1)].tolist()
    [0, 0, 1, 1, 2]
    """
    if count is None:
        return torch.arange(len(labels))
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise Mistake(f"subset={count!r}: must be a whole number, 1 or more")
    generator = np.random.default_rng([seed, 4, number])
    order = generator.permutation(len(labels))
    rank = np.empty(len(labels), np.int64)  # the position of an example within its class
    for label in labels.unique().tolist():
        members = order[labels.numpy()[order] == label]
        rank[members] = np.arange(len(members))
    first = order[np.argsort(rank[order], kind="stable")][:count]
    return torch.from_numpy(np.sort(first))


@dataclass(frozen=True)
class Selection:
    """Some examples of a data set, chosen by index."""

    source: LabelledImages
    rows: Tensor

    @property
    def labels(self) -> Tensor:
        """The labels of the selected examples."""
        return self.source.labels[self.rows]

    @property
    def images(self) -> RowView:
        """The selected images, not copied."""
        return RowView(self.source.images, self.rows)


def select(
    source: LabelledImages, classes: Sequence[int], among: Tensor | None = None
) -> Selection:
    """Select the examples of some classes, optionally among some rows only."""
    return Selection(source, rows_of_classes(source.labels, classes, among))


@dataclass(frozen=True)
class LoadedParts:
    """The training and test part of each task, with what is to be said of their images."""

    parts: list[tuple[Selection, Selection]]
    copies: str | None  # see `resized_copies`
    notes: tuple[str, ...]


def load_parts(
    listed: ImageList,
    parts: Sequence[tuple[Tensor, Tensor]],
    size: int,
    subset: int | None,
    seed: int,
    cache: str | Path | None,
    progress: OnImage | None,
) -> LoadedParts:
    """Load the images that a stream reads; `parts` has the training and test rows of each task."""
    labels = listed.labels
    rows: set[int] = set()
    for number, (train, test) in enumerate(parts):
        rows.update(train[draw_rows(labels[train], subset, seed, number)].tolist(), test.tolist())
    images = load_images(listed.paths, size, rows=rows, cache=cache, progress=progress)
    source = LabelledImages(images.pixels, labels)
    return LoadedParts(
        [(Selection(source, train), Selection(source, test)) for train, test in parts],
        resized_copies(images.enlarged, len(rows), size),
        images.notes,
    )


def split_stream(
    name: str,
    order: Sequence[Sequence[int]],
    parts: Sequence[tuple[Selection, Selection]],
    *,
    seed: int,
    heads: HeadKind,
    subset: int | None,
    cross_validation: bool,
    images: str | None,
    image_size: int | None = None,
    **properties: Any,
) -> Stream:
    """Make the stream of Split CIFAR, CUB or AWA from the training and test part of each task.

    `order` has the classes of each task, `properties` the rest of the Stream's arguments. `images`
    and `image_size` name deviations from the published images; None if there are none.
    """
    tasks = []
    for number, (classes, (train, test)) in enumerate(zip(order, parts, strict=True)):
        title = task_name(name.removeprefix("split-"), number, cross_validation)
        tasks.append(
            split_task(title, classes, train, test, subset=subset, seed=seed, number=number)
        )
    reduced = reductions(
        cross_validation=cross_validation,
        tasks=None if len(tasks) == TASKS else len(tasks),
        subset=subset,
        image_size=image_size,
        images=images,
    )
    return Stream(name, tasks, heads=heads, reduced=reduced, **properties)


def split_task(
    name: str,
    classes: Sequence[int],
    train: Selection,
    test: Selection,
    *,
    subset: int | None,
    seed: int,
    number: int,
) -> Task:
    """Make a task from its training and test part, with at most `subset` training examples."""
    labels = train.labels
    for label in classes:
        if not bool((labels == label).any()):
            raise Mistake(f"{name}: the data has no training example of class {label}")
    train = Selection(train.source, train.rows[draw_rows(labels, subset, seed, number)])
    return Task(name, train.images, train.labels, test=(test.images, test.labels), classes=classes)


def reductions(**values: ReductionValue | None) -> dict[str, ReductionValue] | None:
    """The deviations that make a stream less than the published one; None if there are none.

    A value of None or False is no deviation.

    >>> reductions(cross_validation=False, tasks=None, subset=100)
    {'subset': 100}
    """
    names = {key: value for key, value in values.items() if value not in (None, False)}
    return names or None


def resized_copies(enlarged: int, count: int, size: int) -> str | None:
    """The deviation of a small copy of a data set: most of its images had to be enlarged."""
    return f"resized copies, smaller than {size}x{size}" if 2 * enlarged > count else None
