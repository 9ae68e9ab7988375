"""A memory: its columns of stored examples, how they are drawn, and what a policy decides."""

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
        if not kind.__module__.startswith("mdmt.memory."):
            # A class of the user, which may have the name of ours.
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


def share_to_draw(stored: int, least: int = 10) -> int:
    """How many of the stored examples a step rehearses: a quarter of them, from `least` up to 256.

    >>> share_to_draw(156), share_to_draw(20), share_to_draw(100_000)
    (39, 10, 256)
    """
    return max(least, min(256, stored // 4))


def labels_of(batch: Batch) -> list[int]:
    labels = batch.labels if batch.host_labels is None else batch.host_labels
    return labels.tolist()
