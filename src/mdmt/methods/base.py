"""The base class of all methods: hooks to override, and functions to call."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Protocol, dataclass_transform

from torch import Tensor
from torch.nn import functional

from mdmt.errors import Mistake
from mdmt.losses import NEVER, cross_domain_softmax
from mdmt.memory import Memory
from mdmt.methods.answering import Answering
from mdmt.methods.buffers import Buffer as Buffer
from mdmt.methods.settings import setting as setting
from mdmt.network.by_hand import cross_entropy_slopes
from mdmt.network.gradients import Gradients, Slopes
from mdmt.network.heads import Heads, LearnedTask
from mdmt.network.model import Model
from mdmt.network.optimiser import Optimiser
from mdmt.tasks import Batch, Stream, Task

TINY = 1e-30  # keeps a quotient finite if its denominator is 0


class Host(Protocol):
    """The part of a learner that its method may use."""

    heads: Heads
    memory: Memory
    optimiser: Optimiser
    gradients: Gradients
    task: Task | None
    step_in_task: int  # the number of the current step in the task, from 0

    @property
    def model(self) -> Model:
        """The network that is learning."""

    @property
    def current(self) -> int:
        """The number of the task being learned, from 0."""

    @property
    def tasks(self) -> list[LearnedTask]:
        """The tasks learned so far, including the current one."""

    def apply(self, gradient: Tensor) -> None:
        """Let the optimiser take one step against a gradient."""

    def read(self, task: Task, index: Tensor) -> Batch:
        """Some of a task's training examples as a batch."""

    def sample_of_task(self, count: int) -> Tensor:
        """Indices of `count` random training examples of the current task, fixed by the seed."""


class Declarations:
    """Facts about a method, which its class declares."""

    name = ""  # in tables
    kind = ""  # rehearsal, regularisation or bound
    source = ""  # authors and year
    uses_memory = False
    stores_features = False  # whether the memory stores the output of `represent`
    cosine = False  # whether the head scores by cosines
    one_by_one = False  # whether it passes single examples through the network
    policy = ""  # the memory policy to use instead of the benchmark's
    repeats = 1  # how often each mini-batch is learned in a row
    smoothing = 0.0  # the share of a label that the classes that compete have evenly
    learns_at_task_end = False  # whether `end_task` trains the network, and `step` need not


@dataclass_transform(kw_only_default=True, field_specifiers=(setting,))
class Method(Declarations, Answering):
    """Turns the current mini-batch and the memory into an update of the parameters.

    Annotated class attributes are settings: keyword arguments, checked when the method is made.
    `Buffer` attributes are tensors that it remembers. A subclass overrides the hooks that it needs.
    `learner`, `model` and `memory` are set when a learner takes the method.
    """

    learner: Host
    memory: Memory

    def __init_subclass__(cls) -> None:
        dataclasses.dataclass(kw_only=True, eq=False)(cls)
        if "loss" in vars(cls) and "slopes" not in vars(cls):
            cls.slopes = None  # the base class's slopes belong to another loss

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, from_memory in (("statistics", "memory"), ("answer", "ncm")):
            if getattr(self, name) == from_memory and not self.uses_memory:
                raise Mistake(
                    f"{type(self).__name__}: {name}={from_memory!r}: this method stores no examples"
                )

    # Hooks: a subclass overrides those it needs.

    def loss(self, features: Tensor, batch: Batch) -> Tensor:
        """The loss of each sample; here cross entropy among the classes of its own head."""
        scores = self.model.scores(features)
        if self.model.heads.has_one_head:
            return functional.cross_entropy(
                scores, batch.labels, reduction="none", label_smoothing=self.smoothing
            )
        return cross_domain_softmax(
            scores,
            batch.labels,
            self.heads(batch),
            self.model.head_of_class,
            competitors="own",
            smoothing=self.smoothing,
            reduction="none",
        )

    def _cross_entropy_slopes(
        self, features: Tensor, scores: Tensor, batch: Batch, weights: Tensor
    ) -> Slopes:
        """The derivatives of `loss`, for networks whose backward pass is written out."""
        if not self.model.heads.has_one_head:
            other = self.model.head_of_class != self.heads(batch)[:, None]
            scores = scores.masked_fill(other, NEVER)
        return cross_entropy_slopes(scores, batch.labels, weights, self.smoothing)

    # `loss` with its derivatives, weighted by sample; None: autograd computes them.
    slopes: Callable[..., Slopes] | None = _cross_entropy_slopes

    def represent(self, batch: Batch) -> Tensor:
        """The representations F that the memory stores, one row per example; here the features."""
        return self.model.embed(batch.inputs)

    def gradient(self, batch: Batch) -> Tensor:
        """The direction to step against."""
        return self.grad(batch)[1]

    def step(self, batch: Batch) -> None:
        """Learn a mini-batch; here with one step of the optimiser."""
        self.learner.apply(self.gradient(batch))

    def arrange(self, stream: Stream) -> Stream:
        """The stream as this method learns it."""
        return stream

    def begin_task(self) -> None:
        """Called before a new task is learned; the head already has its rows."""

    def after_step(self, batch: Batch) -> None:
        """Called after a mini-batch was learned and written to the memory."""

    def end_task(self) -> None:
        """Called after the last mini-batch of a task."""

    # What a method may call.

    @property
    def task(self) -> Task:
        """The task being learned."""
        assert self.learner.task is not None
        return self.learner.task

    def heads(self, batch: Batch) -> Tensor:
        """The head that each sample belongs to."""
        return self.model.heads.of(batch)

    def grad(self, *batches: Batch) -> tuple[Tensor, Tensor]:
        """Mean loss of each batch, summed, and its gradient as one new vector.

        Each batch passes through the network by itself, in the given order, so that is the order
        batch norm sees. If the network treats each sample by itself, the batches pass together.
        """
        return self.learner.gradients.grad(*batches)

    def grads(self, *batches: Batch) -> tuple[list[Tensor], Tensor]:
        """The mean loss of each batch, and the gradient of each as a row."""
        return self.learner.gradients.grads(*batches)

    # What the learner calls.

    def bind(self, learner: Host) -> None:
        """Attach the method to a learner whose model exists."""
        self.learner = learner
        self.model = learner.model
        self.memory = learner.memory
        self.model.answer_weights = self.answer_weights
        self.model.answer_statistics = self.answer_statistics
        self.model.mirror = self.mirror
        self.create_buffers()


class Rehearsal(Method):
    """A method that draws `reference_batch` examples from the memory at every step.

    By default it is a quarter of the stored examples, from 10 to 256. With `repeats` each
    mini-batch is learned so many times in a row, each time with other old examples and other crops;
    the memory sees it once. With `review` all stored examples, those of the task among them, are
    learned so many times at a task's end, in mini-batches, with steps that shorten as in a task.
    """

    kind = "rehearsal"
    uses_memory = True
    reference_batch: int = setting(default=None, least=1)
    repeats: int = setting(default=1, least=1, later=True)
    review: int = setting(default=0, least=0, later=True)

    def review_gradient(self, batch: Batch) -> Tensor:
        """The direction to step against for a mini-batch of stored examples alone."""
        return self.grad(batch)[1]


class CrossEntropyRehearsal(Rehearsal):
    """A rehearsal method whose loss is cross entropy.

    With `smoothing`, label smoothing, a label says 1 - smoothing for its class, and each class that
    competes has an equal share of the rest.
    """

    smoothing: float = setting(default=0.0, least=0.0, below=1.0, later=True)
