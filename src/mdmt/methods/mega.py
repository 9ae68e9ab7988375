"""MEGA (Guo et al., 2020): balance old and new gradients by their losses."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from mdmt.methods.base import TINY, CrossEntropyRehearsal, setting
from mdmt.tasks import Batch


class MEGA(CrossEntropyRehearsal):
    """Turns g towards the memory's gradient, further the larger the memory's loss is.

    With form `II` the length of g is kept, and the angle to g maximises loss cos(angle) + loss_ref
    cos(phi - angle) on [0, pi/2], where phi is the angle between the gradients. The original
    climbs to this angle from three random starts; here it is computed directly. Form `I` is g +
    loss_ref / loss * g_ref. Reading `code` (the default, which gives the published numbers) has no
    threshold; reading `paper` follows the memory's gradient alone once the new loss is `threshold`
    or less.
    """

    name, source = "mega", "Guo et al., 2020"
    reading: Literal["code", "paper"] = "code"
    form: Literal["II", "I"] = "II"
    threshold: float = setting(default=1e-4, least=0.0)

    def gradient(self, batch: Batch) -> Tensor:
        """The balanced gradient."""
        reference = self.memory.sample(self.reference_batch)
        if reference is None:
            return self.grad(batch)[1]
        (loss_ref, loss), rows = self.grads(reference, batch)
        r, g = rows.unbind()
        balanced = (
            g + r * (loss_ref / loss.clamp_min(TINY))
            if self.form == "I"
            else turned(g, r, loss, loss_ref)
        )
        if self.reading == "code":
            return balanced
        # `torch.where` chooses on the device, so the step does not wait for it.
        return torch.where(loss <= self.threshold, r, balanced)


def turned(g: Tensor, r: Tensor, loss: Tensor, loss_ref: Tensor) -> Tensor:
    """g turned by the best angle in the plane of g and r; g itself if they are parallel."""
    length: Tensor = g.norm().clamp_min(TINY)
    along = g / length
    across = r - (r @ along) * along
    width = across.norm()
    parallel = (width <= 1e-5 * r.norm()) | (length <= TINY)
    angle = best_angle(torch.atan2(width, r @ along), loss, loss_ref)
    direction: Tensor = along * angle.cos() + across * (angle.sin() / width)
    return torch.where(parallel, g, direction * length)


def best_angle(phi: Tensor, loss: Tensor, loss_ref: Tensor) -> Tensor:
    """The maximiser of loss cos(a) + loss_ref cos(phi - a) on [0, pi/2].

    The sum is A cos(a) + B sin(a) with B >= 0, which rises up to a = atan2(B, A) and then falls.
    """
    return torch.atan2(loss_ref * phi.sin(), loss + loss_ref * phi.cos()).clamp(0, torch.pi / 2)
