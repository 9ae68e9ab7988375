"""What is kept of every step of a stream: its loss and its gradient in short, which are computed anyway.

A row holds task and step (both from 1), the last loss that the step computed, the sum of the gradient it applied, and the
seconds of learning so far. Two runs with the same rows took the same steps; where they differ, the first row that does says
when it happened. Of a long task evenly spaced steps are kept, the first and the last among them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mdmt.learner import Learner

KEPT = 1000  # rows of one task, at most, and its last step
Row = list[float]


def stride(steps: int) -> int:
    """The distance between two steps that are kept, of a task that has so many.

    >>> stride(250), stride(1000), stride(5500)
    (1, 1, 6)
    """
    return max(1, math.ceil(steps / KEPT))


def keep(learner: Learner) -> None:
    """Take the step that is just over into `learner.steps_kept`, when it is one of those to keep."""
    assert learner.task is not None
    step, last = learner.done, learner.steps_of(learner.task)
    if (step - 1) % stride(last) == 0 or step == last:
        told = (learner.told.get(name, math.nan) for name in ("loss", "gradient"))
        learner.steps_kept.append([learner.current + 1, step, *told, learner.record.seconds])
