"""Evaluation: accuracy on the test examples of a task, and what became of its features."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from mdmt.errors import Mistake
from mdmt.inputs.device import send
from mdmt.learning.reader import Reader
from mdmt.network.model import Model, best_rows
from mdmt.tasks import Task

DRIFT_SAMPLE = 100  # test examples of each task whose features are followed
RANK_SAMPLE = 1000  # of them, at most, have part in the effective rank
ROUNDING = 1e-6  # a feature that varies by a smaller part of its size is constant


def accuracies(
    task: Task, model: Model, reader: Reader, *, per_class: bool = False
) -> tuple[float, float] | None:
    """Accuracy on a task's test examples, with the task given and with all seen heads competing.

    None if the task has no test examples, or has a class that no head knows.
    """
    rows = reader.heads.rows(task)
    if task.test is None or rows is None:
        return None
    labels = send(rows[task.test.labels], model.flat.device)
    allowed = (model.only(rows), model.seen())
    right = torch.empty(2, len(labels), dtype=torch.bool, device=labels.device)
    with model.evaluating():
        for part in model.chunks(task.test.inputs):
            inputs = reader.inputs(task, "test", torch.arange(part.start, part.stop))
            scores = model.scores(model.answer_features(inputs))
            for which, mask in enumerate(allowed):
                right[which, part] = best_rows(scores, mask) == labels[part]
    given, free = (fraction(r, task.test.labels, per_class) for r in right.cpu())
    return given, free


def fraction(right: Tensor, labels: Tensor, per_class: bool) -> float:
    """The fraction of right answers; with `per_class`, the mean of each class's fraction."""
    if not per_class:
        return right.double().mean().item()
    counts = torch.bincount(labels)
    rights = torch.bincount(labels, weights=right.double())
    return (rights[counts > 0] / counts[counts > 0]).mean().item()


def fixed_sample(task: Task) -> Tensor:
    """Indices of the test examples whose features are followed, evenly spaced."""
    if task.test is None:
        raise Mistake(f"task {task.name!r} has no test examples")
    count = len(task.test)
    return torch.linspace(0, count - 1, min(count, DRIFT_SAMPLE)).long()


def sample_features(task: Task, model: Model) -> Tensor:
    """The features of a task's fixed sample."""
    return model.embed(task.inputs("test", fixed_sample(task)), to_answer=True)


def drift(now: Tensor, before: Tensor) -> float | None:
    """The mean of 1 - cos between two sets of features; None if it is not finite."""
    moved = float((1 - torch.cosine_similarity(now, before)).mean())
    # rounding may give slightly less than zero
    return max(0.0, moved) if math.isfinite(moved) else None


def dead_share(samples: Sequence[Tensor]) -> float | None:
    """The share of features that are the same, mostly zero, for every example of all samples.

    A dead feature tells no example from another. None if there is no sample, or if a feature is not
    finite.
    """
    lows = [features.amin(0) for features in samples]
    highs = [features.amax(0) for features in samples]
    if not lows:
        return None
    low, high = torch.stack(lows).amin(0), torch.stack(highs).amax(0)
    if not (low.isfinite().all() and high.isfinite().all()):
        return None
    size = torch.maximum(low.abs(), high.abs())
    return float((high - low <= ROUNDING * size).float().mean())


def effective_rank(samples: Sequence[Tensor]) -> float | None:
    """The effective rank (Roy and Vetterli, 2007) of the centred features of all samples.

    exp(-sum_k p_k log p_k), where p_k is the k-th singular value over the sum of all: the number of
    directions in which features differ. They are centred, since what all examples share tells none
    from another; so the rank is at most the number of features, and less than that of examples. 0
    if all examples are the same; None if there is no sample, or if a feature is not finite. Of many
    examples every k-th is taken.
    """
    every = math.ceil(sum(map(len, samples)) / RANK_SAMPLE)
    if not every:
        return None
    rows = torch.cat([features[::every] for features in samples]).cpu().double()
    if not rows.isfinite().all():
        return None
    mean = rows.mean(0)
    rows -= mean
    products = rows.T @ rows if len(rows) > rows.shape[1] else rows @ rows.T
    singular = torch.linalg.eigvalsh(products).clamp_min(0).sqrt()
    if singular.max() <= ROUNDING * mean.norm() * math.sqrt(len(rows)):
        return 0.0
    shares = singular / singular.sum()
    return float(torch.special.entr(shares).sum().exp())
