"""What a learner is measured by: accuracies with and without the task given, the learning curve, drift of features."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from mdmt.metrics import BETA
from mdmt.tasks import Task

if TYPE_CHECKING:
    from mdmt.learner import Learner

DRIFT_SAMPLE = 100  # examples of each task whose features are followed
CHUNK = 2**22  # numbers in one batch of inputs when nothing is trained


def accuracies(learner: Learner, task: Task) -> tuple[float, float] | None:
    """Accuracy on a task's test examples with the task given, and with all seen heads competing.

    None where the task has no test examples or a class that no head knows.
    """
    rows = learner.rows_of(task)
    if task.test is None or rows is None:
        return None
    model, labels = learner.model, rows[task.test.labels.to(learner.device)]
    allowed = (model.only(rows), model.head_of_class >= 0)
    right = torch.empty(2, len(labels), dtype=torch.bool)
    with model.evaluating():
        for index in chunks(learner, len(labels)):
            scores = model.scores(model.features(learner.shown(task, task.test, index)))
            for which, mask in enumerate(allowed):
                right[which, index] = (best(scores, mask) == labels[index]).cpu()
    given, free = (fraction(r, task.test.labels, learner.per_class) for r in right)
    return given, free


def best(scores: Tensor, allowed: Tensor) -> Tensor:
    """The row with the highest score among the allowed ones."""
    return scores.masked_fill(~allowed, -math.inf).argmax(1)


def fraction(right: Tensor, labels: Tensor, per_class: bool) -> float:
    """The fraction that is right; per class, the mean of the classes' fractions."""
    if not per_class:
        return right.double().mean().item()
    counts = torch.bincount(labels)
    rights = torch.bincount(labels, weights=right.double())
    return (rights[counts > 0] / counts[counts > 0]).mean().item()


def features(learner: Learner, inputs: Tensor) -> Tensor:
    """Feature vectors in evaluation mode."""
    with learner.model.evaluating():
        parts = [learner.model.features(inputs[i].to(learner.device)) for i in chunks(learner, len(inputs))]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def chunks(learner: Learner, count: int) -> Iterator[Tensor]:
    """Indices in pieces of a size that is quick and fits."""
    yield from torch.arange(count).split(max(1, CHUNK // math.prod(learner.input[0])))


def follow_curve(learner: Learner, task: Task) -> None:
    """Z_b: the accuracy on the current task after b of its mini-batches, for b up to beta."""
    curve = learner.record.curve[-1]
    if len(task.parts) == 1 and len(curve) == learner.done <= BETA:
        measured = accuracies(learner, task)
        curve.append(None if measured is None else measured[0])


def measure(learner: Learner) -> None:
    """A row of accuracies and of drift, after a task; tasks learned together have one row, the last of them."""
    names = [t.name for t in learner.tasks]
    names += [name for name in learner.known if name not in names]
    rows = [accuracies(learner, learner.known[name]) if name in learner.known else None for name in names]
    record = learner.record
    for kept, row in (
        (record.accuracy, [None if r is None else r[0] for r in rows]),
        (record.accuracy_task_free, [None if r is None else r[1] for r in rows]),
        (record.drift, [drift(learner, t.name) for t in learner.tasks]),
    ):
        kept.extend([] for _ in range(len(learner.tasks) - 1 - len(kept)))
        kept.append(row)
    record.memory_bytes = sum(learner.memory.bytes.values())
    record.weights_sha256 = learner.model.sha256()


def fixed_sample(task: Task) -> Tensor:
    """Indices of the test examples whose features are followed, evenly from all of them."""
    count = 0 if task.test is None else len(task.test)
    return torch.linspace(0, count - 1, min(count, DRIFT_SAMPLE)).long()


def drift(learner: Learner, name: str) -> float | None:
    """1 - cos between a task's features now and right after it was learned, on a fixed sample of its test examples."""
    task = learner.known.get(name)
    if task is None or task.test is None:
        return None
    now = features(learner, learner.shown(task, task.test, fixed_sample(task)))
    before = learner.right_after.setdefault(name, now)
    moved = float((1 - torch.cosine_similarity(now, before)).mean())
    return max(0.0, moved) if math.isfinite(moved) else None  # rounding may give a little less than nothing
