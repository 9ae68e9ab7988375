"""PI, also called SI (Zenke et al., 2017): a weight is important when its path lowered the loss."""

from __future__ import annotations

from mdmt.methods.anchored import PathFollowing
from mdmt.methods.base import setting


class PI(PathFollowing):
    """Path integral: Omega += relu(omega / (damping + (theta - anchor)^2)) when a task ends.

    The penalty is strength * sum Omega (theta - anchor)^2. Omega is not normalised, as in the
    programs behind the published numbers.
    """

    name, source = "pi", "Zenke et al., 2017"
    damping: float = setting(default=1e-3, above=0.0)

    def end_task(self) -> None:
        """Add the task's importances to those of the earlier tasks."""
        moved = self.model.flat.detach() - self.anchor
        self.importance = self.importance + (self.path / (self.damping + moved.square())).relu()
        self.path.zero_()
