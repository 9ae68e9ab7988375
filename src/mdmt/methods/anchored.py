"""The base of EWC, MAS, RWalk and PI, which pull each weight back by its importance."""

from __future__ import annotations

import torch
from torch import Tensor

from mdmt.methods.base import Buffer, Method, setting
from mdmt.tasks import Batch


class Anchored(Method):
    """Adds strength * sum importance (theta - anchor)^2 to the loss.

    The anchor is the weights as the last task left them; a subclass computes the importance.
    """

    kind = "regularisation"
    strength: float = setting(default=1.0, least=0.0)

    anchor = Buffer(like="params")  # the weights as the last task left them
    importance = Buffer(like="params")
    task_gradient = Buffer(like="params")  # the latest gradient of the loss without the penalty

    def begin_task(self) -> None:
        """Anchor the weights, including the rows that the head has just gained."""
        self.anchor = self.model.flat.detach().clone()

    def gradient(self, batch: Batch) -> Tensor:
        """The gradient of the cross entropy plus that of the penalty."""
        self.task_gradient = self.grad(batch)[1]
        return self.task_gradient + self.pull()

    def pull(self) -> Tensor:
        """The gradient of the penalty."""
        return 2 * self.strength * self.importance * (self.model.flat.detach() - self.anchor)


class PathFollowing(Anchored):
    """Also sums by how much each weight lowered the loss: omega += -g * (change of theta)."""

    path = Buffer(like="params")  # omega
    before = Buffer(like="params")  # the weights before the step

    def gradient(self, batch: Batch) -> Tensor:
        """The same gradient; the weights before the step are stored."""
        self.before = self.model.flat.detach().clone()
        return super().gradient(batch)

    def after_step(self, batch: Batch) -> None:
        """Credit each weight with the loss that its step saved, without the penalty's part."""
        self.path = self.path - self.task_gradient * (self.model.flat.detach() - self.before)


def spread(values: Tensor) -> Tensor:
    """Values scaled to [0, 1] over the whole network; zeros if all are equal."""
    low, high = values.min(), values.max()
    width = high - low
    return (values - low) / torch.where(width > 0, width, 1.0)
