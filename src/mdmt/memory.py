"""Episodic memory M with representations F: which examples are stored, and how they are drawn.

The learner writes to it: `open_task` before a task, `observe` after every step, `close_task` at the
end of the task. Methods read from it with `sample`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from mdmt.errors import Mistake
from mdmt.inputs.augment import Augmentation, augment
from mdmt.inputs.device import fits, gather, send
from mdmt.inputs.saved import check_range, saved_tensor
from mdmt.tasks import Batch
from mdmt.words import bytes_text, call_text, printable

Spec = dict[str, Any]  # the policy of a memory and its size, or its state, as JSON
# Examples of the current task by index, with their features if those are stored.
Read = Callable[[Tensor], Batch]
# Adds the features to a batch if those are stored, which may take a pass through the network.
Complete = Callable[[Batch], Batch]


FREE_SLOT = -1
READ_AT_ONCE = 1000  # examples that are copied into the memory at a time


class Memory:
    """Slots for examples: an input, its label (a row of the head), its task and maybe features."""

    observes: ClassVar[bool] = True  # whether it is written during a task
    chooses_first: ClassVar[bool] = False  # whether it is written before a task is learned
    COLUMNS: ClassVar[tuple[str, ...]] = ("inputs", "labels", "tasks", "features")

    def __init__(self, size: int, name: str) -> None:
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise Mistake(f"{name}={size!r}: must be a whole number, 0 or more")
        kind = type(self)
        policy = kind.__name__
        if kind.__module__ != __name__:  # a class of the user, which may have the name of ours
            policy = f"{kind.__module__}:{kind.__qualname__}"
        self.spec: Spec = {"policy": policy, name: size}
        self.size = size
        self.inputs = self.labels = self.tasks = self.features = None  # type: Tensor | None
        self.available = torch.empty(0, dtype=torch.int64)  # slots that may be drawn
        self.generator = np.random.default_rng(0)  # decides draws and replacements
        self.device = torch.device("cpu")  # for inputs and features, if they fit
        self.augment: Augmentation = "none"  # applied to drawn examples, not to stored ones

    def __repr__(self) -> str:
        size = {key: value for key, value in self.spec.items() if key != "policy"}
        return f"{call_text(self, size)}: {len(self)} examples"

    @classmethod
    def budget(cls, per_class: int, classes: int) -> Spec:
        """The spec of a memory with `per_class` examples for each class of the whole stream."""
        return {"policy": cls.__name__, "per_class": per_class}

    def open_task(self, task: int, rows: Tensor) -> None:
        """Called when a task begins; `rows` are its classes' rows of the head."""

    def announce(self, counts: dict[int, int]) -> None:
        """Announce how many examples of each class the current task has."""

    def choose_first(self, labels: Tensor, read: Read) -> None:
        """Called before a task's first mini-batch if the memory `chooses_first`."""

    def observe(self, batch: Batch, complete: Complete | None = None) -> None:
        """Called after a mini-batch was learned; `batch.features` are its representations.

        If they are missing, `complete` adds them; it is called only if an example is stored.
        """

    def close_task(self, labels: Tensor, read: Read) -> None:
        """Called at the end of a task with its labels; `read` reads its examples by index."""

    def __len__(self) -> int:
        return len(self.available)

    def sample(self, count: int | None) -> Batch | None:
        """`count` different random examples, or all if there are fewer; None if it is empty.

        With the count None it is `share_to_draw` of the stored examples.
        """
        if not len(self.available):
            return None
        if count is None:
            count = share_to_draw(len(self.available))
        return self.augmented(self.take(self.choose(count)))

    def augmented(self, batch: Batch) -> Batch:
        """Stored examples as they are drawn: shifted and mirrored at random, if at all."""
        if self.augment == "none":
            return batch
        return replace(batch, inputs=augment(self.augment, batch.inputs, self.generator))

    def shuffled(self, size: int) -> list[Tensor]:
        """All slots in random order, in parts of `size`; the last may be smaller."""
        order = torch.from_numpy(self.generator.permutation(len(self.available)))
        return list(self.available[order].split(size))

    def choose(self, count: int) -> Tensor:
        """The slots of `count` different random examples, or all slots if there are fewer."""
        if count >= len(self.available):
            return self.available
        picked = self.generator.choice(len(self.available), count, replace=False, shuffle=False)
        return self.available[torch.from_numpy(picked)]

    def take(self, slots: Tensor) -> Batch:
        """The examples in these slots, on the device."""
        assert self.inputs is not None
        assert self.labels is not None
        assert self.tasks is not None
        if self.device.type == "cpu":
            return Batch(
                self.inputs.index_select(0, slots),
                self.labels.index_select(0, slots),
                self.tasks.index_select(0, slots),
                None if self.features is None else self.features.index_select(0, slots),
            )
        return Batch(
            gather(self.inputs, slots, self.device),
            gather(self.labels, slots, self.device),
            gather(self.tasks, slots, self.device),
            None if self.features is None else gather(self.features, slots, self.device),
        )

    def trim_task(self, task: int) -> None:
        """After more data of a task, keep the newest of its examples, as many as before."""
        if not len(self.available):
            return
        labels = self._column("labels")[self.available]
        of_task = self._column("tasks")[self.available] == task
        keep = ~of_task
        for places in self._groups(labels, of_task):
            keep[self._select(places)] = True
        self._compact(self.available[keep])

    def slots_of(self, rows: Tensor) -> Tensor:
        """The slots that hold examples of these rows of the head."""
        if not len(self.available):
            return self.available
        return self.available[torch.isin(self._column("labels")[self.available], rows)]

    def remove(self, slots: Tensor) -> None:
        """Remove the examples in these slots; nothing of them stays."""
        if len(slots):
            self._compact(self.available[~torch.isin(self.available, slots)])

    def _groups(self, labels: Tensor, of_task: Tensor) -> list[Tensor]:
        """The positions of a task's examples in groups that share a limit: here its classes."""
        rows = labels[of_task].unique().tolist()
        return [(of_task & (labels == row)).nonzero()[:, 0] for row in rows]

    def _select(self, places: Tensor) -> Tensor:
        """The examples of a group to keep."""
        return places[max(0, len(places) - self.size) :]

    def _compact(self, slots: Tensor) -> None:
        """Keep these slots and drop all others."""
        for name in self.COLUMNS:
            column: Tensor | None = getattr(self, name)
            if column is not None:
                setattr(self, name, column.index_select(0, slots.to(column.device)))
        self.available = torch.arange(len(slots))

    def even_slots(self, count: int, draws: np.random.Generator) -> Tensor:
        """About `count` slots in random order, equally many of each class.

        No class has fewer than one, nor more than the largest has examples; those of a class with
        fewer come several times.
        """
        if not len(self.available):
            return self.available
        labels = self._column("labels")[self.available]
        of_class = [(labels == row).nonzero()[:, 0].numpy() for row in labels.unique().tolist()]
        share = min(max(1, count // len(of_class)), max(map(len, of_class)))
        places = [np.resize(draws.permutation(one), share) for one in of_class]
        return self.available[torch.from_numpy(draws.permutation(np.concatenate(places)))]

    def by_task(self, before: int, without: int | None = None) -> list[Batch]:
        """One batch per stored task below `before`, skipping `without` and empty tasks."""
        if not len(self.available):
            return []
        numbers = self._column("tasks")[self.available]
        groups = (self.available[numbers == task] for task in range(before) if task != without)
        return [self.take(slots) for slots in groups if len(slots)]

    @property
    def bytes(self) -> dict[str, int]:
        """The size of each column in bytes."""
        columns = {name: getattr(self, name) for name in self.COLUMNS}
        return {name: 0 if column is None else column.nbytes for name, column in columns.items()}

    def state(self) -> tuple[dict[str, Tensor], Spec]:
        """Its columns as tensors, and its spec and random state as JSON."""
        columns = {name: getattr(self, name) for name in (*self.COLUMNS, "available")}
        tensors = {name: column for name, column in columns.items() if column is not None}
        return tensors, {**self.spec, "state": {"generator": self.generator.bit_generator.state}}

    def load_state(self, tensors: dict[str, Tensor], rest: Spec) -> None:
        """Restore what `state` gave."""
        unknown = next((name for name in tensors if name not in (*self.COLUMNS, "available")), None)
        if unknown is not None:
            raise Mistake(f"memory.{printable(unknown)} is not what a memory keeps")
        slots = self._check_columns(tensors)
        available = saved_tensor(tensors, "available", (None,), torch.int64, whose="memory.")
        check_range("memory.available", available, 0, slots - 1)
        if len(available.unique()) < len(available):
            raise Mistake("memory.available has a slot twice")
        for name, value in tensors.items():
            setattr(self, name, value.to(self._place(name, value.nbytes)))
        try:
            self.generator.bit_generator.state = rest["state"]["generator"]
        except (TypeError, ValueError, KeyError, OverflowError, AttributeError):
            raise Mistake("memory.state.generator is not the state of a generator") from None

    @staticmethod
    def _check_columns(tensors: dict[str, Tensor]) -> int:
        """The number of slots, which all columns have; none of them is there, or all."""
        if not tensors.keys() - {"available"}:
            return 0
        slots = len(saved_tensor(tensors, "labels", (None,), torch.int64, whose="memory."))
        saved_tensor(tensors, "tasks", (slots,), torch.int64, whose="memory.")
        if "features" in tensors:
            saved_tensor(tensors, "features", (slots, None), whose="memory.")
        inputs = tensors.get("inputs")
        if inputs is None or not inputs.ndim or len(inputs) != slots:
            raise Mistake(f"memory.inputs does not have an input in each of {slots} slots")
        return slots

    def _column(self, name: str) -> Tensor:
        column: Tensor = getattr(self, name)
        return column

    def _write(
        self, rows: dict[int, int], batch: Batch, capacity: int, complete: Complete | None
    ) -> None:
        """Write row `rows[slot]` of a batch into each slot, after making room for `capacity`."""
        if not rows and self.inputs is not None and len(self.inputs) >= capacity:
            return
        batch = batch if complete is None else complete(batch)
        slots, picked = torch.tensor([list(rows), list(rows.values())], dtype=torch.int64)
        labels = batch.labels if batch.host_labels is None else batch.host_labels
        tasks = batch.tasks if batch.host_tasks is None else batch.host_tasks
        columns = {"inputs": batch.inputs, "labels": labels, "tasks": tasks}
        if batch.features is not None:
            columns["features"] = batch.features
        for name, new in columns.items():
            column: Tensor | None = getattr(self, name)
            if name == "features" and column is not None and column.shape[1] < new.shape[1]:
                # The head has grown since the first logits were stored.
                gained = new.shape[1] - column.shape[1]
                self.features = column = functional.pad(column, (0, gained), value=torch.nan)
            if column is None or len(column) < capacity:
                column = self._widen(name, column, new, capacity)
            if new.device.type == column.device.type == "cpu":
                column.index_copy_(0, slots, new.detach().index_select(0, picked))
            else:
                chosen = new.detach().index_select(0, send(picked, new.device))
                column.index_copy_(0, send(slots, column.device), chosen.to(column.device))

    def _widen(self, name: str, column: Tensor | None, new: Tensor, capacity: int) -> Tensor:
        """Give a column room for `capacity` slots."""
        shape = (capacity, *new.shape[1:])
        place = self._place(name, math.prod(shape) * new.element_size())
        try:
            wider = torch.zeros(shape, dtype=new.dtype, device=place)
        except RuntimeError:
            needed = bytes_text(math.prod(shape) * new.element_size())
            raise Mistake(f"out of memory: {self!r} needs {needed}; make it smaller") from None
        if column is not None:
            wider[: len(column)] = column
        setattr(self, name, wider)
        return wider

    def _place(self, name: str, size: int) -> torch.device:
        """The device for a column of `size` bytes."""
        there = name in ("inputs", "features") and fits(size, self.device)
        return self.device if there else torch.device("cpu")


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
        for i, row in enumerate(_labels(batch)):
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
        for i, row in enumerate(_labels(batch)):
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
        for i, row in enumerate(_labels(batch)):
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


class AtTaskEnd(Memory):
    """`per_class` random examples of each class, chosen at a task's end (StoreMem, Algorithm 1)."""

    observes = False

    def __init__(self, per_class: int = 20) -> None:
        super().__init__(per_class, "per_class")

    def close_task(self, labels: Tensor, read: Read) -> None:
        """Choose examples, and store them with their features at the end of the task."""
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

    def _select(self, places: Tensor) -> Tensor:
        """Random examples of the group, old or new."""
        count = min(self.size, len(places))
        return places[torch.from_numpy(self.generator.choice(len(places), count, replace=False))]


class Balanced(Memory):
    """As many examples as fit into `bytes`, shared evenly by all classes.

    Examples are chosen at random at a task's end. As classes come, the largest ones give way. The
    bytes count everything that is stored of an example: input, label, task, features and its slot.
    """

    observes = False
    OVERHEAD = 24  # bytes of an example's label, task and slot

    def __init__(self, bytes: int = 50_000_000) -> None:
        super().__init__(bytes, "bytes")

    @classmethod
    def budget(cls, per_class: int, classes: int) -> Spec:
        """Refuse: its size is one of bytes."""
        raise Mistake(
            f"policy={cls.__name__} is a memory of bytes: use it in Python, or mdmt learn"
        )

    def close_task(self, labels: Tensor, read: Read) -> None:
        """Choose examples of the task, and drop stored ones, so that all classes have one share."""
        if not len(labels):
            return
        slots = self.slots_for(read(torch.tensor([0])))
        stored = [] if self.labels is None else self.labels.tolist()
        shares = even_shares(Counter([*stored, *labels.tolist()]), slots)
        keep: list[int] = []
        chosen: list[int] = []
        for row, share in shares.items():
            old = np.array([slot for slot, label in enumerate(stored) if label == row], np.int64)
            new = (labels == row).nonzero()[:, 0].numpy()
            # Old and new examples of a class have the same chance to stay.
            picked = self.generator.permutation(len(old) + len(new))[:share]
            keep += old[picked[picked < len(old)]].tolist()
            chosen += new[picked[picked >= len(old)] - len(old)].tolist()
        if self.labels is not None:
            self._compact(torch.tensor(sorted(keep), dtype=torch.int64))
        base = len(self.available)
        for start in range(0, len(chosen), READ_AT_ONCE):
            index = torch.tensor(chosen[start : start + READ_AT_ONCE])
            first = base + start
            rows = {first + i: i for i in range(len(index))}
            self._write(rows, read(index), base + len(chosen), None)
        self.available = torch.arange(base + len(chosen))

    def slots_for(self, example: Batch) -> int:
        """The number of examples like this one that fit, at the width that stored ones have."""
        features = 0 if example.features is None else example.features[0].nbytes
        return self.size // (example.inputs[0].nbytes + features + self.OVERHEAD)

    def trim_task(self, task: int) -> None:
        """Keep everything: `close_task` has evened it out."""


class BalancedFirst(Balanced):
    """The same, but chosen before a task is learned: its classes are rehearsed while they are new.

    So they compete with the earlier ones in what is drawn from the memory. It is not for methods
    that store representations, which would be those of a network that has not learned the task.
    """

    chooses_first = True

    def choose_first(self, labels: Tensor, read: Read) -> None:
        """Choose examples of the task, and drop stored ones."""
        super().close_task(labels, read)

    def close_task(self, labels: Tensor, read: Read) -> None:
        """Keep what was chosen."""


def even_shares(counts: Mapping[int, int], total: int) -> dict[int, int]:
    """How many of `total` places each class gets: equal shares, less for those that have less.

    >>> even_shares({0: 100, 1: 2, 2: 100}, 12)
    {0: 5, 1: 2, 2: 5}
    """
    shares = dict.fromkeys(sorted(counts), 0)
    open_classes = sorted(counts, key=lambda row: (counts[row], row))
    for number, row in enumerate(open_classes):
        shares[row] = min(counts[row], total // (len(open_classes) - number))
        total -= shares[row]
    return shares


def share_to_draw(stored: int, least: int = 10) -> int:
    """How many of the stored examples a step rehearses: a quarter of them, from `least` up to 256.

    >>> share_to_draw(156), share_to_draw(20), share_to_draw(100_000)
    (39, 10, 256)
    """
    return max(least, min(256, stored // 4))


def _labels(batch: Batch) -> list[int]:
    labels = batch.labels if batch.host_labels is None else batch.host_labels
    return labels.tolist()


KINDS = (Ring, Reservoir, ClassReservoir, AtTaskEnd, TaskRing, Balanced, BalancedFirst)
POLICIES = {kind.__name__: kind for kind in KINDS}


def make(spec: Spec) -> Memory:
    """Build a memory from its policy and arguments.

    >>> make({"policy": "Ring", "per_class": 3}).spec
    {'policy': 'Ring', 'per_class': 3}
    """
    arguments = {key: value for key, value in spec.items() if key != "policy"}
    return POLICIES[spec["policy"]](**arguments)
