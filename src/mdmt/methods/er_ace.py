"""ER-ACE (Caccia et al., 2022): new examples do not push the scores of old classes down."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from mdmt.losses import Competitors, classes_of_batch, cross_domain_softmax
from mdmt.methods.base import CrossEntropyRehearsal, setting
from mdmt.tasks import Batch


class ERACE(CrossEntropyRehearsal):
    """Experience replay with asymmetric cross entropy.

    For new examples only the classes of their own mini-batch compete, so that they do not push old
    classes down. For examples from the memory all classes seen so far compete. The authors' program
    scores by cosines; the head here is linear, as for the other methods. A mini-batch whose new
    examples are all of one class teaches nothing with `lone_class="own"`, as in the paper; with
    `seen` all classes seen so far compete for it.
    """

    name, source = "er-ace", "Caccia et al., 2022"
    policy = "Reservoir"
    lone_class: Literal["own", "seen"] = setting(default="own", later=True)
    incoming = None  # the new mini-batch while its gradient is computed

    def gradient(self, batch: Batch) -> Tensor:
        """The gradient of the sum of both mean losses; the memory passes first."""
        self.incoming = batch
        reference = self.memory.sample(self.reference_batch)
        return self.grad(batch)[1] if reference is None else self.grad(reference, batch)[1]

    def loss(self, features: Tensor, batch: Batch) -> Tensor:
        """The cross entropy of each sample, among different classes for new and old samples."""
        owner = self.model.head_of_class
        competitors: Competitors = "seen"
        if batch is self.incoming:
            competitors = classes_of_batch(batch.labels, owner, lone_class=self.lone_class)
        return cross_domain_softmax(
            self.model.scores(features),
            batch.labels,
            batch.tasks,
            owner,
            competitors=competitors,
            smoothing=self.smoothing,
            reduction="none",
        )
