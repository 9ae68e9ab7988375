"""Evaluation: accuracy on the test examples of a task, and the drift of its features."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mdmt.errors import Mistake
from mdmt.inputs.device import send
from mdmt.learning.reader import Reader
from mdmt.network.model import Model, best_rows
from mdmt.tasks import Task

DRIFT_SAMPLE = 100  # test examples of each task whose features are followed


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
            scores = model.scores(model.features(inputs))
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
    return model.embed(task.inputs("test", fixed_sample(task)))


def drift(now: Tensor, before: Tensor) -> float | None:
    """The mean of 1 - cos between two sets of features; None if it is not finite."""
    moved = float((1 - torch.cosine_similarity(now, before)).mean())
    # rounding may give slightly less than zero
    return max(0.0, moved) if math.isfinite(moved) else None
