"""Our steps, through `Learner.step`, in the middle of a long task with a full memory."""

from __future__ import annotations

from collections.abc import Iterator

import torch

import mdmt
from mdmt.learner import Learner
from mdmt.memory import Memory, Reservoir, Ring
from mdmt.tasks import Batch, Task

LONG = 20_000  # examples of the task being learned: most are not in the memory at its end
BATCH = 10


def examples(
    count: int, shape: tuple[int, ...], classes: int, seed: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Random inputs of which a fifth is not 0, as in digits, with labels."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randint(0, 256, (count, *shape), dtype=torch.uint8, generator=generator)
    keep = torch.rand(inputs.shape, generator=generator) < 0.2
    return inputs * keep, torch.arange(count) % classes


def task(number: int, count: int, shape: tuple[int, ...], classes: int) -> Task:
    inputs, labels = examples(count, shape, classes, number)
    return Task(f"task {number}", inputs, labels, classes=range(classes))


class Running:
    """A learner in the middle of a task; calling it does one step."""

    def __init__(
        self,
        method: mdmt.Method,
        *,
        backbone: torch.nn.Module | None = None,
        shape: tuple[int, ...] = (784,),
        learned: int = 2,
        stored: int = 500,
        classes: int = 10,
        length: int = LONG,
        **more: object,
    ) -> None:
        """`learned` tasks are over; the memory holds `stored` examples of all of them together."""
        memory: Memory = (
            Reservoir(stored)
            if method.policy == "Reservoir"
            else Ring(stored // max(learned, 1) // classes)
        )
        backbone = mdmt.backbones.mlp(784) if backbone is None else backbone
        self.learner = Learner(
            backbone, method, memory=memory, lr=1e-3, heads="shared", outputs=classes, **more
        )
        for number in range(learned):
            self._fill(task(number, max(BATCH, stored // learned), shape, classes))
        self.task = task(learned, length, shape, classes)
        self.learner._open(self.task, ())
        self.learner._announce(self.task)
        self.learner.task = self.task
        self.learner.model.backbone.train()
        if isinstance(memory, Reservoir):
            memory.count = LONG * (learned + 1)  # in the middle of a stream few new examples enter
        self.batches = self._batches()

    def __call__(self) -> None:
        self.learner.step(next(self.batches))
        self.learner.step_in_task += 1

    def _fill(self, past: Task) -> None:
        """Open a task, fill the memory from it, and close it, with only two steps of learning."""
        learner = self.learner
        learner._open(past, ())
        learner.task = past
        learner.model.backbone.train()
        for begin in range(0, past.size, 100):
            batch = learner.read(past, torch.arange(begin, min(begin + 100, past.size)))
            if begin < 200:
                learner.step(_first(batch, BATCH))
            if learner.method.uses_memory:
                learner.memory.observe(batch, learner.with_features)
        learner._close(past)
        learner._set_position(None)

    def _batches(self) -> Iterator[Batch]:
        learner = self.learner
        steps = range(self.task.size // BATCH // 2)
        while True:
            learner.step_in_task = 0
            yield from learner.reader.batches(self.task, learner._order(self.task), steps)


def _first(batch: Batch, count: int) -> Batch:
    return Batch(batch.inputs[:count], batch.labels[:count], batch.tasks[:count])
