"""The recorder measures a learner as it learns: accuracies, curve, features, steps, snapshots.

It reads the model, the heads and the memory and changes none of them. `runs/step_log.py` and
`runs/snapshots.py` describe what it logs of steps and of features.

It also checks that the numbers of every update are finite. To read a number is to wait for the
device that computes it: those of the processor are read at once, before the weights change; those
of an accelerator are read many steps together, before anything is saved and before a task ends.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy, deepcopy
from dataclasses import dataclass, fields
from typing import Any, NoReturn

import torch
from torch import Tensor

import mdmt.learning.evaluation as evaluation
import mdmt.runs.snapshots as snapshots
from mdmt.errors import Mistake
from mdmt.inputs.device import send
from mdmt.inputs.saved import saved_tensor
from mdmt.learning.reader import Reader
from mdmt.memory import Memory
from mdmt.metrics import BETA, curve_stride
from mdmt.network.heads import LearnedTask
from mdmt.network.model import Model, unit
from mdmt.runs.anytime import add_point
from mdmt.runs.record import Record, TaskInfo
from mdmt.runs.step_log import ROWS, Step, StepLog
from mdmt.system.files import JsonObject
from mdmt.tasks import Task
from mdmt.words import printable

LOG_ROWS = 1000  # logged steps of a task, at most, in addition to its last step
UNREAD = (math.nan, math.nan, math.nan)  # loss, gradient and its norm, until they are read
SNAPSHOT_TYPES = (torch.float16, torch.float32, torch.float64, torch.int64)
READ_EVERY = 64  # steps after which numbers are read from an accelerator


@dataclass(frozen=True)
class PendingStats:
    """Loss and gradient of an update that are still on the device."""

    step: int
    numbers: Tensor  # the losses, the sum of the gradient, its norm


class Recorder:
    """Measures a learner; `record` holds the results.

    `stop` is called if a loss or gradient is not finite, with its name and the step.
    """

    def __init__(
        self,
        reader: Reader,
        *,
        stop: Callable[[str, int], NoReturn],
        batch: int = 10,
        per_class: bool = False,
    ) -> None:
        self.reader = reader
        self.heads = reader.heads
        self.stop = stop
        self.curve_stride = curve_stride(batch)
        self.per_class = per_class  # accuracy is the mean of the classes' accuracies
        self.record = Record()
        self.eval_tasks: dict[str, Task] = {}  # tasks whose test examples are available
        self.reference_features: dict[str, Tensor] = {}  # of each task, right after learning it
        self.snapshots: dict[str, Tensor] = {}
        self.step_log = StepLog()
        # The training examples of each task by name while a stream is run, else none.
        self.stream_sizes: dict[str, int] = {}
        self.evaluate_every = 0  # steps between two points of `record.anytime`; 0: none
        self._pending: list[PendingStats] = []
        self._stats: tuple[float, float, float] | None = None  # of this step, once they are read

    @property
    def is_more_data(self) -> bool:
        """Whether the current task was measured before, so that its data are additional ones."""
        return len(self.record.accuracy) >= len(self.heads.tasks)

    @property
    def stream_length(self) -> int:
        """The number of tasks while a stream is run, else 0."""
        return len(self.stream_sizes)

    @property
    def unknown_tests(self) -> list[str]:
        """The tasks that were learned with test examples, which are not available now."""
        tested = [task["name"] for task in self.record.tasks if task["test"]]
        return [name for name in tested if name not in self.eval_tasks]

    # Along the way.

    def begin_stream(self, parts: Iterable[Task], evaluate_every: int = 0) -> None:
        """Log steps and take snapshots from now on, for these tasks and those learned before.

        With `evaluate_every`, tasks are evaluated along the way too.
        """
        self.evaluate_every = evaluate_every
        if evaluate_every and self.record.anytime is None:
            self.record.anytime = {"steps": [], "accuracy": []}
        before = {task["name"]: task["train"] or 0 for task in self.record.tasks}
        self.stream_sizes = {part.name: len(part.train) for part in parts} | before
        chosen = snapshots.chosen_tasks(self.stream_length)
        if len(self.heads.tasks) < self.stream_length:  # an earlier stream may have left others
            kept = [name for name in self.snapshots if snapshots.belongs(name, chosen)]
            self.snapshots = {name: self.snapshots[name] for name in kept}

    def end_stream(self) -> None:
        """Stop logging steps, taking snapshots and evaluating along the way."""
        self.stream_sizes = {}
        self.evaluate_every = 0

    def begin_task(self, task: Task) -> None:
        """Add a new task to the record."""
        for part in task.parts:
            info: TaskInfo = {
                "name": part.name,
                "classes": list(part.classes),
                "train": len(part.train),
                "test": 0 if part.test is None else len(part.test),
            }
            self.record.tasks.append(info)
            self.record.curve.append([])

    def continue_task(self, number: int, examples: int) -> None:
        """Count additional examples of a learned task."""
        task = self.record.tasks[number]
        task["train"] = (task["train"] or 0) + examples

    def forget(self, tasks: Sequence[LearnedTask]) -> None:
        """Leave out classes that these tasks have no more, and what was kept of their examples."""
        for info, task in zip(self.record.tasks, tasks, strict=True):
            if len(info["classes"]) != len(task.classes):
                info["classes"] = list(task.classes)
                self.eval_tasks.pop(task.name, None)
                self.reference_features.pop(task.name, None)
        self.snapshots.clear()

    def add_eval_tasks(self, tasks: Iterable[Task]) -> None:
        """Evaluate these tasks from now on, if they have test examples."""
        self.eval_tasks.update({task.name: task for task in tasks if task.test is not None})

    def before_step(self, task: Task, step: int, model: Model) -> None:
        """Measure Z_b, the accuracy on the current task after 10 b of its examples, if it is due.

        `metrics.curve_stride` says how many steps lie between two points.
        """
        self._stats = None
        curve = self.record.curve[-1]
        first_time = len(task.parts) == 1 and not self.is_more_data
        if first_time and len(curve) <= BETA and len(curve) * self.curve_stride == step:
            measured = self.accuracies(task.parts[0], model)  # joint pools even a single task
            curve.append(None if measured is None else measured[0])

    def along_the_way(self, step: int, model: Model, between: Callable[[], None]) -> None:
        """Evaluate the tasks so far before this step of the current one, if it is due.

        A network of the user's that draws random numbers draws the same ones afterwards.
        """
        if self.evaluate_every and step % self.evaluate_every == 0 and not self.is_more_data:
            with torch.random.fork_rng(devices=[]):
                self._add_point(self._evaluate(self.heads.names, model, between)[0])

    def _add_point(self, given: list[float | None]) -> None:
        if self.record.anytime is not None:
            add_point(self.record.anytime, self.record.steps, given)

    def check_update(self, step: int, losses: Sequence[Tensor], gradient: Tensor) -> None:
        """Note loss and gradient of an update that is about to be made, and check them."""
        numbers = [*losses, gradient.sum(), gradient.dot(gradient).sqrt()]
        if gradient.device.type == "cpu":
            self._check(step, [number.item() for number in numbers])
            return
        self._pending.append(PendingStats(step, torch.stack(numbers)))
        self._stats = None
        if step - self._pending[0].step >= READ_EVERY:
            self.read_pending()

    def read_pending(self) -> None:
        """Wait for the numbers that are still on an accelerator, and check them."""
        pending = self._pending
        self._pending = []
        values = torch.cat([update.numbers for update in pending]).tolist() if pending else []
        for update in pending:
            count = len(update.numbers)
            self._check(update.step, values[:count])
            values = values[count:]
            self._fill_log(update.step + 1)

    def _check(self, step: int, values: Sequence[float]) -> None:
        *losses, total, norm = values
        self._stats = (losses[-1] if losses else math.nan, total, norm)
        if not all(map(math.isfinite, losses)):
            self.stop("loss", step)
        if not math.isfinite(total):
            self.stop("gradient", step)
        # weights before a batch norm can grow until the norm overflows, and no loss shows it
        if not math.isfinite(norm):
            self.stop("length of the gradient", step)

    def after_step(self, step: int, last: int) -> None:
        """Count the step, one of `last` in its task, and log it if it is one of the logged ones."""
        self.record.steps += 1
        if self.stream_length and ((step - 1) % log_stride(last) == 0 or step == last):
            loss, gradient, norm = self._stats or UNREAD
            seconds = self.record.seconds
            self.step_log.append(Step(len(self.heads.tasks), step, loss, gradient, seconds, norm))

    def _fill_log(self, step: int) -> None:
        if self._stats is not None:
            self.step_log.fill(len(self.heads.tasks), step, *self._stats)

    def after_task(
        self,
        model: Model,
        memory: Memory,
        buffer_bytes: int = 0,
        between: Callable[[], None] = lambda: None,
    ) -> None:
        """Add a row of accuracies and of what became of features, once all of them are measured.

        Tasks that were learned together have one row, that of the last one. After additional data
        of a learned task the new row replaces the last one, as it does when a row is measured
        again. `between` is called after each task, and may raise an error.
        """
        names = self.heads.names
        names += [name for name in self.eval_tasks if name not in names]
        given, free = self._evaluate(names, model, between)
        features = {name: self._sample(name, model) for name in self.heads.names}
        moved = [self._drift(name, sample) for name, sample in features.items()]
        record = self.record
        replaces = self.is_more_data
        size = len(self.heads.tasks)
        for matrix, row in (
            (record.accuracy, given),
            (record.accuracy_task_free, free),
            (record.drift, moved),
        ):
            # A model folder measures in its own way; rows of nothing would grow with the square of
            # its deliveries.
            is_measured = any(value is not None for value in row)
            _append(matrix, row if is_measured else [], size, replaces)
        self._add_numbers(list(features.values()), size, replaces)
        if self.evaluate_every:
            self._add_point(given[:size])
        record.memory_bytes = sum(memory.bytes.values())
        record.buffer_bytes = buffer_bytes
        record.weights_sha256 = model.sha256()
        if self.stream_length:
            self._take_snapshots(model)

    def _add_numbers(self, features: Sequence[Tensor | None], size: int, replaces: bool) -> None:
        """Add what the features of all samples tell at the end of the last of `size` tasks."""
        samples = [one for one in features if one is not None and len(one)]
        for numbers, value in (
            (self.record.dead_features, evaluation.dead_share(samples)),
            (self.record.feature_rank, evaluation.effective_rank(samples)),
        ):
            _append(numbers, value, size, replaces, lambda: None)

    @contextmanager
    def clock(self) -> Iterator[None]:
        """Count the time inside the block as spent learning."""
        start = time.perf_counter()
        yield
        self.record.seconds += time.perf_counter() - start

    # Measuring.

    def accuracies(self, task: Task, model: Model) -> tuple[float, float] | None:
        """Accuracy on a task with the task given, and with all seen heads competing."""
        return evaluation.accuracies(task, model, self.reader, per_class=self.per_class)

    def _evaluate(
        self, names: Iterable[str], model: Model, between: Callable[[], None]
    ) -> tuple[list[float | None], list[float | None]]:
        """The accuracy on each task with the task given, and without; None if it is not tested."""
        given: list[float | None] = []
        free: list[float | None] = []
        for name in names:
            task = self.eval_tasks.get(name)
            measured = None if task is None else self.accuracies(task, model)
            given.append(None if measured is None else measured[0])
            free.append(None if measured is None else measured[1])
            between()
        return given, free

    def _sample(self, name: str, model: Model) -> Tensor | None:
        """The features of a task's fixed sample; None without test examples."""
        task = self.eval_tasks.get(name)
        return None if task is None else evaluation.sample_features(task, model)

    def _drift(self, name: str, now: Tensor | None) -> float | None:
        """How far a task's features have moved since it was learned."""
        if now is None:
            return None
        before = self.reference_features.setdefault(name, now)
        # Other test examples than those at the time cannot be compared.
        return evaluation.drift(now, before) if now.shape == before.shape else None

    def _take_snapshots(self, model: Model) -> None:
        after = len(self.heads.tasks) - 1
        chosen = snapshots.chosen_tasks(self.stream_length)
        taken: dict[str, Tensor] = {}
        for number in chosen:
            name = snapshots.features_name(number, after)
            wanted = number <= after and snapshots.belongs(name, chosen)
            task = self.eval_tasks.get(self.heads.tasks[number].name) if wanted else None
            if task is None or task.test is None:
                continue
            features = evaluation.sample_features(task, model)
            labels = task.test.labels[evaluation.fixed_sample(task)]
            taken[name] = unit(features).half()
            taken[snapshots.lengths_name(number, after)] = features.norm(dim=1)
            taken[snapshots.labels_name(number)] = self.heads.tasks[number].rows[labels]
        weights = model.head.detach()
        first_rows = send(self.heads.tasks[0].rows, weights.device)
        taken[snapshots.first_head_name(after)] = weights[first_rows].clone()
        if after == self.stream_length - 1:
            taken[snapshots.HEAD] = weights.clone()
            taken[snapshots.HEAD_OF_CLASS] = model.head_of_class.clone()
        self.snapshots.update({name: value.cpu() for name, value in taken.items()})

    # Saving.

    def state(self) -> tuple[dict[str, Tensor], JsonObject]:
        """Everything measured so far, as tensors and as JSON."""
        tensors = {f"right_after.{name}": value for name, value in self.reference_features.items()}
        tensors |= {f"snapshots.{name}": value for name, value in self.snapshots.items()}
        if self.step_log:
            tensors[f"steps.{ROWS}"] = torch.from_numpy(self.step_log.to_array())
        return tensors, {
            one.name: _rows_copied(getattr(self.record, one.name)) for one in fields(self.record)
        }

    def load_state(self, tensors: dict[str, Tensor], record: JsonObject) -> None:
        """Restore the state that `state` returned."""
        for name, value in tensors.items():
            kind, _, rest = name.partition(".")
            if kind == "right_after":
                saved_tensor(tensors, name, (None, None))
                self.reference_features[rest] = value.to(self.reader.device)
            elif kind == "snapshots":
                dimensions = snapshots.dimensions(rest)
                if value.ndim != dimensions or value.dtype not in SNAPSHOT_TYPES:
                    raise Mistake(f"{printable(name)} is not a snapshot")
                self.snapshots[rest] = value.cpu()
            else:
                rows = saved_tensor(tensors, f"steps.{ROWS}", (None, None), torch.float64)
                self.step_log = StepLog.from_array(rows.cpu().double().numpy())
        self.record = Record.from_state(record)


def log_stride(steps: int) -> int:
    """The distance between two logged steps of a task that has `steps` steps.

    >>> log_stride(250), log_stride(1000), log_stride(5500)
    (1, 1, 6)
    """
    return max(1, math.ceil(steps / LOG_ROWS))


def _rows_copied(value: object) -> object:
    """A value of the record; of a matrix or the tasks a copy that the next row does not change.

    A deep copy of a thousand tasks takes seconds: their matrices have a million numbers.
    """
    if isinstance(value, dict):  # the points along the steps
        return {name: list(part) for name, part in value.items()}
    return list(map(copy, value)) if isinstance(value, list) else deepcopy(value)


def _append(
    rows: list[Any], row: Any, length: int, replaces: bool, empty: Callable[[], Any] = list
) -> None:
    """Add the row of the last of `length` tasks, or replace it; those learned with it are empty."""
    if replaces:
        rows.pop()
    rows.extend(empty() for _ in range(length - 1 - len(rows)))
    rows.append(row)
