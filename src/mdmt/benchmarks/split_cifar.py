"""Split CIFAR: CIFAR-100 in tasks of five classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mdmt.benchmarks.splits import (
    TASKS,
    Part,
    count_of_tasks,
    home,
    of_classes,
    reduced,
    shuffled_classes,
    split_task,
    task_name,
)
from mdmt.data.readers import read_cifar100
from mdmt.tasks import Heads, Stream

OUTPUTS = 100


def class_order(seed: int, cross_validation: bool = False) -> list[list[int]]:
    """The classes of each task: labels 15 to 99 shuffled and cut in fives (0 to 14 for cross-validation).

    >>> class_order(1234)[:2]
    [[86, 66, 82, 74, 50], [87, 48, 78, 25, 76]]
    """
    return shuffled_classes(seed, range(15) if cross_validation else range(15, 100), 5)


def split_cifar(
    seed: int,
    tasks: int = TASKS,
    heads: Heads = "per-task",
    *,
    data: str | Path | None = None,
    subset: int | None = None,
    cross_validation: bool = False,
) -> Stream:
    """500 training and 100 test images of each class; pixels over 255, minus the mean image of all that train."""
    count = count_of_tasks("split-cifar", tasks, cross_validation)
    x, y, test_x, test_y = read_cifar100(home("cifar100", data))
    made = []
    for number, classes in enumerate(class_order(seed, cross_validation)[:count]):
        train, test = Part(x, y, of_classes(y, classes)), Part(test_x, test_y, of_classes(test_y, classes))
        name = task_name("cifar", number, cross_validation)
        made.append(split_task(name, classes, train, test, subset=subset, seed=seed, number=number))
    published = (len(y), len(test_y)) == (50_000, 10_000)
    return Stream(
        "split-cifar", made, heads=heads, outputs=OUTPUTS, scale=1 / 255, mean=mean_image(x),
        reduced=reduced(count, cross_validation, subset, images=None if published else "substitute images"),
    )  # fmt: skip


def mean_image(x: Tensor) -> Tensor:
    """The mean of each pixel, over 255."""
    total = np.add.reduce(x.numpy(), axis=0, dtype=np.uint32)  # exact for up to 16 million images
    return torch.from_numpy(total / (len(x) * 255)).float()
