"""The batches of a task: how many there are, and in which order its examples come."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mdmt.learning.randomness import Purpose, generator
from mdmt.tasks import TaskOrder

RARE = 0.2  # of the largest class; classes with fewer examples are repeated if asked for


@dataclass(frozen=True)
class Order:
    """The order of a task's examples, which depends on seed, task and epoch alone.

    So a resumed task goes on with the same mini-batches.
    """

    seed: int
    task: int
    size: int  # training examples of the task
    batch: int
    min_batch: int = 1  # a smaller last mini-batch joins the one before it
    is_more_data: bool = False
    repeats: tuple[Repeat, ...] = ()  # classes that come more often than they have examples
    first: TaskOrder | None = None  # the order of the first epoch, if the stream has one

    @property
    def length(self) -> int:
        """The number of examples that an epoch shows."""
        return self.size + sum(repeat.times for repeat in self.repeats)

    @property
    def steps_in_epoch(self) -> int:
        return steps_in_epoch(self.length, self.batch, min_batch=self.min_batch)

    def of_epoch(self, epoch: int) -> Tensor:
        """The indices of all examples in the order of an epoch."""
        if epoch == 0 and self.first is not None and not self.is_more_data:
            return self.first(self.task, self.size)
        purpose = Purpose.ORDER_OF_MORE if self.is_more_data else Purpose.ORDER
        draws = generator(self.seed, purpose, self.task, epoch)
        if not self.repeats:
            return torch.from_numpy(draws.permutation(self.size))
        more = [draws.choice(repeat.examples, repeat.times) for repeat in self.repeats]
        return torch.from_numpy(draws.permutation(np.concatenate([np.arange(self.size), *more])))


@dataclass(frozen=True)
class Repeat:
    """The examples of a rare class, and how many of them an epoch shows in addition."""

    examples: NDArray[np.int64]
    times: int


def repeats_of(labels: Tensor) -> tuple[Repeat, ...]:
    """What to repeat so that a class with under a fifth of the largest comes as often as that."""
    counts = torch.bincount(labels)
    largest = int(counts.max())
    return tuple(
        Repeat((labels == label).nonzero()[:, 0].numpy(), largest - number)
        for label, number in enumerate(counts.tolist())
        if 0 < number < RARE * largest
    )


def steps_in_epoch(size: int, batch: int, *, min_batch: int = 1) -> int:
    """The number of mini-batches; a last one that is too small joins the one before it.

    >>> steps_in_epoch(31, 10), steps_in_epoch(31, 10, min_batch=2)
    (4, 3)
    """
    steps = math.ceil(size / batch)
    joins = steps > 1 and 0 < size % batch < min_batch
    return steps - 1 if joins else steps
