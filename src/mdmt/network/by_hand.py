"""Gradients of the MLP with its way back written out, and the derivatives of the losses.

The MLP treats each sample by itself, so several batches pass through it together, and each sample
weighs one over the size of its own batch. The products of the way back are written straight into
the flat gradient. For a mini-batch of ten, autograd takes longer than these products: a method that
gives `slopes` does without autograd, any other uses it for the head and the loss only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import mdmt.network.parts as parts
import mdmt.ranks as ranks
from mdmt.backbones import MLP
from mdmt.losses import NEVER, Distance
from mdmt.network.gradients import Gradients, Loss, Slopes
from mdmt.network.model import Model, lengths
from mdmt.tasks import Batch

GROUP = 1024  # samples that pass together if each batch has a gradient of its own

GradientViews = list[Tensor]  # views of one gradient in the shapes of the weights, the head last

_through_relu = torch.ops.aten.threshold_backward.default
_through_log_softmax = torch.ops.aten._log_softmax_backward_data.default


def gradients_for(model: Model, method: Loss) -> Gradients:
    """The gradients of a model: by hand if its whole way back is known, else by autograd."""
    return ByHand(model, method) if knows_way_back(model) else Gradients(model, method)


def knows_way_back(model: Model) -> bool:
    """Whether the backbone is the MLP itself, trained as a whole in single precision.

    A subclass may do something else in its forward pass, a frozen weight has no gradient, and
    half precision is autograd's affair.
    """
    weights = 1 + len(list(model.backbone.parameters()))
    return (
        type(model.backbone) is MLP and len(model.leaves) == weights and model.precision == "fp32"
    )


class ByHand(Gradients):
    """The same losses and gradients as `Gradients`, for the MLP, without autograd's detours."""

    def grad(self, *batches: Batch) -> tuple[Tensor, Tensor]:
        """The sum of the batches' mean losses, and its gradient."""
        rows = self.model.flat.data.new_empty(1, len(self.model.flat))
        losses = self._fill(batches, rows)
        loss = losses[0] if len(losses) == 1 else torch.stack(losses).sum()
        self.losses.append(loss)
        return loss, rows[0]

    def grads(self, *batches: Batch) -> tuple[list[Tensor], Tensor]:
        """The mean loss of each batch, and the gradient of each as a row."""
        rows = self.model.flat.data.new_empty(len(batches), len(self.model.flat))
        losses: list[Tensor] = []
        for group in _groups(batches):
            losses += self._fill(group, rows[len(losses) : len(losses) + len(group)])
        self.losses += losses
        return losses, rows

    def descend(self, batch: Batch, length: float) -> None:
        """A plain step against the gradient of one sample, which is never written out."""
        if self.method.slopes is None or self.model.ranks > 1:
            super().descend(batch, length)
            return
        model = self.model
        with torch.no_grad():
            tape: list[Tensor] = []
            features = model.features(batch.inputs, tape)
            weights = sample_weights((1,), features.dtype, features.device)
            slopes = self.method.slopes(features, model.scores(features), batch, weights)
            weight = model.head[:, :-1]
            wrt_features = slopes.wrt_scores @ weight
            weight.addr_(slopes.wrt_scores[0], features[0], alpha=-length)
            model.head[:, -1].sub_(slopes.wrt_scores[0], alpha=length)
            _descend(model.backbone, tape, wrt_features, length)
        self.losses.append(slopes.losses[0])

    def _fill(self, batches: Sequence[Batch], rows: Tensor) -> list[Tensor]:
        """Write the gradient of each batch to its row, or that of their sum to a single row.

        Returns the mean loss of each batch.
        """
        whole = batches[0] if len(batches) == 1 else Batch.joined(batches)
        sizes = tuple(map(len, batches))
        targets = self._targets(rows)
        tape: list[Tensor] = []
        with torch.no_grad():
            features = self.model.features(whole.inputs, tape)
        # Joined batches keep the stored features of the first alone.
        lost = [batch for batch in batches[1:] if batch.features is not None]
        if self.method.slopes is None or lost:
            losses = self._from_losses(batches, features, tape, targets)
        else:
            losses = self._from_slopes(whole, sizes, features, tape, targets)
        if self.model.ranks > 1:
            ranks.mean_(rows)
        return losses

    def _targets(self, rows: Tensor) -> list[GradientViews]:
        """Each row as views in the shapes of the weights, which have no kernels."""
        parameters = self.model.parameters
        pieces = zip(*rows.split(parameters.sizes, dim=1), strict=True)
        return [list(map(Tensor.view, row, parameters.shapes)) for row in pieces]

    def _from_slopes(
        self,
        batch: Batch,
        sizes: tuple[int, ...],
        features: Tensor,
        tape: list[Tensor],
        targets: list[GradientViews],
    ) -> list[Tensor]:
        """The way back from the derivatives that the method gives."""
        model, slopes_of = self.model, self.method.slopes
        assert slopes_of is not None
        with torch.no_grad():
            weights = sample_weights(sizes, features.dtype, features.device)
            scores = model.scores(features)
            slopes = slopes_of(features, scores, batch, weights)
            groups = sizes if len(targets) == len(sizes) else (len(batch),)
            through = through_cosines if model.cosine else through_linear
            heads = [views[-1] for views in targets]
            wrt_features = through(model.head, features, scores, slopes.wrt_scores, groups, heads)
            if slopes.wrt_features is not None:
                wrt_features[: len(slopes.wrt_features)] += slopes.wrt_features
            self._pull_back(tape, wrt_features, groups, targets)
            if len(sizes) == 1:
                return [slopes.losses.sum() / len(slopes.losses)]
            return [part.sum() / len(part) for part in slopes.losses.split(sizes)]

    def _from_losses(
        self,
        batches: Sequence[Batch],
        features: Tensor,
        tape: list[Tensor],
        targets: list[GradientViews],
    ) -> list[Tensor]:
        """The way back from the losses, with autograd as far as the features."""
        leaves = [part.requires_grad_() for part in features.split([len(b) for b in batches])]
        losses = [
            self.method.loss(leaf, batch).sum() / len(batch)
            for leaf, batch in zip(leaves, batches, strict=True)
        ]
        one_target = len(targets) < len(losses)
        whole = [losses[0] if len(losses) == 1 else torch.stack(losses).sum()]
        wrt_features: list[Tensor] = []
        for loss, views in zip(whole if one_target else losses, targets, strict=True):
            own = leaves if one_target else [leaves[len(wrt_features)]]
            *found, wrt_head = torch.autograd.grad(
                loss, [*own, self.model.head], materialize_grads=True
            )
            wrt_features += found
            with torch.no_grad():
                views[-1].copy_(wrt_head)
        groups = [len(features)] if one_target else [len(batch) for batch in batches]
        with torch.no_grad():
            self._pull_back(tape, concat_rows(wrt_features), groups, targets)
        return [loss.detach() for loss in losses]

    def _pull_back(
        self,
        tape: list[Tensor],
        wrt_features: Tensor,
        groups: Sequence[int],
        targets: list[GradientViews],
    ) -> None:
        """From the derivatives in the features to those in the layers' weights, group by group."""
        if self.model.can_split and self.model.splits(len(wrt_features)):
            wrt_features = parts.own_rows(wrt_features)  # the tape is that of the own part
            groups = parts.own_sizes(groups)
        inputs, hidden, features = tape
        weight: Any = self.model.backbone.layers[2].weight  # type: ignore[union-attr, index]
        after = _through_relu(wrt_features, features, 0)
        before = _through_relu(torch.mm(after, weight), hidden, 0)
        columns = split_rows((inputs, hidden, before, after), groups)
        for (w1, b1, w2, b2, _), (x, h, of_h, of_f) in zip(targets, columns, strict=True):
            torch.mm(of_h.T, x, out=w1)
            torch.sum(of_h, 0, out=b1)
            torch.mm(of_f.T, h, out=w2)
            torch.sum(of_f, 0, out=b2)


def _descend(backbone: nn.Module, tape: list[Tensor], gradient: Tensor, length: float) -> None:
    """Step the MLP for one sample: the gradient of a layer is a product of two vectors."""
    inputs, hidden, features = tape
    first, _, second, _ = backbone.layers  # type: ignore[misc]
    after = _through_relu(gradient, features, 0)
    before = _through_relu(torch.mm(after, second.weight), hidden, 0)
    for layer, x, of_y in ((first, inputs, before), (second, hidden, after)):
        layer.weight.addr_(of_y[0], x[0], alpha=-length)
        layer.bias.sub_(of_y[0], alpha=length)


def through_linear(
    head: Tensor,
    features: Tensor,
    _: Tensor,
    slopes: Tensor,
    groups: Sequence[int],
    into: Sequence[Tensor],
) -> Tensor:
    """Derivatives in the features from those in W x + b; the head's are written to `into`."""
    for place, (wrt_scores, x) in zip(into, split_rows((slopes, features), groups), strict=True):
        torch.cat([torch.mm(wrt_scores.T, x), wrt_scores.sum(0)[:, None]], 1, out=place)
    return slopes @ head[:, :-1]


def through_cosines(
    head: Tensor,
    features: Tensor,
    cosines: Tensor,
    slopes: Tensor,
    groups: Sequence[int],
    into: Sequence[Tensor],
) -> Tensor:
    """The same for cosines: d cos(x, w) / dx = (w / |w| - cos x / |x|) / |x|, and likewise in w."""
    weight = head[:, :-1]
    of_x, of_w = lengths(features), lengths(weight)
    along = slopes * cosines
    products = slopes / (of_x * of_w.T)
    columns = split_rows((products, features, along), groups)
    for place, (of_product, x, part) in zip(into, columns, strict=True):
        pull = part.sum(0)[:, None] / of_w.square()
        wrt_weight = torch.mm(of_product.T, x).addcmul_(weight, pull, value=-1)
        torch.cat([wrt_weight, torch.zeros_like(of_w)], 1, out=place)
    pull = along.sum(1, keepdim=True) / of_x.square()
    return torch.mm(products, weight).addcmul_(features, pull, value=-1)


# Losses of `mdmt.losses` with their derivatives. `weights` is a column: what each sample counts.


def cross_entropy_slopes(
    logits: Tensor, labels: Tensor, weights: Tensor, smoothing: float = 0.0
) -> Slopes:
    """Cross entropy with its derivatives; `smoothing` as in `cross_domain_softmax`."""
    logs = functional.log_softmax(logits, 1)
    target = labels[:, None]
    if smoothing:
        competing = logits != NEVER
        share = smoothing / competing.sum(1, keepdim=True)
        wanted = (competing * share).scatter_add(1, target, torch.full_like(share, 1 - smoothing))
        losses = -(wanted * logs.masked_fill(~competing, 0)).sum(1)
        return Slopes(losses, _through_log_softmax(-weights * wanted, logs, 1, logs.dtype))
    slopes = torch.zeros_like(logs).scatter_(1, target, -weights)
    return Slopes(-logs.gather(1, target)[:, 0], _through_log_softmax(slopes, logs, 1, logs.dtype))


def angular_margin_slopes(
    cosines: Tensor, labels: Tensor, weights: Tensor, *, margin: float, scale: float
) -> Slopes:
    """`angular_margin` with its derivatives."""
    own = labels[:, None]
    target = cosines.gather(1, own)
    square = (1 - target) * (1 + target)
    inside = square > torch.finfo(square.dtype).eps  # at cos = +-1 the slope counts as 0
    sines = torch.where(inside, torch.where(inside, square, 1.0).sqrt(), 0.0)
    shifted = target * math.cos(margin) - sines * math.sin(margin) if margin else target
    logs = functional.log_softmax(scale * cosines.scatter(1, own, shifted), 1)
    losses = -logs.gather(1, own)
    slopes = logs.exp_()
    steep = torch.where(sines > 0, target / sines, 0.0) * math.sin(margin) + math.cos(margin)
    slopes.scatter_(1, own, steep * torch.expm1(-losses))
    return Slopes(losses[:, 0], slopes.mul_(scale * weights))


def episodic_distillation_slopes(
    features: Tensor, stored: Tensor, weights: Tensor, distance: Distance
) -> tuple[Tensor, Tensor]:
    """`episodic_distillation` of each sample, and its derivatives in the features."""
    if distance == "cosine":
        length = lengths(features)
        wanted, own = stored / lengths(stored), features / length
        cosines = (own * wanted).sum(1, keepdim=True)
        return 1 - cosines[:, 0], (cosines * own - wanted) * (weights / length)
    difference = features - stored
    share = weights / features.shape[1]
    if distance == "mse":
        return difference.square().mean(1), difference * (2 * share)
    return difference.abs().mean(1), difference.sign() * share


@lru_cache(maxsize=64)
def sample_weights(sizes: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """The weight of each sample if every batch counts 1: one over its batch's size, as a column."""
    return torch.cat(
        [torch.full((size, 1), 1 / size, dtype=dtype, device=device) for size in sizes]
    )


def split_rows(columns: Sequence[Tensor], sizes: Sequence[int]) -> Iterable[Sequence[Tensor]]:
    """For each group of `sizes` rows, its part of every column."""
    if len(sizes) == 1:
        return (columns,)
    return zip(*(column.split(list(sizes)) for column in columns), strict=True)


def concat_rows(pieces: Sequence[Tensor]) -> Tensor:
    """The rows of all pieces; a single piece is not copied."""
    return pieces[0] if len(pieces) == 1 else torch.cat(list(pieces))


def _groups(batches: Sequence[Batch]) -> list[list[Batch]]:
    """Neighbouring batches in groups of at most `GROUP` samples."""
    groups: list[list[Batch]] = []
    room = 0
    for batch in batches:
        if not groups or room < len(batch):
            groups.append([])
            room = GROUP
        groups[-1].append(batch)
        room -= len(batch)
    return groups
