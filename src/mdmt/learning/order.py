"""The batches of a task: how many there are, and in which order its examples come."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mdmt.learning.randomness import Purpose, generator


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

    @property
    def steps_in_epoch(self) -> int:
        return steps_in_epoch(self.size, self.batch, min_batch=self.min_batch)

    def of_epoch(self, epoch: int) -> Tensor:
        """The indices of all examples in the order of an epoch."""
        purpose = Purpose.ORDER_OF_MORE if self.is_more_data else Purpose.ORDER
        draws = generator(self.seed, purpose, self.task, epoch)
        return torch.from_numpy(draws.permutation(self.size))


def steps_in_epoch(size: int, batch: int, *, min_batch: int = 1) -> int:
    """The number of mini-batches; a last one that is too small joins the one before it.

    >>> steps_in_epoch(31, 10), steps_in_epoch(31, 10, min_batch=2)
    (4, 3)
    """
    steps = math.ceil(size / batch)
    joins = steps > 1 and 0 < size % batch < min_batch
    return steps - 1 if joins else steps
