"""What EWC, MAS, RWalk and PI share: weights are held where the last task left them, each by its
importance.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mdmt.methods.base import Buffer, Method, setting
from mdmt.tasks import Batch


class Anchored(Method):
    """Adds strength * sum importance (theta - anchor)^2 to the loss; a subclass says what is
    important.
    """

    kind = "regularisation"
    strength: float = setting(default=1.0, least=0.0)

    anchor = Buffer(like="params")  # the weights as the last task left them
    importance = Buffer(like="params")
    task_gradient = Buffer(like="params")  # the latest gradient of the cross entropy alone

    def begin_task(self) -> None:
        """Hold the weights where they are; rows that the head has just gained are among them."""
        self.anchor = self.model.flat.detach().clone()

    def gradient(self, batch: Batch) -> Tensor:
        """The gradient of the cross entropy and of the penalty."""
        self.task_gradient = self.grad(batch)[1]
        return self.task_gradient + self.pull()

    def pull(self) -> Tensor:
        """The gradient of the penalty."""
        return 2 * self.strength * self.importance * (self.model.flat.detach() - self.anchor)


class PathFollowing(Anchored):
    """Also adds up how much each weight's steps lowered the loss: omega += -g * (change of
    theta).
    """

    path = Buffer(like="params")
    before = Buffer(like="params")

    def gradient(self, batch: Batch) -> Tensor:
        """As it was, and remember the weights before the step."""
        self.before = self.model.flat.detach().clone()
        return super().gradient(batch)

    def after_step(self, batch: Batch) -> None:
        """Credit the step to the weights that made it; the gradient is the cross entropy's, without
        the penalty.
        """
        self.path = self.path - self.task_gradient * (self.model.flat.detach() - self.before)


def spread(values: Tensor) -> Tensor:
    """Values scaled to [0, 1] over the whole network; all equal: 0."""
    low, high = values.min(), values.max()
    width = high - low
    return (values - low) / torch.where(width > 0, width, 1.0)
