"""What is learned, and in which order: examples, tasks, streams, and the batches that are drawn
from them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import mdmt.inputs.maps as maps
from mdmt.errors import Mistake
from mdmt.inputs.arrays import RowView as RowView
from mdmt.inputs.arrays import first_not_finite, read_inputs, read_labels

View = Callable[[Tensor], Tensor]
HeadKind = Literal["shared", "per-task"]


@dataclass(frozen=True)
class Examples:
    """Inputs (uint8 or float, one example per row) and labels (positions in the task's
    `classes`).
    """

    inputs: Tensor | RowView
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, index: Tensor) -> Examples:
        """Some of them, by index; their inputs are not copied."""
        base, rows = (
            (self.inputs, index)
            if isinstance(self.inputs, Tensor)
            else (self.inputs.base, self.inputs.index[index])
        )
        return Examples(RowView(base, rows), self.labels[index])


@dataclass(frozen=True)
class Batch:
    """Some examples as the network sees them: views applied, labels as rows of the head, the task
    of each.
    """

    inputs: Tensor
    labels: Tensor
    tasks: Tensor
    features: Tensor | None = (
        None  # the representations F stored with those that come from the memory, which are first
    )
    known: tuple[Tensor, Tensor] | None = (
        None  # labels and tasks on the processor, where the others are not
    )

    def __len__(self) -> int:
        return len(self.labels)

    @classmethod
    def joined(cls, batches: Sequence[Batch]) -> Batch:
        """Several batches as one; of stored features, those of the first."""
        columns = zip(*((b.inputs, b.labels, b.tasks) for b in batches), strict=True)
        inputs, labels, tasks = (torch.cat(column) for column in columns)
        return cls(inputs, labels, tasks, batches[0].features)

    def on_processor(self, name: str) -> Tensor:
        """Labels or tasks, to be looked at; without waiting for a device, where they came from the
        processor.
        """
        if self.known is not None:
            return self.known[0 if name == "labels" else 1]
        column: Tensor = getattr(self, name)
        return column.cpu()


@dataclass(frozen=True)
class Permutation:
    """A view that reorders the pixels of each input.

    >>> Permutation(torch.tensor([2, 0, 1]))(torch.tensor([[10, 11, 12]]))
    tensor([[12, 10, 11]])
    """

    order: Tensor

    def __call__(self, inputs: Tensor) -> Tensor:
        """Apply it to a batch."""
        return inputs.flatten(1).index_select(1, self.order).view_as(inputs)

    def to(self, device: torch.device) -> Permutation:
        """The same for inputs on a device."""
        return Permutation(self.order.to(device))


class Task:
    """One task: a name, its classes, examples to train on and, for evaluation, examples to test on.

    `x` is an array or tensor (or `RowView` of one) with one example per row, uint8 or float; `y`
    holds one class per example: numbers or names. `test` is a pair like (x, y). `classes` lists the
    classes in order (by default the sorted distinct values of `y`). `view` is what this task does
    to its inputs, applied to every batch before anything sees it.

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
        self.name, self.view = name, view
        names, which = read_labels(f"task {name!r}, training examples", y)
        if not len(which):
            raise Mistake(f"task {name!r} is empty: it has no training examples")
        self.classes = tuple(sorted(names, key=_order)) if classes is None else tuple(classes)
        if len(set(self.classes)) < len(self.classes):
            raise Mistake(f"task {name!r}: a class is listed twice in {list(self.classes)}")
        self.train = self._examples("training", x, names, which)
        self.test = (
            None
            if test is None
            else self._examples(
                "test", test[0], *read_labels(f"task {name!r}, test examples", test[1])
            )
        )
        if self.test is not None and self.test.inputs.shape[1:] != self.train.inputs.shape[1:]:
            raise Mistake(
                f"task {name!r}: training inputs have shape {tuple(self.train.inputs.shape[1:])}, "
                f"test inputs {tuple(self.test.inputs.shape[1:])}; they must agree"
            )

    @classmethod
    def from_dataset(cls, name: str, dataset: Any, test: Any = None, **more: Any) -> Task:
        """A task of a `torch.utils.data.Dataset` whose items are (input, label) pairs; `test` is
        another one.

        Inputs are tensors, arrays or PIL images, all of one shape; they are read once, here. `more`
        goes to `Task`.
        """
        from mdmt.inputs.datasets import gather

        held_out = None if test is None else gather(f"task {name!r}, test examples", test)
        return cls(
            name, *gather(f"task {name!r}, training examples", dataset), test=held_out, **more
        )

    def with_view(self, name: str, view: View) -> Task:
        """The same examples, not copied, as another task that sees them through a view of its
        own.
        """
        other = copy.copy(self)
        other.name, other.view = name, view
        return other

    def with_classes(self, classes: Sequence[Hashable]) -> Task:
        """The same examples, not copied, among these classes in this order."""
        places = torch.tensor([classes.index(c) for c in self.classes])
        other = copy.copy(self)
        other.classes = tuple(classes)
        other.train = Examples(self.train.inputs, places[self.train.labels])
        other.test = (
            None if self.test is None else Examples(self.test.inputs, places[self.test.labels])
        )
        return other

    def inputs(self, split: Literal["train", "test"], index: Tensor) -> Tensor:
        """Some inputs as the network sees them: the task's view applied."""
        examples = self.train if split == "train" else self.test
        if examples is None:
            raise Mistake(f"task {self.name!r} has no test examples")
        rows = examples.inputs
        # Rows whole: quicker than [index].
        inputs = rows.index_select(0, index) if isinstance(rows, Tensor) else rows[index]
        maps.after_gathering(inputs.nbytes)
        return inputs if self.view is None else self.view(inputs)

    @property
    def parts(self) -> Sequence[Task]:
        """The tasks whose examples are learned together: this one alone, unless it is a pool."""
        return (self,)

    @property
    def size(self) -> int:
        """How many training examples it has."""
        return sum(len(part.train) for part in self.parts)

    def __repr__(self) -> str:
        return f"Task({self.name!r}, classes={list(self.classes)}, train={len(self.train)})"

    def _examples(
        self, kind: str, x: Any, names: list[Hashable], which: NDArray[np.int64]
    ) -> Examples:
        """Check the inputs, and turn labels, given as `names[which]`, into positions in the task's
        classes.
        """
        where = f"task {self.name!r}, {kind} examples"
        inputs = read_inputs(where, x)
        if inputs.dtype != torch.uint8 and not inputs.dtype.is_floating_point:
            raise Mistake(
                f"{where}: inputs must be uint8 (pixels 0 to 255) or float, not {inputs.dtype};"
                " convert them"
            )
        if inputs.ndim < 2 or len(inputs) != len(which):
            raise Mistake(
                f"{where}: inputs of shape {tuple(inputs.shape)} for {len(which)} labels; one input"
                " per label is needed"
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


class Pool(Task):
    """Several tasks learned as one, each keeping its name, its classes and its view."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.name, self.tasks = "all tasks", tuple(tasks)

    @property
    def parts(self) -> Sequence[Task]:
        """The tasks of the pool."""
        return self.tasks


def _order(name: Hashable) -> tuple[str, Any]:
    """Numbers by value, names by letter; a mixture does not raise."""
    return ("", name) if isinstance(name, (int, float)) else ("text", str(name))


@dataclass(frozen=True)
class Stream:
    """An ordered list of tasks with what a benchmark says of all of them.

    `heads`: one head shared by all tasks, or one per task. `outputs`: rows of the head in all (by
    default what the tasks need). `evaluate`: after each task, test the tasks seen so far or all of
    them. `per_class`: accuracy is the mean of the classes' accuracies. `scale` and `mean` are the
    one normalisation, which lives in the model: x * scale - mean. `reduced` names whatever makes it
    less than the benchmark of its name (tasks, subset, image size, substitute images). `notes` are
    lines for a person, such as what was left out.
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

    def __post_init__(self) -> None:
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
        classes = [c for part in parts for c in part.classes]
        needed = len(set(classes)) if self.heads == "shared" else len(classes)
        object.__setattr__(self, "outputs", max(self.outputs, needed))

    def __len__(self) -> int:
        return len(self.tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)

    def __getitem__(self, index: int) -> Task:
        return self.tasks[index]
