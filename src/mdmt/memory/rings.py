"""The last examples of each class, or of each task."""

from __future__ import annotations

import torch
from torch import Tensor

from mdmt.memory.base import Complete, Memory, Read, Spec, labels_of
from mdmt.tasks import Batch


class Ring(Memory):
    """The last `per_class` examples of each class of each task.

    A task's examples are stored while it is learned, and can be drawn once it is over. Examples
    that would be overwritten before the end of the task are not stored at all.
    """

    def __init__(self, per_class: int = 25) -> None:
        super().__init__(per_class, "per_class")
        self.base = 0  # the first slot of the current task
        self.seen: dict[int, int] = {}  # the number of examples of each of its classes so far
        self.expected: dict[int, int] = {}  # the number at the end of the task, if announced

    def open_task(self, task: int, rows: Tensor) -> None:
        """Reserve slots for the task behind those of earlier tasks."""
        self.base += self.size * len(self.seen)
        self.seen = dict.fromkeys(rows.tolist(), 0)
        self.expected = {}

    def announce(self, counts: dict[int, int]) -> None:
        """Announce how many examples of each class the current task has."""
        self.expected = counts

    def observe(self, batch: Batch, complete: Complete | None = None) -> None:
        """Write each example over the oldest one of its class."""
        if not self.size:
            return
        first = {row: self.base + i * self.size for i, row in enumerate(self.seen)}
        last: dict[int, int] = {}
        for i, row in enumerate(labels_of(batch)):
            number = self.seen[row]
            if number >= self.expected.get(row, 0) - self.size:
                last[first[row] + number % self.size] = i
            self.seen[row] = number + 1
        self._write(last, batch, self.base + self.size * len(self.seen), complete)

    def close_task(self, labels: Tensor, read: Read) -> None:
        """Make the task's examples available."""
        slots = [
            self.base + i * self.size + k
            for i, n in enumerate(self.seen.values())
            for k in range(min(n, self.size))
        ]
        self.available = torch.cat([self.available, torch.tensor(slots, dtype=torch.int64)])

    def _compact(self, slots: Tensor) -> None:
        super()._compact(slots)
        self.base = len(slots)
        self.seen = {}

    def state(self) -> tuple[dict[str, Tensor], Spec]:
        """The state of any memory, with the position in the current task's slots."""
        tensors, rest = super().state()
        rest["state"] |= {"base": self.base, "seen": list(self.seen.items())}
        return tensors, rest

    def load_state(self, tensors: dict[str, Tensor], rest: Spec) -> None:
        """Restore what `state` gave."""
        super().load_state(tensors, rest)
        self.base, self.seen = rest["state"]["base"], dict(rest["state"]["seen"])


class TaskRing(Ring):
    """The last examples of each task, whatever their classes: `per_class` x classes of them.

    GEM's memory works this way in the program of its authors. The presets give GEM the same
    class-balanced memory as the other methods; `--set policy=TaskRing` selects this one.
    """

    def observe(self, batch: Batch, complete: Complete | None = None) -> None:
        """Write each example over the oldest one of its task."""
        room = self.size * len(self.seen)
        if not room:
            return
        begin = sum(self.expected.values()) - room
        last: dict[int, int] = {}
        for i, row in enumerate(labels_of(batch)):
            number = sum(self.seen.values())
            if number >= begin:
                last[self.base + number % room] = i
            self.seen[row] += 1
        self._write(last, batch, self.base + room, complete)

    def close_task(self, labels: Tensor, read: Read) -> None:
        """Make the task's examples available."""
        count = min(sum(self.seen.values()), self.size * len(self.seen))
        slots = torch.arange(self.base, self.base + count)
        self.available = torch.cat([self.available, slots])

    def _groups(self, labels: Tensor, of_task: Tensor) -> list[Tensor]:
        """All examples of the task as one group."""
        return [of_task.nonzero()[:, 0]]

    def _select(self, places: Tensor) -> Tensor:
        return places[max(0, len(places) - self.size * len(self.seen)) :]
