"""EWC (Kirkpatrick et al., 2017): a weight is important when the loss is sensitive to it."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from mdmt.methods.anchored import Anchored, spread
from mdmt.methods.base import Buffer, setting
from mdmt.tasks import Batch


class RunningFisher(Anchored):
    """A running mean of squared gradients of the mini-batch's mean loss, folded every `window`
    steps.

    F <- .1 F + .9 (sum of the squares) / window. As in the original, a fold comes before the step
    whose number the window divides: a task's first window is one gradient short, and where the
    window divides its steps only the last gradient enters nothing. A task shorter than a window has
    no fold; what is done then is ours. Squares of batch means depend on the batch size; the
    published numbers were made so.
    """

    window: int = setting(default=50, least=1)
    fisher = Buffer(like="params")
    squares = Buffer(like="params")
    collected = Buffer(counts=True)  # gradients of this task so far

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
        """Take the squares into the mean, as those of so many steps."""
        self.fisher = 0.1 * self.fisher + 0.9 * self.squares / steps


class EWC(RunningFisher):
    """Elastic weight consolidation, online: the penalty is strength * sum F (theta - anchor)^2, one
    anchor.

    reading `code` (default, the published numbers): F is the running mean over the last windows,
    scaled to [0, 1] over the network at the end of a task, so only the latest task's importance
    counts. The original never folded in a task shorter than a window, which made it plain
    fine-tuning there; here such a task's own mean is used. reading `paper`: after each task the
    mean of squared gradients of single examples of its training data (its empirical Fisher), one
    penalty for each task about its own weights, strength / 2 * sum_k F_k (theta - theta_k)^2.
    """

    name, source = "ewc", "Kirkpatrick et al., 2017"
    reading: Literal["code", "paper"] = "code"
    # Examples of a task that its Fisher is taken from (paper).
    samples: int = setting(default=200, least=1)

    weighted = Buffer(like="params")  # sum_k F_k theta_k (paper)

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
        """The gradient of the penalty, in the paper's form summed over the tasks' own anchors."""
        if self.reading == "code":
            return super().pull()
        return self.strength * (self.importance * self.model.flat.detach() - self.weighted)
