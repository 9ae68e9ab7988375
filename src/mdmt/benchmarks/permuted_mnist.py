"""Permuted MNIST: every task is MNIST with its pixels in another order."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mdmt.benchmarks.splits import TASKS, count_of_tasks, draw, home, reduced
from mdmt.data.readers import Arrays, read_mnist
from mdmt.errors import Mistake
from mdmt.tasks import Heads, Permutation, Stream, Task

VALIDATION = 5000  # the first training images are not used
LIMIT = 1000
LABELS_CRC = 0xBA07E8EF  # of MNIST's 60,000 training labels: Fashion-MNIST has as many


def orders(seed: int, first: int, count: int) -> list[Tensor]:
    """Pixel orders number `first` (from 0) and the following: one legacy shuffle of 784 per task, the first included."""
    random, made = np.random.RandomState(seed), []
    for _ in range(first + count):
        order = np.arange(784)
        random.shuffle(order)
        made.append(torch.from_numpy(order))
    return made[first:]


def permuted_mnist(
    seed: int,
    tasks: int = TASKS,
    heads: Heads = "shared",
    *,
    data: str | Path | None = None,
    subset: int | None = None,
    cross_validation: bool = False,
) -> Stream:
    """Training images 5,000 to 59,999 and the 10,000 test images, pixels in [0, 1].

    The tasks for cross-validation are permutations 18 to 20 of the seed, which the 17 never use.
    """
    count = count_of_tasks("permuted-mnist", tasks, cross_validation, LIMIT)
    folder = home("mnist", data)
    whole = read_mnist(folder)
    skipped = VALIDATION if len(whole.x) > VALIDATION else 0
    x, y = whole.x[skipped:].flatten(1), whole.y[skipped:]
    if x.shape[1] != 784:
        raise Mistake(f"{folder}: images of {x.shape[1]} pixels; MNIST has 28 x 28")
    if subset is not None:
        kept = draw(y, subset, seed)
        x, y = x[kept], y[kept]
    start = TASKS if cross_validation else 0
    views = [Permutation(order) for order in orders(seed, start, count)]
    names = [f"permutation {start + number + 1}" for number in range(count)]
    first = Task(names[0], x, y, test=(whole.test_x.flatten(1), whole.test_y), view=views[0])
    made = [first, *(first.seen_as(name, view) for name, view in zip(names[1:], views[1:], strict=True))]
    less = reduced(count, cross_validation, subset, images=None if _published(whole) else "substitute images")
    return Stream(
        "permuted-mnist",
        made,
        heads=heads,
        evaluate="all" if heads == "shared" else "seen",
        scale=1 / 255,
        reduced=less,
    )


def _published(whole: Arrays) -> bool:
    labels = whole.y.to(torch.uint8).numpy().tobytes()
    return (len(whole.y), len(whole.test_y)) == (60_000, 10_000) and zlib.crc32(labels) == LABELS_CRC
