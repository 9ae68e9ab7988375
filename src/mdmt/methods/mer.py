"""MER (Riemer et al., 2019): meta-experience replay."""

from __future__ import annotations

from torch import Tensor

from mdmt.methods.base import Method, setting
from mdmt.tasks import Batch


class MER(Method):
    """Aligns gradients by single-example steps between interpolations (Algorithm 1 of its paper).

    Each new example is learned in `batches` rounds. A round takes one plain step for each of
    `replay` examples of the reservoir and then for the new one, and ends with theta <- start + beta
    (theta - start), where start is theta at the round's beginning. After all rounds theta <- first
    + gamma (theta - first), where first is theta before the first round. With mini-batches of one,
    as in the paper and in the presets, each example enters the memory before the next one is
    learned. As in the original program theta is the whole state of the network: the weights and the
    batch-norm statistics.

    The original was published for networks without batch norm, which does not suit single examples:
    in training each image is normalised by its own mean and variance, at test by those of many
    images. Two tasks of split-digits (seed 1234) end at 89.0 %, and at 96.5 % if test images are
    normalised one by one as well. In tables of such networks MER's row is low for this reason, not
    because MER forgets more.
    """

    name, kind, source = "mer", "rehearsal", "Riemer et al., 2019"
    uses_memory = True
    one_by_one = True
    policy = "Reservoir"
    beta: float = setting(default=0.03, least=0.0)
    gamma: float = setting(default=1.0, least=0.0)
    replay: int = setting(default=5, least=0)
    batches: int = setting(default=1, least=1)

    def step(self, batch: Batch) -> None:
        """Learn the examples of the mini-batch one after the other."""
        for i in range(len(batch)):
            new = Batch(batch.inputs[i : i + 1], batch.labels[i : i + 1], batch.tasks[i : i + 1])
            first = self.copy_of_state()
            for _ in range(self.batches):
                start = self.copy_of_state()
                *earlier, last = self.visits(new)
                for example in earlier:
                    self.visit(example)
                # `apply` also checks that the losses of all visits are finite.
                self.learner.apply(self.grad(last)[1])
                self.interpolate(start, self.beta)
            self.interpolate(first, self.gamma)

    def visits(self, new: Batch) -> list[Batch]:
        """Single examples: `replay` from the memory in random order, then the new one."""
        old = self.memory.sample(self.replay) if self.replay else None
        if old is None:
            return [new]
        columns = (old.inputs.split(1), old.labels.split(1), old.tasks.split(1))
        return [Batch(*example) for example in zip(*columns, strict=True)] + [new]

    def visit(self, example: Batch) -> None:
        """Take a step for one example; plain SGD updates the weights without a gradient vector."""
        lr = self.learner.optimiser.plain_lr
        if lr is None:
            self.learner.apply(self.grad(example)[1])
        else:
            self.learner.gradients.descend(example, lr)

    def live_state(self) -> list[Tensor]:
        """The weights and batch-norm statistics of the network, not copied."""
        return [self.model.flat.data, *self.model.statistics()]

    def copy_of_state(self) -> list[Tensor]:
        """A copy of the weights and batch-norm statistics."""
        return [value.clone() for value in self.live_state()]

    def interpolate(self, start: list[Tensor], share: float) -> None:
        """Set the network's state to start + share * (now - start)."""
        for now, before in zip(self.live_state(), start, strict=True):
            now.lerp_(before, 1 - share)
