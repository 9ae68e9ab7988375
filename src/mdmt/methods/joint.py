"""Joint: learn all tasks at once, the upper bound."""

from __future__ import annotations

import dataclasses

from torch import Tensor

from mdmt.losses import cross_domain_softmax
from mdmt.methods.base import Method
from mdmt.tasks import Batch, Pool, Stream


class Joint(Method):
    """Learn all tasks together, shuffled, once: the bound that lifelong learning is compared with.

    All classes compete in training; at test the task is given. Only A_T is defined. On Split CIFAR
    the original program left out a fifth of the images of tasks 2 to 17; this is not copied.
    """

    name, kind, source = "joint", "bound", "all data at once"

    def arrange(self, stream: Stream) -> Stream:
        """The stream with all its tasks pooled into one."""
        return dataclasses.replace(stream, tasks=[Pool(stream.tasks)])

    def loss(self, features: Tensor, batch: Batch) -> Tensor:
        """Cross entropy among the classes of all heads."""
        scores = self.model.scores(features)
        return cross_domain_softmax(
            scores, batch.labels, self.heads(batch), self.model.head_of_class, reduction="none"
        )
