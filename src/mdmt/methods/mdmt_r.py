"""MDMT-R: multi-domain multi-task rehearsal (Lyu et al., AAAI 2021)."""

from __future__ import annotations

import dataclasses
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from mdmt.errors import Mistake
from mdmt.losses import (
    Competitors,
    angular_margin,
    classes_of_batch,
    cross_domain_softmax,
    episodic_distillation,
    released_angular_margin,
    two_level_angular_margin,
)
from mdmt.memory import Reservoir
from mdmt.methods.base import Rehearsal, setting
from mdmt.network.batch_norm import has_batch_norm
from mdmt.network.by_hand import angular_margin_slopes, episodic_distillation_slopes
from mdmt.network.gradients import Slopes
from mdmt.tasks import Batch

# The competitors (by kind of head) and the distance of each reading.
READINGS = {
    "code": {"cosine": "released", "linear": "own", "distance": "l1"},
    "paper": {"cosine": "seen", "linear": "seen", "distance": "mse"},
}


class MDMTR(Rehearsal):
    """Trains old and new tasks in parallel and equally: g~ = g + g_ref + g_ED (Algorithm 1).

    `reading` decides `competitors` and `distance` if they are not given. `code`, the default, is
    the released program: `released_angular_margin` and L1 distillation, which give the published
    numbers on the Split benchmarks. `paper` is the printed equations: all seen heads compete (Eq.
    7-8), with MSE distillation (Eq. 9-10). `head="linear"` is the softmax without margins: Eq. 4-5
    if all seen heads compete, the ordinary softmax if only the sample's own head does. With one
    shared head there is no task margin.

    With `teacher="average"`, which is ours, distillation is not from the stored representations but
    from the features that the averaged network (`average`) has of the same examples, in the same
    crops. Then none are stored.

    `competitors="asymmetric"`, which is ours, does as ER-ACE does: all seen heads compete for
    examples from the memory, and for new ones only the classes of their own mini-batch, which so do
    not push old classes down. A mini-batch of a single class would teach nothing: all seen heads
    compete for it.

    `code` does not copy two details of the released program. First, on CUB and AWA the program
    passes the memory through the network a second time for the distillation. Weights and batch are
    the same, and so are features and gradient, but batch norm's running averages move once more,
    and the memory makes up two thirds of the statistics used at test instead of half. Second, at
    test its scores are the cosines of the own head with zeros for every other class, so an example
    whose own cosines are all negative counts as wrong; here, as in the paper, only the classes of
    the own head compete. Neither is part of the method, and MNIST and CIFAR had no second pass, so
    all four benchmarks follow one rule here.

    Without batch norm, L1 makes it depend on rounding more than other methods: at the first step of
    a task the examples stored last have features equal to F but for rounding, and the slope of L1
    is the sign of that. The released program does the same. MSE does not go with a `Reservoir` on a
    network with batch norm, and is refused there. A reservoir stores and lends examples from the
    first step on, when batch norm's running statistics lag behind the weights: F, which is taken
    in evaluation mode, is then many times too long, and its squared error explodes.
    """

    name, source = "mdmt-r", "Lyu et al., 2021"

    task_margin: float = setting(default=0.1, least=0.0)
    class_margin: float = setting(default=0.01, least=0.0)
    scale: float = setting(default=24.0, above=0.0)
    reading: Literal["code", "paper"] = "code"
    competitors: Literal["released", "seen", "own", "asymmetric"] = setting(default=None)
    distance: Literal["l1", "mse", "cosine", "none"] = setting(default=None)
    head: Literal["cosine", "linear"] = "cosine"
    teacher: Literal["stored", "average"] = setting(default="stored", later=True)

    incoming = None  # the new mini-batch while its gradient is computed

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
        if self.competitors == "asymmetric":
            # New and old examples have different losses, which `slopes` would see as one batch.
            self.slopes = None  # type: ignore[method-assign, assignment]
        self.cosine = self.head == "cosine"
        if self.teacher == "average" and (not self.average or self.distance == "none"):
            raise Mistake(
                "MDMTR: teacher='average' needs an average of the weights and a distance to its"
                " features: set average, such as 0.99, and distance=l1, mse or cosine"
            )
        self.stores_features = self.distance != "none" and self.teacher == "stored"

    def gradient(self, batch: Batch) -> Tensor:
        """The sum of the gradients of the new task, the memory and the distillation.

        The memory passes first, which is the order batch norm sees.
        """
        self.incoming = batch
        reference = self.memory.sample(self.reference_batch)
        if reference is None:
            return self.grad(batch)[1]
        return self.grad(self._taught(reference), batch)[1]

    def review_gradient(self, batch: Batch) -> Tensor:
        """The gradients of the memory and the distillation."""
        return super().review_gradient(self._taught(batch))

    def _taught(self, reference: Batch) -> Batch:
        """Old examples with the features to distil from, those of the average if it teaches."""
        if self.teacher == "stored":
            return reference
        return dataclasses.replace(reference, features=self.model.embed(reference.inputs))

    def begin_task(self) -> None:
        """Refuse features to distil from that would make the loss explode."""
        self._refuse_long_targets()

    def _refuse_long_targets(self) -> None:
        lends_early = isinstance(self.memory, Reservoir) and not len(self.memory)
        if self.distance == "mse" and lends_early and has_batch_norm(self.model.backbone):
            raise Mistake(
                "mdmt-r: distance=mse does not go with a Reservoir on a network with batch norm:"
                " features in evaluation mode are many times too long in the first steps, and their"
                " squared error explodes; use policy=Ring or AtTaskEnd, or distance=cosine or none"
            )

    def loss(self, features: Tensor, batch: Batch) -> Tensor:
        """The margin loss of each sample, plus distillation if it has a stored representation."""
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
            competitors = self._competitors(batch)
            return cross_domain_softmax(
                scores, batch.labels, heads, owner, competitors=competitors, reduction="none"
            )
        if self._one_head and self.competitors != "asymmetric":
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
            competitors=self._competitors(batch),
            reduction="none",
            **margins,
        )

    def _competitors(self, batch: Batch) -> Competitors:
        """The classes that compete, by name or as a mask."""
        if self.competitors != "asymmetric":
            assert self.competitors != "released"
            return self.competitors
        if batch is not self.incoming:
            return "seen"
        return classes_of_batch(batch.labels, self.model.head_of_class, lone_class="seen")

    def slopes(self, features: Tensor, scores: Tensor, batch: Batch, weights: Tensor) -> Slopes:
        """`loss` with its derivatives; autograd computes them if several heads compete."""
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
        """Whether one shared head owns all rows: no task margin, and all classes compete."""
        heads = self.model.heads
        complete = heads.has_one_head and heads.outputs == len(self.model.head)
        return complete and heads.kind == "shared"


def _add_to_first(losses: Tensor, more: Tensor) -> Tensor:
    """Add `more` to the losses of the first samples, which come from the memory."""
    missing = len(losses) - len(more)
    return losses + (functional.pad(more, (0, missing)) if missing else more)
