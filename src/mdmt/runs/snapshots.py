"""Snapshots: features and heads along learning, from which figures are drawn.

They are arrays by name, for the first, the middle and the last task of a stream (tasks count from
0). `features.J.I` are the features of task J's sample after task I, scaled to length 1 in half
precision, and `lengths.J.I` their lengths: task 0 has them after every task, the others after the
middle and the last. `labels.J` are the rows of the head that the sample's labels have. `head.0.I`
are the weights of task 0's classes after task I. `head` and `head_of_class` are the weights of all
classes after the last task, and the task that each row belongs to.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdmt.errors import Mistake
from mdmt.system.tensors import read_arrays
from mdmt.words import printable

HEAD = "head"
HEAD_OF_CLASS = "head_of_class"

NUMBER = r"\.[0-9]{1,9}"  # of a task
NAMES = {  # with the number of dimensions
    rf"features{NUMBER}{NUMBER}": 2,
    rf"lengths{NUMBER}{NUMBER}": 1,
    rf"labels{NUMBER}": 1,
    rf"{HEAD}\.0{NUMBER}": 2,
    HEAD: 2,
    HEAD_OF_CLASS: 1,
}

AnyArray = NDArray[Any]


def features_name(task: int, after: int) -> str:
    """The name of a task's features after a task."""
    return f"features.{task}.{after}"


def lengths_name(task: int, after: int) -> str:
    """The name of the lengths of a task's features after a task."""
    return f"lengths.{task}.{after}"


def labels_name(task: int) -> str:
    """The name of the labels of a task's sample."""
    return f"labels.{task}"


def first_head_name(after: int) -> str:
    """The name of the weights of task 0's classes after a task."""
    return f"{HEAD}.0.{after}"


def chosen_tasks(length: int) -> list[int]:
    """The tasks of a stream that are followed: the first, the middle and the last one.

    >>> chosen_tasks(17), chosen_tasks(2), chosen_tasks(1)
    ([0, 8, 16], [0, 1], [0])
    """
    return sorted({0, length // 2, length - 1})


def belongs(name: str, chosen: list[int]) -> bool:
    """Whether a stream with these chosen tasks takes the snapshot, except for the last heads."""
    kind, *numbers = name.split(".")
    if kind == HEAD:
        return len(numbers) == 2
    if kind == "labels":
        return int(numbers[0]) in chosen
    if kind in ("features", "lengths"):
        task, after = map(int, numbers)
        return task == 0 or (task in chosen and after in chosen)
    return False


def dimensions(name: str) -> int | None:
    """The number of dimensions of the snapshot of this name; None if no snapshot is called so.

    >>> dimensions("features.0.2"), dimensions("labels.0"), dimensions("labels")
    (2, 1, None)
    """
    for pattern, number in NAMES.items():
        if re.fullmatch(pattern, name):
            return number
    return None


class Snapshots(dict[str, AnyArray]):
    """The snapshots of a run, by name; empty if it has none."""

    @property
    def tasks(self) -> list[int]:
        """The tasks that have features.

        >>> Snapshots.fromkeys(["features.0.0", "features.0.1", "features.1.1", "head"]).tasks
        [0, 1]
        """
        return sorted({int(name.split(".")[1]) for name in self if name.startswith("features.")})

    def features(self, task: int, after: int) -> NDArray[np.float64] | None:
        """The features of a task's sample after a task; None if they are missing or not finite."""
        directions = self.get(features_name(task, after))
        lengths = self.get(lengths_name(task, after))
        if directions is None or lengths is None:
            return None
        vectors = directions.astype(float) * lengths.astype(float)[:, None]
        return vectors if np.isfinite(vectors).all() else None

    def after(self, tasks: list[int]) -> Snapshots:
        """The snapshots of these tasks that were taken after one of them."""
        numbers = {name: map(int, name.split(".")[1:]) for name in self}
        return Snapshots({name: self[name] for name in self if set(numbers[name]) <= set(tasks)})

    def to_bytes(self) -> bytes:
        """The snapshots as a safetensors file."""
        from safetensors.numpy import save

        return save(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> Snapshots:
        """Read a safetensors file; raise a Mistake if its arrays are not snapshots of a run."""
        snapshots = cls(read_arrays(data))
        try:
            snapshots._check()
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, Mistake):
                raise
            raise Mistake(printable(f"its tensors are not those of a run ({error})")) from None
        return snapshots

    def _check(self) -> None:
        for name, value in self.items():
            kinds = "iu" if name.startswith(("labels", HEAD_OF_CLASS)) else "f"
            if value.ndim != dimensions(name) or value.dtype.kind not in kinds:
                raise Mistake(f"{printable(name)} is not a snapshot")
        rows, width = self[HEAD].shape
        if self[HEAD_OF_CLASS].shape != (rows,):
            raise Mistake("head_of_class does not have one number per row")
        for name in self:
            if not self._fits(name, rows, width):
                raise Mistake(f"{printable(name)} does not fit the others")

    def _fits(self, name: str, rows: int, width: int) -> bool:
        """Whether the shape of an array agrees with the others."""
        kind, *numbers = name.split(".")
        value = self[name]
        if kind == "features":
            task, after = map(int, numbers)
            labels = self[labels_name(task)]
            shapes = value.shape == (len(labels), width - 1)
            lengths = self[lengths_name(task, after)].shape == labels.shape
            return shapes and lengths and bool(labels.min() >= 0 and labels.max() < rows)
        return kind != HEAD or bool(value.shape[1] == width and np.isfinite(value).all())
