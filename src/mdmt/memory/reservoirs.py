"""A random sample of the whole stream so far, or of each of its classes."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from mdmt.memory.base import FREE_SLOT, Complete, Memory, Spec, labels_of
from mdmt.tasks import Batch


class Reservoir(Memory):
    """A uniform random sample of `size` examples of the stream so far, available at once."""

    def __init__(self, size: int = 1000) -> None:
        super().__init__(size, "size")
        self.count = 0  # examples of the stream so far

    @classmethod
    def budget(cls, per_class: int, classes: int) -> Spec:
        """As many examples in total as the other policies store."""
        return {"policy": cls.__name__, "size": per_class * classes}

    def observe(self, batch: Batch, complete: Complete | None = None) -> None:
        """Let the n-th example of the stream replace a random one with probability size/n."""
        if not self.size:
            return
        numbers = np.arange(self.count, self.count + len(batch))
        slots = np.where(numbers < self.size, numbers, self.generator.integers(0, numbers + 1))
        last = {slot: i for i, slot in enumerate(slots.tolist()) if slot < self.size}
        self.count += len(batch)
        self._write(last, batch, self.size, complete)
        if len(self.available) < self.size:
            self.available = torch.arange(min(self.count, self.size))

    def trim_task(self, task: int) -> None:
        """Keep everything: a reservoir never exceeds its size."""

    def _compact(self, slots: Tensor) -> None:
        """Keep these slots; what comes next fills the free ones first."""
        super()._compact(slots)
        self.count = len(slots)

    def state(self) -> tuple[dict[str, Tensor], Spec]:
        """The state of any memory, with the number of examples seen."""
        tensors, rest = super().state()
        rest["state"]["count"] = self.count
        return tensors, rest

    def load_state(self, tensors: dict[str, Tensor], rest: Spec) -> None:
        """Restore what `state` gave."""
        super().load_state(tensors, rest)
        self.count = rest["state"]["count"]


class ClassReservoir(Reservoir):
    """`size` examples that the classes share evenly; each share is a random sample of its class.

    All places are used from the first task on. Once they are, an example of a new class takes the
    place of a random one of the largest class. A class that is or was the largest keeps a uniform
    sample: its n-th example takes the place of one of its k stored ones with probability k/n
    (Chrysakis and Moens, 2020).
    """

    def __init__(self, size: int = 1000) -> None:
        super().__init__(size)
        self.seen: dict[int, int] = {}  # the number of examples of each row so far
        self.full: set[int] = set()  # rows that are or were among the largest
        self.owner = np.full(size, FREE_SLOT)  # the row of the example in each slot

    def observe(self, batch: Batch, complete: Complete | None = None) -> None:
        """Find a place for each example, or none."""
        if not self.size:
            return
        last: dict[int, int] = {}
        for i, row in enumerate(labels_of(batch)):
            self.seen[row] = self.seen.get(row, 0) + 1
            slot = self.count if self.count < self.size else self._place_for(row)
            self.count += 1
            if slot is not None:
                self.owner[slot] = row
                last[slot] = i
        self._write(last, batch, self.size, complete)
        if len(self.available) < self.size:
            self.available = torch.arange(min(self.count, self.size))

    def _place_for(self, row: int) -> int | None:
        """The slot that an example of this row takes in a memory without free ones."""
        counts = np.bincount(self.owner, minlength=row + 1)
        largest = counts.max()
        self.full.update(np.flatnonzero(counts == largest).tolist())
        if row not in self.full:
            slots = np.flatnonzero(counts[self.owner] == largest)
        elif self.generator.integers(self.seen[row]) < counts[row]:
            slots = np.flatnonzero(self.owner == row)
        else:
            return None
        return int(self.generator.choice(slots))

    def _compact(self, slots: Tensor) -> None:
        super()._compact(slots)
        self._find_owners()
        stored = set(self.owner.tolist())
        self.seen = {row: number for row, number in self.seen.items() if row in stored}
        self.full &= stored

    def _find_owners(self) -> None:
        self.owner = np.full(self.size, FREE_SLOT)
        if len(self.available):
            self.owner[self.available.numpy()] = self._column("labels")[self.available].numpy()

    def state(self) -> tuple[dict[str, Tensor], Spec]:
        """The state of a reservoir, with what it knows of each class."""
        tensors, rest = super().state()
        rest["state"]["classes"] = [[r, n, int(r in self.full)] for r, n in self.seen.items()]
        return tensors, rest

    def load_state(self, tensors: dict[str, Tensor], rest: Spec) -> None:
        """Restore what `state` gave."""
        super().load_state(tensors, rest)
        classes = rest["state"]["classes"]
        self.seen = {row: number for row, number, _ in classes}
        self.full = {row for row, _, is_full in classes if is_full}
        self._find_owners()
