"""Algorithm 1: the one training loop."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mdmt import evaluation, opening, saving, snapshots, steps
from mdmt.checkpoints import Checkpoints
from mdmt.errors import Mistake
from mdmt.memory import Memory, Ring
from mdmt.methods import MDMTR
from mdmt.methods.base import Method
from mdmt.model import Model
from mdmt.record import Record
from mdmt.state import write_state
from mdmt.tasks import Batch, Examples, Heads, Stream, Task

OnStep = Callable[["Learner"], None]


@dataclass
class Learned:
    """A task the learner knows: its name, its classes and the rows of the head that stand for them."""

    name: str
    classes: tuple[Hashable, ...]
    rows: Tensor


class Learner:
    """A network that learns task after task.

    `backbone` is any module that maps inputs to feature vectors. `optimiser` names one of `torch.optim`. `heads`,
    `outputs`, `scale`, `mean` and `per_class` are what `Stream` says of them, and are taken from the stream by `run`.
    """

    def __init__(
        self,
        backbone: nn.Module,
        method: Method | None = None,
        *,
        memory: Memory | None = None,
        lr: float = 0.1,
        batch: int = 10,
        epochs: int = 1,
        optimiser: str = "SGD",
        optimiser_arguments: dict[str, Any] | None = None,
        heads: Heads | None = None,
        outputs: int = 0,
        scale: float | None = None,
        mean: Tensor | None = None,
        per_class: bool = False,
        seed: int = 1234,
        device: str = "cpu",
    ) -> None:
        self.backbone = backbone
        self.method = MDMTR() if method is None else method
        self.memory = Ring() if memory is None else memory
        self.lr, self.batch, self.epochs = _positive("lr", lr), _count("batch", batch), _count("epochs", epochs)
        if not (isinstance(optimiser, str) and isinstance(getattr(torch.optim, optimiser, None), type)):
            raise Mistake(
                f"optimiser={optimiser!r}: must be the name of a class of torch.optim, such as 'SGD' or 'Adam'"
            )
        self.optimiser_name, self.optimiser_arguments = optimiser, optimiser_arguments or {}
        if heads not in (None, "shared", "per-task"):
            raise Mistake(f"heads={heads!r}: must be 'shared' or 'per-task'")
        self.heads, self.outputs, self.scale, self.mean, self.per_class = heads, outputs, scale, mean, per_class
        self.seed, self.device = seed, torch.device(device)
        self.memory.seed(seed)

        self.record = Record()
        self.tasks: list[Learned] = []
        self.task: Task | None = None  # the task being learned
        self.open: str | None = None  # its name, also after an interruption
        self.done = 0  # steps of that task that are over
        self.planned = 0  # tasks of the stream being run
        self.saved = ""  # which checkpoint is the last, and where
        self.known: dict[str, Task] = {}  # tasks with test examples that this process has seen or was told of
        self.right_after: dict[str, Tensor] = {}  # features of each task's sample right after it was learned
        self.snapshots: dict[str, Tensor] = {}  # what figures need, when a stream is run
        self.steps_kept: list[steps.Row] = []  # loss and gradient of its steps, when a stream is run
        self.told: dict[str, float] = {}  # what this step computed
        self.input: tuple[list[int], str] = ([], "")  # shape and kind of an input
        self.network: Model | None = None
        self.optimiser: torch.optim.Optimizer | None = None  # plain SGD needs none, and torch's takes a second to load
        self._random = torch.Generator().manual_seed(seed).get_state()  # what a user's dropout reads

    # Learning.

    def learn(
        self, task: Task, *, on_step: OnStep | None = None, checkpoint: str | Path | Checkpoints | None = None
    ) -> None:
        """Learn one task, then evaluate (Algorithm 1, Train).

        Interrupted, it goes on with the same task where it stopped. `on_step` is called after every step. With a
        `checkpoint` folder the state is written there now and then: after a crash, `Learner.load` it and learn on.
        """
        checkpoints = Checkpoints(checkpoint) if isinstance(checkpoint, (str, Path)) else checkpoint
        if self.open is None:
            opening.open_task(self, task)
        elif self.open != task.name:
            raise Mistake(
                f"task {self.open!r} was interrupted at step {self.done}: learn it to its end before {task.name!r}"
            )
        self.known.update({part.name: part for part in task.parts if part.test is not None})
        with self._own_randomness():
            self.task = task
            self.model.backbone.train()
            for batch in self._batches(task):
                evaluation.follow_curve(self, task)
                self.told = {}
                with self._clock():
                    self.method.step(batch)
                    if self.method.uses_memory and self.memory.observes:
                        self.memory.observe(self.with_features(batch))
                    self.method.after_step(batch)
                self.done += 1
                self.record.steps += 1
                if self.planned:
                    steps.keep(self)
                if checkpoints is not None:
                    checkpoints.after_step(self)
                if on_step is not None:
                    on_step(self)
            evaluation.follow_curve(self, task)
            with self._clock():
                self.method.end_task()
                if self.method.uses_memory:
                    labels = self.tasks[self.current].rows[task.train.labels]
                    self.memory.close_task(labels, lambda index: self.with_features(self.read(task, index)))
        self.open = self.task = None
        evaluation.measure(self)
        if self.planned:
            snapshots.snapshot(self)
        if checkpoints is not None:
            checkpoints.write(self)

    def run(
        self, stream: Stream, *, on_step: OnStep | None = None, checkpoint: str | Path | Checkpoints | None = None
    ) -> Record:
        """Learn every task of a stream that was not learned yet, and give the record."""
        stream = self.method.arrange(stream)
        if self.network is None:
            self.heads, self.per_class = self.heads or stream.heads, stream.per_class
            self.outputs = self.outputs or stream.outputs
            self.scale = stream.scale if self.scale is None else self.scale
            self.mean = stream.mean if self.mean is None else self.mean
        learned = {t.name for t in self.tasks} if self.open is None else {t.name for t in self.tasks} - {self.open}
        tested = [part for task in stream for part in task.parts if part.test is not None]
        self.known.update({t.name: t for t in tested if stream.evaluate == "all" or t.name in learned})
        self.planned = sum(len(task.parts) for task in stream)
        for task in stream:
            if task.name == self.open or not learned.issuperset(part.name for part in task.parts):
                self.learn(task, on_step=on_step, checkpoint=checkpoint)
        return self.record

    def apply(self, gradient: Tensor) -> None:
        """One step of the optimiser against a gradient."""
        self.check_finite("gradient", gradient)
        if self.optimiser is None:
            self.model.flat.data.add_(gradient, alpha=-self.lr)
        else:
            self.model.flat.grad = gradient
            self.optimiser.step()

    def check_finite(self, what: str, value: Tensor) -> None:
        """Stop at once when a number is no longer finite."""
        self.told[what] = value.sum().item()
        if not math.isfinite(self.told[what]):
            raise FloatingPointError(
                f"task {self.open!r}, step {self.done}: the {what} is not finite; "
                f"a smaller learning rate may help (lr={self.lr}){self.saved and f'; the last good state is {self.saved}'}"
            )

    @property
    def current(self) -> int:
        """The number of the task being learned, or of the last one; from 0."""
        return len(self.tasks) - 1

    @property
    def model(self) -> Model:
        """The network; it takes shape with the first task."""
        if self.network is None:
            raise Mistake("this learner has not learned anything yet: call learn(task) first")
        return self.network

    # Evaluation.

    def evaluate(self, task: Task) -> tuple[float, float] | None:
        """Accuracy on a task's test examples with the task given, and with all seen heads competing."""
        return evaluation.accuracies(self, task)

    def predict(self, x: Any, task: str | None = None) -> list[Hashable]:
        """The class of each input: among those of a task, or, without one, among all that were learned."""
        model, features = self.model, self.features(x)
        if task is not None and task not in (names := [t.name for t in self.tasks]):
            raise Mistake(f"task {task!r} was not learned; the learned ones are {', '.join(map(repr, names))}")
        rows = next((t.rows for t in self.tasks if t.name == task), None)
        with model.evaluating():
            scores = model.scores(features)
            chosen = evaluation.best(scores, model.head_of_class >= 0 if rows is None else model.only(rows))
        classes = {row: c for t in self.tasks for c, row in zip(t.classes, t.rows.tolist(), strict=True)}
        return [classes[row] for row in chosen.tolist()]

    def features(self, x: Any) -> Tensor:
        """The feature vector of each input."""
        inputs = torch.as_tensor(x)
        inputs = inputs.float() if inputs.dtype == torch.float64 else inputs
        if self.network is not None:
            self.check_inputs("inputs", inputs)
        if inputs.dtype.is_floating_point and not bool(torch.isfinite(inputs).all()):
            raise Mistake("inputs have NaN or infinite values; remove or repair them")
        return evaluation.features(self, inputs)

    # Saving.

    def save(self, folder: str | Path) -> None:
        """Save everything: weights, statistics, method, memory, record and position; whole or not at all."""
        write_state(folder, *saving.learner_state(self))

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        backbone: nn.Module | None = None,
        method: Method | None = None,
        device: str = "cpu",
        tell: Callable[[str], None] | None = None,
    ) -> Learner:
        """Load what `save` or a checkpoint saved. A backbone or method that is not one of mdmt's own has to be given.

        `tell` is called with a line when the last checkpoint is damaged and the one before is used.
        """
        return saving.load_learner(cls, folder, backbone, method, device, tell)

    # Reading examples.

    def read(self, task: Task, index: Tensor) -> Batch:
        """Some of a task's training examples as a batch; in a pool, indices run through its tasks in order."""
        pieces, start = [], 0
        for part in task.parts:
            count = len(part.train)
            inside = index if len(task.parts) == 1 else index[(index >= start) & (index < start + count)] - start
            start += count
            if len(inside):
                number = next(i for i, t in enumerate(self.tasks) if t.name == part.name)
                labels = self.tasks[number].rows[part.train.labels[inside].to(self.device)]
                inputs = self.shown(part, part.train, inside)
                pieces.append(Batch(inputs, labels, torch.full_like(labels, number)))
        return pieces[0] if len(pieces) == 1 else Batch.joined(pieces)

    def sample_of_task(self, count: int) -> Tensor:
        """Indices of some training examples of the current task, the same ones whenever it is asked."""
        assert self.task is not None
        total = len(self.task.train)
        picked = np.random.default_rng([self.seed, 3, self.current]).permutation(total)[:count]
        return torch.from_numpy(picked)

    def shown(self, task: Task, examples: Examples, index: Tensor) -> Tensor:
        """Inputs as the network sees them: the task's view applied."""
        inputs = examples.inputs[index]
        return (inputs if task.view is None else task.view(inputs)).to(self.device)

    def with_features(self, batch: Batch) -> Batch:
        """The batch with its representations F, when the method wants them stored."""
        if not self.method.stores_features:
            return batch
        with torch.no_grad():
            return dataclasses.replace(batch, features=self.method.represent(batch))

    def rows_of(self, task: Task) -> Tensor | None:
        """The rows of the head that stand for a task's classes, None where there are none."""
        for learned in self.tasks:
            if learned.name == task.name:
                return learned.rows
        known = self.shared_rows()
        return torch.tensor([known[c] for c in task.classes]) if known.keys() >= set(task.classes) else None

    def steps_of(self, task: Task) -> int:
        """How many steps a task takes."""
        return self.epochs * math.ceil(sum(len(part.train) for part in task.parts) / self.batch)

    def shared_rows(self) -> dict[Hashable, int]:
        """The row of each class, where all tasks share one head."""
        if self.heads != "shared":
            return {}
        return {c: row for t in self.tasks for c, row in zip(t.classes, t.rows.tolist(), strict=True)}

    def check_inputs(self, whose: str, inputs: Tensor) -> None:
        """Refuse inputs of another shape or kind than those learned from."""
        if (list(inputs.shape[1:]), str(inputs.dtype)) != self.input:
            raise Mistake(
                f"{whose}: one input has shape {tuple(inputs.shape[1:])} and is {inputs.dtype}; "
                f"this learner's have shape {tuple(self.input[0])} and are {self.input[1]}"
            )

    def _batches(self, task: Task) -> Iterator[Batch]:
        """The mini-batches that are left, in an order that depends on seed, task and epoch alone."""
        total, of_epoch = sum(len(part.train) for part in task.parts), -1
        order = np.empty(0, np.int64)
        while self.done < self.steps_of(task):
            epoch, position = divmod(self.done, math.ceil(total / self.batch))
            if epoch != of_epoch:
                generator = np.random.default_rng([self.seed, 1, self.current, epoch])
                order, of_epoch = generator.permutation(total), epoch
            yield self.read(task, torch.from_numpy(order[position * self.batch :][: self.batch]))

    def add_task(self, name: str, classes: tuple[Hashable, ...], rows: list[int]) -> None:
        """Know a task by the rows of its classes."""
        self.tasks.append(Learned(name, classes, torch.tensor(rows, device=self.device)))

    def optimiser_state(self) -> dict[str, Any]:
        """What the optimiser remembers of the one flat parameter; plain SGD remembers nothing."""
        return {} if self.optimiser is None else self.optimiser.state[self.model.flat]

    # Time and chance.

    @contextmanager
    def _clock(self) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.record.seconds += time.perf_counter() - start

    @contextmanager
    def _own_randomness(self) -> Iterator[None]:
        """Torch's global generator is ours while we learn, and the caller's again afterwards."""
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self._random)
            try:
                yield
            finally:
                self._random = torch.get_rng_state()

    def random_state(self) -> Tensor:
        """The state of the generator that learning reads."""
        return self._random if self.task is None else torch.get_rng_state()

    def load_random_state(self, state: Tensor) -> None:
        """Take over what `random_state` gave."""
        self._random = state


def _positive(name: str, value: float) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value) or value <= 0:
        raise Mistake(f"{name}={value!r}: must be a number above 0")
    return value


def _count(name: str, value: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise Mistake(f"{name}={value!r}: must be a whole number, 1 or more")
    return value
