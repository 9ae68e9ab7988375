"""The nearest class mean as a head: a row for each class that answers as its mean would."""

from __future__ import annotations

import torch
from torch import Tensor

from mdmt.network.model import unit

LOWEST = -1e30  # the score of a class without examples: finite, since it is saved


def nearest_mean_head(features: Tensor, labels: Tensor, rows: int, *, cosine: bool) -> Tensor:
    """A head of `rows` rows that scores highest the class whose examples' mean is nearest.

    |f - m|^2 = |f|^2 - (2 m f - |m|^2) is smallest where the bracket is largest, which is a linear
    head. With `cosine` the nearest mean is that of the largest cosine, and each example weighs the
    same. A class without examples is the last to answer; with `cosine`, whose score for it is 0,
    that holds for features that are not negative, as after a ReLU.
    """
    features, labels = features.cpu().double(), labels.cpu()
    if cosine:
        features = unit(features)
    counts = torch.bincount(labels, minlength=rows)[:, None]
    sums = features.new_zeros(rows, features.shape[1]).index_add_(0, labels, features)
    means = sums / counts.clamp_min(1)
    if cosine:
        return torch.cat([means, torch.zeros_like(means[:, :1])], 1)
    bias = torch.where(counts > 0, -means.square().sum(1, keepdim=True), LOWEST)
    return torch.cat([2 * means, bias], 1)
