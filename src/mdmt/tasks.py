"""Tasks, streams of tasks, and the batches read from them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import mdmt.inputs.maps as maps
from mdmt.errors import Mistake
from mdmt.inputs.arrays import RowView as RowView
from mdmt.inputs.arrays import (
    check_label,
    first_not_finite,
    read_dataset,
    read_inputs,
    read_labels,
    read_mean,
    read_scale,
)
from mdmt.inputs.saved import is_text

View = Callable[[Tensor], Tensor]
HeadKind = Literal["shared", "per-task"]
TaskOrder = Callable[[int, int], Tensor]  # number of the task, number of examples -> indices


@dataclass(frozen=True)
class Examples:
    """Inputs (uint8 or float), one per row, and labels, which are positions in `Task.classes`."""

    inputs: Tensor | RowView
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, index: Tensor) -> Examples:
        """The examples at these indices; their inputs are not copied."""
        if isinstance(self.inputs, Tensor):
            return Examples(RowView(self.inputs, index), self.labels[index])
        view = RowView(self.inputs.base, self.inputs.index[index])
        return Examples(view, self.labels[index])


@dataclass(frozen=True)
class Batch:
    """Examples as the network sees them: views applied, labels as rows of the head.

    On an accelerator, `host_labels` and `host_tasks` are `labels` and `tasks` on the CPU, so that
    reading them does not wait for the device.
    """

    inputs: Tensor
    labels: Tensor
    tasks: Tensor
    # The stored representations F of the samples from the memory, which come first.
    features: Tensor | None = None
    host_labels: Tensor | None = None
    host_tasks: Tensor | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @classmethod
    def joined(cls, batches: Sequence[Batch]) -> Batch:
        """Join several batches; the stored features are those of the first."""
        inputs, labels, tasks = map(torch.cat, zip(*map(_columns, batches), strict=True))
        return cls(inputs, labels, tasks, batches[0].features)


_columns = attrgetter("inputs", "labels", "tasks")


@dataclass(frozen=True)
class Permutation:
    """A view that reorders the pixels of each input.

    >>> Permutation(torch.tensor([2, 0, 1]))(torch.tensor([[10, 11, 12]]))
    tensor([[12, 10, 11]])
    """

    order: Tensor

    def __call__(self, inputs: Tensor) -> Tensor:
        """Reorder the pixels of a batch."""
        return inputs.flatten(1).index_select(1, self.order).view_as(inputs)

    def to(self, device: torch.device) -> Permutation:
        """The same permutation for inputs on a device."""
        return Permutation(self.order.to(device))


class Task:
    """A task: its name, its classes, training examples and, for evaluation, test examples.

    `x` is an array or tensor (or `RowView` of one) with one example per row, uint8 or float; `y`
    holds one class per example: numbers or names. `test` is a pair like (x, y). `classes` lists the
    classes in order (by default the sorted distinct values of `y`). `view` is a function that is
    applied to every batch of inputs when it is read, such as a permutation of pixels. Arrays are
    not copied: change them only after the task was learned.

    >>> task = Task("birds", np.zeros((3, 4), np.uint8), ["owl", "kite", "owl"])
    >>> task.classes, task.train.labels.tolist()
    (('kite', 'owl'), [1, 0, 1])
    """

    def __init__(
        self,
        name: str,
        x: Any,
        y: Any,
        *,
        test: tuple[Any, Any] | None = None,
        classes: Sequence[Hashable] | None = None,
        view: View | None = None,
    ) -> None:
        self.name, self.view = _checked_name(name), view
        names, which = read_labels(f"task {name!r}, training examples", y)
        if not len(which):
            raise Mistake(f"task {name!r} is empty: it has no training examples")
        self.classes = tuple(sorted(names, key=_order)) if classes is None else tuple(classes)
        for c in self.classes:
            check_label(f"task {name!r}, classes", c)
        if len(set(self.classes)) < len(self.classes):
            raise Mistake(f"task {name!r}: a class is listed twice in {list(self.classes)}")
        self.train = self._examples("training", x, names, which)
        self.test: Examples | None = None
        if test is not None:
            labels = read_labels(f"task {name!r}, test examples", test[1])
            if not len(labels[1]):
                raise Mistake(f"task {name!r} has no test examples: pass some, or leave test out")
            self.test = self._examples("test", test[0], *labels)
            self._check_alike(self.train.inputs, self.test.inputs)

    @classmethod
    def from_dataset(cls, name: str, dataset: Any, test: Any = None, **more: Any) -> Task:
        """A task from a `torch.utils.data.Dataset` of (input, label) pairs; `test` is another one.

        Inputs are tensors, arrays or PIL images of one shape, and are read once, in this call.
        `more` is passed to `Task`.
        """
        held_out = None if test is None else read_dataset(f"task {name!r}, test examples", test)
        x, y = read_dataset(f"task {name!r}, training examples", dataset)
        return cls(name, x, y, test=held_out, **more)

    def with_view(self, name: str, view: View) -> Task:
        """A task with the same examples (not copied) and another name and view."""
        other = copy.copy(self)
        other.name = _checked_name(name)
        other.view = view
        return other

    def with_classes(self, classes: Sequence[Hashable]) -> Task:
        """A task with the same examples (not copied) and these classes in this order."""
        places = torch.tensor([classes.index(c) for c in self.classes])
        other = copy.copy(self)
        other.classes = tuple(classes)
        other.train = Examples(self.train.inputs, places[self.train.labels])
        if self.test is not None:
            other.test = Examples(self.test.inputs, places[self.test.labels])
        return other

    def inputs(self, split: Literal["train", "test"], index: Tensor) -> Tensor:
        """The inputs at these indices, with the task's view applied."""
        examples = self.train if split == "train" else self.test
        if examples is None:
            raise Mistake(f"task {self.name!r} has no test examples")
        rows = examples.inputs
        # index_select copies whole rows, which is faster than [index].
        inputs = rows.index_select(0, index) if isinstance(rows, Tensor) else rows[index]
        if maps.open_maps:
            maps.after_gathering(inputs.nbytes)
        return inputs if self.view is None else self.view(inputs)

    @property
    def parts(self) -> Sequence[Task]:
        """The tasks whose examples are learned together: this one alone, unless it is a pool."""
        return (self,)

    @property
    def size(self) -> int:
        """The number of training examples."""
        return sum(len(part.train) for part in self.parts)

    def __repr__(self) -> str:
        return f"Task({self.name!r}, classes={list(self.classes)}, train={len(self.train)})"

    def _examples(
        self, kind: str, x: Any, names: list[Hashable], which: NDArray[np.int64]
    ) -> Examples:
        """Check inputs, and convert the labels `names[which]` to positions in `classes`."""
        where = f"task {self.name!r}, {kind} examples"
        inputs = read_inputs(where, x)
        if inputs.dtype != torch.uint8 and not inputs.dtype.is_floating_point:
            raise Mistake(
                f"{where}: inputs must be uint8 (pixels 0 to 255) or float, not {inputs.dtype};"
                " convert them"
            )
        if inputs.ndim < 2 or len(inputs) != len(which):
            raise Mistake(
                f"{where}: inputs have shape {tuple(inputs.shape)}, but there are {len(which)}"
                " labels; pass one input per label"
            )
        bad = first_not_finite(inputs)
        if bad is not None:
            raise Mistake(f"{where}: example {bad} has NaN or infinite values; remove or repair it")
        position = {c: i for i, c in enumerate(self.classes)}
        unknown = next((n for n in names if n not in position), None)
        if unknown is not None:
            raise Mistake(
                f"{where}: label {unknown!r} is not one of the classes {list(self.classes)}"
            )
        places = np.array([position[n] for n in names], np.int64)
        return Examples(inputs, torch.from_numpy(places[which]))

    def _check_alike(self, train: Tensor | RowView, test: Tensor | RowView) -> None:
        """Refuse test inputs whose shape or type differs from the training inputs."""
        if (train.shape[1:], train.dtype) != (test.shape[1:], test.dtype):
            raise Mistake(
                f"task {self.name!r}: training inputs have shape {tuple(train.shape[1:])} and type"
                f" {train.dtype}, test inputs {tuple(test.shape[1:])} and {test.dtype}; they must"
                " agree"
            )


class Pool(Task):
    """Several tasks learned as one; each keeps its name, classes and view."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.name = "all tasks"
        self.tasks = tuple(tasks)

    def __repr__(self) -> str:
        return f"Pool({list(self.tasks)})"

    @property
    def parts(self) -> Sequence[Task]:
        """The tasks of the pool."""
        return self.tasks


def _checked_name(name: Any) -> str:
    """The name of a task; refuse one that could be learned and then not be saved."""
    if not is_text(name):
        raise Mistake(f"task name {name!r:.60}: must be a text, without half characters")
    return str(name)


def _order(name: Hashable) -> tuple[str, Any]:
    """The sort key of classes: numbers by value, then names alphabetically."""
    return ("", name) if isinstance(name, (int, float)) else ("text", str(name))


@dataclass(frozen=True)
class Stream:
    """An ordered list of tasks, with settings that all of them share.

    `heads`: one head shared by all tasks, or one per task. `outputs`: the total number of rows of
    the head (by default as many as the tasks need). `evaluate`: after each task, test the tasks
    seen so far or all tasks. `per_class`: accuracy is the mean of the classes' accuracies. `scale`
    and `mean` normalise every input: x * scale - mean. `reduced` lists how the stream is smaller
    than the published one (tasks, subset, image size, substitute images). `notes` are messages for
    the user, for example which images were skipped. `order` gives the indices of a task's examples
    in the order of the first epoch, from the number of the task and of its examples; without it,
    the seed of the learner does.
    """

    name: str
    tasks: Sequence[Task]
    heads: HeadKind = "per-task"
    outputs: int = 0
    evaluate: Literal["seen", "all"] = "seen"
    per_class: bool = False
    scale: float | None = None
    mean: Tensor | None = field(default=None, repr=False)
    reduced: dict[str, Any] | None = None
    notes: tuple[str, ...] = ()
    order: TaskOrder | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tasks", tuple(self.tasks))  # a generator can be read only once
        if not self.tasks:
            raise Mistake(f"stream {self.name!r} has no tasks")
        parts = [part for task in self.tasks for part in task.parts]
        names = [part.name for part in parts]
        if len(set(names)) < len(names):
            raise Mistake(
                f"stream {self.name!r}: two tasks are called {max(names, key=names.count)!r}"
            )
        if self.heads not in ("shared", "per-task"):
            raise Mistake(f"heads={self.heads!r}: must be 'shared' or 'per-task'")
        whole = isinstance(self.outputs, int) and not isinstance(self.outputs, bool)
        if not whole or self.outputs < 0:
            raise Mistake(f"outputs={self.outputs!r}: must be a whole number, 0 or more")
        object.__setattr__(self, "scale", read_scale(self.scale))
        object.__setattr__(self, "mean", read_mean(self.mean))
        classes = [c for part in parts for c in part.classes]
        needed = len(set(classes)) if self.heads == "shared" else len(classes)
        object.__setattr__(self, "outputs", max(self.outputs, needed))

    def __len__(self) -> int:
        return len(self.tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)

    def __getitem__(self, index: int) -> Task:
        return self.tasks[index]
