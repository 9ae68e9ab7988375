"""Equations 4 to 10 as pure functions.

Shapes: N samples, C rows of the head. `logits` or `cosines` are (N, C); `labels` (N) are rows of
the head; `tasks` (N) holds the head of each sample; `head_of_class` (C) holds the head of each row,
-1 for a free row, which never competes. Angles are shifted by cos(a + m) = cos a cos m - sin a sin
m, without acos, so values and gradients are finite at cos = +-1.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from mdmt.errors import Mistake

Reduction = Literal["mean", "sum", "none"]
Distance = Literal["mse", "l1", "cosine"]
Competitors = Literal["seen", "own"] | Tensor
NEVER = -math.inf  # the score of a class that does not compete


def cross_domain_softmax(
    logits: Tensor,
    labels: Tensor,
    tasks: Tensor,
    head_of_class: Tensor,
    *,
    competitors: Competitors = "seen",
    smoothing: float = 0.0,
    reduction: Reduction = "mean",
) -> Tensor:
    """Cross-domain softmax, Eq. 4-5: the classes of all seen heads compete.

    With `competitors="own"` only the classes of the sample's own head compete: the ordinary cross
    entropy of the other methods. It may also be a mask of the rows that compete. `smoothing` is the
    share of the label that goes evenly to the classes that compete.
    """
    competing = _competing(tasks, head_of_class, competitors)
    logits = logits.masked_fill(~competing, NEVER)
    if not smoothing:
        return functional.cross_entropy(logits, labels, reduction=reduction)
    # Torch's own smoothing would give a share to classes that do not compete, at infinite cost.
    logs = functional.log_softmax(logits, 1)
    even = logs.masked_fill(~competing, 0).sum(1) / competing.sum(1)
    own = logs.gather(1, labels[:, None])[:, 0]
    return _reduce((smoothing - 1) * own - smoothing * even, reduction)


def two_level_angular_margin(
    cosines: Tensor,
    labels: Tensor,
    tasks: Tensor,
    head_of_class: Tensor,
    *,
    class_margin: float = 0.01,
    task_margin: float = 0.1,
    scale: float = 24.0,
    competitors: Competitors = "seen",
    reduction: Reduction = "mean",
) -> Tensor:
    """Two-level angular margin loss, Eq. 7-8.

    The sample's own class is scored s cos(theta + m_c + m_t), the other classes of its head s
    cos(theta + m_t), the classes of the other heads s cos(theta). With both margins 0 this is the
    cosine cross-domain softmax; with one head and m_t = 0 it is ArcFace (Eq. 6).
    """
    sines = _sines(cosines)
    own = head_of_class == tasks[:, None]
    target = functional.one_hot(labels, cosines.shape[1]).bool()
    shifted = torch.where(own, _shift(cosines, sines, task_margin), cosines)
    shifted = torch.where(target, _shift(cosines, sines, class_margin + task_margin), shifted)
    shifted = shifted.masked_fill(~_competing(tasks, head_of_class, competitors), NEVER)
    return functional.cross_entropy(scale * shifted, labels, reduction=reduction)


def angular_margin(
    cosines: Tensor,
    labels: Tensor,
    *,
    margin: float = 0.01,
    scale: float = 24.0,
    reduction: Reduction = "mean",
) -> Tensor:
    """ArcFace, Eq. 6: all classes compete; the sample's own class is scored s cos(theta + m).

    The two losses beside it equal this one if a single head has all rows and there is no task
    margin. Here the margin is computed only for the entries that have one.
    """
    own = labels[:, None]
    target = cosines.gather(1, own)
    shifted = cosines.scatter(1, own, _shift(target, _sines(target), margin))
    return functional.cross_entropy(scale * shifted, labels, reduction=reduction)


def released_angular_margin(
    cosines: Tensor,
    labels: Tensor,
    tasks: Tensor,
    head_of_class: Tensor,
    *,
    current: int,
    outputs: int,
    class_margin: float = 0.01,
    task_margin: float = 0.1,
    scale: float = 24.0,
    reduction: Reduction = "mean",
) -> Tensor:
    """The loss of the authors' released program, which reproduces the published Split results.

    It differs from Eq. 7-8 in the classes that compete. A sample of the current task selects its
    own head only; a sample of an earlier task i selects heads 1 to i. Selected classes are scored s
    cos(theta + m_t), the sample's own class s [cos(theta + m_t) + cos(theta + m_c) - cos(theta)],
    and each of the remaining `outputs` classes enters the softmax with the constant score 0.
    """
    heads, owner = head_of_class[None, :], tasks[:, None]
    selected = (heads == owner) | ((heads >= 0) & (heads < owner) & (owner != current))
    sines = _sines(cosines)
    with_task = _shift(cosines, sines, task_margin)
    own = labels[:, None]
    target = cosines.gather(1, own)
    with_class = _shift(target, sines.gather(1, own), class_margin) - target
    logits = scale * with_task.scatter_add(1, own, with_class)
    constant = (outputs - selected.sum(1, keepdim=True)).clamp_min(0).to(logits.dtype).log()
    total = torch.cat([logits.masked_fill(~selected, NEVER), constant], dim=1).logsumexp(1)
    return _reduce(total - logits.gather(1, labels[:, None])[:, 0], reduction)


def episodic_distillation(
    features: Tensor,
    stored: Tensor,
    distance: Distance = "mse",
    *,
    reduction: Reduction = "mean",
) -> Tensor:
    """Episodic distillation, Eq. 9-10: how far features have moved from the stored ones, F.

    The squared (`mse`, the paper) or absolute (`l1`, the released program) difference is averaged
    over the entries of the feature vector, then over the samples. `cosine`, which is ours, compares
    directions alone: 1 - cos.
    """
    if distance not in ("mse", "l1", "cosine"):
        raise Mistake(f"distance={distance!r}: must be 'mse', 'l1' or 'cosine'")
    if distance == "cosine":
        return _reduce(1 - functional.cosine_similarity(features, stored), reduction)
    difference = features - stored
    return _reduce(
        (difference.square() if distance == "mse" else difference.abs()).mean(1), reduction
    )


def classes_of_batch(
    labels: Tensor, head_of_class: Tensor, *, lone_class: Literal["own", "seen"] = "own"
) -> Tensor:
    """A mask of the rows of the head that occur in a mini-batch, as (1, C).

    A mini-batch of one class has nothing to compete with, so its loss and gradient are 0. With
    `lone_class="seen"` the rows of all seen heads compete then.
    """
    present = torch.zeros_like(head_of_class, dtype=torch.bool)
    present[labels] = True
    if lone_class == "seen":  # no branch on the count: a device would have to be waited for
        present = present | ((head_of_class >= 0) & (present.sum() == 1))
    return present[None]


def _competing(tasks: Tensor, head_of_class: Tensor, competitors: Competitors) -> Tensor:
    if isinstance(competitors, Tensor):
        return competitors.expand(len(tasks), -1)
    if competitors == "seen":
        return (head_of_class >= 0).expand(len(tasks), -1)
    if competitors == "own":
        return head_of_class == tasks[:, None]
    raise Mistake(f"competitors={competitors!r}: must be 'seen' or 'own', or a mask")


def _sines(cosines: Tensor) -> Tensor:
    """Sines of angles in [0, pi] from their cosines, with slope 0 if the true one is infinite."""
    square = (1 - cosines) * (1 + cosines)
    inside = square > torch.finfo(cosines.dtype).eps
    return torch.where(inside, torch.where(inside, square, 1.0).sqrt(), 0.0)


def _shift(cosines: Tensor, sines: Tensor, margin: float) -> Tensor:
    """cos(theta + margin)."""
    return cosines * math.cos(margin) - sines * math.sin(margin) if margin else cosines


def _reduce(values: Tensor, reduction: Reduction) -> Tensor:
    if reduction == "mean":
        return values.mean()
    return values.sum() if reduction == "sum" else values
