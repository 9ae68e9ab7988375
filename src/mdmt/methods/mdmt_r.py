"""MDMT-R: multi-domain multi-task rehearsal (Lyu et al., AAAI 2021)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from mdmt.errors import Mistake
from mdmt.inputs.device import send
from mdmt.losses import (
    angular_margin,
    cross_domain_softmax,
    episodic_distillation,
    released_angular_margin,
    two_level_angular_margin,
)
from mdmt.methods.base import Buffer, Rehearsal, setting
from mdmt.network.by_hand import angular_margin_slopes, episodic_distillation_slopes
from mdmt.network.gradients import Slopes
from mdmt.tasks import Batch

# What a reading says of who competes (with either head) and of the distance.
READINGS = {
    "code": {"cosine": "released", "linear": "own", "distance": "l1"},
    "paper": {"cosine": "seen", "linear": "seen", "distance": "mse"},
}


class MDMTR(Rehearsal):
    """Old and new tasks trained in parallel and equally: g~ = g + g_ref + g_ED (Algorithm 1).

    `reading` names what is not set otherwise. `code`, the default, is the released program:
    `released_angular_margin` and L1 distillation, which give the published numbers on the Split
    benchmarks. `paper` is the printed equations: every seen head competes (Eq. 7-8), MSE
    distillation (Eq. 9-10). `head="linear"` is the softmax without margins: Eq. 4-5 when every seen
    head competes, the ordinary one when only the own head does. With one shared head there is no
    task margin.

    `code` leaves out two habits of the released program. On CUB and AWA it passes the memory
    through the network a second time for the distillation: same weights and same batch, so the same
    features and gradient, but batch norm's running averages move once more, and the memory makes up
    two thirds of the statistics used at test instead of half. And at test its scores are the
    cosines of the own head with zeros for every other class, so that an example whose own cosines
    are all negative counts as wrong; here, as in the paper, the own head alone is asked. Neither is
    part of the method, and MNIST and CIFAR had no second pass: one rule for all four.

    Two settings are not the paper's, and off unless given. `average` is the decay of a moving
    average of the weights, with which the model answers and representations are stored; early in a
    task it is the mean of the task's steps. `last_step` is the length of a task's last step as a
    share of its first; the steps between shorten evenly.
    """

    name, source = "mdmt-r", "Lyu et al., 2021"

    task_margin: float = setting(default=0.1, least=0.0)
    class_margin: float = setting(default=0.01, least=0.0)
    scale: float = setting(default=24.0, above=0.0)
    reading: Literal["code", "paper"] = "code"
    competitors: Literal["released", "seen", "own"] = setting(default=None)
    distance: Literal["l1", "mse", "none"] = setting(default=None)
    head: Literal["cosine", "linear"] = "cosine"
    average: float = setting(default=0.0, least=0.0, below=1.0, later=True)
    last_step: float = setting(default=1.0, least=0.0, later=True)

    mean = Buffer(like="params", when="average")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.competitors == "released" and self.head == "linear":
            raise Mistake(
                "MDMTR: competitors='released' is defined on cosines; with head='linear' use 'seen'"
                " or 'own'"
            )
        for name, part in (("competitors", self.head), ("distance", "distance")):
            if getattr(self, name) is None:
                setattr(self, name, READINGS[self.reading][part])
        self.cosine = self.head == "cosine"
        self.stores_features = self.distance != "none"

    def gradient(self, batch: Batch) -> Tensor:
        """The sum of three gradients: new task, memory, distillation.

        The memory passes first: that is the order batch norm sees.
        """
        reference = self.memory.sample(self.reference_batch)
        gradient = self.grad(batch)[1] if reference is None else self.grad(reference, batch)[1]
        if self.last_step != 1:
            gradient *= 1 - (1 - self.last_step) * self.learner.share_of_task
        return gradient

    def begin_task(self) -> None:
        """Start the average of a new row of the head where the row starts."""
        if not self.average:
            return
        *earlier, task = self.learner.tasks[: self.learner.current + 1]
        if not earlier:
            self.mean = self.model.flat.detach().clone()
        old = {row for learned in earlier for row in learned.rows.tolist()}
        new = sorted(set(task.rows.tolist()) - old)
        rows = send(torch.tensor(new, dtype=torch.int64), self.mean.device)
        mean = self.mean[-self.model.head.numel() :].view_as(self.model.head)
        mean.index_copy_(0, rows, self.model.head.detach().index_select(0, rows))

    def step(self, batch: Batch) -> None:
        """Take the step, then move the average, before the memory is written.

        Early in a task the average is the mean of the task's own steps: a long one would take a
        while to answer for a new task.
        """
        self.learner.apply(self.gradient(batch))
        if self.average:
            share = max(1 - self.average, 1 / (self.learner.step_in_task + 1))
            self.mean.lerp_(self.model.flat.detach(), share)

    def answer_weights(self) -> Tensor | None:
        """The averaged weights, if there is an average."""
        return self.mean if self.average else None

    def loss(self, features: Tensor, batch: Batch) -> Tensor:
        """The margin loss of each sample and, where representations are stored with it, its
        distillation.
        """
        loss = self.margin_loss(self.model.scores(features), batch)
        if batch.features is None or self.distance == "none":
            return loss
        old = features[: len(batch.features)]
        return _add_to_first(
            loss, episodic_distillation(old, batch.features, self.distance, reduction="none")
        )

    def margin_loss(self, scores: Tensor, batch: Batch) -> Tensor:
        """The part of each sample's loss that depends on its scores."""
        heads = self.heads(batch)
        owner = self.model.head_of_class
        if self.head == "linear":
            assert self.competitors != "released"
            return cross_domain_softmax(
                scores, batch.labels, heads, owner, competitors=self.competitors, reduction="none"
            )
        if self._one_head:
            return angular_margin(
                scores, batch.labels, margin=self.class_margin, scale=self.scale, reduction="none"
            )
        margins = {
            "class_margin": self.class_margin,
            "task_margin": 0.0 if self.learner.heads.shared else self.task_margin,
            "scale": self.scale,
        }
        if self.competitors == "released":
            return released_angular_margin(
                scores,
                batch.labels,
                heads,
                owner,
                current=self.learner.current,
                outputs=self.model.heads.outputs,
                reduction="none",
                **margins,
            )
        return two_level_angular_margin(
            scores,
            batch.labels,
            heads,
            owner,
            competitors=self.competitors,
            reduction="none",
            **margins,
        )

    def slopes(self, features: Tensor, scores: Tensor, batch: Batch, weights: Tensor) -> Slopes:
        """`loss` with its derivatives; autograd finds those of margins between several heads."""
        formula = self.head == "cosine" and type(self).margin_loss is MDMTR.margin_loss
        if formula and self._one_head:
            margins = angular_margin_slopes(
                scores, batch.labels, weights, margin=self.class_margin, scale=self.scale
            )
        else:
            with torch.enable_grad():
                leaf = scores.detach().requires_grad_()
                losses = self.margin_loss(leaf, batch)
                (wrt_scores,) = torch.autograd.grad(losses, leaf, weights[:, 0])
            margins = Slopes(losses.detach(), wrt_scores)
        if batch.features is None or self.distance == "none":
            return margins
        old = len(batch.features)
        moved, wrt_features = episodic_distillation_slopes(
            features[:old], batch.features, weights[:old], self.distance
        )
        return Slopes(_add_to_first(margins.losses, moved), margins.wrt_scores, wrt_features)

    @property
    def _one_head(self) -> bool:
        """Whether one shared head owns all rows: no task margin, and every row competes."""
        heads = self.model.heads
        complete = heads.has_one_head and heads.outputs == len(self.model.head)
        return complete and heads.kind == "shared"


def _add_to_first(losses: Tensor, more: Tensor) -> Tensor:
    """Add something to the losses of the first samples, those of the memory."""
    missing = len(losses) - len(more)
    return losses + (functional.pad(more, (0, missing)) if missing else more)
