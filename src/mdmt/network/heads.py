"""Which rows of the head stand for which class of which task."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mdmt.errors import Mistake
from mdmt.inputs.device import Shelf, send
from mdmt.network.model import Model
from mdmt.tasks import Batch, HeadKind, Task


@dataclass
class LearnedTask:
    """A task the learner knows: its name, its classes and the rows of the head that stand for
    them.
    """

    name: str
    classes: tuple[Hashable, ...]
    rows: Tensor  # on the processor


class Heads:
    """One head that all tasks share, or one per task; all of them are rows of one matrix."""

    def __init__(
        self, kind: HeadKind | None, outputs: int = 0, device: str | torch.device = "cpu"
    ) -> None:
        if kind not in (None, "shared", "per-task"):
            raise Mistake(f"heads={kind!r}: must be 'shared' or 'per-task'")
        self.kind = kind  # None: not decided yet
        self.outputs = outputs  # rows in all, where the stream says so
        self.shelf = Shelf(torch.device(device))
        self.tasks: list[LearnedTask] = []
        self._numbers: dict[str, int] = {}  # by name: asked for in every step

    @property
    def shared(self) -> bool:
        """Whether all tasks share one head."""
        return self.kind == "shared"

    @property
    def names(self) -> list[str]:
        """The names of the tasks, in the order they were learned."""
        return [task.name for task in self.tasks]

    def claim(self, task: Task, model: Model) -> None:
        """Give a new task its rows of the head; classes that a shared head knows keep theirs."""
        rows = self._shared_rows()
        new = [c for c in task.classes if c not in rows]
        head = 0 if self.shared else len(self.tasks)
        rows.update(zip(new, model.claim(head, len(new)).tolist(), strict=True))
        self._add(task.name, task.classes, [rows[c] for c in task.classes])

    def rows(self, task: Task) -> Tensor | None:
        """The rows that stand for a task's classes; None where a class has none."""
        for learned in self.tasks:
            if learned.name == task.name:
                return learned.rows
        shared = self._shared_rows()
        if not shared.keys() >= set(task.classes):
            return None
        return torch.tensor([shared[c] for c in task.classes])

    def known_classes(self, task: Task) -> Task:
        """More data of a task that was learned, with its classes in the order they were learned."""
        classes = self.tasks[self.number(task.name)].classes
        new = next((c for c in task.classes if c not in classes), None)
        if new is not None:
            raise Mistake(
                f"task {task.name!r}: class {new!r} is not one of those learned, {list(classes)}; "
                "a new class is a new task"
            )
        return task.with_classes(classes)

    def number(self, name: str) -> int:
        """The place of a task among those learned, from 0."""
        if name not in self._numbers:
            learned = ", ".join(map(repr, self.names)) or "none"
            raise Mistake(f"task {name!r} was not learned; the learned ones are {learned}")
        return self._numbers[name]

    def batch(self, task: Task, index: Tensor) -> Batch:
        """Some of a task's training examples as a batch; in a pool, indices run through its tasks
        in order.
        """
        pieces = []
        start = 0
        for part in task.parts:
            end = start + len(part.train)
            inside = (
                index if len(task.parts) == 1 else index[(index >= start) & (index < end)] - start
            )
            start = end
            if len(inside):
                number = self.number(part.name)
                labels = self.tasks[number].rows.index_select(0, part.train.labels[inside])
                inputs = self.shelf.inputs(part, "train", inside)
                pieces.append(self._batch(inputs, labels, number))
        return pieces[0] if len(pieces) == 1 else Batch.joined(pieces)

    def _batch(self, inputs: Tensor, labels: Tensor, number: int) -> Batch:
        tasks = torch.full_like(labels, number)
        if self.shelf.device.type == "cpu":
            return Batch(inputs, labels, tasks)
        there = send(labels, self.shelf.device)
        return Batch(inputs, there, torch.full_like(there, number), known=(labels, tasks))

    def class_names(self, rows: Tensor) -> list[Hashable]:
        """The class that each row stands for."""
        name = {
            row: c for t in self.tasks for c, row in zip(t.classes, t.rows.tolist(), strict=True)
        }
        return [name[row] for row in rows.tolist()]

    def state(self) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
        """Names, classes and rows of the tasks; no tensors."""
        return {}, [
            {"name": t.name, "classes": list(t.classes), "rows": t.rows.tolist()}
            for t in self.tasks
        ]

    def load_state(self, _: dict[str, Tensor], tasks: list[dict[str, Any]]) -> None:
        """Take over what `state` gave."""
        for task in tasks:
            self._add(task["name"], tuple(task["classes"]), task["rows"])

    def _add(self, name: str, classes: tuple[Hashable, ...], rows: list[int]) -> None:
        self._numbers.setdefault(name, len(self.tasks))
        self.tasks.append(LearnedTask(name, classes, torch.tensor(rows)))

    def _shared_rows(self) -> dict[Hashable, int]:
        """The row of each class of a shared head; none where every task has its own."""
        if not self.shared:
            return {}
        return {
            c: row for t in self.tasks for c, row in zip(t.classes, t.rows.tolist(), strict=True)
        }
