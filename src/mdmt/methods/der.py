"""DER++ (Buzzega et al., 2020): hold the memory's logits where they were when its examples were
stored.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from mdmt.methods.base import Rehearsal, setting
from mdmt.tasks import Batch


class DERPP(Rehearsal):
    """Dark experience replay: new examples, `alpha` x MSE to stored logits, `beta` x cross entropy
    of other old examples.

    The logits are those of the pass in which the example was learned, as in the paper. (In
    evaluation mode they would be huge at first: batch norm's running variance starts at 0.) The MSE
    is the mean over the rows of the head that were in use then. Cross entropy is among the classes
    of the own head, as for most methods here.
    """

    name, source = "der++", "Buzzega et al., 2020"
    policy = "Reservoir"
    stores_features = True
    alpha: float = setting(default=0.3, least=0.0)
    beta: float = setting(default=1.0, least=0.0)

    incoming = logits = None  # the latest mini-batch, and its logits in the pass that taught it

    def represent(self, batch: Batch) -> Tensor:
        """Store logits, and NaN for the rows that belong to no class yet.

        The memory keeps images as they came while the pass saw augmented ones: the two batches
        share their labels.
        """
        learned = self.incoming is not None and batch.labels is self.incoming.labels
        logits = self.logits if learned else None
        logits = self.model.scores(super().represent(batch)) if logits is None else logits
        return logits.masked_fill(self.model.head_of_class < 0, torch.nan)

    def gradient(self, batch: Batch) -> Tensor:
        """The sum of three gradients; the memory goes first, as batch norm sees it."""
        self.incoming = batch
        dark, plain = (
            self.memory.sample(self.reference_batch),
            self.memory.sample(self.reference_batch),
        )
        if dark is None or plain is None:
            return self.grad(batch)[1]
        old = (
            self.alpha * self.grad(dark)[1]
            + self.beta * self.grad(dataclasses.replace(plain, features=None))[1]
        )
        return old + self.grad(batch)[1]

    def loss(self, features: Tensor, batch: Batch) -> Tensor:
        """Of each sample: the distance to its stored logits where it has them, else cross
        entropy.
        """
        scores = self.model.scores(features)
        if batch is self.incoming:
            self.logits = scores.detach()
        if batch.features is None:
            return super().loss(features, batch)
        # The head may be wider by now, or have rows in use that were free.
        missing = batch.features.isnan()
        gap = scores[:, : missing.shape[1]] - batch.features
        return gap.masked_fill(missing, 0).square().sum(1) / (~missing).sum(1)
