"""What every method shares: its settings, what it remembers, and the update of Algorithm 1 it
computes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import (
    Any,
    Literal,
    Protocol,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

import torch
from torch import Tensor
from torch.nn import functional

import mdmt.ranks as ranks
from mdmt.errors import Mistake
from mdmt.losses import NEVER, Slopes, cross_domain_softmax, cross_entropy_slopes
from mdmt.memory import Memory
from mdmt.network.by_hand import Line, Pass, sample_weights
from mdmt.network.heads import Heads, LearnedTask
from mdmt.network.model import Model
from mdmt.tasks import Batch, Stream, Task


class Host(Protocol):
    """What a method sees of the learner it belongs to."""

    heads: Heads
    memory: Memory
    losses: list[Tensor]  # of this step
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
    def plain_step(self) -> float | None:
        """The length of a step, where steps go straight against the gradient; else None."""

    @property
    def share_of_task(self) -> float:
        """How much of the task was learned when this step began: from 0 to just below 1."""

    def apply(self, gradient: Tensor) -> None:
        """One step of the optimiser against a gradient."""

    def read(self, task: Task, index: Tensor) -> Batch:
        """Some of a task's training examples as a batch."""

    def sample_of_task(self, count: int) -> Tensor:
        """Indices of some training examples of the current task, the same ones whenever it is
        asked.
        """


# samples that pass through the network together, where each batch has a gradient of its own
GROUP = 1024
TINY = 1e-30  # keeps a quotient finite where its denominator is 0


def setting(
    *,
    default: Any,
    least: float | None = None,
    above: float | None = None,
    below: float | None = None,
    later: bool = False,
) -> Any:
    """A hyper-parameter with a default (None: something else decides) and a range.

    One that came `later` is no argument while it has its default: earlier runs are found as before.
    """
    metadata = {"least": least, "above": above, "below": below, "later": later}
    return dataclasses.field(default=default, metadata=metadata)


class Buffer:
    """Something a method remembers: zeros at first, saved, resumed, moved and grown without code in
    the method.

    `Buffer(like="params")` runs along the parameters and is padded with zeros when the head grows;
    `Buffer(3)` has shape (3,). `Buffer(..., when="x")` is there only where the setting x is neither
    0 nor None nor false. With `counts` it stays on the processor, for the method to look at without
    waiting for a device.
    """

    def __init__(
        self,
        *shape: int,
        like: Literal["params"] | None = None,
        when: str | None = None,
        counts: bool = False,
    ) -> None:
        self.shape = shape
        self.like = like
        self.when = when
        self.counts = counts

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, method: None, owner: type) -> Buffer: ...

    @overload
    def __get__(self, method: Method, owner: type) -> Tensor: ...

    def __get__(self, method: Method | None, owner: type) -> Tensor | Buffer:
        """A method's own tensor; of the class, the declaration."""
        if method is None:
            return self
        value: Tensor = method.__dict__[self.name]
        return value

    def __set__(self, method: Method, value: Tensor) -> None:
        method.__dict__[self.name] = value


@dataclass_transform(kw_only_default=True, field_specifiers=(setting,))
class Method:
    """Turns the current mini-batch and the memory into an update of the parameters.

    Annotated class attributes are settings: keyword arguments, checked when the method is made.
    `Buffer` attributes are what it remembers. A subclass overrides `loss`, `gradient` or `step`,
    and the hooks it needs.
    """

    # As in tables; rehearsal, regularisation or bound; authors and year.
    name, kind, source = (
        "",
        "",
        "",
    )
    uses_memory = stores_features = cosine = False
    one_by_one = False  # whether it passes single examples through the network
    policy = ""  # the memory policy it needs, when it is not the benchmark's
    learner: Host

    def __init_subclass__(cls) -> None:
        dataclasses.dataclass(kw_only=True, eq=False)(cls)

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self), localns={"Host": Any})
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            _check(type(self).__name__, field, hints[field.name], getattr(self, field.name))

    @property
    def arguments(self) -> dict[str, Any]:
        """The settings by name."""
        values = {f: getattr(self, f.name) for f in dataclasses.fields(self)}  # type: ignore[arg-type]
        return {
            f.name: v for f, v in values.items() if not (f.metadata.get("later") and v == f.default)
        }

    @property
    def model(self) -> Model:
        """The network that is learning."""
        return self.learner.model

    @property
    def memory(self) -> Memory:
        """The examples kept of earlier tasks."""
        return self.learner.memory

    @property
    def task(self) -> Task:
        """The task being learned."""
        assert self.learner.task is not None
        return self.learner.task

    # What a method may override.

    def loss(self, features: Tensor, batch: Batch) -> Tensor:
        """The loss of each sample; here cross entropy among the classes of its own head."""
        scores = self.model.scores(features)
        if self.model.undivided:
            return functional.cross_entropy(scores, batch.labels, reduction="none")
        return cross_domain_softmax(
            scores,
            batch.labels,
            self.heads(batch),
            self.model.head_of_class,
            competitors="own",
            reduction="none",
        )

    @property
    def has_slopes(self) -> bool:
        """Whether `slopes` gives those of `loss`: not where a subclass has a loss of its own."""
        return type(self).loss is Method.loss and not self.model.cosine

    def slopes(self, features: Tensor, scores: Tensor, batch: Batch, weights: Tensor) -> Slopes:
        """`loss` with the slopes of its weighted sum, by hand, where the network goes back by hand
        too.
        """
        if not self.model.undivided:
            scores = scores.masked_fill(
                self.model.head_of_class != self.heads(batch)[:, None], NEVER
            )
        return cross_entropy_slopes(scores, batch.labels, weights)

    def represent(self, batch: Batch) -> Tensor:
        """What is stored as F with these examples when `stores_features`: one row each; here their
        features.
        """
        return self.model.embed(batch.inputs)

    def gradient(self, batch: Batch) -> Tensor:
        """The direction against which to step."""
        return self.grad(batch)[1]

    def step(self, batch: Batch) -> None:
        """One step of learning."""
        self.learner.apply(self.gradient(batch))

    def arrange(self, stream: Stream) -> Stream:
        """The stream as this method wants to see it."""
        return stream

    def begin_task(self) -> None:
        """A new task is about to be learned; the head has its rows."""

    def after_step(self, batch: Batch) -> None:
        """A mini-batch was learned and written to the memory."""

    def end_task(self) -> None:
        """All mini-batches of the task were learned."""

    # What a method may call.

    def heads(self, batch: Batch) -> Tensor:
        """The head that each sample belongs to."""
        return torch.zeros_like(batch.tasks) if self.learner.heads.shared else batch.tasks

    def grad(self, *batches: Batch) -> tuple[Tensor, Tensor]:
        """Mean loss of each batch, summed, and its gradient as one vector.

        Each batch passes through the network by itself, in this order, which is the order batch
        norm sees; where the network looks at each sample by itself, they pass together.
        """
        if self.model.by_hand:
            rows = self.model.flat.data.new_empty(1, len(self.model.flat))
            losses = self._by_hand(batches, rows)
            loss = _sum(losses)
            gradient = rows[0]
        else:
            loss = _sum([self._mean(self.model.features(batch.inputs), batch) for batch in batches])
            gradient = self.model.gradient(loss)
        self.learner.losses.append(loss.detach())  # `apply` checks that it is finite
        return loss.detach(), gradient

    def grads(self, *batches: Batch) -> tuple[list[Tensor], Tensor]:
        """The mean loss of each batch, and its gradient: one row for each of them.

        As `grad` for one after the other; networks that can take several batches in one pass do.
        """
        rows = self.model.flat.data.new_empty(len(batches), len(self.model.flat))
        losses: list[Tensor] = []
        if self.model.by_hand:
            for group in _groups(batches):
                losses += self._by_hand(group, rows[len(losses) : len(losses) + len(group)])
        else:
            for batch, row in zip(batches, rows, strict=True):
                loss = self._mean(self.model.features(batch.inputs), batch)
                row.copy_(self.model.gradient(loss))
                losses.append(loss.detach())
        self.learner.losses += losses
        return losses, rows

    def _mean(self, features: Tensor, batch: Batch) -> Tensor:
        return self.loss(features, batch).sum() / len(batch)

    def _by_hand(self, batches: Sequence[Batch], rows: Tensor) -> list[Tensor]:
        """The loss of each batch; the gradient of each is written to a row, or that of their sum to
        a single one.
        """
        whole = batches[0] if len(batches) == 1 else Batch.joined(batches)
        sizes = tuple(len(batch) for batch in batches)
        lines = [self.model.views(row) for row in rows]
        weights = sample_weights(sizes, rows.dtype, rows.device)
        if any(batch.features is not None for batch in batches[1:]) or not self.has_slopes:
            losses = self._by_autograd(batches, whole.inputs, lines)
        else:
            losses, _ = self._by_slopes(whole, sizes, weights, lines)
        ranks.mean_(rows)
        return losses

    def _by_slopes(
        self, batch: Batch, sizes: tuple[int, ...], weights: Tensor, lines: Sequence[Line]
    ) -> tuple[list[Tensor], list[list[Tensor]]]:
        """The loss of each of the joined batches, and their gradients: products and what lies
        between them.
        """
        with torch.no_grad():
            together = Pass(self.model, batch.inputs, sizes)
            scores = self.model.scores(together.features)
            return together.back(
                scores, self.slopes(together.features, scores, batch, weights), lines
            )

    def _by_autograd(
        self, batches: Sequence[Batch], inputs: Tensor, lines: Sequence[Sequence[Tensor]]
    ) -> list[Tensor]:
        together = Pass(self.model, inputs, [len(batch) for batch in batches])
        parts = together.parts()
        losses = [self._mean(part, batch) for part, batch in zip(parts, batches, strict=True)]
        together.back_from(losses, parts, lines)
        return [loss.detach() for loss in losses]

    # What the learner calls.

    def bind(self, learner: Host) -> None:
        """Belong to a learner whose model exists: the buffers take their shapes."""
        self.learner = learner
        flat = self.model.flat
        for name, buffer in self.used_buffers().items():
            shape = flat.shape if buffer.like else buffer.shape
            setattr(self, name, torch.zeros(shape, dtype=flat.dtype, device=self._place(buffer)))

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """What it remembers, and how it was made."""
        tensors = {name: getattr(self, name) for name in self.used_buffers()}
        return tensors, {"name": self.name, "arguments": self.arguments}

    def load_state(self, tensors: dict[str, Tensor], _: dict[str, Any]) -> None:
        """Take over what `state` gave."""
        buffers = self.buffers()
        for name, value in tensors.items():
            setattr(self, name, value.to(self._place(buffers.get(name))))

    def _place(self, buffer: Buffer | None) -> torch.device:
        return (
            torch.device("cpu") if buffer is not None and buffer.counts else self.model.flat.device
        )

    @classmethod
    def buffers(cls) -> dict[str, Buffer]:
        """The declared buffers by name."""
        return {
            name: b
            for base in cls.__mro__
            for name, b in vars(base).items()
            if isinstance(b, Buffer)
        }

    def used_buffers(self) -> dict[str, Buffer]:
        """Those that these settings have."""
        return {
            name: b for name, b in self.buffers().items() if b.when is None or getattr(self, b.when)
        }

    @property
    def buffer_bytes(self) -> int:
        """The size of all that it remembers beside the examples."""
        tensors: list[Tensor] = [getattr(self, name) for name in self.used_buffers()]
        return sum(tensor.nbytes for tensor in tensors)

    def grow(self) -> None:
        """The parameters became more: pad what runs along them."""
        for name, buffer in self.used_buffers().items():
            if buffer.like:
                old: Tensor = getattr(self, name)
                setattr(
                    self,
                    name,
                    torch.cat([old, old.new_zeros(self.model.flat.numel() - old.numel())]),
                )


def _sum(losses: Sequence[Tensor]) -> Tensor:
    return losses[0] if len(losses) == 1 else torch.stack(list(losses)).sum()


def _groups(batches: Sequence[Batch]) -> list[list[Batch]]:
    """Neighbours in groups of so many samples as pass quickly together."""
    groups: list[list[Batch]] = []
    room = 0
    for batch in batches:
        if not groups or room < len(batch):
            groups.append([])
            room = GROUP
        groups[-1].append(batch)
        room -= len(batch)
    return groups


class Rehearsal(Method):
    """A method that draws `reference_batch` examples from the memory at every step."""

    kind = "rehearsal"
    uses_memory = True
    reference_batch: int = setting(default=256, least=1)


def _check(method: str, field: dataclasses.Field[Any], hint: Any, value: Any) -> None:
    """Raise a ValueError that names the setting, its value and what is allowed."""
    where = f"{method}: {field.name}={value!r}"
    if value is None and field.default is None:
        return
    if get_origin(hint) is Literal and value not in get_args(hint):
        raise Mistake(f"{where}: must be one of {', '.join(map(repr, get_args(hint)))}")
    if hint is bool and not isinstance(value, bool):
        raise Mistake(f"{where}: must be true or false")
    if hint in (int, float):
        kinds = (int,) if hint is int else (int, float)
        if not isinstance(value, kinds) or isinstance(value, bool) or not math.isfinite(value):
            raise Mistake(f"{where}: must be a {'whole' if hint is int else 'finite'} number")
        least, above = field.metadata.get("least"), field.metadata.get("above")
        if least is not None and value < least:
            raise Mistake(f"{where}: must be {least} or more")
        if above is not None and value <= above:
            raise Mistake(f"{where}: must be more than {above}")
        below = field.metadata.get("below")
        if below is not None and value >= below:
            raise Mistake(f"{where}: must be less than {below}")
