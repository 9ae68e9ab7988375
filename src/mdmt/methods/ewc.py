"""EWC (Kirkpatrick et al., 2017): a weight is important when the loss is sensitive to it."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from mdmt.methods.anchored import Anchored, spread
from mdmt.methods.base import Buffer, setting
from mdmt.tasks import Batch


class RunningFisher(Anchored):
    """A running mean F of the squared gradients of the mini-batches' mean losses.

    Every `window` steps F is updated: F <- .1 F + .9 (sum of the squares) / window. As in the
    original, the update comes before the step whose number the window divides. A task's first
    window is therefore one gradient short, and if the window divides the task's number of steps,
    the last gradient, and only that one, is never used. The original never updates F in a task
    shorter than a window; subclasses here do it at the end of such a task. Squares of batch means
    depend on the batch size; the published numbers were computed this way.
    """

    window: int = setting(default=50, least=1)
    fisher = Buffer(like="params")
    squares = Buffer(like="params")  # the sum of the squares in this window
    collected = Buffer(counts=True)  # the number of gradients of this task so far

    def begin_task(self) -> None:
        """Also start a new window."""
        super().begin_task()
        self.squares.zero_()
        self.collected.zero_()

    @property
    def fold_is_due(self) -> bool:
        """Whether a window ends before the next gradient is added."""
        return (int(self.collected) + 1) % self.window == 0

    def add_gradient(self) -> None:
        """Add the square of the latest gradient."""
        self.squares = self.squares + self.task_gradient.square()
        self.collected += 1

    def fold(self, steps: int) -> None:
        """Update the running mean with the sum of squares, which counts as `steps` gradients."""
        self.fisher = 0.1 * self.fisher + 0.9 * self.squares / steps


class EWC(RunningFisher):
    """Elastic weight consolidation, online: the penalty is strength * sum F (theta - anchor)^2.

    With reading `code` (the default, which gives the published numbers) there is one anchor, and F
    is the running mean over the last windows, scaled to [0, 1] over the network at the end of a
    task, so only the latest task's importance counts. The original never updated F in a task
    shorter than a window, where it was therefore plain fine-tuning; here the mean over such a task
    is used. With reading `paper`, F_k is computed after each task k: the mean of the squared
    gradients of single training examples (the empirical Fisher). Each task has its own penalty
    about its own weights: strength / 2 * sum_k F_k (theta - theta_k)^2.
    """

    name, source = "ewc", "Kirkpatrick et al., 2017"
    reading: Literal["code", "paper"] = "code"
    # The number of examples from which the Fisher of a task is computed (reading `paper`).
    samples: int = setting(default=200, least=1)

    weighted = Buffer(like="params")  # sum_k F_k theta_k (reading `paper`)

    def after_step(self, batch: Batch) -> None:
        """Collect the gradient of the cross entropy."""
        if self.reading == "paper":
            return
        if self.fold_is_due:
            self.fold(self.window)
            self.squares.zero_()
        self.add_gradient()

    def end_task(self) -> None:
        """Fix the importances for the tasks to come."""
        if self.reading == "code":
            if self.collected < self.window:
                self.fold(max(1, int(self.collected)))
            self.importance = spread(self.fisher)
            return
        fisher = torch.zeros_like(self.importance)
        picked = self.learner.sample_of_task(self.samples)
        with self.model.frozen():
            for i in picked.split(1):
                fisher += self.grad(self.learner.read(self.task, i))[1].square() / len(picked)
        self.importance = self.importance + fisher
        self.weighted = self.weighted + fisher * self.model.flat.detach()

    def pull(self) -> Tensor:
        """The gradient of the penalty; reading `paper` sums over the tasks and their anchors."""
        if self.reading == "code":
            return super().pull()
        return self.strength * (self.importance * self.model.flat.detach() - self.weighted)
