"""t-SNE of features in two dimensions, kept beside the runs: it is the one slow part of a report."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from mdmt.report.folders import Array

SETTINGS = "perplexity 30, pca, seed 0"  # a change of these must change the name of what is kept


def embed(groups: dict[str, Array], cache: Path | None, *, compute: bool = True) -> dict[str, Array] | None:
    """Points of all groups in one plane; None where there are too few, or, unless asked to `compute`, none are kept."""
    if not groups or sum(map(len, groups.values())) < 5:
        return None
    features = np.concatenate(list(groups.values())).astype(np.float32)
    digest = hashlib.sha256(repr((SETTINGS, features.shape)).encode() + features.tobytes()).hexdigest()[:32]
    kept = None if cache is None else cache / f"{digest}.npy"
    points = _read(kept, len(features)) if kept is not None else None
    if points is None:
        if not compute:
            return None
        points = _compute(features)
        if kept is not None:
            _keep(kept, points)
    ends = np.cumsum([len(group) for group in groups.values()])[:-1]
    return dict(zip(groups, np.split(points, ends), strict=True))


def _compute(features: np.ndarray) -> Array:
    from sklearn.manifold import TSNE

    if np.ptp(features, axis=0).max() == 0:  # all in one place, where t-SNE divides by zero
        return np.zeros((len(features), 2))
    perplexity = min(30.0, (len(features) - 1) / 3)
    return np.asarray(TSNE(perplexity=perplexity, init="pca", random_state=0).fit_transform(features), dtype=float)


def _read(path: Path, count: int) -> Array | None:
    try:
        points = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return points if points.shape == (count, 2) and np.isfinite(points).all() else None


def _keep(path: Path, points: Array) -> None:
    """Best effort: a folder that cannot be written only costs time."""
    try:
        path.parent.mkdir(exist_ok=True)
        part = path.with_suffix(".part.npy")
        np.save(part, points)
        part.replace(path)
    except OSError:
        pass
