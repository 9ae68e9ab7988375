"""Split CIFAR: CIFAR-100 in tasks of five classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mdmt.benchmarks.splits import (
    TASKS,
    Selection,
    count_tasks,
    reductions,
    rows_of_classes,
    shuffle_classes,
    split_task,
    task_name,
)
from mdmt.data.fetch import ensure_unpacked
from mdmt.data.readers import read_cifar100
from mdmt.tasks import HeadKind, Stream

OUTPUTS = 100


def class_order(seed: int, cross_validation: bool = False) -> list[list[int]]:
    """The classes of each task: labels 15 to 99 shuffled, in fives (0 to 14 for cross-validation).

    >>> class_order(1234)[:2]
    [[86, 66, 82, 74, 50], [87, 48, 78, 25, 76]]
    """
    return shuffle_classes(seed, range(15) if cross_validation else range(15, 100), 5)


def split_cifar(
    seed: int,
    tasks: int = TASKS,
    heads: HeadKind = "per-task",
    *,
    data: str | Path | None = None,
    subset: int | None = None,
    cross_validation: bool = False,
) -> Stream:
    """500 training and 100 test images of each class.

    Pixels are divided by 255, then the mean of all training images is subtracted.
    """
    count = count_tasks("split-cifar", tasks, cross_validation)
    cifar = read_cifar100(ensure_unpacked("cifar100", data).folder)
    stream = []
    for number, classes in enumerate(class_order(seed, cross_validation)[:count]):
        train = Selection(cifar.train, rows_of_classes(cifar.train.labels, classes))
        test = Selection(cifar.test, rows_of_classes(cifar.test.labels, classes))
        name = task_name("cifar", number, cross_validation)
        stream.append(
            split_task(name, classes, train, test, subset=subset, seed=seed, number=number)
        )
    published = (len(cifar.train), len(cifar.test)) == (50_000, 10_000)
    return Stream(
        "split-cifar",
        stream,
        heads=heads,
        outputs=OUTPUTS,
        scale=1 / 255,
        mean=mean_image(cifar.train.images),
        reduced=reductions(
            cross_validation=cross_validation,
            tasks=None if count == TASKS else count,
            subset=subset,
            images=None if published else "substitute images",
        ),
    )


def mean_image(images: Tensor) -> Tensor:
    """The mean of each pixel, divided by 255."""
    total = np.add.reduce(images.numpy(), axis=0, dtype=np.uint32)  # exact to 16 million images
    return torch.from_numpy(total / (len(images) * 255)).float()
