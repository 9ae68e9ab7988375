"""Equations 4 to 10 as pure functions.

Shapes: N samples, C rows of the head. `logits` or `cosines` are (N, C); `labels` (N) are rows of
the head; `tasks` (N) say to which head each sample belongs; `head_of_class` (C) says to which head
each row belongs, -1 for a free row, which never takes part. Angles are shifted by cos(a + m) = cos
a cos m - sin a sin m: no acos, and value and gradient are finite at cos = +-1.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from mdmt.errors import Mistake

Reduction = Literal["mean", "sum", "none"]
NEVER = -math.inf


def cross_domain_softmax(
    logits: Tensor,
    labels: Tensor,
    tasks: Tensor,
    head_of_class: Tensor,
    *,
    competitors: Literal["seen", "own"] = "seen",
    reduction: Reduction = "mean",
) -> Tensor:
    """Cross-domain softmax, Eq. 4-5: the classes of every seen head compete.

    With `competitors="own"` only the sample's own head competes: the ordinary cross entropy of the
    other methods.
    """
    return functional.cross_entropy(
        logits.masked_fill(~_competing(tasks, head_of_class, competitors), NEVER),
        labels,
        reduction=reduction,
    )


def two_level_angular_margin(
    cosines: Tensor,
    labels: Tensor,
    tasks: Tensor,
    head_of_class: Tensor,
    *,
    class_margin: float = 0.01,
    task_margin: float = 0.1,
    scale: float = 24.0,
    competitors: Literal["seen", "own"] = "seen",
    reduction: Reduction = "mean",
) -> Tensor:
    """Two-level angular margin loss, Eq. 7-8.

    The sample's own class is scored s cos(theta + m_c + m_t), the other classes of its head s
    cos(theta + m_t), the classes of the other heads s cos(theta). Both margins 0: the cosine
    cross-domain softmax; one head and m_t = 0: ArcFace (Eq. 6).
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
    """ArcFace, Eq. 6: every class competes, the own one is scored s cos(theta + m).

    The losses above and below are this one where a single head has all rows, and so no task margin.
    The margin is computed at the entries that have one.
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
    """The loss that the authors' released program computes, which reproduces the published Split
    results.

    It differs from Eq. 7-8 in who competes. A sample of the current task selects its own head only;
    a sample of an earlier task i selects heads 1 to i. Selected classes are scored s cos(theta +
    m_t), the sample's own class s [cos(theta + m_t) + cos(theta + m_c) - cos(theta)], and every
    other of the `outputs` classes stands in the softmax as the constant 0.
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
    distance: Literal["mse", "l1"] = "mse",
    *,
    reduction: Reduction = "mean",
) -> Tensor:
    """Episodic distillation, Eq. 9-10: how far features have moved from the representations F
    stored with them.

    The mean over the feature's entries of the squared (`mse`, the paper) or absolute (`l1`, the
    released program) difference, then over the samples.
    """
    if distance not in ("mse", "l1"):
        raise Mistake(f"distance={distance!r}: must be 'mse' or 'l1'")
    difference = features - stored
    return _reduce(
        (difference.square() if distance == "mse" else difference.abs()).mean(1), reduction
    )


def _competing(tasks: Tensor, head_of_class: Tensor, competitors: str) -> Tensor:
    if competitors == "seen":
        return (head_of_class >= 0).expand(len(tasks), -1)
    if competitors == "own":
        return head_of_class == tasks[:, None]
    raise Mistake(f"competitors={competitors!r}: must be 'seen' or 'own'")


def _sines(cosines: Tensor) -> Tensor:
    """Sines of angles in [0, pi] from their cosines, with slope 0 where the true slope is
    infinite.
    """
    square = (1 - cosines) * (1 + cosines)
    inside = square > torch.finfo(cosines.dtype).eps
    return torch.where(inside, torch.where(inside, square, 1.0).sqrt(), 0.0)


def _shift(cosines: Tensor, sines: Tensor, margin: float) -> Tensor:
    """cos(theta + margin)."""
    return cosines * math.cos(margin) - sines * math.sin(margin) if margin else cosines


def _reduce(values: Tensor, reduction: Reduction) -> Tensor:
    return values.mean() if reduction == "mean" else values.sum() if reduction == "sum" else values
