"""MER (Riemer et al., 2019): meta-experience replay."""

from __future__ import annotations

from torch import Tensor

from mdmt.methods.base import Method, setting
from mdmt.tasks import Batch


class MER(Method):
    """Learns to align gradients: single-example steps inside, two interpolations outside (Algorithm 1 of its paper).

    For each new example: `batches` times, the example and `replay` others from the reservoir are visited one by one with
    plain steps, and theta <- start + beta (theta - start); after all of them theta <- first + gamma (theta - first). With
    mini-batches of one, as in the paper and in the presets, the memory has every example before the next one comes.
    """

    name, kind, source = "mer", "rehearsal", "Riemer et al., 2019"
    uses_memory = True
    policy = "Reservoir"
    beta: float = setting(default=0.03, least=0.0)
    gamma: float = setting(default=1.0, least=0.0)
    replay: int = setting(default=5, least=0)
    batches: int = setting(default=1, least=1)

    def step(self, batch: Batch) -> None:
        """Learn each example of the mini-batch by itself."""
        for i in range(len(batch)):
            new = Batch(batch.inputs[i : i + 1], batch.labels[i : i + 1], batch.tasks[i : i + 1])
            first = self.weights()
            for _ in range(self.batches):
                start = self.weights()
                for example in self.visits(new):
                    self.learner.apply(self.grad(example)[1])
                self.model.flat.data.lerp_(start, 1 - self.beta)
            self.model.flat.data.lerp_(first, 1 - self.gamma)

    def visits(self, new: Batch) -> list[Batch]:
        """Single examples: some from the memory, in random order, and the new one last."""
        old = self.memory.sample(self.replay) if self.replay else None
        if old is None:
            return [new]
        columns = (old.inputs.split(1), old.labels.split(1), old.tasks.split(1))
        return [Batch(*example) for example in zip(*columns, strict=True)] + [new]

    def weights(self) -> Tensor:
        """A copy of the weights as they are."""
        return self.model.flat.detach().clone()
