"""ER (Chaudhry et al., 2019b): learn new examples and some old ones as one batch."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from mdmt.methods.base import CrossEntropyRehearsal
from mdmt.tasks import Batch


class ER(CrossEntropyRehearsal):
    """Experience replay: the mean loss over new examples and examples drawn from a reservoir.

    The reservoir samples the whole stream so far. With reading `code` (the default, which gives the
    published numbers) `reference_batch` old examples are drawn, so ten new ones weigh 10/266. With
    reading `paper` as many old examples as new ones are drawn.
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
