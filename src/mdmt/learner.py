"""Algorithm 1: the one training loop."""

from __future__ import annotations

import copy
import dataclasses
import math
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import mdmt.backbones as backbones
import mdmt.inputs.augment as augmentation
import mdmt.learning.arguments as arguments
import mdmt.learning.checkpoints as checkpoints
import mdmt.learning.gate as gate
import mdmt.ranks as ranks
from mdmt.errors import Mistake
from mdmt.inputs.arrays import read_mean, read_scale
from mdmt.learning.checkpoints import Checkpoints
from mdmt.learning.order import Order, Repeat, repeats_of, steps_in_epoch
from mdmt.learning.progress import share_done, step_bar
from mdmt.learning.randomness import Purpose, Randomness, generator
from mdmt.learning.reader import Reader
from mdmt.learning.recorder import Recorder
from mdmt.memory import Memory, Read
from mdmt.methods.base import Method, Rehearsal
from mdmt.network.batch_norm import (
    has_batch_norm,
    min_batch,
    refuse_single_examples,
    retake_statistics,
    running_statistics,
)
from mdmt.network.by_hand import gradients_for
from mdmt.network.gradients import Gradients
from mdmt.network.heads import Heads, LearnedTask
from mdmt.network.model import Model, Normalisation, count_features, normalisation_for
from mdmt.network.optimiser import Optimiser
from mdmt.network.predictor import Prediction, Predictor
from mdmt.runs.anytime import check_interval
from mdmt.runs.config import MAX_SEED
from mdmt.runs.record import Record
from mdmt.system.processes import Interrupts, interrupts_deferred
from mdmt.tasks import Batch, HeadKind, Stream, Task, TaskOrder
from mdmt.words import call_text, count

OnStep = Callable[["Learner"], None]
STATISTICS_EXAMPLES = 1024  # from which batch norm's statistics are taken anew
STATISTICS_BATCH = 64
Accuracies = tuple[float, float]  # with the task given, and with all seen heads competing


class Learner:
    """A network that learns task after task.

    backbone
        any `torch.nn.Module` that maps inputs to feature vectors, such as `mdmt.backbones.mlp(784)`
    method
        how it learns: `mdmt.ER(reference_batch=64)`, or a class or name ("er") with its default
        settings; None: MDMT-R
    memory
        the examples kept of earlier tasks: `mdmt.memory.Ring(per_class=25)` (the default),
        `Reservoir(size)`, `AtTaskEnd(per_class)`
    lr, batch, epochs
        learning rate, examples in a mini-batch, passes over each task
    optimiser, optimiser_arguments
        the name of a class of `torch.optim`, and its arguments besides the learning rate
    heads
        "per-task": each task has its own classes; "shared": one head, where equal labels are one
        class
    outputs
        the number of classes of all tasks, if known; the head grows by itself
    scale, mean
        applied to every input: x * scale - mean; None: pixels (uint8) are divided by 255, floats
        stay
    per_class
        whether accuracy is the mean of the classes' accuracies
    augment
        "crop-flip" shifts and mirrors images at random, anew each time
    balance
        whether classes with under a fifth of the largest class's examples come as often as that
        one, a last mini-batch that is less than half full joins the one before it, and batch norm's
        statistics are taken anew from stored examples at a task's end
    seed
        decides the first weights, the order of examples and the memory's draws: same seed, same
        bits
    device
        "cpu", "cuda", "cuda:1", "mps", "xpu"; "auto" is an accelerator if there is one
    precision
        "fp32", or "bf16": matrix products in bfloat16; weights, losses and updates stay float32

    Backbone, method and memory belong to one learner: another one refuses them. `run` takes heads,
    outputs, scale, mean and per_class from its stream unless they were given.
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
        mean: Any = None,
        per_class: bool | None = None,
        augment: str = "none",
        balance: bool = False,
        seed: int = 1234,
        device: str = "cpu",
        precision: str = "fp32",
    ) -> None:
        self.backbone = arguments.backbone_of(backbone)
        self.method = arguments.method_of(method)
        self.memory = arguments.memory_of(memory)
        self.seed = arguments.whole_number("seed", seed, least=0, most=MAX_SEED)
        self.device = arguments.device_of(device)
        self.precision = arguments.precision_of(precision, self.device)
        self.augment = augmentation.check_augmentation(augment)
        self.optimiser = Optimiser(optimiser, lr, optimiser_arguments)
        self.batch = arguments.whole_number("batch", batch)
        self.epochs = arguments.whole_number("epochs", epochs)
        self.balance = balance
        outputs = arguments.whole_number("outputs", outputs, least=0)
        self.heads = Heads(heads, outputs, self.device)
        self.normalisation = Normalisation(read_scale(scale), read_mean(mean))
        self.per_class = per_class
        self.reader = Reader(self.heads, self.device)
        self.recorder = Recorder(
            self.reader, stop=self._stop, batch=self.batch, per_class=bool(per_class)
        )
        self.first_order: TaskOrder | None = None  # of a task's examples, if a stream has one
        self.randomness = Randomness(seed, self.device)  # for a user's dropout
        self.network: Model | None = None  # built for the first task
        self.gradients: Gradients  # likewise
        self.min_batch = 1  # the smallest mini-batch that the network can train on
        self.task: Task | None = None  # the task being learned
        self.task_name: str | None = None  # its name, also after an interruption
        self.is_more_data = False  # whether it is more data of a task learned before
        self.step_in_task = 0  # steps of that task that are over
        self.is_closed = False  # whether method and memory have closed it; evaluation is left
        self.is_halfway = False  # whether an error came in the middle of a step
        self.last_checkpoint = ""  # its position and folder, in words
        arguments.own(self, backbone=self.backbone, method=self.method, memory=self.memory)
        self.memory.generator = generator(seed, Purpose.MEMORY)
        self.memory.device = self.device
        self.memory.augment = self.augment

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

        With `more`, the task is one that was learned, and these are more data of its classes.
        Ctrl-C interrupts after the current step, a second one at once. Call it with the same task
        then: it goes on where it stopped. `on_step` is called after every step. With a `checkpoint`
        folder the state is written there now and then; after a crash, `Learner.load` it and learn
        on. A loaded learner has no test examples: pass those of the tasks it knows as `earlier`.
        `progress` shows a bar on stderr. A task may be given as (name, x, y), or as
        (name, x, y, (x, y)) with a pair to test on.
        """
        task = arguments.task_of(task)
        folder = Checkpoints(checkpoint) if isinstance(checkpoint, (str, Path)) else checkpoint
        if more or (self.is_more_data and task.name == self.task_name):
            task = self.heads.match_classes(task)
        with interrupts_deferred() as interrupts:
            self._open(task, earlier, more)
            if not self.is_closed:
                self._announce(task)
                with step_bar(task.name, shown=progress and ranks.rank() == 0) as show:
                    self._learn(task, folder, (show, on_step), interrupts)
            self._finish(task, folder, interrupts)

    def _learn(
        self,
        task: Task,
        folder: Checkpoints | None,
        observers: Iterable[OnStep | None],
        interrupts: Interrupts,
    ) -> None:
        """Learn the mini-batches of a task that are left, then let method and memory close it."""
        last = self.steps_of(task)
        steps = range(self.step_in_task, last)
        with self._learning(task) as model:
            for batch in self.reader.batches(task, self._order(task), steps):
                self.recorder.before_step(task, self.step_in_task, model)
                self.recorder.along_the_way(self.step_in_task, model, interrupts.check)
                self.is_halfway = True
                self.step(batch)
                self.step_in_task += 1
                self.recorder.after_step(self.step_in_task, last)
                self.is_halfway = False
                if folder is not None:
                    folder.after_step(self, self.record.steps)
                for observe in observers:
                    if observe is not None:
                        observe(self)
                if interrupts.requested:
                    interrupts.check()
            self.recorder.before_step(task, self.step_in_task, model)
            self.is_halfway = True
            self._close(task)
            self.is_halfway = False

    def _finish(self, task: Task, folder: Checkpoints | None, interrupts: Interrupts) -> None:
        """Evaluate, and write the last checkpoint; if that fails, the task stays open for it."""
        self.recorder.after_task(
            self.model, self.memory, self.method.buffer_bytes, interrupts.check
        )
        ranks.check_equal("weights", self.record.weights_sha256)
        is_more_data = self.is_more_data
        self._set_position(None)
        try:
            if folder is not None:
                folder.write(self)
            interrupts.check()
        except BaseException:
            self._set_position(task.name, is_more_data=is_more_data, is_closed=True)
            raise

    def _set_position(
        self, name: str | None, *, is_more_data: bool = False, is_closed: bool = False
    ) -> None:
        self.task_name = name
        self.is_more_data = is_more_data
        self.is_closed = is_closed

    def _order(self, task: Task) -> Order:
        return Order(
            self.seed,
            self.current,
            task.size,
            self.batch,
            self._smallest_batch,
            self.is_more_data,
            self._repeats(task),
            self.first_order,
        )

    @property
    def _smallest_batch(self) -> int:
        """A smaller last mini-batch of an epoch joins the one before it.

        With `balance` that is half a batch: batch norm takes the statistics of two or three
        examples for those of all, and the answers right after such a step are wrong.
        """
        return max(self.min_batch, self.batch // 2) if self.balance else self.min_batch

    def _repeats(self, task: Task) -> tuple[Repeat, ...]:
        if not self.balance:
            return ()
        classes: dict[Hashable, int] = {}
        labels = []
        for part in task.parts:
            numbers = [classes.setdefault(c, len(classes)) for c in part.classes]
            labels.append(torch.tensor(numbers)[part.train.labels])
        return repeats_of(torch.cat(labels))

    def step(self, batch: Batch) -> None:
        """One step of Algorithm 1: learn the mini-batch, then show it to the memory."""
        assert self.network is not None
        self.gradients.losses.clear()
        with self.recorder.clock(), self.network.lock:
            self._set_length()
            for repeat in range(self.method.repeats):
                seen = batch if self.augment == "none" else self._augmented(batch, repeat)
                self.method.step(seen)
                self.method.move_average(self.step_in_task)
            if self.method.uses_memory and self.memory.observes:
                self.memory.observe(batch, self.with_features)
            self.method.after_step(seen)

    def _set_length(self) -> None:
        """Lengthen steps at the beginning of a task, and shorten them to its end."""
        last, warm_up = self.method.last_step, self.method.warm_up
        share = 1.0 if last == 1 else 1 - (1 - last) * self.share_of_task
        rise = (self.step_in_task + 1) / warm_up if self.step_in_task < warm_up else 1.0
        self.optimiser.share = share * rise

    def apply(self, gradient: Tensor) -> None:
        """One step of the optimiser; losses or gradients that are not finite stop the learning."""
        self.recorder.check_update(self.step_in_task, self.gradients.losses, gradient)
        self.gradients.losses.clear()
        self.optimiser.step(gradient)

    def run(
        self,
        stream: Stream | Sequence[Task],
        *,
        on_step: OnStep | None = None,
        checkpoint: str | Path | Checkpoints | None = None,
        evaluate_every: int = 0,
    ) -> Record:
        """Learn every task of a stream, or list, that was not learned yet; returns the record.

        With `evaluate_every`, the tasks so far are evaluated every so many steps of a task, and
        before and after it: see `Record.anytime`. It changes nothing that is learned.
        """
        stream = self.method.arrange(arguments.stream_of(stream, self.heads.kind))
        if self.network is None:
            self._follow(stream)
        self.first_order = stream.order
        learned = set(self.heads.names) - {self.task_name}
        parts = [part for task in stream for part in task.parts]
        tested = [part for part in parts if stream.evaluate == "all" or part.name in learned]
        self.recorder.add_eval_tasks(tested)
        check_interval(evaluate_every, [(self.steps_of(task), len(task.parts)) for task in stream])
        self.recorder.begin_stream(parts, evaluate_every)
        try:
            for task in stream:
                names = {part.name for part in task.parts}
                if task.name == self.task_name or not names <= learned:
                    self.learn(task, on_step=on_step, checkpoint=checkpoint)
        finally:
            self.recorder.end_stream()
        return self.record

    # What a learner knows.

    def __repr__(self) -> str:
        name = getattr(self.backbone, "spec", {"name": type(self.backbone).__name__})["name"]
        size = {key: value for key, value in self.memory.spec.items() if key != "policy"}
        parts = [
            name,
            call_text(self.method, self.method.arguments),
            call_text(self.memory, size),
            f"lr={self.optimiser.lr}",
            f"batch={self.batch}",
            f"epochs={self.epochs}",
        ]
        classes = [count("class", len(task.classes), "classes") for task in self.tasks]
        names = [
            f"{task.name!r} ({number})" for task, number in zip(self.tasks, classes, strict=True)
        ]
        learned = f"learned {', '.join(names)}; {count('step', self.record.steps)}"
        return f"Learner({', '.join(parts)}): {learned if names else 'nothing learned yet'}"

    def fresh(self, backbone: nn.Module | None, memory: Memory) -> Learner:
        """A learner with the same settings that has learned nothing.

        Without a backbone it gets a new one of the same kind, which must be one of mdmt's.
        """
        spec = backbones.spec_of(self.backbone)
        if backbone is None:
            if spec is None:
                raise Mistake("pass a backbone: this learner's is not one of mdmt's networks")
            backbone = backbones.make(spec)
        settings = {**self._settings(), "mean": self.normalisation.mean, "device": str(self.device)}
        method = type(self.method)(**self.method.arguments)
        return type(self)(backbone, method, memory=memory, **settings)

    def __deepcopy__(self, memo: dict[int, Any]) -> Learner:
        """An independent learner with the same state; test examples are shared, not copied."""
        twin = self.fresh(copy.deepcopy(self.backbone, memo), copy.deepcopy(self.memory, memo))
        if self.network is not None:
            states = {name: part.state() for name, part in self.parts().items()}
            own = (self.state()[0], {**self.state()[1], **states["model"][1]})
            twin._restore(copy.deepcopy({"learner": own, **states}, memo))
        twin.recorder.eval_tasks = dict(self.recorder.eval_tasks)
        return twin

    @property
    def record(self) -> Record:
        """The measurements so far."""
        return self.recorder.record

    @property
    def tasks(self) -> list[LearnedTask]:
        """The tasks learned so far, with the one being learned."""
        return self.heads.tasks

    @property
    def current(self) -> int:
        """The number of the task being learned, or of the last one; from 0."""
        if self.is_more_data and self.task_name is not None:
            return self.heads.number(self.task_name)
        return len(self.heads.tasks) - 1

    @property
    def model(self) -> Model:
        """The network, which is built for the first task."""
        if self.network is None:
            raise Mistake("this learner has not learned anything yet: call learn(task) first")
        return self.network

    @property
    def position_text(self) -> str:
        """The current task and step, in words."""
        if not self.heads.tasks:
            return "the start"
        return f"task {self.heads.names[self.current]!r}, step {self.step_in_task}"

    @property
    def share_of_task(self) -> float:
        """The share of the current task that is over."""
        return 0.0 if self.task is None else self.step_in_task / self.steps_of(self.task)

    def steps_of(self, task: Task) -> int:
        """The number of steps that a task takes."""
        size = task.size + sum(repeat.times for repeat in self._repeats(task))
        return self.epochs * steps_in_epoch(size, self.batch, min_batch=self._smallest_batch)

    # Answers.

    @property
    def predictor(self) -> Predictor:
        """What answers for this learner."""
        scale = getattr(self.method, "scale", 1.0) if self.model.cosine else 1.0
        return Predictor(self.model, scale=scale)

    def predict(self, x: Any, task: str | None = None) -> list[Hashable]:
        """The class of each input, among those of a task, or of all tasks if none is given."""
        return self.predictor.predict(x, task)

    def predict_proba(self, x: Any, task: str | None = None) -> NDArray[np.float32]:
        """The probability of each class for each input, a column for each of `classes(task)`.

        It is a softmax over the scores: an order of confidence, not a calibrated frequency.
        """
        return self.predictor.predict_proba(x, task)

    def predict_with_task(self, x: Any, task: str | None = None) -> list[Prediction]:
        """The class of each input, with its task and its probability."""
        return self.predictor.predict_with_task(x, task)

    def classes(self, task: str | None = None) -> list[tuple[str | None, Hashable]]:
        """The (task, class) pairs that compete; a class that tasks share has the task None."""
        return self.predictor.classes(task)

    def features(self, x: Any) -> Tensor:
        """The feature vector of each input."""
        return self.predictor.features(x)

    def evaluate(
        self, task: Task | str | None = None
    ) -> Accuracies | dict[str, Accuracies | None] | None:
        """Accuracy on test examples, with the task given and with all seen heads competing.

        A task may be given by its name if its test examples are known. Without one, the answer has
        every such task by its name. The accuracy is None if a task has no test examples.
        """
        if task is None:
            tests = self.recorder.eval_tasks
            return {name: self.recorder.accuracies(one, self.model) for name, one in tests.items()}
        if isinstance(task, str):
            return self.recorder.accuracies(self._eval_task(task), self.model)
        if task.test is not None and len(task.test):
            example = task.inputs("test", torch.arange(1))
            self.model.check_inputs(f"task {task.name!r}", example)
        return self.recorder.accuracies(task, self.model)

    def _eval_task(self, name: str) -> Task:
        self.heads.number(name)
        if name not in self.recorder.eval_tasks:
            raise Mistake(
                f"the test examples of task {name!r} are not known: pass the task itself, or hand"
                " them over with learn(..., earlier=[task])"
            )
        return self.recorder.eval_tasks[name]

    # Forgetting.

    def forget(self, classes: Iterable[Hashable], task: str | None = None) -> None:
        """Forget classes: their rows of the head, and the stored examples.

        With a `task`, only that task's classes, which have rows of their own if every task has a
        head. Weights that the classes share with others stay as they are.
        """
        if self.task_name is not None:
            raise Mistake(f"task {self.task_name!r} was interrupted: learn it to its end first")
        model = self.model
        with model.lock:
            rows = self.heads.release(list(classes), task)
            self.memory.remove(self.memory.slots_of(rows))
            self.method.release(model.positions(rows), rows)
            self.optimiser.release(model.positions(rows), model.flat.numel())
            model.redraw(rows)
        self.recorder.forget(self.heads.tasks)
        self.record.weights_sha256 = model.sha256()

    # Reading examples.

    def read(self, task: Task, index: Tensor) -> Batch:
        """Some training examples of a task; in a pool, indices run through its tasks in order."""
        return self.reader.batch(task, index)

    def sample_of_task(self, count: int) -> Tensor:
        """Indices of some training examples of the current task, always the same ones."""
        assert self.task is not None
        order = generator(self.seed, Purpose.SAMPLE, self.current).permutation(self.task.size)
        return torch.from_numpy(order[:count])

    def with_features(self, batch: Batch) -> Batch:
        """The batch with its representations F, if the method stores them."""
        if not self.method.stores_features:
            return batch
        with torch.no_grad():
            return dataclasses.replace(batch, features=self.method.represent(batch))

    def _augmented(self, batch: Batch, repeat: int) -> Batch:
        """Shift and mirror images by draws that depend on seed, task, step and repeat alone."""
        purpose = Purpose.AUGMENT_MORE if self.is_more_data else Purpose.AUGMENT
        numbers = (self.current, self.step_in_task, *((repeat,) if repeat else ()))
        draws = generator(self.seed, purpose, *numbers)
        inputs = augmentation.augment(self.augment, batch.inputs, draws)
        return dataclasses.replace(batch, inputs=inputs)

    # Saving.

    def save(self, folder: str | Path) -> None:
        """Save weights, statistics, method, memory, record and position, whole or not at all."""
        self.recorder.read_pending()
        checkpoints.save(self, folder)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        backbone: nn.Module | None = None,
        method: Method | None = None,
        memory: Memory | None = None,
        device: str = "cpu",
        precision: str | None = None,
        warn: Callable[[str], None] | None = None,
    ) -> Learner:
        """Load what `save` or a checkpoint wrote.

        Pass a backbone, method or memory whose class is not one of mdmt's. The learner may go to
        another device, and to another `precision` than it had (None: the same). `warn` is called
        with a line if the last checkpoint is damaged and the one before it is used.
        """
        states = ranks.first(lambda: checkpoints.read(folder, warn))
        learner = cls.from_states(
            folder,
            states,
            backbone=backbone,
            method=method,
            memory=memory,
            device=device,
            precision=precision,
        )
        learner.last_checkpoint = f"that of {learner.position_text}, in {folder}"
        return learner

    @classmethod
    def from_states(
        cls,
        folder: str | Path,
        states: Mapping[str, checkpoints.PartState],
        *,
        backbone: nn.Module | None = None,
        method: Method | None = None,
        memory: Memory | None = None,
        device: str = "cpu",
        precision: str | None = None,
    ) -> Learner:
        """Make a learner from the states of its parts; messages name the folder they are from."""
        about = states["learner"][1]
        settings = {name: value for name, value in about["learner"].items() if name != "compile"}
        if precision is not None:
            settings["precision"] = precision
        with checkpoints.naming(folder):
            learner = cls(
                arguments.saved_backbone(folder, about, states["model"][0], backbone),
                arguments.saved_method(folder, states["method"][1], method),
                memory=arguments.saved_memory(folder, about["memory"], memory),
                mean=states["learner"][0].get("mean"),
                device=device,
                **settings,
            )
            gate.check_examples(states, learner.method)
            learner._restore(states)
        return learner

    def parts(self) -> Mapping[str, checkpoints.Part]:
        """The parts that have state of their own; a checkpoint asks each of them."""
        return {
            "model": self.model,
            "heads": self.heads,
            "method": self.method,
            "optimiser": self.optimiser,
            "memory": self.memory,
            "recorder": self.recorder,
        }

    def state(self) -> checkpoints.PartState:
        """The learner's own state: settings, position, random state."""
        tensors = self.randomness.state()
        if self.normalisation.mean is not None:
            tensors = {**tensors, "mean": self.normalisation.mean}
        about: dict[str, Any] = {"backbone": backbones.spec_of(self.backbone)}
        if about["backbone"] is None:
            about["backbone_class"] = arguments.class_path(self.backbone)
        about |= {
            "learner": self._settings(),
            "open": self.task_name,
            "more": self.is_more_data,
            "done": self.step_in_task,
            **self._stream_state(),
            **({"closed": True} if self.is_closed else {}),
            **({"halfway": True} if self.is_halfway else {}),
        }
        return tensors, about

    def _stream_state(self) -> dict[str, Any]:
        """The progress of a stream, for those who read the checkpoint of a run that goes on."""
        length = self.recorder.stream_length
        return {"stream": {"tasks": length, "done": share_done(self)}} if length else {}

    def _settings(self) -> dict[str, Any]:
        """The arguments to make this learner again, besides its parts."""
        return {
            "lr": self.optimiser.lr,
            "batch": self.batch,
            "epochs": self.epochs,
            "optimiser": self.optimiser.name,
            "optimiser_arguments": self.optimiser.arguments,
            "heads": self.heads.kind,
            "outputs": self.heads.declared,
            "scale": self.normalisation.scale,
            "per_class": self.recorder.per_class,
            "augment": self.augment,
            "balance": self.balance,
            "seed": self.seed,
            "precision": self.precision,
        }

    def _restore(self, states: Mapping[str, checkpoints.PartState]) -> None:
        """Put a fresh learner where the saved one was."""
        tensors, about = states["learner"]
        shape, kind = about["input"]
        dtype = getattr(torch, kind.removeprefix("torch."))
        example = torch.empty(1, *shape, dtype=dtype, device=self.device)
        self._build(example, 1, channels_last=about["channels_last"])
        for name, part in self.parts().items():
            part.load_state(*states[name])
        self.randomness.load_state(tensors)
        self.task_name = about["open"]
        self.is_more_data = about.get("more", False)
        self.step_in_task = about["done"]
        self.is_closed = about.get("closed", False)
        self.is_halfway = about.get("halfway", False)

    def check_weights(self) -> None:
        """Stop if a weight or a statistic of batch norm is not finite."""
        self.recorder.read_pending()
        if not math.isfinite(self.model.flat.detach().sum().item()):
            self._stop("sum of the weights", self.step_in_task)
        for name, value in running_statistics(self.backbone):
            if not value.isfinite().all():
                self._stop(f"{name} of batch norm", self.step_in_task)

    # Opening a task, and closing it.

    def _open(self, task: Task, earlier: Iterable[Task] = (), more: bool = False) -> None:
        """Open a task, or an interrupted one again; a refused task changes nothing."""
        tested = list(earlier)
        for old in tested:
            self.heads.number(old.name)
        if self.task_name is None and more:
            self._open_more_data(task)
        elif self.task_name is None:
            self._open_new(task)
        elif self.task_name != task.name:
            raise Mistake(
                f"task {self.task_name!r} was interrupted at step {self.step_in_task}: learn it to"
                f" its end before {task.name!r}"
            )
        else:
            self._check_same_size(task)
        if self.is_halfway:
            self._warn_of_half_step()
        known = self.recorder.eval_tasks if self.is_more_data else {}
        self.recorder.add_eval_tasks(tested)
        self.recorder.add_eval_tasks(part for part in task.parts if part.name not in known)
        self._warn_of_unknown_tests()

    def _check_same_size(self, task: Task) -> None:
        """Refuse to go on with an interrupted task whose number of examples is another one now."""
        for part in () if self.is_more_data else task.parts:
            begun = self.record.tasks[self.heads.number(part.name)]["train"]
            if begun is not None and begun != len(part.train):
                raise Mistake(
                    f"task {part.name!r} was interrupted at step {self.step_in_task} with"
                    f" {count('training example', begun)}, and now has {len(part.train)}: go on"
                    " with the same data"
                )

    def _warn_of_unknown_tests(self) -> None:
        names = self.recorder.unknown_tests
        if names:
            others = f" and {len(names) - 3} more" if len(names) > 3 else ""
            warnings.warn(
                f"the test examples of {', '.join(map(repr, names[:3]))}{others} are not known,"
                " since they are not saved: what was forgotten will not be measured; hand them over"
                " with learn(..., earlier=[task, ...])",
                stacklevel=4,
            )

    def _warn_of_half_step(self) -> None:
        remedy = "learn from a new learner on"
        if self.last_checkpoint:
            remedy = f"load the last checkpoint, {self.last_checkpoint}"
        warnings.warn(
            f"an error stopped {self.position_text} halfway, and part of its update was made: the"
            f" result will differ from that of an uninterrupted run; to avoid this, {remedy}",
            stacklevel=4,
        )
        self.is_halfway = False

    def _announce(self, task: Task) -> None:
        """Announce to the memory how many examples of each class the task has."""
        counts: dict[int, int] = {}
        for part in task.parts:
            rows = self.heads.tasks[self.heads.number(part.name)].rows.tolist()
            of_each = torch.bincount(part.train.labels, minlength=len(rows)).tolist()
            for row, number in zip(rows, of_each, strict=True):
                counts[row] = counts.get(row, 0) + number * self.epochs
        self.memory.announce(counts)

    def _open_new(self, task: Task) -> None:
        """Give a new task its rows of the head and its place in memory and record."""
        for part in task.parts:
            if part.name in self.heads.names:
                raise Mistake(
                    f"task {part.name!r} was learned already: use learn(task, more=True) for more"
                    " data of its classes, or give it another name"
                )
            example = self.reader.inputs(part, "train", torch.arange(1))
            if self.method.mirror:
                augmentation.check_images("mirror=True", example)
            if self.network is None:
                self._build(example, len(part.classes))
            self.model.check_inputs(f"task {part.name!r}", example)
            # Refuses inputs that are no images.
            augmentation.augment(self.augment, example, np.random.default_rng(0))
        self._refuse_single_examples(task)
        with self.model.lock:  # predictions from other threads see all of it or nothing
            for part in task.parts:
                before = self.model.flat.numel()
                self.heads.claim(part, self.model)
                if self.model.flat.numel() > before:
                    self.method.grow()
                    self.optimiser.grow(before)
        self.recorder.begin_task(task)
        self._begin(task)

    def _open_more_data(self, task: Task) -> None:
        """Open more data of a learned task: new room in the memory, which `_close` evens out."""
        example = task.inputs("train", torch.arange(1))
        self.model.check_inputs(f"task {task.name!r}", example)
        self._refuse_single_examples(task)
        self.recorder.continue_task(self.heads.number(task.name), len(task.train))
        self.is_more_data = True
        self._begin(task)

    def _refuse_single_examples(self, task: Task) -> None:
        if self.min_batch > 1:
            refuse_single_examples(self.backbone, self.method.one_by_one, self.batch, task)

    def _begin(self, task: Task) -> None:
        self.task = task
        self.task_name = task.name
        self.step_in_task = 0
        self.memory.open_task(self.current, torch.cat([self._rows(part) for part in task.parts]))
        if self.record.steps == 0:
            self.method.begin_average()
        elif not self.is_more_data:
            self.method.extend_average(self._new_rows(task))
        self.method.drop_means()
        if self.method.uses_memory and self.memory.chooses_first:
            self.memory.choose_first(*self._examples_to_store(task))
        self.method.begin_task()

    def _new_rows(self, task: Task) -> Tensor:
        """The rows of the head that no task had before this one."""
        names = {part.name for part in task.parts}
        rows = torch.cat([self._rows(part) for part in task.parts])
        others = [one.rows for one in self.tasks if one.name not in names]
        return rows[~torch.isin(rows, torch.cat(others))] if others else rows

    def _rows(self, task: Task) -> Tensor:
        return self.heads.tasks[self.heads.number(task.name)].rows

    def _build(self, example: Tensor, classes: int, channels_last: bool | None = None) -> None:
        """Build the model for inputs like this one, with room for `classes` unless declared."""
        self.heads.kind = self.heads.kind or "per-task"
        self.heads.outputs = self.heads.declared or classes
        given = self.normalisation
        normalisation = normalisation_for(given.scale, given.mean, example)
        features = count_features(self.backbone, example)
        self.min_batch = min_batch(self.backbone, example)
        self.network = Model(
            self.backbone,
            features,
            self.heads,
            cosine=self.method.cosine,
            normalisation=normalisation,
            seed=self.seed,
            precision=self.precision,
            channels_last=channels_last,
            example=example,
        )
        self.gradients = gradients_for(self.network, self.method)
        self.optimiser.bind(self.network.flat)
        self.method.bind(self)

    def _follow(self, stream: Stream) -> None:
        """Take from a stream what was not given when the learner was made."""
        self.heads.kind = self.heads.kind or stream.heads
        self.heads.declared = self.heads.declared or stream.outputs
        self.recorder.per_class = stream.per_class if self.per_class is None else self.per_class
        if self.normalisation.scale is None:
            self.normalisation.scale = stream.scale
        if self.normalisation.mean is None:
            self.normalisation.mean = stream.mean

    def _close(self, task: Task) -> None:
        """All mini-batches were learned: the method looks back, and the memory keeps its share."""
        with self.recorder.clock(), self.model.lock:
            self.recorder.read_pending()
            self.method.end_task()
            self._check_losses()
            self.check_weights()
            if self.method.uses_memory:
                self.memory.close_task(*self._examples_to_store(task))
                if self.is_more_data:
                    self.memory.trim_task(self.current)
            if isinstance(self.method, Rehearsal) and self.method.review:
                self._review(self.method)
            if has_batch_norm(self.backbone):
                self._retake_statistics(task)
            self.method.take_means(self.memory)
        self.is_closed = True

    def _review(self, method: Rehearsal) -> None:
        """Learn all stored examples, as often as the method asks."""
        parts = [part for _ in range(method.review) for part in self.memory.shuffled(self.batch)]
        parts = [part for part in parts if len(part) >= self.min_batch]
        for number, part in enumerate(parts):
            self.optimiser.share = 1 - (1 - method.last_step) * number / len(parts)
            batch = self.memory.augmented(self.memory.take(part))
            self.apply(method.review_gradient(batch))
            method.move_average(self.step_in_task + number)
        self.check_weights()

    def _retake_statistics(self, task: Task) -> None:
        """Take batch norm's statistics from stored examples, if the learner or its method asks."""
        if self.method.statistics == "memory":
            self.method.retake_statistics(self._even_examples())
        elif self.balance:
            retake_statistics(self.model, self._examples_of_all_classes(task))

    def _even_examples(self) -> list[Tensor]:
        """Batches of about one size of stored examples, equally many of each class."""
        draws = generator(self.seed, Purpose.STATISTICS, self.record.steps)
        slots = self.memory.even_slots(STATISTICS_EXAMPLES, draws)
        if len(slots) < self.min_batch:
            return []
        parts = slots.tensor_split(math.ceil(len(slots) / STATISTICS_BATCH))
        return [self.memory.take(part).inputs for part in parts]

    def _examples_to_store(self, task: Task) -> tuple[Tensor, Read]:
        """The labels of a task's examples, and how to read some of them, for the memory."""
        labels = torch.cat([self._rows(part)[part.train.labels] for part in task.parts])
        return labels, lambda index: self.with_features(self.read(task, index))

    def _examples_of_all_classes(self, task: Task) -> list[Tensor]:
        """Batches of stored examples, which all classes share evenly; else some of the task's."""
        draws = generator(self.seed, Purpose.STATISTICS, self.record.steps)
        stored = len(self.memory) if self.method.uses_memory else 0
        order = torch.from_numpy(draws.permutation(stored or task.size)[:STATISTICS_EXAMPLES])
        parts = [part for part in order.split(STATISTICS_BATCH) if len(part) >= self.min_batch]
        if stored:
            return [self.memory.take(self.memory.available[part]).inputs for part in parts]
        return [self.read(task, part).inputs for part in parts]

    @contextmanager
    def _learning(self, task: Task) -> Iterator[Model]:
        """Training mode with the learner's own random numbers inside the block."""
        self.task = task
        with self.randomness.drawn(), self.model.training():
            try:
                yield self.model
            finally:
                self.task = None

    def _check_losses(self) -> None:
        """Stop if a loss that `apply` has not seen is not finite."""
        losses = [float(loss) for loss in self.gradients.losses]
        self.gradients.losses.clear()
        if not all(map(math.isfinite, losses)):
            self._stop("loss", self.step_in_task)

    def _stop(self, what: str, step: int) -> NoReturn:
        saved = f"; the last good state is {self.last_checkpoint}" if self.last_checkpoint else ""
        # Too strong a penalty overshoots.
        strength = getattr(self.method, "strength", 0)
        smaller, values = (" or strength", f", strength={strength}") if strength else ("", "")
        raise FloatingPointError(
            f"task {self.task_name!r}, step {step}: the {what} is not finite; a smaller learning"
            f" rate{smaller} may help (lr={self.optimiser.lr}{values}){saved}"
        )
