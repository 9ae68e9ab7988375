"""Who owns which row of the head: the one place that knows which row stands for which class."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from mdmt.errors import Mistake
from mdmt.inputs.saved import as_label
from mdmt.tasks import Batch, HeadKind, Task

FREE = -1  # the owner of a row that no head has claimed


class Growing(Protocol):
    """A model whose head can gain rows."""

    def grow(self, capacity: int) -> None:
        """Give the head `capacity` rows."""


@dataclass
class LearnedTask:
    """A task that the learner knows, with the row of the head for each of its classes."""

    name: str
    classes: tuple[Hashable, ...]
    rows: Tensor  # on the CPU


class Heads:
    """One head that all tasks share, or one per task; all of them are rows of one matrix.

    `owner[row]` is the number of the head that owns a row: the task's number, 0 for a shared head,
    -1 for a free row. `outputs` is the number of classes that the stream declares, or of those in
    use if there are more.
    """

    def __init__(
        self, kind: HeadKind | None = None, outputs: int = 0, device: str | torch.device = "cpu"
    ) -> None:
        if kind not in (None, "shared", "per-task"):
            raise Mistake(f"heads={kind!r}: must be 'shared' or 'per-task'")
        self.kind = kind  # None: not decided yet
        self.declared = outputs
        self.outputs = outputs
        self.owner = torch.empty(0, dtype=torch.int64, device=device)
        self.has_one_head = False  # whether one head owns every row
        self.tasks: list[LearnedTask] = []
        self.numbers: dict[str, int] = {}  # of the tasks, by name

    @property
    def shared(self) -> bool:
        """Whether all tasks share one head."""
        return self.kind == "shared"

    @property
    def names(self) -> list[str]:
        """The names of the learned tasks, in order."""
        return [task.name for task in self.tasks]

    def of(self, batch: Batch) -> Tensor:
        """The head that each sample of a batch belongs to."""
        return torch.zeros_like(batch.tasks) if self.shared else batch.tasks

    # Ownership of rows.

    def add_rows(self, count: int) -> None:
        """The head has grown by `count` free rows."""
        free = torch.full((count,), FREE, device=self.owner.device)
        self.set_owner(torch.cat([self.owner, free]))

    def set_owner(self, owner: Tensor) -> None:
        """Replace the owners of all rows."""
        self.owner = owner
        first = owner[:1]
        self.has_one_head = bool(((owner == first) & (owner != FREE)).all()) and len(owner) > 0

    def claim(self, task: Task, model: Growing) -> None:
        """Give a task its rows; classes that a shared head already knows keep theirs."""
        rows = self._shared_rows()
        new = [c for c in task.classes if c not in rows]
        head = 0 if self.shared else len(self.tasks)
        rows.update(zip(new, self.claim_rows(head, len(new), model).tolist(), strict=True))
        self._add(task.name, task.classes, [rows[c] for c in task.classes])

    def claim_rows(self, head: int, count: int, model: Growing) -> Tensor:
        """Give a head the first `count` free rows; a head without enough room doubles at least."""
        free = self._free_rows()
        if len(free) < count:
            capacity = len(self.owner)
            model.grow(max(2 * capacity, capacity + count - len(free)))
            free = self._free_rows()
        self.owner[free[:count]] = head
        self.set_owner(self.owner)
        self.outputs = max(self.outputs, int((self.owner != FREE).sum()))
        return free[:count]

    def release(self, classes: Sequence[Hashable], task: str | None = None) -> Tensor:
        """Take classes from all tasks, or from one, and free the rows that nobody has then."""
        chosen = self.tasks if task is None else [self.tasks[self.number(task)]]
        unknown = next((c for c in classes if not any(c in t.classes for t in chosen)), None)
        if unknown is not None:
            raise Mistake(f"class {unknown!r} was not learned" + (f" in {task!r}" if task else ""))
        rows: set[int] = set()
        for learned in chosen:
            pairs = list(zip(learned.classes, learned.rows.tolist(), strict=True))
            rows |= {row for c, row in pairs if c in classes}
            kept = [(c, row) for c, row in pairs if c not in classes]
            learned.classes = tuple(c for c, _ in kept)
            learned.rows = torch.tensor([row for _, row in kept], dtype=torch.int64)
        still_used = {row for learned in self.tasks for row in learned.rows.tolist()}
        freed = torch.tensor(sorted(rows - still_used), dtype=torch.int64)
        self.owner[freed.to(self.owner.device)] = FREE
        self.set_owner(self.owner)
        self.outputs = max(self.declared, int((self.owner != FREE).sum()))
        return freed

    def _free_rows(self) -> Tensor:
        return (self.owner == FREE).nonzero()[:, 0]

    # Tasks and classes.

    def rows(self, task: Task) -> Tensor | None:
        """The rows of a task's classes; None if a class has no row."""
        for learned in self.tasks:
            if learned.name == task.name:
                return learned.rows
        shared = self._shared_rows()
        if not shared.keys() >= set(task.classes):
            return None
        return torch.tensor([shared[c] for c in task.classes])

    def match_classes(self, task: Task) -> Task:
        """More data of a learned task, with its classes in the order in which they were learned."""
        classes = self.tasks[self.number(task.name)].classes
        new = next((c for c in task.classes if c not in classes), None)
        if new is not None:
            raise Mistake(
                f"task {task.name!r}: class {new!r} is not one of those learned, {list(classes)};"
                " learn a new class as a new task"
            )
        return task.with_classes(classes)

    def number(self, name: str) -> int:
        """The position of a task among those learned, from 0."""
        if name not in self.numbers:
            learned = ", ".join(map(repr, self.names)) or "none"
            raise Mistake(f"task {name!r} was not learned; learned tasks: {learned}")
        return self.numbers[name]

    def classes(self, rows: Tensor) -> list[Hashable]:
        """The class that each row stands for."""
        name = {
            row: c
            for task in self.tasks
            for c, row in zip(task.classes, task.rows.tolist(), strict=True)
        }
        return [name[row] for row in rows.tolist()]

    # State. The owners are saved with the weights whose rows they are: see `Model.state`.

    def state(self) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
        """Names, classes and rows of the learned tasks."""
        tasks = [
            {"name": task.name, "classes": list(task.classes), "rows": task.rows.tolist()}
            for task in self.tasks
        ]
        return {}, tasks

    def load_state(self, _: dict[str, Tensor], tasks: list[dict[str, Any]]) -> None:
        """Restore what `state` gave."""
        for task in tasks:
            self._add(task["name"], tuple(map(as_label, task["classes"])), task["rows"])

    def _add(self, name: str, classes: tuple[Hashable, ...], rows: list[int]) -> None:
        self.numbers.setdefault(name, len(self.tasks))
        self.tasks.append(LearnedTask(name, classes, torch.tensor(rows, dtype=torch.int64)))

    def _shared_rows(self) -> dict[Hashable, int]:
        """The row of each class of a shared head; empty if every task has its own head."""
        if not self.shared:
            return {}
        return {
            c: row
            for task in self.tasks
            for c, row in zip(task.classes, task.rows.tolist(), strict=True)
        }
