"""ER-ACE (Caccia et al., 2022): new examples do not push the scores of old classes down."""

from __future__ import annotations

import math

from torch import Tensor
from torch.nn import functional

from mdmt.losses import cross_domain_softmax
from mdmt.methods.base import Rehearsal
from mdmt.tasks import Batch


class ERACE(Rehearsal):
    """Experience replay with asymmetric cross entropy.

    For new examples only the classes of their own mini-batch compete, so that they do not push old
    classes down. For examples from the memory all classes seen so far compete. The authors' program
    scores by cosines; the head here is linear, as for the other methods.
    """

    name, source = "er-ace", "Caccia et al., 2022"
    policy = "Reservoir"
    incoming = None  # the new mini-batch while its gradient is computed

    def gradient(self, batch: Batch) -> Tensor:
        """The gradient of the sum of both mean losses; the memory passes first."""
        self.incoming = batch
        reference = self.memory.sample(self.reference_batch)
        return self.grad(batch)[1] if reference is None else self.grad(reference, batch)[1]

    def loss(self, features: Tensor, batch: Batch) -> Tensor:
        """The cross entropy of each sample, among different classes for new and old samples."""
        scores, owner = self.model.scores(features), self.model.head_of_class
        if batch is not self.incoming:
            return cross_domain_softmax(
                scores, batch.labels, batch.tasks, owner, competitors="seen", reduction="none"
            )
        absent = ~self.model.only(batch.labels)
        return functional.cross_entropy(
            scores.masked_fill(absent, -math.inf), batch.labels, reduction="none"
        )
