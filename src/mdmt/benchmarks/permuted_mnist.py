"""Permuted MNIST: every task is MNIST with its pixels in another order."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mdmt.benchmarks.splits import HELD_OUT, SUBSTITUTE, TASKS, check_count, draw_rows, reductions
from mdmt.data.fetch import ensure_unpacked
from mdmt.data.readers import Arrays, LabelledImages, read_mnist
from mdmt.tasks import HeadKind, Permutation, Stream, Task

VALIDATION = 5000  # the first training images are not learned; settings are chosen on them
LIMIT = 1000
LABELS_CRC = 0xBA07E8EF  # of MNIST's training labels; Fashion-MNIST has as many images


def pixel_orders(seed: int, first: int, count: int) -> list[Tensor]:
    """Orders number `first` to `first + count` of the 784 pixels, from numpy's legacy generator."""
    generator = np.random.RandomState(seed)
    orders = []
    for _ in range(first + count):
        order = np.arange(784)
        generator.shuffle(order)
        orders.append(torch.from_numpy(order))
    return orders[first:]


def published_order(seed: int, number: int, size: int) -> Tensor:
    """The order in which the published runs saw the examples of task `number`, counted from 0.

    One generator of numpy drew the 17 permutations, then the order of each task. Draws from a
    memory, which the programs made with the same generator, are left out: they came between.
    """
    generator = np.random.RandomState(seed)
    for _ in range(TASKS):
        generator.shuffle(np.arange(784))
    for _ in range(number):
        generator.shuffle(np.arange(size))
    order = np.arange(size)
    generator.shuffle(order)
    return torch.from_numpy(order)


def permuted_tasks(
    train: LabelledImages,
    test: LabelledImages,
    *,
    classes: Sequence[int],
    seed: int,
    first: int,
    count: int,
) -> list[Task]:
    """Make tasks of the same flat images that differ in the order of their pixels only."""
    orders = pixel_orders(seed, first, count)
    names = [f"permutation {first + number + 1}" for number in range(count)]
    task = Task(
        names[0],
        train.images,
        train.labels,
        test=(test.images, test.labels),
        classes=classes,
        view=Permutation(orders[0]),
    )
    others = [
        task.with_view(name, Permutation(order))
        for name, order in zip(names[1:], orders[1:], strict=True)
    ]
    return [task, *others]


def permuted_mnist(
    seed: int,
    tasks: int | None = None,
    heads: HeadKind = "shared",
    *,
    data: str | Path | None = None,
    subset: int | None = None,
    cross_validation: bool = False,
) -> Stream:
    """Make Permuted MNIST, by default with 17 tasks; pixels are in [0, 1].

    Training images 5,000 to 59,999 are learned. The tasks for cross-validation, by default three,
    are the permutations of the seed from number 18 on, which the 17 never use; they are tested on
    images 0 to 4,999.
    """
    start, usual = (TASKS, HELD_OUT) if cross_validation else (0, TASKS)
    count = usual if tasks is None else tasks
    check_count("permuted-mnist", count, LIMIT - start)
    mnist = read_mnist(ensure_unpacked("mnist", data).folder)
    train, test = _parts(mnist, cross_validation)
    classes = train.labels.unique().tolist()
    if subset is not None:
        rows = draw_rows(train.labels, subset, seed)
        train = LabelledImages(train.images[rows], train.labels[rows])
    return Stream(
        "permuted-mnist",
        permuted_tasks(train, test, classes=classes, seed=seed, first=start, count=count),
        heads=heads,
        evaluate="all" if heads == "shared" else "seen",
        scale=1 / 255,
        reduced=reductions(
            cross_validation=cross_validation,
            tasks=None if count == TASKS else count,
            subset=subset,
            images=None if _is_published(mnist) else SUBSTITUTE,
        ),
    )


def _parts(mnist: Arrays, cross_validation: bool) -> tuple[LabelledImages, LabelledImages]:
    """The flat images to learn and to test on; a small substitute validates on a tenth."""
    unused = VALIDATION
    if len(mnist.train) <= VALIDATION:
        unused = len(mnist.train) // 10 if cross_validation else 0
    images = mnist.train.images.flatten(1)
    train = LabelledImages(images[unused:], mnist.train.labels[unused:])
    if cross_validation:
        return train, LabelledImages(images[:unused], mnist.train.labels[:unused])
    return train, LabelledImages(mnist.test.images.flatten(1), mnist.test.labels)


def _is_published(mnist: Arrays) -> bool:
    labels = mnist.train.labels.to(torch.uint8).numpy().tobytes()
    sizes = len(mnist.train), len(mnist.test)
    return sizes == (60_000, 10_000) and zlib.crc32(labels) == LABELS_CRC
