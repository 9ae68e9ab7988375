"""ER (Chaudhry et al., 2019b): learn the new examples and some old ones as one batch."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from mdmt.methods.base import Rehearsal
from mdmt.tasks import Batch


class ER(Rehearsal):
    """Experience replay: one mean over the new mini-batch and a batch from a reservoir of the
    stream so far.

    reading `code` (default, the published numbers): `reference_batch` old examples, so that ten new
    ones weigh 10/266. reading `paper`: as many old examples as new ones.
    """

    name, source = "er", "Chaudhry et al., 2019"
    policy = "Reservoir"
    reading: Literal["code", "paper"] = "code"

    def gradient(self, batch: Batch) -> Tensor:
        """The gradient of the mean loss over the joint batch."""
        reference = self.memory.sample(
            len(batch) if self.reading == "paper" else self.reference_batch
        )
        return self.grad(batch if reference is None else Batch.joined([reference, batch]))[1]
