"""One pass of several batches through the network, and the way back by hand.

For networks that know their own way back (`Model.by_hand`) and look at each sample by itself, so
that it does not matter which other samples pass with it. The products of the backward pass go
straight into the one flat gradient, or into a row of gradients for each batch. Where the method
knows the slopes of its loss, autograd is not asked at all, else for head and loss alone: for a
mini-batch of ten it takes longer than the products.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import torch
from torch import Tensor

import mdmt.network.parts as divided
from mdmt.losses import Slopes
from mdmt.network.model import Model, lengths

Line = Sequence[Tensor | None]  # where the gradient of each weight goes; None: somewhere new


class Pass:
    """Batches of raw inputs, one after the other and of these sizes, on their way through the
    backbone.
    """

    def __init__(self, model: Model, inputs: Tensor, sizes: Sequence[int]) -> None:
        self.model = model
        self.sizes = sizes
        self.tape: list[Tensor] = []
        with torch.no_grad():
            self.features = model.features(inputs, self.tape)

    def back(
        self, scores: Tensor, slopes: Slopes, lines: Sequence[Line]
    ) -> tuple[list[Tensor], list[list[Tensor]]]:
        """The mean loss of each batch, and the gradient of each, or of their sum where there is but
        one line.
        """
        groups = self._groups(len(lines))
        with torch.no_grad():
            through = through_cosines if self.model.cosine else through_linear
            places = [line[-1] for line in lines]
            of_features, heads = through(
                self.model.head, self.features, scores, slopes.of_scores, groups, places
            )
            if slopes.of_features is not None:
                of_features[: len(slopes.of_features)] += slopes.of_features
            layers = self._pull_back(of_features, groups, [line[:-1] for line in lines])
            losses = [part.sum() / len(part) for part in apart(slopes.losses, self.sizes)]
        return losses, [[*layer, head] for layer, head in zip(layers, heads, strict=True)]

    def parts(self) -> Sequence[Tensor]:
        """The features of each batch, for a loss of its own that autograd follows."""
        return [part.requires_grad_() for part in self.features.split(list(self.sizes))]

    def back_from(
        self, losses: Sequence[Tensor], parts: Sequence[Tensor], lines: Sequence[Sequence[Tensor]]
    ) -> None:
        """As `back`, from the loss of each of the parts, by autograd as far as the features."""
        whole = [torch.stack(list(losses)).sum()] if len(lines) < len(losses) else losses
        of_features: list[Tensor] = []
        for loss, line in zip(whole, lines, strict=True):
            leaves = parts if len(lines) < len(losses) else [parts[len(of_features)]]
            *found, of_head = torch.autograd.grad(
                loss, [*leaves, self.model.head], materialize_grads=True
            )
            of_features += found
            with torch.no_grad():
                line[-1].copy_(of_head)
        with torch.no_grad():
            self._pull_back(
                joined(of_features), self._groups(len(lines)), [line[:-1] for line in lines]
            )

    def _groups(self, lines: int) -> Sequence[int]:
        """How many samples share a gradient."""
        return self.sizes if lines == len(self.sizes) else [len(self.features)]

    def _pull_back(
        self, of_features: Tensor, sizes: Sequence[int], layers: Sequence[Line]
    ) -> list[list[Tensor]]:
        if self.model.divides(len(of_features)):  # the tape is that of the own part
            of_features = divided.own_rows(of_features)
            sizes = divided.own_sizes(sizes)
        return self.model.backbone.pull_back(self.tape, of_features, sizes, layers)  # type: ignore[operator, no-any-return]


def through_linear(
    head: Tensor, features: Tensor, _: Tensor, slopes: Tensor, groups: Sequence[int], into: Line
) -> tuple[Tensor, list[Tensor]]:
    """From the slopes in W x + b to those in the features, and to the head's, group by group."""
    heads = [
        torch.cat([torch.mm(of_scores.T, x), of_scores.sum(0)[:, None]], 1, out=place)
        for place, of_scores, x in zip(
            into, apart(slopes, groups), apart(features, groups), strict=True
        )
    ]
    return slopes @ head[:, :-1], heads


def through_cosines(
    head: Tensor,
    features: Tensor,
    cosines: Tensor,
    slopes: Tensor,
    groups: Sequence[int],
    into: Line,
) -> tuple[Tensor, list[Tensor]]:
    """The same for cosines: d cos(x, w) / dx = (w / |w| - cos x / |x|) / |x|, and likewise in w."""
    weight = head[:, :-1]
    of_x, of_w = lengths(features), lengths(weight)
    along = slopes * cosines
    products = slopes / (of_x * of_w.T)
    heads = []
    columns = (apart(products, groups), apart(features, groups), apart(along, groups))
    for place, of_product, x, part in zip(into, *columns, strict=True):
        found = torch.mm(of_product.T, x).addcmul_(
            weight, part.sum(0)[:, None] / of_w.square(), value=-1
        )
        heads.append(torch.cat([found, torch.zeros_like(of_w)], 1, out=place))
    of_features = torch.mm(products, weight).addcmul_(
        features, along.sum(1, keepdim=True) / of_x.square(), value=-1
    )
    return of_features, heads


def descend(
    model: Model, inputs: Tensor, find: Callable[[Tensor, Tensor], Slopes], length: float
) -> Tensor:
    """A plain step against the gradient of a single sample's loss, whose slopes `find` gives; and
    that loss.
    """
    with torch.no_grad():
        sample = Pass(model, inputs, (1,))
        scores = model.scores(sample.features)
        slopes = find(sample.features, scores)
        weight = model.head[:, :-1]
        of_features = slopes.of_scores @ weight
        weight.addr_(slopes.of_scores[0], sample.features[0], alpha=-length)
        model.head[:, -1].sub_(slopes.of_scores[0], alpha=length)
        model.backbone.descend(sample.tape, of_features, length)  # type: ignore[operator]
        return slopes.losses[0]


@lru_cache(maxsize=64)
def sample_weights(sizes: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """What each sample counts where every batch counts 1: one over the size of its own; as a
    column.
    """
    return torch.cat(
        [torch.full((size, 1), 1 / size, dtype=dtype, device=device) for size in sizes]
    )


def apart(x: Tensor, sizes: Sequence[int]) -> Sequence[Tensor]:
    """Rows in groups of these sizes."""
    return (x,) if len(sizes) == 1 else x.split(list(sizes))


def joined(parts: Sequence[Tensor]) -> Tensor:
    """One after the other; one alone is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))
