"""Algorithm 1: the one training loop."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn

import mdmt.backbones as backbones
import mdmt.inputs.augment as augmentation
import mdmt.learning.checkpoints as checkpoints
import mdmt.memory as memories
import mdmt.ranks as ranks
from mdmt.errors import Mistake
from mdmt.learning.arguments import (
    backbone_of,
    device_of,
    memory_of,
    method_of,
    precision_of,
    stream_of,
    task_of,
    whole_number,
)
from mdmt.learning.checkpoints import Checkpoints
from mdmt.learning.order import indices, needs_two, refuse_single_examples, steps_in_epoch
from mdmt.learning.progress import step_bar
from mdmt.learning.randomness import Randomness
from mdmt.learning.recorder import Recorder
from mdmt.memory import Memory
from mdmt.methods import METHODS
from mdmt.methods.base import Method
from mdmt.network.heads import Heads, LearnedTask
from mdmt.network.model import Model, Normalisation, Optimiser, count_features
from mdmt.network.predictor import Predictor
from mdmt.runs.config import MAX_SEED
from mdmt.runs.record import Record
from mdmt.tasks import Batch, HeadKind, Stream, Task
from mdmt.words import call_text, count

OnStep = Callable[["Learner"], None]


class Learner(Predictor):
    """A network that learns task after task.

    backbone
        any `torch.nn.Module` that maps inputs to feature vectors, such as `mdmt.backbones.mlp(784)`
    method
        how it learns: `mdmt.ER(reference_batch=64)`, a class or a name ("er") with its usual
        settings; None: MDMT-R
    memory
        what is kept of earlier tasks, where the method uses it: `mdmt.memory.Ring(per_class=25)`
        (None: this one), `Reservoir(size)`, `AtTaskEnd(per_class)`
    lr, batch, epochs
        learning rate, examples in a mini-batch, passes over each task
    optimiser, optimiser_arguments
        a class of `torch.optim` by its name, and what it takes besides the learning rate
    heads
        "per-task": each task has its own classes; "shared": one head, where equal labels are one
        class
    outputs
        classes in all tasks, where it is known; the head grows by itself
    scale, mean
        done to every input: x * scale - mean; None: pixels (uint8) are divided by 255, floats stay
    per_class
        accuracy is the mean of the classes' accuracies
    augment
        "crop-flip" shifts and mirrors images at random, anew each time
    seed
        decides the first weights, the order of examples and what the memory draws: same seed, same
        bits
    device
        where it computes: "cpu", "cuda", "cuda:1", "mps", "xpu"; "auto" takes an accelerator where
        there is one
    precision
        "fp32", or "bf16": products of matrices in bfloat16; weights, losses and updates stay
        float32

    `run` takes heads, outputs, scale, mean and per_class from its stream where they were not given.
    """

    def __init__(
        self,
        backbone: nn.Module,
        method: Method | type[Method] | str | None = None,
        *,
        memory: Memory | type[Memory] | None = None,
        lr: float = 0.1,
        batch: int = 10,
        epochs: int = 1,
        optimiser: str = "SGD",
        optimiser_arguments: dict[str, Any] | None = None,
        heads: HeadKind | None = None,
        outputs: int = 0,
        scale: float | None = None,
        mean: Tensor | None = None,
        per_class: bool = False,
        augment: str = "none",
        seed: int = 1234,
        device: str = "cpu",
        precision: str = "fp32",
    ) -> None:
        self.backbone = backbone_of(backbone)
        self.method = method_of(method)
        self.memory = memory_of(memory)
        self.seed = whole_number("seed", seed, least=0, most=MAX_SEED)
        self.device = device_of(device)
        self.precision = precision_of(precision, self.device)
        self.memory.seed(seed)
        self.memory.device = self.device
        self.augment = self.memory.augment = augmentation.check(augment)
        self.optimiser = Optimiser(optimiser, lr, optimiser_arguments)
        self.batch = whole_number("batch", batch)
        self.epochs = whole_number("epochs", epochs)
        self.heads = Heads(heads, outputs, self.device)
        self.normalisation = Normalisation(scale, mean)
        self.recorder = Recorder(self.heads, stop=self._stop, batch=self.batch, per_class=per_class)
        self.network: Model | None = None  # takes shape with the first task
        self.needs_two = False  # whether a mini-batch of one example is too small for the network
        self.task: Task | None = None  # the task being learned
        self.task_name: str | None = None  # its name, also after an interruption
        self.again = False  # whether it was learned before, and more data came
        self.step_in_task = 0  # steps of that task that are over
        self.losses: list[Tensor] = []  # of this step, not yet checked
        self.last_checkpoint = ""  # its place and folder, in words
        self.randomness = Randomness(seed, self.device)  # what a user's dropout reads

    # Learning.

    def learn(
        self,
        task: Task | tuple[Any, ...],
        *,
        more: bool = False,
        earlier: Iterable[Task] = (),
        on_step: OnStep | None = None,
        checkpoint: str | Path | Checkpoints | None = None,
        progress: bool = False,
    ) -> None:
        """Learn one task, then evaluate (Algorithm 1, Train).

        With `more` the task is one that was learned, and these are more data of its classes.
        Interrupted, it goes on with the same task where it stopped. `on_step` is called after every
        step. With a `checkpoint` folder the state is written there now and then: after a crash,
        `Learner.load` it and learn on. A learner that was loaded has no test examples: `earlier`
        hands those of the tasks it knows back to it. `progress` shows on stderr how far it is. A
        task may be given as (name, x, y) or (name, x, y, (x, y) to test on).
        """
        task = task_of(task)
        if progress and ranks.rank() == 0:
            with step_bar(task.name) as show:
                self.learn(
                    task,
                    more=more,
                    earlier=earlier,
                    on_step=_both(show, on_step),
                    checkpoint=checkpoint,
                )
            return
        folder = Checkpoints(checkpoint) if isinstance(checkpoint, (str, Path)) else checkpoint
        if more or (self.again and task.name == self.task_name):
            task = self.heads.known_classes(task)
        self._open(task, earlier, more)
        self._tell_memory(task)
        last = self.steps_of(task)
        with self._learning(task):
            for batch in self._batches(task):
                self.recorder.before_step(task, self.step_in_task, self.model)
                self.step(batch)
                self.step_in_task += 1
                self.recorder.after_step(self.step_in_task, last)
                if folder is not None:
                    folder.after_step(self, self.record.steps)
                if on_step is not None:
                    on_step(self)
            self.recorder.before_step(task, self.step_in_task, self.model)
            self._close(task)
        self.recorder.after_task(self.model, self.memory, self.method.buffer_bytes)
        ranks.check_equal("weights", self.record.weights_sha256)
        if folder is not None:
            folder.write(self)

    def step(self, batch: Batch) -> None:
        """One step of Algorithm 1: learn the mini-batch, augmented where that is asked for, then
        show it to the memory.
        """
        self.losses = []
        with self.recorder.clock(), self.model.lock:
            seen = self._augmented(batch)
            self.method.step(seen)
            if self.method.uses_memory and self.memory.observes:
                self.memory.observe(batch, self.with_features)
            self.method.after_step(seen)

    def apply(self, gradient: Tensor) -> None:
        """One step of the optimiser against a gradient; what is not finite stops it (see
        `Recorder`).
        """
        self.recorder.check_update(self.step_in_task, self.losses, gradient)
        self.losses = []
        self.optimiser.step(gradient)

    def run(
        self,
        stream: Stream | Sequence[Task],
        *,
        on_step: OnStep | None = None,
        checkpoint: str | Path | Checkpoints | None = None,
    ) -> Record:
        """Learn every task of a stream, or list, that was not learned yet, and give the record."""
        stream = self.method.arrange(stream_of(stream, self.heads.kind))
        if self.network is None:
            self._follow(stream)
        learned = set(self.heads.names) - {self.task_name}
        parts = [part for task in stream for part in task.parts]
        self.recorder.add_eval_tasks(
            part for part in parts if stream.evaluate == "all" or part.name in learned
        )
        self.recorder.begin_stream(len({*self.heads.names, *(part.name for part in parts)}))
        try:
            for task in stream:
                if task.name == self.task_name or not learned.issuperset(
                    part.name for part in task.parts
                ):
                    self.learn(task, on_step=on_step, checkpoint=checkpoint)
        finally:
            self.recorder.end_stream()
        return self.record

    # What a learner knows.

    def __repr__(self) -> str:
        name = getattr(self.backbone, "spec", {"name": type(self.backbone).__name__})["name"]
        size = {key: value for key, value in self.memory.spec.items() if key != "policy"}
        parts = [
            name, call_text(self.method, self.method.arguments), call_text(self.memory, size),
            f"lr={self.optimiser.lr}", f"batch={self.batch}", f"epochs={self.epochs}",
        ]  # fmt: skip
        tasks = ", ".join(
            f"{task.name!r} ({count('class', len(task.classes), 'classes')})" for task in self.tasks
        )
        learned = (
            f"learned {tasks}; {count('step', self.record.steps)}"
            if tasks
            else "nothing learned yet"
        )
        return f"Learner({', '.join(parts)}): {learned}"

    @property
    def record(self) -> Record:
        """What was measured."""
        return self.recorder.record

    @property
    def tasks(self) -> list[LearnedTask]:
        """The tasks learned so far, with the one being learned."""
        return self.heads.tasks

    @property
    def current(self) -> int:
        """The number of the task being learned, or of the last one; from 0."""
        if self.again and self.task_name is not None:
            return self.heads.number(self.task_name)
        return len(self.heads.tasks) - 1

    @property
    def model(self) -> Model:
        """The network; it takes shape with the first task."""
        if self.network is None:
            raise Mistake("this learner has not learned anything yet: call learn(task) first")
        return self.network

    @property
    def place(self) -> str:
        """The task and step it has reached, in words."""
        return f"task {self.heads.names[self.current]!r}, step {self.step_in_task}"

    @property
    def plain_step(self) -> float | None:
        """The length of a step, where the optimiser goes straight against the gradient; else
        None.
        """
        return self.optimiser.lr if self.optimiser.engine is None else None

    @property
    def share_of_task(self) -> float:
        """How much of the task being learned is over."""
        return 0.0 if self.task is None else self.step_in_task / self.steps_of(self.task)

    def steps_of(self, task: Task) -> int:
        """How many steps a task takes."""
        return self.epochs * self._steps_in_epoch(task)

    def _steps_in_epoch(self, task: Task) -> int:
        return steps_in_epoch(task.size, self.batch, needs_two=self.needs_two)

    # Evaluation.

    def evaluate(self, task: Task) -> tuple[float, float] | None:
        """Accuracy on a task's test examples with the task given, and with all seen heads
        competing.
        """
        return self.recorder.accuracies(task, self.model)

    # Reading examples.

    def read(self, task: Task, index: Tensor) -> Batch:
        """Some of a task's training examples as a batch; in a pool, indices run through its tasks
        in order.
        """
        return self.heads.batch(task, index)

    def sample_of_task(self, count: int) -> Tensor:
        """Indices of some training examples of the current task, the same ones whenever it is
        asked.
        """
        assert self.task is not None
        total = len(self.task.train)
        picked = np.random.default_rng([self.seed, 3, self.current]).permutation(total)[:count]
        return torch.from_numpy(picked)

    def with_features(self, batch: Batch) -> Batch:
        """The batch with its representations F, when the method wants them stored."""
        if not self.method.stores_features:
            return batch
        with torch.no_grad():
            return dataclasses.replace(batch, features=self.method.represent(batch))

    def _batches(self, task: Task) -> Iterator[Batch]:
        """The mini-batches that are left, in an order that depends on seed, task and epoch
        alone.
        """
        of_epoch = -1
        order = torch.empty(0, dtype=torch.int64)
        steps = self._steps_in_epoch(task)
        last = self.epochs * steps
        while self.step_in_task < last:
            epoch, position = divmod(self.step_in_task, steps)
            if epoch != of_epoch:
                purpose = 6 if self.again else 1
                generator = np.random.default_rng([self.seed, purpose, self.current, epoch])
                order = torch.from_numpy(generator.permutation(task.size))
                of_epoch = epoch
            yield self.read(task, indices(order, position, self.batch, steps))

    def _augmented(self, batch: Batch) -> Batch:
        """The batch with its images shifted and mirrored, by draws that depend on seed, task and
        step alone.
        """
        if self.augment == "none":
            return batch
        purpose = 7 if self.again else 5
        generator = np.random.default_rng([self.seed, purpose, self.current, self.step_in_task])
        return dataclasses.replace(
            batch, inputs=augmentation.augment(self.augment, batch.inputs, generator)
        )

    # Saving.

    def save(self, folder: str | Path) -> None:
        """Save everything: weights, statistics, method, memory, record and position; whole or not
        at all.
        """
        self.recorder.read_pending()
        checkpoints.save(self, folder)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        backbone: nn.Module | None = None,
        method: Method | None = None,
        device: str = "cpu",
        precision: str | None = None,
        warn: Callable[[str], None] | None = None,
    ) -> Learner:
        """Load what `save` or a checkpoint saved. A backbone or method that is not one of mdmt's
        own has to be given.

        It may go to another device than it was saved from, and to another `precision`; None: the
        one it had. `warn` is called with a line when the last checkpoint is damaged and the one
        before is used.
        """
        states = ranks.first(lambda: checkpoints.read(folder, warn))
        about, name = states["learner"][1], states["method"][1]["name"]
        for what, given, own in (
            ("backbone", backbone, about["backbone"] is None),
            ("method", method, name not in METHODS),
        ):
            if own and given is None:
                raise Mistake(
                    f"{folder} was saved with a {what} of your own: Learner.load({str(folder)!r},"
                    f" {what}=...)"
                )
        # A setting of 0.1.0.
        settings = {name: value for name, value in about["learner"].items() if name != "compile"}
        if precision is not None:
            settings["precision"] = precision
        learner = cls(
            backbones.make(about["backbone"]) if backbone is None else backbone,
            METHODS[name](**states["method"][1]["arguments"]) if method is None else method,
            memory=memories.make({k: v for k, v in about["memory"].items() if k != "state"}),
            mean=states["learner"][0].get("mean"),
            device=device,
            **settings,
        )
        learner._restore(states)
        learner.last_checkpoint = f"that of {learner.place}, in {folder}"
        return learner

    def parts(self) -> Mapping[str, checkpoints.Part]:
        """Whoever has state besides the learner: a checkpoint asks each of them for it."""
        return {
            "model": self.model,
            "heads": self.heads,
            "method": self.method,
            "optimiser": self.optimiser,
            "memory": self.memory,
            "recorder": self.recorder,
        }

    def state(self) -> checkpoints.State:
        """What is the learner's own, its parts aside: settings, position, random state."""
        tensors = self.randomness.state()
        if self.normalisation.mean is not None:
            tensors = {**tensors, "mean": self.normalisation.mean}
        settings = {
            "lr": self.optimiser.lr,
            "batch": self.batch,
            "epochs": self.epochs,
            "optimiser": self.optimiser.name,
            "optimiser_arguments": self.optimiser.arguments,
            "heads": self.heads.kind,
            "outputs": self.heads.outputs,
            "scale": self.normalisation.scale,
            "per_class": self.recorder.per_class,
            "augment": self.augment,
            "seed": self.seed,
            "precision": self.precision,
        }
        return tensors, {
            "backbone": getattr(self.backbone, "spec", None),
            "learner": settings,
            "open": self.task_name,
            "more": self.again,
            "done": self.step_in_task,
        }

    def _restore(self, states: Mapping[str, checkpoints.State]) -> None:
        """Put a fresh learner where the saved one was."""
        tensors, about = states["learner"]
        shape, kind = about["input"]
        example = torch.empty(
            1, *shape, dtype=getattr(torch, kind.removeprefix("torch.")), device=self.device
        )
        self._build(example, 1, channels_last=about["channels_last"])
        for name, part in self.parts().items():
            part.load_state(*states[name])
        self.randomness.load_state(tensors)
        self.task_name = about["open"]
        self.again = about.get("more", False)
        self.step_in_task = about["done"]

    def check_weights(self) -> None:
        """Stop where a weight is not finite."""
        self.recorder.read_pending()
        if not math.isfinite(self.model.flat.detach().sum().item()):
            self._stop("sum of the weights", self.step_in_task)

    # Taking up a task, and laying it down.

    def _open(self, task: Task, earlier: Iterable[Task], more: bool = False) -> None:
        """Take up a task, or an interrupted one again; nothing changes if it is refused."""
        known = list(earlier)
        for old in known:
            self.heads.number(old.name)
        if self.task_name is None and more:
            self._take_up_again(task)
        elif self.task_name is None:
            self._take_up(task)
        elif self.task_name != task.name:
            raise Mistake(
                f"task {self.task_name!r} was interrupted at step {self.step_in_task}: "
                f"learn it to its end before {task.name!r}"
            )
        self.recorder.add_eval_tasks(known)
        self.recorder.add_eval_tasks(
            part
            for part in task.parts
            if not (self.again and part.name in self.recorder.eval_tasks)
        )

    def _tell_memory(self, task: Task) -> None:
        """How many examples of each class are to come: what will not last need not be written."""
        counts: dict[int, int] = {}
        for part in task.parts:
            rows = self.heads.tasks[self.heads.number(part.name)].rows.tolist()
            of_each = torch.bincount(part.train.labels, minlength=len(rows)).tolist()
            for row, number in zip(rows, of_each, strict=True):
                counts[row] = counts.get(row, 0) + number * self.epochs
        self.memory.expect(counts)

    def _take_up(self, task: Task) -> None:
        """Give a new task its rows of the head and its place in memory and record."""
        for part in task.parts:
            if part.name in self.heads.names:
                remedy = (
                    "learn(task, more=True) for more data of its classes, or give it another name"
                )
                raise Mistake(f"task {part.name!r} was learned already: {remedy}")
            example = self.heads.shelf.inputs(part, "train", torch.arange(1))
            if self.network is None:
                self._build(example, len(part.classes))
            self.model.check_inputs(f"task {part.name!r}", example)
            # Refuses what is no image.
            augmentation.augment(self.augment, example, np.random.default_rng(0))
        if self.needs_two:
            refuse_single_examples(self.backbone, self.method.one_by_one, self.batch, task)
        with self.model.lock:  # predictions from other threads see all of it or nothing
            for part in task.parts:
                before = self.model.flat.numel()
                self.heads.claim(part, self.model)
                if self.model.flat.numel() > before:
                    self.method.grow()
                    self.optimiser.grow(before)
        self.recorder.begin_task(task)
        self._begin(task)

    def _take_up_again(self, task: Task) -> None:
        """More data of a task that has its rows: it gets new room in the memory, which `_close`
        evens out.
        """
        self.model.check_inputs(f"task {task.name!r}", task.inputs("train", torch.arange(1)))
        if self.needs_two:
            refuse_single_examples(self.backbone, self.method.one_by_one, self.batch, task)
        self.recorder.continue_task(self.heads.number(task.name), len(task.train))
        self.again = True
        self._begin(task)

    def _begin(self, task: Task) -> None:
        self.task = task
        self.task_name = task.name
        self.step_in_task = 0
        self.memory.open_task(self.current, self.heads.tasks[self.current].rows)
        self.method.begin_task()

    def _build(self, example: Tensor, classes: int, channels_last: bool | None = None) -> None:
        """Make the model for inputs like this one, with room for so many classes when the stream
        did not say.
        """
        self.heads.kind = self.heads.kind or "per-task"
        scale = self.normalisation.scale
        if scale is None:
            scale = 1 / 255 if example.dtype == torch.uint8 else 1.0
        features = count_features(self.backbone, example)
        self.needs_two = needs_two(self.backbone, example)
        self.network = Model(
            self.backbone,
            features,
            self.heads.outputs or classes,
            cosine=self.method.cosine,
            scale=scale,
            mean=self.normalisation.mean,
            seed=self.seed,
            device=self.device,
            precision=self.precision,
            channels_last=channels_last,
            example=example,
        )
        self.optimiser.bind(self.network.flat)
        self.method.bind(self)

    def _follow(self, stream: Stream) -> None:
        """Take from a stream what was not said when the learner was made."""
        self.heads.kind = self.heads.kind or stream.heads
        self.heads.outputs = self.heads.outputs or stream.outputs
        self.recorder.per_class = stream.per_class
        if self.normalisation.scale is None:
            self.normalisation.scale = stream.scale
        if self.normalisation.mean is None:
            self.normalisation.mean = stream.mean

    def _close(self, task: Task) -> None:
        """All mini-batches were learned: the method looks back, and the memory keeps what it
        wants.
        """
        with self.recorder.clock(), self.model.lock:
            self.recorder.read_pending()
            self.method.end_task()
            self._check_losses()
            if self.method.uses_memory:
                labels = self.heads.tasks[self.current].rows[task.train.labels]
                self.memory.close_task(
                    labels, lambda index: self.with_features(self.read(task, index))
                )
                if self.again:
                    self.memory.trim_task(self.current)
        self.task_name = None
        self.again = False

    @contextmanager
    def _learning(self, task: Task) -> Iterator[None]:
        """Training mode, and torch's global generator is ours; afterwards it is the caller's
        again.
        """
        self.task = task
        with self.randomness.drawn(), self.model.training():
            try:
                yield
            finally:
                self.task = None

    def _check_losses(self) -> None:
        losses = torch.stack(self.losses).tolist() if self.losses else []
        self.losses = []
        if not all(map(math.isfinite, losses)):
            self._stop("loss", self.step_in_task)

    def _stop(self, what: str, step: int) -> NoReturn:
        saved = f"; the last good state is {self.last_checkpoint}" if self.last_checkpoint else ""
        strength = getattr(self.method, "strength", 0)  # of a penalty: too strong a pull overshoots
        smaller, values = (" or strength", f", strength={strength}") if strength else ("", "")
        raise FloatingPointError(
            f"task {self.task_name!r}, step {step}: the {what} is not finite; "
            f"a smaller learning rate{smaller} may help (lr={self.optimiser.lr}{values}){saved}"
        )


def _both(show: OnStep, on_step: OnStep | None) -> OnStep:
    """Show the progress, then call the user's function."""

    def after_step(learner: Learner) -> None:
        show(learner)
        if on_step is not None:
            on_step(learner)

    return after_step
