"""Held-back examples: a share of each delivery that is never learned, to measure forgetting."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from mdmt.inputs.saved import saved_tensor
from mdmt.learning.gate import KINDS, check_rows
from mdmt.memory import even_shares
from mdmt.system.files import JsonObject

OVERHEAD = 16  # bytes of an example's label and task
FEWEST = 4  # examples of a class in a delivery, below which none is held back
Tensors = dict[str, Tensor]


def _no_numbers() -> Tensor:
    return torch.empty(0, dtype=torch.int64)


@dataclass(frozen=True)
class HeldBack:
    """Inputs, their rows of the head and the numbers of their tasks."""

    inputs: Tensor | None = None
    labels: Tensor = field(default_factory=_no_numbers)
    tasks: Tensor = field(default_factory=_no_numbers)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def bytes(self) -> int:
        """The size of everything that is stored."""
        inputs = 0 if self.inputs is None else self.inputs.nbytes
        return inputs + self.labels.nbytes + self.tasks.nbytes

    def joined(self, inputs: Tensor, labels: Tensor, task: int) -> HeldBack:
        """These and new examples of a task."""
        tasks = torch.full_like(labels, task)
        if self.inputs is None:
            return HeldBack(inputs.clone(), labels, tasks)
        return HeldBack(
            torch.cat([self.inputs, inputs]),
            torch.cat([self.labels, labels]),
            torch.cat([self.tasks, tasks]),
        )

    def within(self, budget: int, generator: np.random.Generator) -> Tensor:
        """The indices of at most `budget` bytes of them, chosen at random, evenly over classes."""
        if self.inputs is None:
            return _no_numbers()
        places = budget // (self.inputs[:1].nbytes + OVERHEAD) if len(self) else 0
        keep: list[int] = []
        for row, share in even_shares(Counter(self.labels.tolist()), places).items():
            of_class = (self.labels == row).nonzero()[:, 0].numpy()
            keep += of_class[generator.permutation(len(of_class))[:share]].tolist()
        return torch.tensor(sorted(keep), dtype=torch.int64)

    def at(self, index: Tensor) -> HeldBack:
        """The examples at these indices."""
        if self.inputs is None:
            return self
        return HeldBack(self.inputs[index], self.labels[index], self.tasks[index])

    def state(self) -> Tensors:
        """The examples as tensors."""
        if self.inputs is None:
            return {}
        return {"inputs": self.inputs, "labels": self.labels, "tasks": self.tasks}

    @classmethod
    def from_state(cls, tensors: Tensors, rest: JsonObject) -> HeldBack:
        """The examples of `state`; a Mistake says if they do not fit the model's manifest."""
        labels = saved_tensor(tensors, "labels", (None,), torch.int64, whose="held_back.")
        tasks = saved_tensor(tensors, "tasks", labels.shape, torch.int64, whose="held_back.")
        shape, kind = rest["input"]
        whole = (len(labels), *shape)
        inputs = saved_tensor(tensors, "inputs", whole, KINDS[kind], whose="held_back.")
        check_rows("held_back", labels, tasks, rest)
        return cls(inputs, labels, tasks)


def choose(labels: Tensor, share: float, generator: np.random.Generator) -> Tensor:
    """Which examples of a delivery to hold back: a share of each class, rounded, at random."""
    chosen: list[int] = []
    for label in labels.unique().tolist():
        of_class = (labels == label).nonzero()[:, 0].numpy()
        number = max(1, round(share * len(of_class))) if share and len(of_class) >= FEWEST else 0
        chosen += generator.permutation(of_class)[:number].tolist()
    held_back = torch.zeros(len(labels), dtype=torch.bool)
    held_back[chosen] = True
    return held_back
