"""Split CIFAR: CIFAR-100 in tasks of five classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mdmt.benchmarks.splits import (
    SUBSTITUTE,
    TASKS,
    count_tasks,
    select,
    shuffle_classes,
    split_stream,
)
from mdmt.data.fetch import ensure_unpacked
from mdmt.data.readers import read_cifar100
from mdmt.tasks import HeadKind, Stream

OUTPUTS = 100
PUBLISHED_SIZES = (50_000, 10_000)  # training and test images


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
    """Make Split CIFAR: 500 training and 100 test images of each class.

    Pixels are divided by 255, then the mean of all training images is subtracted.
    """
    count = count_tasks("split-cifar", tasks, cross_validation)
    cifar = read_cifar100(ensure_unpacked("cifar100", data).folder)
    order = class_order(seed, cross_validation)[:count]
    is_published = (len(cifar.train), len(cifar.test)) == PUBLISHED_SIZES
    return split_stream(
        "split-cifar",
        order,
        [(select(cifar.train, classes), select(cifar.test, classes)) for classes in order],
        seed=seed,
        heads=heads,
        subset=subset,
        cross_validation=cross_validation,
        images=None if is_published else SUBSTITUTE,
        outputs=OUTPUTS,
        scale=1 / 255,
        mean=mean_image(cifar.train.images),
    )


def mean_image(images: Tensor) -> Tensor:
    """The mean of each pixel, divided by 255."""
    total = np.add.reduce(images.numpy(), axis=0, dtype=np.uint32)  # exact to 16 million images
    return torch.from_numpy(total / (len(images) * 255)).float()
