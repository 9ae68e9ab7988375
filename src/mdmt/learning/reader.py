"""Examples of a task as batches, with copies of the inputs on the device if they fit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from mdmt.inputs.arrays import RowView
from mdmt.inputs.device import fits, gather, send
from mdmt.inputs.maps import after_gathering
from mdmt.learning.order import Order
from mdmt.network.heads import Heads
from mdmt.tasks import Batch, Pool, Task

COPY_BYTES = 2**26  # bytes copied to a device at a time


class Reader:
    """Reads examples of tasks for a device: views applied, labels as rows of the head."""

    def __init__(self, heads: Heads, device: torch.device) -> None:
        self.heads = heads
        self.device = device
        # Inputs and views on the device, by those on the CPU; None: they do not fit.
        self._copies: Any = WeakIdKeyDictionary()

    def batches(self, task: Task, order: Order, steps: range) -> Iterator[Batch]:
        """The mini-batches of these steps, which count on from epoch to epoch."""
        in_epoch = order.steps_in_epoch
        indices = torch.empty(0, dtype=torch.int64)
        for step in steps:
            epoch, position = divmod(step, in_epoch)
            if position == 0 or step == steps.start:
                indices = order.of_epoch(epoch)
            # The last mini-batch takes all examples that are left.
            end = order.length if position == in_epoch - 1 else (position + 1) * order.batch
            yield self.batch(task, indices[position * order.batch : end])

    def batch(self, task: Task, index: Tensor) -> Batch:
        """Some training examples of a task; in a pool, indices run through its tasks in order."""
        if not isinstance(task, Pool):
            return self._batch(task, index)
        pieces = []
        start = 0
        for part in task.parts:
            end = start + len(part.train)
            inside = index[(index >= start) & (index < end)] - start
            start = end
            if len(inside):
                pieces.append(self._batch(part, inside))
        return pieces[0] if len(pieces) == 1 else Batch.joined(pieces)

    def _batch(self, task: Task, index: Tensor) -> Batch:
        number = self.heads.numbers[task.name]
        labels = self.heads.tasks[number].rows.index_select(0, task.train.labels[index])
        tasks = torch.full_like(labels, number)
        if self.device.type == "cpu":
            return Batch(task.inputs("train", index), labels, tasks)
        there = send(labels, self.device)
        return Batch(
            self.inputs(task, "train", index),
            there,
            torch.full_like(there, number),
            host_labels=labels,
            host_tasks=tasks,
        )

    def inputs(self, task: Task, split: Literal["train", "test"], index: Tensor) -> Tensor:
        """Some inputs of a task as the network sees them, on the device.

        A view without `to(device)`, which ours have, is applied on the CPU.
        """
        examples = task.train if split == "train" else task.test
        movable = task.view is None or hasattr(task.view, "to")
        if self.device.type == "cpu" or not movable or examples is None:
            return send(task.inputs(split, index), self.device)
        rows = examples.inputs
        places = index
        if isinstance(rows, RowView):
            places = rows.index[index]
            rows = rows.base
        copy = self._copy(rows)
        if copy is None:
            return send(task.inputs(split, index), self.device)
        inputs = gather(copy, places, self.device)
        return inputs if task.view is None else self._view(task.view)(inputs)

    def _copy(self, whole: Tensor) -> Tensor | None:
        """The inputs on the device, copied on first use; None if they do not fit."""
        if whole.device.type == self.device.type:  # the user has put them there
            return whole
        if whole not in self._copies:
            copy = None
            if fits(whole.nbytes, self.device):
                copy = torch.empty_like(whole, device=self.device)
                rows = max(1, COPY_BYTES // max(1, whole[:1].nbytes))
                for into, piece in zip(copy.split(rows), whole.split(rows), strict=True):
                    into.copy_(piece)
                    after_gathering(piece.nbytes)
            self._copies[whole] = copy
        return self._copies[whole]  # type: ignore[no-any-return]

    def _view(self, view: Any) -> Any:
        if view not in self._copies:
            self._copies[view] = view.to(self.device)
        return self._copies[view]
