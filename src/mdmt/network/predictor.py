"""Answers of a network for inputs: class, task and probability."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mdmt.errors import Mistake
from mdmt.inputs.arrays import first_not_finite, read_inputs
from mdmt.network.heads import Heads
from mdmt.network.model import Model, best_rows


@dataclass(frozen=True)
class Prediction:
    """A class, the task it belongs to, and its probability."""

    task: str | None  # None if several tasks share the class
    label: Hashable
    probability: float


@dataclass(frozen=True)
class Column:
    """A column of probabilities: its class, its task, its row of the head."""

    task: str | None
    label: Hashable
    row: int


class Predictor:
    """Answers for inputs with a model. Any number of threads may ask at a time.

    `scale` multiplies the scores before the softmax, as in the loss that the model was trained
    with.
    """

    def __init__(self, model: Model, *, scale: float = 1.0) -> None:
        self.model = model
        self.scale = scale

    def predict(self, x: Any, task: str | None = None) -> list[Hashable]:
        """The class of each input, among those of a task, or of all tasks if none is given."""
        model, heads = self.model, self.model.heads
        with model.evaluating():
            features = self.features(x)
            allowed = model.seen()
            if task is not None:
                allowed = model.only(heads.tasks[heads.number(task)].rows)
            return heads.classes(best_rows(model.scores(features), allowed))

    def predict_proba(self, x: Any, task: str | None = None) -> NDArray[np.float32]:
        """The probability of each class for each input, a column for each of `classes(task)`.

        It is a softmax over the scores: an order of confidence, not a calibrated frequency.
        """
        with self.model.evaluating():
            shares = self._probabilities(x, columns(self.model.heads, task))
        array: NDArray[np.float32] = shares.cpu().numpy()
        return array

    def predict_with_task(self, x: Any, task: str | None = None) -> list[Prediction]:
        """The class of each input, with its task and its probability."""
        chosen = columns(self.model.heads, task)
        with self.model.evaluating():
            highest = self._probabilities(x, chosen).max(1)
        return [
            Prediction(chosen[place].task, chosen[place].label, share)
            for place, share in zip(highest.indices.tolist(), highest.values.tolist(), strict=True)
        ]

    def classes(self, task: str | None = None) -> list[tuple[str | None, Hashable]]:
        """The (task, class) pairs that compete; a class that tasks share has the task None."""
        return [(column.task, column.label) for column in columns(self.model.heads, task)]

    def features(self, x: Any) -> Tensor:
        """The feature vector of each input."""
        inputs = read_inputs("inputs", x)
        if not len(inputs):
            return self.model.flat.detach().new_empty(0, self.model.head.shape[1] - 1)
        self.model.check_inputs("inputs", inputs)
        if first_not_finite(inputs) is not None:
            raise Mistake("inputs have NaN or infinite values; remove or repair them")
        return self.model.embed(inputs, to_answer=True)

    def _probabilities(self, x: Any, chosen: list[Column]) -> Tensor:
        scores = self.model.scores(self.features(x))
        rows = torch.tensor([column.row for column in chosen], device=scores.device)
        return (self.scale * scores[:, rows]).softmax(1)


def columns(heads: Heads, task: str | None) -> list[Column]:
    """The classes that compete, in the order they were learned: those of a task, or all."""
    if task is not None:
        learned = heads.tasks[heads.number(task)]
        pairs = zip(learned.classes, learned.rows.tolist(), strict=True)
        return [Column(task, label, row) for label, row in pairs]
    by_row: dict[int, Column] = {}
    for learned in heads.tasks:
        for label, row in zip(learned.classes, learned.rows.tolist(), strict=True):
            # A row seen before is a class that several tasks share.
            by_row[row] = Column(None if row in by_row else learned.name, label, row)
    return list(by_row.values())
