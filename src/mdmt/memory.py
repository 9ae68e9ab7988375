"""Episodic memory M, with the representations F: which examples of earlier tasks are kept, and how
they are drawn.

The learner writes it: `open_task` before a task, `observe` after every step, `close_task` when the
task is over. Methods read it with `sample`. All that a memory knows is in its tensors and in the
state of its generator.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from mdmt.errors import Mistake
from mdmt.inputs.augment import Augmentation, augment
from mdmt.inputs.device import fits, gather, send
from mdmt.tasks import Batch

# Examples of the current task by index, with their features where those are stored.
Read = Callable[[Tensor], Batch]
# A batch with its features where those are stored, which takes a pass to compute.
Complete = Callable[[Batch], Batch]


class Memory:
    """Slots that hold an input, its label (a row of the head), its task and, for some methods, its
    features.
    """

    observes: ClassVar[bool] = True  # whether it is written during a task (else only at its end)
    kept: ClassVar[tuple[str, ...]] = ("inputs", "labels", "tasks", "features")

    def __init__(self, size: int, name: str) -> None:
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise Mistake(f"{name}={size!r}: must be a whole number, 0 or more")
        self.spec: dict[str, Any] = {"policy": type(self).__name__, name: size}
        self.size = size
        self.inputs = self.labels = self.tasks = self.features = None  # type: Tensor | None
        self.available = torch.empty(0, dtype=torch.int64)  # slots that may be drawn
        self.generator = np.random.default_rng(0)
        # Where inputs and features are needed, and lie if they fit; the rest is here.
        self.device = torch.device("cpu")
        self.augment: Augmentation = (
            "none"  # what is done to examples that are drawn; those kept stay as they are
        )

    @classmethod
    def budget(cls, per_class: int, classes: int) -> dict[str, Any]:
        """The spec that `make` takes, for so many examples of each of so many classes in all
        tasks.
        """
        return {"policy": cls.__name__, "per_class": per_class}

    def seed(self, seed: int) -> None:
        """Set the generator of draws and replacements."""
        self.generator = np.random.default_rng([seed, 2])

    def open_task(self, task: int, rows: Tensor) -> None:
        """A new task begins; its classes are these rows of the head."""

    def expect(self, counts: dict[int, int]) -> None:
        """So many examples of each row will come in the whole of the task that is open."""

    def observe(self, batch: Batch, complete: Complete | None = None) -> None:
        """A mini-batch was learned; `batch.features` are its representations after that step.

        Where they are not there yet `complete` adds them, and is called only if something of the
        batch is kept.
        """

    def close_task(self, labels: Tensor, read: Read) -> None:
        """The task is over; `labels` are those of all its training examples, which `read` gives by
        index.
        """

    def __len__(self) -> int:
        return len(self.available)

    def sample(self, count: int) -> Batch | None:
        """`count` different examples at random, all of them when there are no more, None when there
        are none.
        """
        if not len(self.available):
            return None
        batch = self.take(self.choose(count))
        return replace(batch, inputs=augment(self.augment, batch.inputs, self.generator))

    def choose(self, count: int) -> Tensor:
        """The slots of `count` different examples at random, or of all."""
        if count >= len(self.available):
            return self.available
        picked = self.generator.choice(len(self.available), count, replace=False, shuffle=False)
        return self.available[torch.from_numpy(picked)]

    def take(self, slots: Tensor) -> Batch:
        """The examples in these slots."""
        names = ("inputs", "labels", "tasks")
        inputs, labels, tasks = (gather(self._column(name), slots, self.device) for name in names)
        features = None if self.features is None else gather(self.features, slots, self.device)
        return Batch(inputs, labels, tasks, features)

    def trim_task(self, task: int) -> None:
        """More data of a task came: hold as much of it as before, the newest."""
        if not len(self.available):
            return
        labels = self._column("labels")[self.available]
        of_task = self._column("tasks")[self.available] == task
        keep = ~of_task
        for places in self._groups(labels, of_task):
            keep[self._chosen(places)] = True
        self._compact(self.available[keep])

    def _groups(self, labels: Tensor, of_task: Tensor) -> list[Tensor]:
        """The places of a task's examples that share a limit: here those of each class."""
        return [
            (of_task & (labels == row)).nonzero()[:, 0] for row in labels[of_task].unique().tolist()
        ]

    def _chosen(self, places: Tensor) -> Tensor:
        """Which of a group to keep."""
        return places[max(0, len(places) - self.size) :]

    def _compact(self, slots: Tensor) -> None:
        """Hold what is in these slots, and nothing else."""
        for name in self.kept:
            column: Tensor | None = getattr(self, name)
            if column is not None:
                setattr(self, name, column.index_select(0, slots.to(column.device)))
        self.available = torch.arange(len(slots))

    def by_task(self, before: int, without: int | None = None) -> list[Batch]:
        """What is held of each task up to a number, but for one; tasks of which nothing is held are
        left out.
        """
        if not len(self.available):
            return []
        numbers = self._column("tasks")[self.available]
        groups = (self.available[numbers == task] for task in range(before) if task != without)
        return [self.take(slots) for slots in groups if len(slots)]

    @property
    def bytes(self) -> dict[str, int]:
        """What each column takes."""
        columns = {name: getattr(self, name) for name in self.kept}
        return {
            name: 0 if c is None else c.numel() * c.element_size() for name, c in columns.items()
        }

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything it knows, as tensors and as JSON."""
        tensors = {
            name: getattr(self, name)
            for name in (*self.kept, "available")
            if getattr(self, name) is not None
        }
        return tensors, {**self.spec, "state": {"generator": self.generator.bit_generator.state}}

    def load_state(self, tensors: dict[str, Tensor], rest: dict[str, Any]) -> None:
        """Take over what `state` gave."""
        for name, value in tensors.items():
            setattr(self, name, value.to(self._place(name, value.nbytes)))
        self.generator.bit_generator.state = rest["state"]["generator"]

    def _column(self, name: str) -> Tensor:
        column: Tensor = getattr(self, name)
        return column

    def _write(
        self, rows: dict[int, int], batch: Batch, capacity: int, complete: Complete | None
    ) -> None:
        """Put rows of a batch into slots (`rows[slot]`), making room for `capacity` slots first."""
        if not rows and self.inputs is not None and len(self.inputs) >= capacity:
            return
        batch = batch if complete is None else complete(batch)
        slots, picked = torch.tensor([list(rows), list(rows.values())], dtype=torch.int64)
        for name in self.kept:
            new: Tensor | None = (
                batch.on_processor(name) if name in ("labels", "tasks") else getattr(batch, name)
            )
            if new is None:
                continue
            column: Tensor | None = getattr(self, name)
            if (
                name == "features"
                and column is not None
                and (gained := new.shape[1] - column.shape[1])
            ):
                # A head that has grown.
                self.features = column = functional.pad(column, (0, gained), value=torch.nan)
            if column is None or len(column) < capacity:
                shape = (capacity, *new.shape[1:])
                place = self._place(name, math.prod(shape) * new.element_size())
                wider = torch.zeros(shape, dtype=new.dtype, device=place)
                if column is not None:
                    wider[: len(column)] = column
                setattr(self, name, wider)
                column = wider
            chosen = new.detach().index_select(0, send(picked, new.device))
            column.index_copy_(0, send(slots, column.device), chosen.to(column.device))

    def _place(self, name: str, size: int) -> torch.device:
        """Where a column of so many bytes lies."""
        there = name in ("inputs", "features") and fits(size, self.device)
        return self.device if there else torch.device("cpu")


class Ring(Memory):
    """The last `per_class` examples of each class of each task.

    A task's slots are written while it is learned, and drawn from once it is over. Where it is
    known how many examples are to come, those that would be overwritten before that are not written
    at all.
    """

    def __init__(self, per_class: int = 25) -> None:
        super().__init__(per_class, "per_class")
        self.base = 0  # the first slot of the current task
        self.seen: dict[int, int] = {}  # its classes, and how many examples of each came
        self.expected: dict[
            int, int
        ] = {}  # and how many will have come at its end, where that is known

    def open_task(self, task: int, rows: Tensor) -> None:
        """Reserve the task's slots behind those of the earlier ones."""
        self.base += self.size * len(self.seen)
        self.seen = dict.fromkeys(rows.tolist(), 0)
        self.expected = {}

    def expect(self, counts: dict[int, int]) -> None:
        """Only the last ones of each class will be left."""
        self.expected = counts

    def observe(self, batch: Batch, complete: Complete | None = None) -> None:
        """Each example takes the slot of the oldest of its class."""
        if not self.size:
            return
        first = {row: self.base + i * self.size for i, row in enumerate(self.seen)}
        last: dict[int, int] = {}
        for i, row in enumerate(batch.on_processor("labels").tolist()):
            number = self.seen[row]
            if number >= self.expected.get(row, 0) - self.size:
                last[first[row] + number % self.size] = i
            self.seen[row] = number + 1
        self._write(last, batch, self.base + self.size * len(self.seen), complete)

    def close_task(self, labels: Tensor, read: Read) -> None:
        """From now on the task's examples are drawn."""
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

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Also the position in the current task's slots."""
        tensors, rest = super().state()
        rest["state"] |= {"base": self.base, "seen": list(self.seen.items())}
        return tensors, rest

    def load_state(self, tensors: dict[str, Tensor], rest: dict[str, Any]) -> None:
        """Take over what `state` gave."""
        super().load_state(tensors, rest)
        self.base, self.seen = rest["state"]["base"], dict(rest["state"]["seen"])


class TaskRing(Ring):
    """The last examples of each task, of whatever class: as many as `per_class` of each would be.

    So is GEM's memory in its authors' program. Its presets have the class-balanced memory that the
    other methods have; `--set policy=TaskRing` asks for this one.
    """

    def observe(self, batch: Batch, complete: Complete | None = None) -> None:
        """Each example takes the slot of the task's oldest."""
        room = self.size * len(self.seen)
        if not room:
            return
        begin = sum(self.expected.values()) - room
        last: dict[int, int] = {}
        for i, row in enumerate(batch.on_processor("labels").tolist()):
            number = sum(self.seen.values())
            if number >= begin:
                last[self.base + number % room] = i
            self.seen[row] += 1
        self._write(last, batch, self.base + room, complete)

    def close_task(self, labels: Tensor, read: Read) -> None:
        """From now on the task's examples are drawn."""
        count = min(sum(self.seen.values()), self.size * len(self.seen))
        slots = torch.arange(self.base, self.base + count)
        self.available = torch.cat([self.available, slots])

    def _groups(self, labels: Tensor, of_task: Tensor) -> list[Tensor]:
        """All of a task's examples."""
        return [of_task.nonzero()[:, 0]]

    def _chosen(self, places: Tensor) -> Tensor:
        return places[max(0, len(places) - self.size * len(self.seen)) :]


class Reservoir(Memory):
    """`size` examples, each example of the stream so far equally likely to be among them; drawn
    from at once.
    """

    def __init__(self, size: int = 1000) -> None:
        super().__init__(size, "size")
        self.count = 0

    @classmethod
    def budget(cls, per_class: int, classes: int) -> dict[str, Any]:
        """As many examples in all as the others have."""
        return {"policy": cls.__name__, "size": per_class * classes}

    def observe(self, batch: Batch, complete: Complete | None = None) -> None:
        """The n-th example of the stream replaces a random one with probability size/n."""
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
        """It never holds more than its size."""

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Also the number of examples seen."""
        tensors, rest = super().state()
        rest["state"]["count"] = self.count
        return tensors, rest

    def load_state(self, tensors: dict[str, Tensor], rest: dict[str, Any]) -> None:
        """Take over what `state` gave."""
        super().load_state(tensors, rest)
        self.count = rest["state"]["count"]


class AtTaskEnd(Memory):
    """`per_class` random examples of each class, drawn when the task is over (StoreMem of Algorithm
    1).
    """

    observes = False

    def __init__(self, per_class: int = 20) -> None:
        super().__init__(per_class, "per_class")

    def close_task(self, labels: Tensor, read: Read) -> None:
        """Draw, and store the features as they are now."""
        chosen: list[int] = []
        for row in labels.unique().tolist():
            of_class = (labels == row).nonzero()[:, 0].numpy()
            picked = self.generator.choice(of_class, min(self.size, len(of_class)), replace=False)
            chosen += picked.tolist()
        if not chosen:
            return
        base = len(self.available)
        slots = {base + i: i for i in range(len(chosen))}
        self._write(slots, read(torch.tensor(chosen)), base + len(chosen), None)
        self.available = torch.arange(base + len(chosen))

    def _chosen(self, places: Tensor) -> Tensor:
        """Some at random, old or new."""
        count = min(self.size, len(places))
        return places[torch.from_numpy(self.generator.choice(len(places), count, replace=False))]


POLICIES = {policy.__name__: policy for policy in (Ring, Reservoir, AtTaskEnd, TaskRing)}


def make(spec: dict[str, Any]) -> Memory:
    """Build a memory from its policy and arguments.

    >>> make({"policy": "Ring", "per_class": 3}).spec
    {'policy': 'Ring', 'per_class': 3}
    """
    arguments = {key: value for key, value in spec.items() if key != "policy"}
    return POLICIES[spec["policy"]](**arguments)
