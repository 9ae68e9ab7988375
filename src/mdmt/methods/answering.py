"""Settings that every method has: what it answers with, and how long its steps are."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

from torch import Tensor

from mdmt.inputs.device import send
from mdmt.methods.buffers import Buffer, Remembering
from mdmt.methods.settings import setting
from mdmt.network.batch_norm import retake_statistics


@dataclasses.dataclass(kw_only=True, eq=False)
class Answering(Remembering):
    """Settings that no paper here has; all are off by default.

    `average` is the decay of a moving average of the weights and of batch norm's statistics, which
    predicts, is evaluated, and computes the representations that the memory stores. `last_step` is
    the length of a task's last step as a share of its first; the steps in between shorten evenly.
    The first `warm_up` steps of a task lengthen evenly, from a small one to a whole one.
    With `statistics="memory"`, batch norm's statistics at a task's end are their mean over stored
    examples, to which each class contributes equally, instead of running ones, in which the last
    task prevails. With `mirror` an image is answered by the mean of its features and those of its
    mirror image.
    """

    average: float = setting(default=0.0, least=0.0, below=1.0, later=True)
    last_step: float = setting(default=1.0, least=0.0, later=True)
    warm_up: int = setting(default=0, least=0, later=True)
    mirror: bool = setting(default=False, later=True)
    statistics: Literal["running", "memory"] = setting(default="running", later=True)

    average_weights = Buffer(like="params", when="average")
    average_statistics = Buffer(like="statistics", when="average")

    def answer_weights(self) -> Tensor | None:
        """The weights to predict and evaluate with; None: the weights being trained."""
        return self.average_weights if self.average else None

    def answer_statistics(self) -> Tensor | None:
        """The batch-norm statistics that go with `answer_weights`; None: those of the network."""
        return self.average_statistics if self.average else None

    def begin_average(self) -> None:
        """Begin with the first weights, before the first step."""
        if self.average:
            self.average_weights = self.model.flat.detach().clone()
            self.average_statistics = self.model.statistics_vector()

    def extend_average(self, rows: Tensor) -> None:
        """Take the first values of a new task's rows of the head."""
        if self.average:
            rows = send(rows, self.average_weights.device)
            head = self.average_weights[-self.model.head.numel() :].view_as(self.model.head)
            head.index_copy_(0, rows, self.model.head.detach().index_select(0, rows))

    def move_average(self, step_in_task: int) -> None:
        """Let the average follow a step.

        Early in a task it is the mean over the task's own steps: a slow average would not know the
        new task for a while.
        """
        if self.average:
            share = max(1 - self.average, 1 / (step_in_task + 1))
            self.average_weights.lerp_(self.model.flat.detach(), share)
            self.average_statistics.lerp_(self.model.statistics_vector(), share)

    def retake_statistics(self, batches: Sequence[Tensor]) -> None:
        """Take batch norm's statistics from these batches of raw inputs, the average's as well."""
        retake_statistics(self.model, batches)
        if self.average:
            with self.model.at(self.average_weights, self.average_statistics):
                retake_statistics(self.model, batches)
                self.average_statistics = self.model.statistics_vector()
