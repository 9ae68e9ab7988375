"""Settings that every method has: what it answers with, and how long its steps are."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from mdmt.inputs.device import send
from mdmt.memory import READ_AT_ONCE, Memory
from mdmt.methods.buffers import Buffer, Remembering
from mdmt.methods.settings import setting
from mdmt.network.batch_norm import retake_statistics
from mdmt.network.class_means import nearest_mean_head


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
    mirror image. With `answer="ncm"`, from a task's end to the beginning of the next, the answer is
    the class whose stored examples have the nearest mean feature vector (if the head is one of
    cosines, that of the largest cosine); a class without stored examples never is.
    """

    average: float = setting(default=0.0, least=0.0, below=1.0, later=True)
    last_step: float = setting(default=1.0, least=0.0, later=True)
    warm_up: int = setting(default=0, least=0, later=True)
    mirror: bool = setting(default=False, later=True)
    answer: Literal["head", "ncm"] = setting(default="head", later=True)
    statistics: Literal["running", "memory"] = setting(default="running", later=True)

    average_weights = Buffer(like="params", when="average")
    average_statistics = Buffer(like="statistics", when="average")
    mean_weights = Buffer(like="params", when="answers_by_means")  # zeros while a task is learned

    @property
    def answers_by_means(self) -> bool:
        """Whether the nearest class mean answers instead of the head."""
        return self.answer == "ncm"

    def answer_weights(self) -> Tensor | None:
        """The weights to predict and evaluate with; None: the weights being trained."""
        if self.answers_by_means and bool(self.mean_weights.any()):
            return self.mean_weights
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

    def drop_means(self) -> None:
        """Answer with the head while a task is learned: its classes have no means yet."""
        if self.answers_by_means:
            self.mean_weights = torch.zeros_like(self.model.flat.data)

    def take_means(self, memory: Memory) -> None:
        """From now on, answer with the class means of the features of stored examples."""
        if not (self.answers_by_means and len(memory)):
            return
        model = self.model
        parts = [memory.take(slots) for slots in memory.available.split(READ_AT_ONCE)]
        head = nearest_mean_head(
            torch.cat([model.embed(part.inputs, to_answer=True) for part in parts]),
            torch.cat([part.labels for part in parts]),
            len(model.head),
            cosine=model.cosine,
        )
        base = self.average_weights if self.average else model.flat.detach()
        self.mean_weights = base.clone()
        self.mean_weights[-head.numel() :] = send(head.flatten().to(base.dtype), base.device)
