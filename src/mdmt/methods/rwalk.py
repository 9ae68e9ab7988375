"""RWalk (Chaudhry et al., 2018): importance from both the Fisher and the path."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from mdmt.methods.anchored import PathFollowing, spread
from mdmt.methods.base import Buffer, setting
from mdmt.methods.ewc import RunningFisher
from mdmt.tasks import Batch


class RWalk(PathFollowing, RunningFisher):
    """Riemannian walk: the penalty is strength * sum (F + score) (theta - anchor)^2.

    F and the score are scaled to [0, 1] over the network. Every `window` steps s += relu(omega /
    (damping + F (theta - theta a window ago)^2)), then F is updated. As in the original, the sum of
    squares is not reset within a task, and both updates come before the step whose number the
    window divides. When a task ends the new score is score + (score + s) / 2 with reading `code`
    (the default, which gives the published numbers) and (score + s) / 2 with reading `paper`; after
    the first task s counts twice. The original did nothing in tasks shorter than a window; here
    such a task is one window.
    """

    name, source = "rwalk", "Chaudhry et al., 2018"
    reading: Literal["code", "paper"] = "code"
    damping: float = setting(default=1e-3, above=0.0)

    score = Buffer(like="params")
    gained = Buffer(like="params")  # s of the current task
    window_start = Buffer(like="params")

    def begin_task(self) -> None:
        """Also start a new window."""
        super().begin_task()
        self.window_start = self.anchor.clone()
        self.gained.zero_()
        self.path.zero_()

    def gradient(self, batch: Batch) -> Tensor:
        """The gradient with the penalty; a window that is over is turned into scores first."""
        if self.fold_is_due:
            self.end_window(self.window)
        return super().gradient(batch)

    def after_step(self, batch: Batch) -> None:
        """Follow the path, and add the gradient of the cross entropy to the Fisher."""
        super().after_step(batch)
        self.add_gradient()

    def end_window(self, steps: int) -> None:
        """Score each weight: the loss it saved in the window, relative to the distance it went."""
        now = self.model.flat.detach()
        distance = self.fisher * (now - self.window_start).square()
        self.gained = self.gained + (self.path / (self.damping + distance)).relu()
        self.fold(steps)
        self.window_start = now.clone()
        self.path.zero_()

    def end_task(self) -> None:
        """Fix the importances for the tasks to come."""
        if self.collected < self.window:
            self.end_window(max(1, int(self.collected)))
        first = self.learner.current == 0
        half = (self.score + (2 * self.gained if first else self.gained)) / 2
        self.score = half + (self.score if self.reading == "code" else torch.zeros_like(half))
        self.importance = spread(self.fisher) + spread(self.score)
