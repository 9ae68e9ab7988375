"""MDMT-R: multi-domain multi-task rehearsal (Lyu et al., AAAI 2021)."""

from __future__ import annotations

from typing import Literal

from torch import Tensor
from torch.nn import functional

from mdmt.errors import Mistake
from mdmt.losses import (
    angular_margin,
    cross_domain_softmax,
    episodic_distillation,
    released_angular_margin,
    two_level_angular_margin,
)
from mdmt.methods.base import Rehearsal, setting
from mdmt.tasks import Batch

# What a reading says of who competes (with either head) and of the distance.
READINGS = {
    "code": {"cosine": "released", "linear": "own", "distance": "l1"},
    "paper": {"cosine": "seen", "linear": "seen", "distance": "mse"},
}


class MDMTR(Rehearsal):
    """Old and new tasks trained in parallel and equally: g~ = g + g_ref + g_ED (Algorithm 1).

    `reading` names what is not set otherwise. `code`, the default, is the released program: `released_angular_margin` and
    L1 distillation, which give the published numbers on the Split benchmarks. `paper` is the printed equations: every seen
    head competes (Eq. 7-8), MSE distillation (Eq. 9-10). `head="linear"` is the softmax without margins: Eq. 4-5 when
    every seen head competes, the ordinary one when only the own head does. With one shared head there is no task margin.

    `code` leaves out two habits of the released program. On CUB and AWA it passes the memory through the
    network a second time for the distillation: same weights and same batch, so the same features and
    gradient, but batch norm's running averages move once more, and the memory makes up two thirds of the
    statistics used at test instead of half. And at test its scores are the cosines of the own head with
    zeros for every other class, so that an example whose own cosines are all negative counts as wrong;
    here, as in the paper, the own head alone is asked. Neither is part of the method, and MNIST and CIFAR
    had no second pass: one rule for all four.
    """

    name, source = "mdmt-r", "Lyu et al., 2021"

    task_margin: float = setting(default=0.1, least=0.0)
    class_margin: float = setting(default=0.01, least=0.0)
    scale: float = setting(default=24.0, above=0.0)
    reading: Literal["code", "paper"] = "code"
    competitors: Literal["released", "seen", "own"] = setting(default=None)
    distance: Literal["l1", "mse", "none"] = setting(default=None)
    head: Literal["cosine", "linear"] = "cosine"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.competitors == "released" and self.head == "linear":
            raise Mistake("MDMTR: competitors='released' is defined on cosines; with head='linear' use 'seen' or 'own'")
        for name, part in (("competitors", self.head), ("distance", "distance")):
            if getattr(self, name) is None:
                setattr(self, name, READINGS[self.reading][part])
        self.cosine = self.joins_batches = self.head == "cosine"
        self.stores_features = self.distance != "none"

    def gradient(self, batch: Batch) -> Tensor:
        """The sum of three gradients: new task, memory, distillation; the memory goes first, as batch norm sees it."""
        reference = self.memory.sample(self.reference_batch)
        return self.grad(batch)[1] if reference is None else self.grad(reference, batch)[1]

    @property
    def loss_is_plain(self) -> bool:
        """Whether nothing of MDMT-R's own is left of it."""
        plain = self.head == "linear" and self.competitors == "own" and self.distance == "none"
        return plain and type(self).loss is MDMTR.loss

    def loss(self, features: Tensor, batch: Batch) -> Tensor:
        """The margin loss of each sample and, where representations are stored with it, its distillation."""
        scores = self.model.scores(features)
        heads = self.heads(batch)
        owner = self.model.head_of_class
        margins = {
            "class_margin": self.class_margin,
            "task_margin": 0.0 if self.learner.heads.shared else self.task_margin,
            "scale": self.scale,
        }
        if self.head == "linear":
            assert self.competitors != "released"
            loss = cross_domain_softmax(
                scores, batch.labels, heads, owner, competitors=self.competitors, reduction="none"
            )
        elif self.learner.heads.shared and self.model.undivided and self.model.outputs == len(owner):
            loss = angular_margin(scores, batch.labels, margin=self.class_margin, scale=self.scale, reduction="none")
        elif self.competitors == "released":
            loss = released_angular_margin(
                scores, batch.labels, heads, owner,
                current=self.learner.current, outputs=self.model.outputs, reduction="none", **margins,
            )  # fmt: skip
        else:
            loss = two_level_angular_margin(
                scores, batch.labels, heads, owner, competitors=self.competitors, reduction="none", **margins
            )
        if batch.features is not None and self.distance != "none":
            old = len(batch.features)  # where batches are joined, only the first samples come from the memory
            moved = episodic_distillation(features[:old], batch.features, self.distance, reduction="none")
            loss = loss + (moved if old == len(loss) else functional.pad(moved, (0, len(loss) - old)))
        return loss
