"""What every method shares: the hooks that it overrides, and what it may call."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Protocol, dataclass_transform

from torch import Tensor
from torch.nn import functional

from mdmt.losses import NEVER, cross_domain_softmax
from mdmt.memory import Memory
from mdmt.methods.buffers import Buffer as Buffer
from mdmt.methods.buffers import Remembering
from mdmt.methods.settings import setting as setting
from mdmt.network.by_hand import cross_entropy_slopes
from mdmt.network.gradients import Gradients, Slopes
from mdmt.network.heads import Heads, LearnedTask
from mdmt.network.model import Model
from mdmt.network.optimiser import Optimiser
from mdmt.tasks import Batch, Stream, Task

TINY = 1e-30  # keeps a quotient finite if its denominator is 0


class Host(Protocol):
    """What a method sees of the learner it belongs to."""

    heads: Heads
    memory: Memory
    optimiser: Optimiser
    gradients: Gradients
    task: Task | None
    step_in_task: int  # steps of the task that were over when this one began

    @property
    def model(self) -> Model:
        """The network that is learning."""

    @property
    def current(self) -> int:
        """The number of the task being learned, from 0."""

    @property
    def tasks(self) -> list[LearnedTask]:
        """The tasks learned so far, with the one being learned."""

    @property
    def share_of_task(self) -> float:
        """The share of the task that was over when this step began: from 0 to just below 1."""

    def apply(self, gradient: Tensor) -> None:
        """One step of the optimiser against a gradient."""

    def read(self, task: Task, index: Tensor) -> Batch:
        """Some of a task's training examples as a batch."""

    def sample_of_task(self, count: int) -> Tensor:
        """Indices of some training examples of the current task, always the same ones."""


class Declarations:
    """What a method declares of itself."""

    name = kind = source = ""  # in tables; rehearsal, regularisation or bound; authors and year
    uses_memory = False
    stores_features = False  # whether the memory keeps what `represent` gives
    cosine = False  # whether the head scores by cosines
    one_by_one = False  # whether it passes single examples through the network
    policy = ""  # the memory policy it needs, if it is not the benchmark's
    learns_at_task_end = False  # whether `end_task` trains the network, and `step` need not


@dataclass_transform(kw_only_default=True, field_specifiers=(setting,))
class Method(Declarations, Remembering):
    """Turns the current mini-batch and the memory into an update of the parameters.

    Annotated class attributes are settings: keyword arguments, checked when the method is made.
    `Buffer` attributes are what it remembers. A subclass overrides the hooks that it needs; while
    it learns, `learner`, `model` and `memory` are those it belongs to.
    """

    learner: Host
    memory: Memory

    def __init_subclass__(cls) -> None:
        dataclasses.dataclass(kw_only=True, eq=False)(cls)
        if "loss" in vars(cls) and "slopes" not in vars(cls):
            cls.slopes = None  # those of the base class belong to another loss

    # Hooks: a subclass overrides those it needs.

    def loss(self, features: Tensor, batch: Batch) -> Tensor:
        """The loss of each sample; here cross entropy among the classes of its own head."""
        scores = self.model.scores(features)
        if self.model.heads.has_one_head:
            return functional.cross_entropy(scores, batch.labels, reduction="none")
        owner = self.model.head_of_class
        return cross_domain_softmax(
            scores, batch.labels, self.heads(batch), owner, competitors="own", reduction="none"
        )

    def _cross_entropy_slopes(
        self, features: Tensor, scores: Tensor, batch: Batch, weights: Tensor
    ) -> Slopes:
        """The derivatives of `loss`, for networks whose way back is written out."""
        if not self.model.heads.has_one_head:
            other = self.model.head_of_class != self.heads(batch)[:, None]
            scores = scores.masked_fill(other, NEVER)
        return cross_entropy_slopes(scores, batch.labels, weights)

    # `loss` with its derivatives, weighted by sample; None: autograd finds them.
    slopes: Callable[..., Slopes] | None = _cross_entropy_slopes

    def represent(self, batch: Batch) -> Tensor:
        """What the memory stores as F, one row per example; here their features."""
        return self.model.embed(batch.inputs)

    def gradient(self, batch: Batch) -> Tensor:
        """The direction to step against."""
        return self.grad(batch)[1]

    def step(self, batch: Batch) -> None:
        """One step of learning."""
        self.learner.apply(self.gradient(batch))

    def arrange(self, stream: Stream) -> Stream:
        """The stream as this method learns it."""
        return stream

    def begin_task(self) -> None:
        """A new task is about to be learned; the head has its rows."""

    def after_step(self, batch: Batch) -> None:
        """A mini-batch was learned and written to the memory."""

    def end_task(self) -> None:
        """All mini-batches of the task were learned."""

    def answer_weights(self) -> Tensor | None:
        """The weights to answer and evaluate with; None: those that learn."""
        return None

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

        Each batch passes through the network by itself, in this order, which is the order batch
        norm sees; if the network treats each sample by itself, they pass together.
        """
        return self.learner.gradients.grad(*batches)

    def grads(self, *batches: Batch) -> tuple[list[Tensor], Tensor]:
        """The mean loss of each batch, and the gradient of each as a row."""
        return self.learner.gradients.grads(*batches)

    # What the learner calls.

    def bind(self, learner: Host) -> None:
        """Belong to a learner whose model exists."""
        self.learner = learner
        self.model = learner.model
        self.memory = learner.memory
        self.model.answer_weights = self.answer_weights
        self.create_buffers()


class Rehearsal(Method):
    """A method that draws `reference_batch` examples from the memory at every step."""

    kind = "rehearsal"
    uses_memory = True
    reference_batch: int = setting(default=256, least=1)
