"""Joint: all tasks at once, the upper bound."""

from __future__ import annotations

import dataclasses

from torch import Tensor

from mdmt.losses import cross_domain_softmax
from mdmt.methods.base import Method
from mdmt.tasks import Batch, Pool, Stream


class Joint(Method):
    """Learn all tasks together, shuffled, once: what lifelong learning is measured against.

    Every class competes in training; the task is given at test. Only A_T is defined. The original
    program left a fifth of the images of tasks 2 to 17 out on Split CIFAR; that is not copied.
    """

    name, kind, source = "joint", "bound", "all data at once"

    def arrange(self, stream: Stream) -> Stream:
        """One pooled task."""
        return dataclasses.replace(stream, tasks=[Pool(stream.tasks)])

    def loss(self, features: Tensor, batch: Batch) -> Tensor:
        """Cross entropy among the classes of all heads."""
        scores = self.model.scores(features)
        return cross_domain_softmax(
            scores, batch.labels, self.heads(batch), self.model.head_of_class, reduction="none"
        )
