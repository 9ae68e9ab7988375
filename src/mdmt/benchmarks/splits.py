"""What the published streams share: where their data lies, how classes are cut into tasks, how a subset is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mdmt.data.fetch import unpacked
from mdmt.errors import Mistake
from mdmt.tasks import Rows, Task

TASKS = 17  # evaluated; three more are held out for cross-validation
HELD_OUT = 3
IMAGENET_MEAN = torch.tensor([103.94, 116.78, 123.68]).view(3, 1, 1)  # blue, green, red, applied to RGB as published


def home(name: str, data: str | Path | None) -> Path:
    """The folder that holds a data set's parts, unpacked first where only its archive is there."""
    return next(iter(unpacked(name, data).values())).parent


def shuffled_classes(seed: int, pool: range, per_task: int) -> list[list[int]]:
    """The labels of a pool in numpy's legacy shuffle for a seed, cut into tasks."""
    labels = np.arange(pool.start, pool.stop)
    np.random.RandomState(seed).shuffle(labels)
    cut: list[list[int]] = labels.reshape(-1, per_task).tolist()
    return cut


def count_of_tasks(name: str, tasks: int, cross_validation: bool, limit: int = TASKS) -> int:
    """How many tasks a stream has; the held-out ones are three at most."""
    if not isinstance(tasks, int) or isinstance(tasks, bool) or not 1 <= tasks <= limit:
        raise Mistake(f"tasks={tasks!r}: {name} takes 1 to {limit}")
    return min(tasks, HELD_OUT) if cross_validation else tasks


def task_name(data: str, number: int, cross_validation: bool) -> str:
    """The name of a task, by its number from 0; the held-out ones are told from the others."""
    return f"{data} {'held-out ' if cross_validation else ''}{number + 1}"


def of_classes(labels: Tensor, classes: Sequence[int], among: Tensor | None = None) -> Tensor:
    """Indices of the examples of some classes (among some examples), in the order of the data set."""
    inside = torch.isin(labels if among is None else labels[among], torch.tensor(classes)).nonzero()[:, 0]
    return inside if among is None else among[inside]


def draw(labels: Tensor, count: int | None, seed: int, number: int = 0) -> Tensor:
    """Indices of at most `count` examples, as many of each class as can be; all of them when `count` is None.

    >>> labels = torch.tensor([0, 0, 0, 0, 1, 1, 1, 2])
    >>> labels[draw(labels, 5, seed=1)].tolist()
    [0, 0, 1, 1, 2]
    """
    if count is None:
        return torch.arange(len(labels))
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise Mistake(f"subset={count!r}: must be a whole number, 1 or more")
    generator = np.random.default_rng([seed, 4, number])
    order = generator.permutation(len(labels))
    rank = np.empty(len(labels), np.int64)  # an example's place among those of its class
    for label in labels.unique().tolist():
        members = order[labels.numpy()[order] == label]
        rank[members] = np.arange(len(members))
    first = order[np.argsort(rank[order], kind="stable")][:count]
    return torch.from_numpy(np.sort(first))


class Part(NamedTuple):
    """Some examples of a data set, by index."""

    pixels: Tensor
    labels: Tensor
    rows: Tensor


def split_task(
    name: str, classes: Sequence[int], train: Part, test: Part, *, subset: int | None, seed: int, number: int
) -> Task:
    """A task of some examples of a data set, which are not copied; at most `subset` of them to train on."""
    labels = train.labels[train.rows]
    for label in classes:
        if not bool((labels == label).any()):
            raise Mistake(f"{name}: the data has no training example of class {label}")
    if subset is not None:
        train = train._replace(rows=train.rows[draw(labels, subset, seed, number)])
    (x, y), held_out = ((Rows(part.pixels, part.rows), part.labels[part.rows]) for part in (train, test))
    return Task(name, x, y, test=held_out, classes=classes)


def reduced(
    tasks: int,
    cross_validation: bool = False,
    subset: int | None = None,
    image_size: int | None = None,
    images: str | None = None,
) -> dict[str, Any] | None:
    """What makes a stream less than the published one, or None; `image_size` and `images` when they differ from it."""
    named: dict[str, Any] = {}
    if cross_validation:
        named["cross_validation"] = True
    if tasks != TASKS:
        named["tasks"] = tasks
    for key, value in (("subset", subset), ("image_size", image_size), ("images", images)):
        if value is not None:
            named[key] = value
    return named or None


def source_of(enlarged: int, count: int, size: int) -> str | None:
    """A copy of the data set in small, when most of its images had to be enlarged."""
    return f"resized copies, smaller than {size}x{size}" if 2 * enlarged > count else None
