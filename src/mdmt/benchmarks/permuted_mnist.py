"""Permuted MNIST: every task is MNIST with its pixels in another order."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mdmt.benchmarks.splits import HELD_OUT, TASKS, check_count, draw, reductions
from mdmt.data.fetch import ensure_unpacked
from mdmt.data.readers import Arrays, LabelledImages, read_mnist
from mdmt.tasks import HeadKind, Permutation, Stream, Task

VALIDATION = 5000  # the first training images are not learned: they are for choosing settings
LIMIT = 1000
LABELS_CRC = 0xBA07E8EF  # of MNIST's 60,000 training labels: Fashion-MNIST has as many


def pixel_orders(seed: int, first: int, count: int) -> list[Tensor]:
    """Pixel orders from number `first` (from 0): one shuffle of 784 by numpy's legacy generator
    each.
    """
    generator = np.random.RandomState(seed)
    orders = []
    for _ in range(first + count):
        order = np.arange(784)
        generator.shuffle(order)
        orders.append(torch.from_numpy(order))
    return orders[first:]


def permuted_mnist(
    seed: int,
    tasks: int | None = None,
    heads: HeadKind = "shared",
    *,
    data: str | Path | None = None,
    subset: int | None = None,
    cross_validation: bool = False,
) -> Stream:
    """Training images 5,000 to 59,999 and the 10,000 test images, pixels in [0, 1]; 17 tasks unless
    told otherwise.

    The tasks for cross-validation, usually three, are permutations 18 and on of the seed, which the
    17 never use, and are tested on images 0 to 4,999.
    """
    start, usual = (TASKS, HELD_OUT) if cross_validation else (0, TASKS)
    count = usual if tasks is None else tasks
    check_count("permuted-mnist", count, LIMIT - start)
    mnist = read_mnist(ensure_unpacked("mnist", data).folder)
    train, test = _parts(mnist, cross_validation)
    images = train.images.flatten(1)
    labels = train.labels
    classes = labels.unique().tolist()
    if subset is not None:
        rows = draw(labels, subset, seed)
        images = images[rows]
        labels = labels[rows]
    views = [Permutation(order) for order in pixel_orders(seed, start, count)]
    names = [f"permutation {start + number + 1}" for number in range(count)]
    first = Task(
        names[0],
        images,
        labels,
        test=(test.images.flatten(1), test.labels),
        classes=classes,
        view=views[0],
    )
    others = [first.with_view(name, view) for name, view in zip(names[1:], views[1:], strict=True)]
    return Stream(
        "permuted-mnist",
        [first, *others],
        heads=heads,
        evaluate="all" if heads == "shared" else "seen",
        scale=1 / 255,
        reduced=reductions(
            cross_validation=cross_validation,
            tasks=None if count == TASKS else count,
            subset=subset,
            images=None if _is_published(mnist) else "substitute images",
        ),
    )


def _parts(mnist: Arrays, cross_validation: bool) -> tuple[LabelledImages, LabelledImages]:
    """What is learned, and what is tested on; a small substitute has a tenth for validation."""
    unused = VALIDATION
    if len(mnist.train) <= VALIDATION:
        unused = len(mnist.train) // 10 if cross_validation else 0
    train = LabelledImages(mnist.train.images[unused:], mnist.train.labels[unused:])
    if not cross_validation:
        return train, mnist.test
    return train, LabelledImages(mnist.train.images[:unused], mnist.train.labels[:unused])


def _is_published(mnist: Arrays) -> bool:
    labels = mnist.train.labels.to(torch.uint8).numpy().tobytes()
    sizes = len(mnist.train), len(mnist.test)
    return sizes == (60_000, 10_000) and zlib.crc32(labels) == LABELS_CRC
