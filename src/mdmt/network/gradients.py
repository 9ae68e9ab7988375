"""Losses and gradients of batches, found by autograd.

A learner has one `Gradients`, made for its network and its method. `by_hand.ByHand` is the other
kind, for networks whose way back is written out; a method calls either through `Method.grad` and
`grads`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from mdmt.network.model import Model
from mdmt.tasks import Batch


class Slopes(NamedTuple):
    """The loss of each sample, and the derivatives of their weighted sum."""

    losses: Tensor
    wrt_scores: Tensor
    wrt_features: Tensor | None = (
        None  # of the first samples, if their loss reads features directly
    )


class Loss(Protocol):
    """The part of a method that gradients need."""

    @property
    def slopes(self) -> Callable[[Tensor, Tensor, Batch, Tensor], Slopes] | None:
        """`loss` with its derivatives written out; None: autograd finds them."""

    def loss(self, features: Tensor, batch: Batch) -> Tensor:
        """The loss of each sample."""


class Gradients:
    """The mean losses of batches and their gradients, each batch passing by itself."""

    def __init__(self, model: Model, method: Loss) -> None:
        self.model = model
        self.method = method
        self.losses: list[Tensor] = []  # of this step, until the recorder has checked them

    def grad(self, *batches: Batch) -> tuple[Tensor, Tensor]:
        """The sum of the batches' mean losses, and its gradient."""
        losses = [self._mean_loss(batch) for batch in batches]
        loss = losses[0] if len(losses) == 1 else torch.stack(losses).sum()
        gradient = self.model.gradient(loss)
        self.losses.append(loss.detach())
        return loss.detach(), gradient

    def grads(self, *batches: Batch) -> tuple[list[Tensor], Tensor]:
        """The mean loss of each batch, and the gradient of each as a row."""
        rows = self.model.flat.data.new_empty(len(batches), len(self.model.flat))
        losses: list[Tensor] = []
        for batch, row in zip(batches, rows, strict=True):
            loss = self._mean_loss(batch)
            row.copy_(self.model.gradient(loss))
            losses.append(loss.detach())
        self.losses += losses
        return losses, rows

    def descend(self, batch: Batch, length: float) -> None:
        """A plain step of this length against the gradient of a batch."""
        gradient = self.grad(batch)[1]
        self.model.flat.data.add_(gradient, alpha=-length)

    def _mean_loss(self, batch: Batch) -> Tensor:
        features = self.model.features(batch.inputs)
        return self.method.loss(features, batch).sum() / len(batch)
