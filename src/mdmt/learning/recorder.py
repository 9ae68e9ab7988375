"""What is measured along the way: accuracies, learning curve, drift, step log, and snapshots for
figures.

The recorder observes. It reads the model, the heads and the memory, and writes to nothing but
itself.

The step log has a row (task, step, loss, gradient, seconds, gradient_norm) for each logged step of
a stream, task and step from 1: the last loss that the step computed, the sum of the gradient it
applied, and its norm (NaN in logs of before it was kept). Two runs with the same rows took the same
steps; where they differ, the first row that does says when it happened. A long task logs evenly
spaced steps, its first and last among them.

Snapshots are tensors by name, for the first, the middle and the last task of a stream (numbers from
0): `features.J.I` are the features of task J's sample after task I, scaled to length 1 in half
precision, and `lengths.J.I` their lengths; task 0 has them after every task, the others after the
middle and the last. `labels.J` are the rows of the head of that sample. `head.0.I` are the weights
of task 0's classes after task I. `head` and `head_of_class` are those after the last task.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from mdmt.errors import Mistake
from mdmt.inputs.device import send
from mdmt.memory import Memory
from mdmt.metrics import BETA, curve_stride
from mdmt.network.heads import Heads
from mdmt.network.model import Model, chunks, unit
from mdmt.runs.record import LogRow, Record
from mdmt.tasks import Task

DRIFT_SAMPLE = 100  # examples of each task whose features are followed
STATS = ("loss", "gradient", "gradient_norm")  # what is logged of a step
LOG_ROWS = 1000  # logged steps of one task, at most, and its last step


class Recorder:
    """Observes a learner; `record` is what it measured."""

    def __init__(self, heads: Heads, *, batch: int = 10, per_class: bool = False) -> None:
        self.heads = heads
        self.curve_stride = curve_stride(batch)
        self.per_class = per_class  # accuracy is the mean of the classes' accuracies
        self.record = Record()
        self.eval_tasks: dict[str, Task] = {}  # tasks whose test examples are at hand
        self.reference_features: dict[
            str, Tensor
        ] = {}  # of each task's sample, right after it was learned
        self.snapshots: dict[str, Tensor] = {}
        self.step_log: list[LogRow] = []
        self.step_stats: (
            dict[str, float] | None
        ) = {}  # loss and gradient of the latest step; None: not read yet
        self.again = False  # whether more data of an earlier task are being learned
        self.stream_length = 0  # tasks in all while a stream is run, else 0

    # Along the way.

    def begin_stream(self, length: int) -> None:
        """A stream is run that ends with so many tasks learned: steps are logged and snapshots
        taken.
        """
        self.stream_length = length
        chosen = snapshot_tasks(length)
        if len(self.heads.tasks) < length:  # an earlier stream may have left others
            self.snapshots = {
                name: value for name, value in self.snapshots.items() if _fits(name, chosen)
            }

    def end_stream(self) -> None:
        """The stream is over, or interrupted."""
        self.stream_length = 0

    def begin_task(self, task: Task) -> None:
        """Make room for a task in the record."""
        for part in task.parts:
            tested = 0 if part.test is None else len(part.test)
            about = {
                "name": part.name,
                "classes": list(part.classes),
                "train": len(part.train),
                "test": tested,
            }
            self.record.tasks.append(about)
            self.record.curve.append([])

    def continue_task(self, number: int, examples: int) -> None:
        """More data of a task have come."""
        self.record.tasks[number]["train"] += examples

    def know(self, tasks: Iterable[Task]) -> None:
        """Evaluate these tasks too, where they have test examples."""
        self.eval_tasks.update({task.name: task for task in tasks if task.test is not None})

    def before_step(self, task: Task, step: int, model: Model) -> None:
        """Z_b: the accuracy on the current task after 10 b of its examples (see `curve_stride`),
        for b up to beta.
        """
        self.step_stats = {}
        curve = self.record.curve[-1]
        first_time = len(task.parts) == 1 and not self.again
        if first_time and len(curve) <= BETA and len(curve) * self.curve_stride == step:
            measured = self.accuracies(task.parts[0], model)  # joint pools even a single task
            curve.append(None if measured is None else measured[0])

    def after_step(self, step: int, last: int) -> None:
        """Log the step that is just over, one of `last` in its task, when it is one of those to
        log.
        """
        self.record.steps += 1
        if self.stream_length and ((step - 1) % log_stride(last) == 0 or step == last):
            self.step_log.append(
                [len(self.heads.tasks), step, math.nan, math.nan, self.record.seconds, math.nan]
            )
            self.fill_log(step)

    def fill_log(self, step: int) -> None:
        """Write loss and gradient, once they are read, into the row of a step of the task being
        learned, if it has one.
        """
        task = len(self.heads.tasks)
        for row in reversed(self.step_log):
            if row[0] != task or row[1] < step:
                return
            if row[1] == step and self.step_stats is not None:
                loss, total, norm = (self.step_stats.get(name, math.nan) for name in STATS)
                row[2:4], row[5] = [loss, total], norm
                return

    def after_task(self, model: Model, memory: Memory, buffer_bytes: int = 0) -> None:
        """A row of accuracies and of drift; tasks learned together have one row, the last of them.

        After more data of a task it takes the place of the last one.
        """
        record = self.record
        if self.again:
            for matrix in (record.accuracy, record.accuracy_task_free, record.drift):
                matrix.pop()
        names = self.heads.names
        names += [name for name in self.eval_tasks if name not in names]
        rows = [
            self.accuracies(self.eval_tasks[name], model) if name in self.eval_tasks else None
            for name in names
        ]
        _append(
            record.accuracy,
            [None if row is None else row[0] for row in rows],
            len(self.heads.tasks),
        )
        _append(
            record.accuracy_task_free,
            [None if row is None else row[1] for row in rows],
            len(self.heads.tasks),
        )
        _append(
            record.drift,
            [self.drift(name, model) for name in self.heads.names],
            len(self.heads.tasks),
        )
        record.memory_bytes = sum(memory.bytes.values())
        record.buffer_bytes = buffer_bytes
        record.weights_sha256 = model.sha256()
        if self.stream_length:
            self._take_snapshots(model)

    @contextmanager
    def clock(self) -> Iterator[None]:
        """Count the seconds inside as spent learning."""
        start = time.perf_counter()
        yield
        self.record.seconds += time.perf_counter() - start

    # Measuring.

    def accuracies(self, task: Task, model: Model) -> tuple[float, float] | None:
        """Accuracy on a task's test examples with the task given, and with all seen heads
        competing.

        None where the task has no test examples or a class that no head knows.
        """
        rows = self.heads.rows(task)
        if task.test is None or rows is None:
            return None
        labels = send(rows[task.test.labels], model.flat.device)
        allowed = (model.only(rows), model.head_of_class >= 0)
        right = torch.empty(2, len(labels), dtype=torch.bool, device=labels.device)
        with model.evaluating():
            for part in chunks(task.test.inputs, model.flat.device):
                inputs = self.heads.shelf.inputs(task, "test", torch.arange(part.start, part.stop))
                scores = model.scores(model.features(inputs))
                for which, mask in enumerate(allowed):
                    right[which, part] = best(scores, mask) == labels[part]
        given, free = (fraction(r, task.test.labels, self.per_class) for r in right.cpu())
        return given, free

    def drift(self, name: str, model: Model) -> float | None:
        """1 - cos between a task's features now and right after it was learned, on a fixed sample
        of its test examples.
        """
        task = self.eval_tasks.get(name)
        if task is None or task.test is None:
            return None
        now = model.embed(task.inputs("test", fixed_sample(task)))
        before = self.reference_features.setdefault(name, now)
        moved = float((1 - torch.cosine_similarity(now, before)).mean())
        # Rounding may give a little less than nothing.
        return max(0.0, moved) if math.isfinite(moved) else None

    def _take_snapshots(self, model: Model) -> None:
        after = len(self.heads.tasks) - 1
        chosen = snapshot_tasks(self.stream_length)
        taken: dict[str, Tensor] = {}
        for number in chosen:
            wanted = number <= after and _fits(f"features.{number}.{after}", chosen)
            task = self.eval_tasks.get(self.heads.tasks[number].name) if wanted else None
            if task is None or task.test is None:
                continue
            sample = fixed_sample(task)
            features = model.embed(task.inputs("test", sample))
            taken[f"features.{number}.{after}"] = unit(features).half()
            taken[f"lengths.{number}.{after}"] = features.norm(dim=1)
            rows = self.heads.tasks[number].rows
            taken[f"labels.{number}"] = rows[task.test.labels[sample]]
        weights = model.head.detach()
        taken[f"head.0.{after}"] = weights[send(self.heads.tasks[0].rows, weights.device)].clone()
        if after == self.stream_length - 1:
            taken |= {"head": weights.clone(), "head_of_class": model.head_of_class.clone()}
        self.snapshots.update({name: value.cpu() for name, value in taken.items()})

    # Saving.

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything measured so far, as tensors and as JSON."""
        tensors = {f"right_after.{name}": value for name, value in self.reference_features.items()}
        tensors |= {f"snapshots.{name}": value for name, value in self.snapshots.items()}
        if self.step_log:
            tensors["steps.rows"] = torch.tensor(self.step_log, dtype=torch.float64)
        return tensors, asdict(self.record)

    def load_state(self, tensors: dict[str, Tensor], record: dict[str, Any]) -> None:
        """Take over what `state` gave."""
        for name, value in tensors.items():
            kind, _, rest = name.partition(".")
            if kind == "right_after":
                self.reference_features[rest] = value.to(self.heads.shelf.device)
            elif kind == "snapshots":
                self.snapshots[rest] = value.cpu()
            else:
                self.step_log = [
                    row + [math.nan] * (len(STATS) + 3 - len(row)) for row in value.tolist()
                ]
        self.record = Record(**record)


def best(scores: Tensor, allowed: Tensor) -> Tensor:
    """The row with the highest score among the allowed ones."""
    return scores.masked_fill(~allowed, -math.inf).argmax(1)


def fraction(right: Tensor, labels: Tensor, per_class: bool) -> float:
    """The fraction that is right; per class, the mean of the classes' fractions."""
    if not per_class:
        return right.double().mean().item()
    counts = torch.bincount(labels)
    rights = torch.bincount(labels, weights=right.double())
    return (rights[counts > 0] / counts[counts > 0]).mean().item()


def fixed_sample(task: Task) -> Tensor:
    """Indices of the test examples whose features are followed, evenly from all of them."""
    if task.test is None:
        raise Mistake(f"task {task.name!r} has no test examples")
    count = len(task.test)
    return torch.linspace(0, count - 1, min(count, DRIFT_SAMPLE)).long()


def snapshot_tasks(length: int) -> list[int]:
    """First, middle and last of so many tasks: 1, 9 and 17 of 17, counted from 0.

    >>> snapshot_tasks(17), snapshot_tasks(2), snapshot_tasks(1)
    ([0, 8, 16], [0, 1], [0])
    """
    return sorted({0, length // 2, length - 1})


def log_stride(steps: int) -> int:
    """The distance between two logged steps of a task that has so many.

    >>> log_stride(250), log_stride(1000), log_stride(5500)
    (1, 1, 6)
    """
    return max(1, math.ceil(steps / LOG_ROWS))


def _fits(name: str, chosen: list[int]) -> bool:
    """Whether a snapshot belongs to a stream whose chosen tasks are these."""
    kind, *numbers = name.split(".")
    if kind == "head":
        return len(numbers) == 2
    if kind == "labels":
        return int(numbers[0]) in chosen
    if kind in ("features", "lengths"):
        of, after = map(int, numbers)
        return of == 0 or (of in chosen and after in chosen)
    return False


def _append(matrix: list[list[float | None]], row: list[float | None], length: int) -> None:
    """Add the row of the last of so many tasks; tasks learned together with it have empty rows."""
    matrix.extend([] for _ in range(length - 1 - len(matrix)))
    matrix.append(row)
