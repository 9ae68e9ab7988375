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

from mdmt import backbones, memory
from mdmt.methods import MDMTR, METHODS
from mdmt.methods.base import Method
from mdmt.metrics import BETA
from mdmt.model import Model
from mdmt.record import Record
from mdmt.state import read_state, write_state
from mdmt.tasks import Batch, Examples, Heads, Stream, Task

DRIFT_SAMPLE = 100  # examples of each task whose features are followed
EVALUATION_SIZE = 2**22  # numbers in one batch of inputs when nothing is trained


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
        memory: memory.Memory | None = None,
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
        self.memory = _ring() if memory is None else memory
        self.lr, self.batch, self.epochs = _positive("lr", lr), _count("batch", batch), _count("epochs", epochs)
        if not (isinstance(optimiser, str) and isinstance(getattr(torch.optim, optimiser, None), type)):
            raise ValueError(
                f"optimiser={optimiser!r}: must be the name of a class of torch.optim, such as 'SGD' or 'Adam'"
            )
        self.optimiser_name, self.optimiser_arguments = optimiser, optimiser_arguments or {}
        if heads not in (None, "shared", "per-task"):
            raise ValueError(f"heads={heads!r}: must be 'shared' or 'per-task'")
        self.heads, self.outputs, self.scale, self.mean, self.per_class = heads, outputs, scale, mean, per_class
        self.seed, self.device = seed, torch.device(device)
        self.memory.seed(seed)

        self.record = Record()
        self.tasks: list[Learned] = []
        self.task: Task | None = None  # the task being learned
        self.open: str | None = None  # its name, also after an interruption
        self.done = 0  # steps of that task that are over
        self.known: dict[str, Task] = {}  # tasks with test examples that this process has seen or was told of
        self.right_after: dict[str, Tensor] = {}  # features of each task's sample right after it was learned
        self.input: tuple[list[int], str] | None = None  # shape and kind of an input
        self._model: Model | None = None
        self._random = torch.Generator().manual_seed(seed).get_state()  # what a user's dropout reads

    # Learning.

    def learn(self, task: Task, *, on_step: Callable[[Learner], None] | None = None) -> None:
        """Learn one task, then evaluate (Algorithm 1, Train).

        Interrupted, it goes on with the same task where it stopped. `on_step` is called after every step.
        """
        if self.open is None:
            self._open(task)
        elif self.open != task.name:
            raise ValueError(
                f"task {self.open!r} was interrupted at step {self.done}: learn it to its end before {task.name!r}"
            )
        self.task = task
        with self._own_randomness():
            self.model.backbone.train()
            for batch in self._batches(task):
                self._follow_curve(task)
                with self._clock():
                    self.method.step(batch)
                    if self.method.uses_memory and self.memory.observes:
                        self.memory.observe(self._with_features(batch))
                    self.method.after_step(batch)
                self.done += 1
                self.record.steps += 1
                if on_step is not None:
                    on_step(self)
            self._follow_curve(task)
            with self._clock():
                if self.method.uses_memory:
                    labels = self.tasks[self.current].rows[task.train.labels]
                    self.memory.close_task(labels, lambda i: self._with_features(self._read(task, task.train, i)))
                self.method.end_task()
        self.open = self.task = None
        self._measure()

    def run(self, stream: Stream, *, on_step: Callable[[Learner], None] | None = None) -> Record:
        """Learn every task of a stream that was not learned yet, and give the record."""
        stream = self.method.arrange(stream)
        if self._model is None:
            self.heads, self.per_class = self.heads or stream.heads, stream.per_class
            self.outputs = self.outputs or stream.outputs
            self.scale = stream.scale if self.scale is None else self.scale
            self.mean = stream.mean if self.mean is None else self.mean
        learned = {t.name for t in self.tasks if t.name != self.open}
        told = stream if stream.evaluate == "all" else [t for t in stream if t.name in learned]
        self.known.update({t.name: t for t in told if t.test is not None})
        for task in stream:
            if task.name not in learned:
                self.learn(task, on_step=on_step)
        return self.record

    def apply(self, gradient: Tensor) -> None:
        """One step of the optimiser against a gradient."""
        self.check_finite("gradient", gradient)
        self.model.flat.grad = gradient
        self.optimiser.step()

    def check_finite(self, what: str, value: Tensor) -> None:
        """Stop at once when a number is no longer finite."""
        if not math.isfinite(value.sum().item()):
            raise FloatingPointError(
                f"task {self.open!r}, step {self.done}: the {what} is not finite; a smaller learning rate may help (lr={self.lr})"
            )

    @property
    def current(self) -> int:
        """The number of the task being learned, or of the last one; from 0."""
        return len(self.tasks) - 1

    @property
    def model(self) -> Model:
        """The network; it takes shape with the first task."""
        if self._model is None:
            raise ValueError("this learner has not learned anything yet: call learn(task) first")
        return self._model

    def _open(self, task: Task) -> None:
        if task.name in {t.name for t in self.tasks}:
            raise ValueError(f"task {task.name!r} was learned already: give the new data another name")
        example = self._shown(task, task.train, torch.arange(1))
        self._check_inputs(f"task {task.name!r}", example)
        if self._model is None:
            self._build(example, len(task.classes))
        known = self._rows_by_class() if self.heads == "shared" else {}
        new = [c for c in task.classes if c not in known]
        before = self.model.flat.numel()
        claimed = self.model.claim(0 if self.heads == "shared" else len(self.tasks), len(new))
        if self.model.flat.numel() > before:
            self._grow(before)
        known.update(zip(new, claimed.tolist(), strict=True))
        rows = torch.tensor([known[c] for c in task.classes], device=self.device)
        self.tasks.append(Learned(task.name, task.classes, rows))
        tested = 0 if task.test is None else len(task.test)
        self.record.tasks.append(
            {"name": task.name, "classes": list(task.classes), "train": len(task.train), "test": tested}
        )
        self.record.curve.append([])
        if task.test is not None:
            self.known[task.name] = task
        self.open, self.done = task.name, 0
        self.memory.open_task(self.current, rows)
        self.method.begin_task()

    def _build(self, example: Tensor, classes: int) -> None:
        """Make the model for inputs like this one."""
        self.heads = self.heads or "per-task"
        scale = (1 / 255 if example.dtype == torch.uint8 else 1.0) if self.scale is None else self.scale
        try:
            with torch.no_grad():
                self.backbone.to(self.device).eval()
                probe = self.backbone(torch.zeros(2, *example.shape[1:], device=self.device))
        except RuntimeError as error:
            raise ValueError(
                f"the backbone cannot read inputs of shape {tuple(example.shape[1:])}: {str(error).splitlines()[0]}"
            ) from None
        if not isinstance(probe, Tensor) or probe.ndim != 2 or len(probe) != 2:
            shape = tuple(probe.shape) if isinstance(probe, Tensor) else type(probe).__name__
            raise ValueError(f"the backbone must return one feature vector per input; for 2 inputs it gave {shape}")
        self._model = Model(
            self.backbone, probe.shape[1], self.outputs or classes,
            cosine=self.method.cosine, scale=scale, mean=self.mean, seed=self.seed, device=self.device,
        )  # fmt: skip
        self.input = (list(example.shape[1:]), str(example.dtype))
        maker = getattr(torch.optim, self.optimiser_name)
        self.optimiser = maker([self._model.flat], lr=self.lr, **self.optimiser_arguments)
        self.method.bind(self)

    def _grow(self, before: int) -> None:
        """The head has more rows: pad what runs along the parameters."""
        self.method.grow()
        for key, value in self.optimiser.state[self.model.flat].items():
            if isinstance(value, Tensor) and value.shape == (before,):
                more = value.new_zeros(self.model.flat.numel() - before)
                self.optimiser.state[self.model.flat][key] = torch.cat([value, more])

    def _batches(self, task: Task) -> Iterator[Batch]:
        """The mini-batches that are left, in an order that depends on seed, task and epoch alone."""
        per_epoch = math.ceil(len(task.train) / self.batch)
        order, of_epoch = np.empty(0, np.int64), -1
        while self.done < self.epochs * per_epoch:
            epoch, position = divmod(self.done, per_epoch)
            if epoch != of_epoch:
                generator = np.random.default_rng([self.seed, 1, self.current, epoch])
                order, of_epoch = generator.permutation(len(task.train)), epoch
            yield self._read(task, task.train, torch.from_numpy(order[position * self.batch :][: self.batch]))

    def _read(self, task: Task, examples: Examples, index: Tensor) -> Batch:
        """Some of a task's examples as a batch."""
        number = next(i for i, t in enumerate(self.tasks) if t.name == task.name)
        labels = self.tasks[number].rows[examples.labels[index].to(self.device)]
        return Batch(self._shown(task, examples, index), labels, torch.full_like(labels, number))

    def _shown(self, task: Task, examples: Examples, index: Tensor) -> Tensor:
        """Inputs as the network sees them: the task's view applied."""
        inputs = examples.inputs[index]
        return (inputs if task.view is None else task.view(inputs)).to(self.device)

    def _with_features(self, batch: Batch) -> Batch:
        """The batch with its representations F, when the method wants them stored."""
        if not self.method.stores_features:
            return batch
        with self.model.evaluating():
            return dataclasses.replace(batch, features=self._features(batch.inputs))

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

    # Evaluation.

    def evaluate(self, task: Task) -> tuple[float, float] | None:
        """Accuracy on a task's test examples with the task given, and with all seen heads competing.

        None where the task has no test examples or a class that no head knows.
        """
        rows = self._rows_of(task)
        if task.test is None or rows is None:
            return None
        own = torch.zeros(len(self.model.head_of_class), dtype=torch.bool, device=self.device)
        own[rows] = True
        right = torch.empty(2, len(task.test), dtype=torch.bool)
        with self.model.evaluating():
            for index in self._chunks(len(task.test)):
                scores = self.model.scores(self.model.features(self._shown(task, task.test, index)))
                labels = rows[task.test.labels[index].to(self.device)]
                for which, allowed in enumerate((own, self.model.head_of_class >= 0)):
                    best = scores.masked_fill(~allowed, -math.inf).argmax(1)
                    right[which, index] = (best == labels).cpu()
        given, free = (_accuracy(r, task.test.labels, self.per_class) for r in right)
        return given, free

    def predict(self, x: Any, task: str | None = None) -> list[Hashable]:
        """The class of each input: among those of a task, or, without one, among all that were learned."""
        inputs = self._inputs(x)
        names = {row: c for t in self.tasks for c, row in zip(t.classes, t.rows.tolist(), strict=True)}
        allowed = self.model.head_of_class >= 0
        if task is not None:
            rows = self._learned(task).rows
            allowed = torch.zeros_like(allowed)
            allowed[rows] = True
        best: list[int] = []
        with self.model.evaluating():
            for index in self._chunks(len(inputs)):
                scores = self.model.scores(self.model.features(inputs[index].to(self.device)))
                best += scores.masked_fill(~allowed, -math.inf).argmax(1).tolist()
        return [names[row] for row in best]

    def features(self, x: Any) -> Tensor:
        """The feature vector of each input."""
        inputs = self._inputs(x)
        with self.model.evaluating():
            return self._features(inputs)

    def _features(self, inputs: Tensor) -> Tensor:
        chunks = [self.model.features(inputs[index].to(self.device)) for index in self._chunks(len(inputs))]
        return chunks[0] if len(chunks) == 1 else torch.cat(chunks)

    def _follow_curve(self, task: Task) -> None:
        """Z_b: the accuracy on the current task after b of its mini-batches, for b up to beta."""
        curve = self.record.curve[-1]
        if len(curve) == self.done <= BETA:
            accuracy = self.evaluate(task)
            curve.append(None if accuracy is None else accuracy[0])

    def _measure(self) -> None:
        """A row of accuracies and of drift, after a task."""
        names = [t.name for t in self.tasks] + [n for n in self.known if n not in {t.name for t in self.tasks}]
        rows = [self.evaluate(self.known[name]) if name in self.known else None for name in names]
        self.record.accuracy.append([None if r is None else r[0] for r in rows])
        self.record.accuracy_task_free.append([None if r is None else r[1] for r in rows])
        self.record.drift.append([self._drift(t.name) for t in self.tasks])
        self.record.memory_bytes = sum(self.memory.bytes.values())
        self.record.weights_sha256 = self.model.sha256()

    def _drift(self, name: str) -> float | None:
        task = self.known.get(name)
        if task is None or task.test is None:
            return None
        count = len(task.test)
        sample = torch.linspace(0, count - 1, min(count, DRIFT_SAMPLE)).long()
        with self.model.evaluating():
            now = self._features(self._shown(task, task.test, sample))
        before = self.right_after.setdefault(name, now)
        return float((1 - torch.cosine_similarity(now, before)).mean())

    def _chunks(self, count: int) -> Iterator[Tensor]:
        assert self.input is not None
        yield from torch.arange(count).split(max(1, EVALUATION_SIZE // math.prod(self.input[0])))

    def _inputs(self, x: Any) -> Tensor:
        """A person's inputs, checked."""
        inputs = torch.as_tensor(x)
        inputs = inputs.float() if inputs.dtype == torch.float64 else inputs
        self._check_inputs("inputs", inputs)
        if inputs.dtype.is_floating_point and not bool(torch.isfinite(inputs).all()):
            raise ValueError("inputs have NaN or infinite values; remove or repair them")
        return inputs

    def _check_inputs(self, whose: str, inputs: Tensor) -> None:
        if self.input is not None and (list(inputs.shape[1:]), str(inputs.dtype)) != self.input:
            raise ValueError(
                f"{whose}: one input has shape {tuple(inputs.shape[1:])} and is {inputs.dtype}; "
                f"this learner's have shape {tuple(self.input[0])} and are {self.input[1]}"
            )

    def _learned(self, name: str) -> Learned:
        for task in self.tasks:
            if task.name == name:
                return task
        raise ValueError(
            f"task {name!r} was not learned; the learned ones are {', '.join(repr(t.name) for t in self.tasks)}"
        )

    def _rows_by_class(self) -> dict[Hashable, int]:
        return {c: row for t in self.tasks for c, row in zip(t.classes, t.rows.tolist(), strict=True)}

    def _rows_of(self, task: Task) -> Tensor | None:
        for learned in self.tasks:
            if learned.name == task.name:
                return learned.rows
        known = self._rows_by_class() if self.heads == "shared" else {}
        return torch.tensor([known[c] for c in task.classes]) if set(task.classes) <= set(known) else None

    # Saving.

    def save(self, folder: str | Path) -> None:
        """Save everything: weights, statistics, method, memory, record and position; whole or not at all."""
        write_state(folder, *self.state())

    def state(self) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
        """Everything it knows, as tensors and as JSON."""
        kept, kept_rest = self.memory.state()
        flat_state = self.optimiser.state[self.model.flat] if self._model is not None else {}
        numbers = {
            **{f"model.{k}": v for k, v in self.model.state().items()},
            **{f"method.{k}": getattr(self.method, k) for k in self.method.buffers()},
            **{f"optimiser.{k}": v for k, v in flat_state.items() if isinstance(v, Tensor)},
            **{f"right_after.{k}": v for k, v in self.right_after.items()},
            "random": torch.get_rng_state() if self.task is not None else self._random,
        }
        if self.mean is not None:
            numbers["mean"] = self.mean
        rest = {
            "backbone": getattr(self.backbone, "spec", None),
            "method": {"name": self.method.name, "arguments": self.method.arguments},
            "memory": {**self.memory.spec, "state": kept_rest},
            "learner": {
                "lr": self.lr, "batch": self.batch, "epochs": self.epochs, "optimiser": self.optimiser_name,
                "optimiser_arguments": self.optimiser_arguments, "heads": self.heads, "outputs": self.outputs,
                "scale": self.scale, "per_class": self.per_class, "seed": self.seed,
            },
            "tasks": [{"name": t.name, "classes": list(t.classes), "rows": t.rows.tolist()} for t in self.tasks],
            "input": self.input, "open": self.open, "done": self.done, "outputs": self.model.outputs,
            "record": dataclasses.asdict(self.record),
        }  # fmt: skip
        return {"model": numbers, "memory": kept}, rest

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        backbone: nn.Module | None = None,
        method: Method | None = None,
        device: str = "cpu",
    ) -> Learner:
        """Load what `save` saved. A backbone or method that is not one of mdmt's own has to be given."""
        parts, rest = read_state(folder)
        if backbone is None:
            if rest["backbone"] is None:
                raise ValueError(
                    f"{folder} was saved with a backbone of your own: Learner.load({str(folder)!r}, backbone=...)"
                )
            backbone = backbones.make(rest["backbone"])
        if method is None:
            if rest["method"]["name"] not in METHODS:
                raise ValueError(
                    f"{folder} was saved with a method of your own: Learner.load({str(folder)!r}, method=...)"
                )
            method = METHODS[rest["method"]["name"]](**rest["method"]["arguments"])
        kept_rest = rest["memory"].pop("state")
        numbers = parts["model"]
        learner = cls(
            backbone,
            method,
            memory=memory.make(rest["memory"]),
            mean=numbers.get("mean"),
            device=device,
            **rest["learner"],
        )
        learner._restore(numbers, rest)
        learner.memory.load_state(parts["memory"], kept_rest)
        return learner

    def _restore(self, numbers: dict[str, Tensor], rest: dict[str, Any]) -> None:
        def under(prefix: str) -> dict[str, Tensor]:
            return {k.removeprefix(prefix): v.to(self.device) for k, v in numbers.items() if k.startswith(prefix)}

        shape, kind = rest["input"]
        self._build(torch.empty(1, *shape, dtype=getattr(torch, kind.removeprefix("torch."))), 1)
        self.model.load_state(under("model."))
        self.model.outputs = rest["outputs"]
        self.method.grow()
        for name, value in under("method.").items():
            setattr(self.method, name, value)
        if optimised := under("optimiser."):
            self.optimiser.state[self.model.flat].update(optimised)
        self.right_after, self._random = under("right_after."), numbers["random"]
        self.tasks = [
            Learned(t["name"], tuple(t["classes"]), torch.tensor(t["rows"], device=self.device)) for t in rest["tasks"]
        ]
        self.open, self.done, self.record = rest["open"], rest["done"], Record(**rest["record"])


def _ring() -> memory.Memory:
    return memory.Ring()


def _accuracy(right: Tensor, labels: Tensor, per_class: bool) -> float:
    """The fraction that is right; by class, the mean of the classes' fractions."""
    if not per_class:
        return right.double().mean().item()
    counts = torch.bincount(labels)
    rights = torch.bincount(labels, weights=right.double())
    return (rights[counts > 0] / counts[counts > 0]).mean().item()


def _positive(name: str, value: float) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value) or value <= 0:
        raise ValueError(f"{name}={value!r}: must be a number above 0")
    return value


def _count(name: str, value: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name}={value!r}: must be a whole number, 1 or more")
    return value
