"""One pass of several batches through the network, and the way back by hand.

For networks that know their own way back (`Model.by_hand`) and look at each sample by itself, so that it does not matter which
other samples pass with it. The products of the backward pass go straight into the one flat gradient, or into a row of gradients
for each batch. Autograd is asked for head and loss alone or, where the loss is the plain cross entropy, not at all: for a
mini-batch of ten it takes longer than the products.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional

from mdmt.losses import NEVER
from mdmt.model import Model

_through_log_softmax = torch.ops.aten._log_softmax_backward_data.default


class Pass:
    """Batches of raw inputs on their way through the backbone."""

    def __init__(self, model: Model, inputs: Sequence[Tensor]) -> None:
        self.model = model
        self.sizes = [len(x) for x in inputs]
        self.tape: list[Tensor] = []
        with torch.no_grad():
            self.features = model.features(joined(inputs), self.tape)
        self.leaves: list[Tensor] = []  # where autograd begins

    def parts(self) -> list[Tensor]:
        """The features of each batch, for a loss of its own."""
        self.leaves = [part.requires_grad_() for part in self.features.split(self.sizes)]
        return self.leaves

    def whole(self) -> Tensor:
        """The features of all batches, for one loss."""
        self.leaves = [self.features.detach().requires_grad_()]
        return self.leaves[0]

    def gradient(self, loss: Tensor, into: Tensor) -> None:
        """The gradient of one loss of all batches in all parameters."""
        *parts, of_head = torch.autograd.grad(loss, [*self.leaves, self.model.head], materialize_grads=True)
        with torch.no_grad():
            *layers, head = self.model.views(into)
            head.copy_(of_head)
            self._pull_back(joined(parts), [len(self.features)], [layers])

    def gradients(self, losses: Sequence[Tensor], rows: Tensor) -> None:
        """The gradient of each batch's own loss, each into a row."""
        parts = []
        layers = []
        for loss, leaf, row in zip(losses, self.leaves, rows, strict=True):
            of_features, of_head = torch.autograd.grad(loss, [leaf, self.model.head], materialize_grads=True)
            *of_layers, head = self.model.views(row)
            parts.append(of_features)
            layers.append(of_layers)
            with torch.no_grad():
                head.copy_(of_head)
        with torch.no_grad():
            self._pull_back(joined(parts), self.sizes, layers)

    def cross_entropy(self, labels: Tensor, competing: Tensor | None, rows: Tensor) -> list[Tensor]:
        """The mean cross entropy of each batch; the gradient of each goes into a row, or that of their sum into a single one."""
        groups = self.sizes if len(rows) == len(self.sizes) else [len(self.features)]
        with torch.no_grad():
            scores = self.model.scores(self.features)
            if competing is not None:
                scores = scores.masked_fill(~competing, NEVER)
            logs = functional.log_softmax(scores, 1)
            target = labels[:, None]
            losses = [-part.sum() / len(part) for part in apart(logs.gather(1, target), self.sizes)]
            weights = sample_weights(tuple(self.sizes), logs.dtype, logs.device)
            slopes = torch.zeros_like(logs).scatter_(1, target, -weights)
            of_scores = _through_log_softmax(slopes, logs, 1, logs.dtype)
            layers = []
            for row, group, features in zip(rows, apart(of_scores, groups), apart(self.features, groups), strict=True):
                *of_layers, head = self.model.views(row)
                torch.mm(group.T, features, out=head[:, :-1])
                torch.sum(group, 0, out=head[:, -1])
                layers.append(of_layers)
            self._pull_back(of_scores @ self.model.head[:, :-1], groups, layers)
        return losses

    def _pull_back(self, of_features: Tensor, sizes: Sequence[int], layers: Sequence[Sequence[Tensor]]) -> None:
        self.model.backbone.pull_back(self.tape, of_features, sizes, layers)  # type: ignore[operator]


@lru_cache(maxsize=64)
def sample_weights(sizes: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """What each sample counts where every batch counts 1: one over the size of its own; as a column."""
    return torch.cat([torch.full((size, 1), 1 / size, dtype=dtype, device=device) for size in sizes])


def apart(x: Tensor, sizes: Sequence[int]) -> Sequence[Tensor]:
    """Rows in groups of these sizes."""
    return (x,) if len(sizes) == 1 else x.split(list(sizes))


def joined(parts: Sequence[Tensor]) -> Tensor:
    """One after the other; one alone is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))
