"""What a model answers: class, task and probability."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mdmt.errors import Mistake
from mdmt.inputs.arrays import first_not_finite, read_inputs
from mdmt.methods.base import Method
from mdmt.network.heads import Heads
from mdmt.network.model import Model
from mdmt.network.scores import best


@dataclass(frozen=True)
class Prediction:
    """A class, the task it belongs to, and how probable the model holds it."""

    task: str | None  # None where several tasks share the class
    label: Hashable
    probability: float


@dataclass(frozen=True)
class Column:
    """What a column of probabilities stands for."""

    task: str | None
    label: Hashable
    row: int  # of the head


def columns(heads: Heads, task: str | None) -> list[Column]:
    """The classes that compete, in the order they were learned: those of a task, or all."""
    if task is not None:
        learned = heads.tasks[heads.number(task)]
        return [
            Column(task, c, row)
            for c, row in zip(learned.classes, learned.rows.tolist(), strict=True)
        ]
    by_row: dict[int, Column] = {}
    for learned in heads.tasks:
        for label, row in zip(learned.classes, learned.rows.tolist(), strict=True):
            # A class of one head that several tasks share.
            owner = None if row in by_row else learned.name
            by_row[row] = Column(owner, label, row)
    return list(by_row.values())


def probabilities(scores: Tensor, chosen: list[Column], scale: float) -> Tensor:
    """The softmax over the chosen rows of the head."""
    rows = torch.tensor([column.row for column in chosen], device=scores.device)
    return (scale * scores[:, rows]).softmax(1)


def best_of(shares: Tensor, chosen: list[Column]) -> list[Prediction]:
    """The most probable class of each input."""
    highest = shares.max(1)
    return [
        Prediction(chosen[place].task, chosen[place].label, share)
        for place, share in zip(highest.indices.tolist(), highest.values.tolist(), strict=True)
    ]


class Predictor(ABC):
    """Answers for inputs, by a model, its heads, and the method that taught it."""

    heads: Heads
    method: Method

    @property
    @abstractmethod
    def model(self) -> Model:
        """The network."""

    def predict(self, x: Any, task: str | None = None) -> list[Hashable]:
        """The class of each input: among those of a task, or, without one, among all that were
        learned.
        """
        model = self.model
        with model.evaluating():
            features = self.features(x)
            allowed = model.head_of_class >= 0
            if task is not None:
                allowed = model.only(self.heads.tasks[self.heads.number(task)].rows)
            return self.heads.class_names(best(model.scores(features), allowed))

    def predict_proba(self, x: Any, task: str | None = None) -> NDArray[np.float32]:
        """How probable each class is for each input, a column for each of `classes(task)`.

        It is the softmax over what the classes are chosen by: an order of confidence, not a
        calibrated frequency.
        """
        with self.model.evaluating():
            shares = self._probabilities(x, columns(self.heads, task))
        array: NDArray[np.float32] = shares.cpu().numpy()
        return array

    def predict_with_task(self, x: Any, task: str | None = None) -> list[Prediction]:
        """The class of each input with the task it belongs to and its probability."""
        chosen = columns(self.heads, task)
        with self.model.evaluating():
            return best_of(self._probabilities(x, chosen), chosen)

    def classes(self, task: str | None = None) -> list[tuple[str | None, Hashable]]:
        """The (task, class) pairs that compete: those of a task, or all that were learned.

        Of a class that several tasks share the task is None.
        """
        return [(column.task, column.label) for column in columns(self.heads, task)]

    def _probabilities(self, x: Any, chosen: list[Column]) -> Tensor:
        scale = getattr(self.method, "scale", 1.0) if self.model.cosine else 1.0
        return probabilities(self.model.scores(self.features(x)), chosen, scale)

    def features(self, x: Any) -> Tensor:
        """The feature vector of each input."""
        inputs = read_inputs("inputs", x)
        self.model.check_inputs("inputs", inputs)
        if first_not_finite(inputs) is not None:
            raise Mistake("inputs have NaN or infinite values; remove or repair them")
        return self.model.embed(inputs)
