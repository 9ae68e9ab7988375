"""MAS (Aljundi et al., 2018): a weight is important when the outputs are sensitive to it."""

from __future__ import annotations

from typing import Literal

import torch

from mdmt.methods.anchored import Anchored
from mdmt.tasks import Batch


class MAS(Anchored):
    """Memory-aware synapses: importance is the mean of `|d (sum of squared outputs) / d theta|`.

    The outputs are those of the example's own head. The mean is computed at the end of a task over
    its training data, in evaluation mode. With reading `code` (the default, which gives the
    published numbers) outputs are summed over mini-batches of 10 inside the absolute value, and
    only the latest task's importance is kept. With reading `paper` the absolute value is of single
    examples, and importances are added over the tasks. On AWA the original read the outputs of the
    first task's head for every task; this is not copied.
    """

    name, source = "mas", "Aljundi et al., 2018"
    reading: Literal["code", "paper"] = "code"

    def end_task(self) -> None:
        """Compute the importances in one more pass over the task's training data."""
        task, model = self.task, self.model
        total = torch.zeros_like(self.importance)
        order = torch.arange(len(task.train))
        with model.frozen():
            for index in order.split(10 if self.reading == "code" else 1):
                total += model.gradient(self.output_size(self.learner.read(task, index))).abs()
        total /= len(order)
        self.importance = total if self.reading == "code" else self.importance + total

    def output_size(self, batch: Batch) -> torch.Tensor:
        """The sum of the samples' squared outputs, each on its own head."""
        own = self.model.head_of_class == self.heads(batch)[:, None]
        scores = self.model.scores(self.model.features(batch.inputs))
        return torch.where(own, scores, 0.0).square().sum()
