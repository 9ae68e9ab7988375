"""Probabilities that mean something: one temperature, and the threshold for "unknown"."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
BINS = 15  # of confidence, for the calibration error
HOTTEST = 100.0  # the largest temperature that is tried, and 1 over the smallest
REJECTED = 0.05  # the share of held-back examples that the offered threshold rejects


def fit_temperature(scores: Floats, labels: NDArray[np.int64]) -> float:
    """The temperature T with which softmax(scores / T) has the highest likelihood.

    A row of `scores` has minus infinity for classes that do not compete. The target of the right
    class is 1 - 1/(n + 2) for n examples, as in Platt's scaling: a model that gets all of a few
    examples right is not certain of the next one. Without examples, or with one class, T is 1.
    """
    from scipy.optimize import minimize_scalar  # takes a while to load

    if not len(labels) or scores.shape[1] < 2:
        return 1.0
    competes = np.isfinite(scores)
    others = np.maximum(competes.sum(1) - 1, 1)
    doubt = 1 / (len(labels) + 2)
    targets = np.where(competes, (doubt / others)[:, None], 0.0)
    targets[np.arange(len(labels)), labels] = 1 - doubt

    def loss(log_temperature: float) -> float:
        shares = softmax(scores / np.exp(log_temperature))
        return float(-(targets * np.log(shares + 1e-30)).sum(1).mean())

    limit = np.log(HOTTEST)
    best = minimize_scalar(loss, bounds=(-limit, limit), method="bounded")
    return float(np.exp(best.x)) if loss(best.x) < loss(0.0) else 1.0


def softmax(scores: Floats) -> Floats:
    """Probabilities of each row."""
    powers = np.exp(scores - scores.max(1, keepdims=True))
    shares: Floats = powers / powers.sum(1, keepdims=True)
    return shares


def calibration_error(shares: Floats, labels: NDArray[np.int64]) -> float | None:
    """The expected calibration error: |accuracy - confidence|, averaged over bins of confidence.

    >>> calibration_error(np.array([[0.8, 0.2]] * 4), np.array([0, 0, 0, 1])).__round__(6)
    0.05
    """
    if not len(labels):
        return None
    confidence = shares.max(1)
    right = shares.argmax(1) == labels
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = [abs(right[bins == b].sum() - confidence[bins == b].sum()) for b in range(BINS)]
    return float(sum(gaps) / len(labels))


def rejection_threshold(shares: Floats) -> float | None:
    """The probability below which 5 % of these examples are; None without examples."""
    return float(np.quantile(shares.max(1), REJECTED)) if len(shares) else None
