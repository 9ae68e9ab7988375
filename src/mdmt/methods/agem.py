"""A-GEM (Chaudhry et al., 2019): never step against the memory's gradient."""

from __future__ import annotations

from torch import Tensor

from mdmt.methods.base import TINY, CrossEntropyRehearsal
from mdmt.tasks import Batch


class AGEM(CrossEntropyRehearsal):
    """Averaged gradient episodic memory: to first order, no step raises the memory's loss."""

    name, source = "a-gem", "Chaudhry et al., 2019"

    def gradient(self, batch: Batch) -> Tensor:
        """g without the component that points against the memory's gradient."""
        reference = self.memory.sample(self.reference_batch)
        if reference is None:
            return self.grad(batch)[1]
        # The memory passes before the new batch: batch norm sees them in this order.
        r, g = self.grads(reference, batch)[1].unbind()
        return g - (g @ r).clamp(max=0) / (r @ r).clamp_min(TINY) * r
