"""DER++ (Buzzega et al., 2020): keep the logits of old examples close to the stored ones."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from mdmt.methods.base import CrossEntropyRehearsal, setting
from mdmt.tasks import Batch


class DERPP(CrossEntropyRehearsal):
    """Dark experience replay: rehearses stored logits and stored labels.

    The loss is the cross entropy of the new examples, plus `alpha` times the MSE between the logits
    of old examples and their stored logits, plus `beta` times the cross entropy of other old
    examples. Logits are stored from the pass in which the example was learned, as in the paper. (In
    evaluation mode they would be huge at first: batch norm's running variance starts at 0.) The MSE
    is the mean over the rows of the head that were in use when the logits were stored. The cross
    entropy is among the classes of the example's own head, as in most methods here.
    """

    name, source = "der++", "Buzzega et al., 2020"
    policy = "Reservoir"
    stores_features = True
    alpha: float = setting(default=0.3, least=0.0)
    beta: float = setting(default=1.0, least=0.0)

    incoming = None  # the latest mini-batch
    logits = None  # its logits in the pass in which it was learned

    def represent(self, batch: Batch) -> Tensor:
        """Logits, with NaN for the rows that belong to no class yet.

        The memory stores the original images but the pass saw augmented ones, so a batch is
        recognised by its labels, which both share.
        """
        learned = self.incoming is not None and batch.labels is self.incoming.labels
        logits = self.logits if learned else None
        logits = self.model.scores(super().represent(batch)) if logits is None else logits
        return logits.masked_fill(self.model.head_of_class < 0, torch.nan)

    def release(self, positions: Tensor, rows: Tensor) -> None:
        """Forget the stored logits of these rows as well."""
        super().release(positions, rows)
        stored = self.memory.features
        if stored is not None:
            known = rows[rows < stored.shape[1]].to(stored.device)
            stored.index_fill_(1, known, torch.nan)

    def gradient(self, batch: Batch) -> Tensor:
        """The sum of three gradients; batch norm sees the memory first."""
        self.incoming = batch
        dark = self.memory.sample(self.reference_batch)
        plain = self.memory.sample(self.reference_batch)
        if dark is None or plain is None:
            return self.grad(batch)[1]
        old = (
            self.alpha * self.grad(dark)[1]
            + self.beta * self.grad(dataclasses.replace(plain, features=None))[1]
        )
        return old + self.grad(batch)[1]

    def review_gradient(self, batch: Batch) -> Tensor:
        """The gradients of both losses of old examples, here of the same ones."""
        plain = dataclasses.replace(batch, features=None)
        return self.alpha * self.grad(batch)[1] + self.beta * self.grad(plain)[1]

    def loss(self, features: Tensor, batch: Batch) -> Tensor:
        """The distance of each sample to its stored logits, or cross entropy if it has none."""
        scores = self.model.scores(features)
        if batch is self.incoming:
            self.logits = scores.detach()
        if batch.features is None:
            return super().loss(features, batch)
        # Since then the head may have grown, or tasks may have claimed rows that were free.
        missing = batch.features.isnan()
        gap = scores[:, : missing.shape[1]] - batch.features
        return gap.masked_fill(missing, 0).square().sum(1) / (~missing).sum(1)
