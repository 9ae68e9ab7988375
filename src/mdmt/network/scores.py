"""From scores to answers."""

from __future__ import annotations

import math

from torch import Tensor


def best(scores: Tensor, allowed: Tensor) -> Tensor:
    """The row of the head with the highest score among the allowed rows."""
    return scores.masked_fill(~allowed, -math.inf).argmax(1)
