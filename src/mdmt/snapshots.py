"""What the figures of a finished run need: features of a fixed sample and weights of the head, along learning.

Tensors by name, for the first, the middle and the last task of a stream (all numbers from 0):
`features.J.I` are the features of task J's sample after task I, scaled to length 1 in half precision, and `lengths.J.I` their
lengths; task 0 has them after every task, the others after the middle and the last. `labels.J` are the rows of the head of that
sample. `head.0.I` are the weights of task 0's classes after task I. `head` and `head_of_class` are those after the last task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from mdmt.evaluation import features, fixed_sample
from mdmt.model import unit

if TYPE_CHECKING:
    from mdmt.learner import Learner


def chosen(tasks: int) -> list[int]:
    """First, middle and last of so many tasks: 1, 9 and 17 of 17, counted from 0.

    >>> chosen(17), chosen(2), chosen(1)
    ([0, 8, 16], [0, 1], [0])
    """
    return sorted({0, tasks // 2, tasks - 1})


def snapshot(learner: Learner) -> None:
    """Take one after a task, into `learner.snapshots`."""
    after, of = learner.current, chosen(learner.planned)
    taken: dict[str, Tensor] = {}
    for number in of:
        wanted = number <= after and (number == 0 or after in of)
        task = learner.known.get(learner.tasks[number].name) if wanted else None
        if task is None or task.test is None:
            continue
        sample = fixed_sample(task)
        found = features(learner, learner.shown(task, task.test, sample))
        taken[f"features.{number}.{after}"] = unit(found).half()
        taken[f"lengths.{number}.{after}"] = found.norm(dim=1)
        taken[f"labels.{number}"] = learner.tasks[number].rows[task.test.labels[sample].to(learner.device)]
    weights = learner.model.head.detach()
    taken[f"head.0.{after}"] = weights[learner.tasks[0].rows].clone()
    if after == learner.planned - 1:
        taken |= {"head": weights.clone(), "head_of_class": learner.model.head_of_class.clone()}
    learner.snapshots.update({name: value.cpu() for name, value in taken.items()})
