"""What is kept of every step of a stream: its loss and its gradient in short, which are computed anyway.

A row holds task and step (both from 1), the last loss that the step computed, the sum of the gradient it applied, and the
seconds of learning so far. Two runs with the same rows took the same steps; where they differ, the first row that does says
when it happened. Of a long task evenly spaced steps are kept, the first and the last among them.
"""

from __future__ import annotations

import csv
import io
import math
from typing import TYPE_CHECKING

from mdmt.errors import Mistake

if TYPE_CHECKING:
    from mdmt.learner import Learner

KEPT = 1000  # rows of one task, at most, and its last step
COLUMNS = ("task", "step", "loss", "gradient", "seconds")
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


def as_csv(rows: list[Row]) -> str:
    """Rows as a file that any program reads; numbers come back as they were, bit for bit.

    >>> print(as_csv([[1.0, 1.0, 0.5, math.nan, 0.25]]), end="")
    task,step,loss,gradient,seconds
    1,1,0.5,nan,0.25
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([COLUMNS, *([int(task), int(step), *rest] for task, step, *rest in rows)])
    return text.getvalue()


def from_csv(text: str) -> list[Row]:
    """The rows that `as_csv` wrote; anything else is a ValueError.

    >>> from_csv(as_csv([[2, 7, 0.1, -3.5, 9.0]]))
    [[2.0, 7.0, 0.1, -3.5, 9.0]]
    """
    head, *rows = csv.reader(io.StringIO(text))
    if tuple(head) != COLUMNS or any(len(row) != len(COLUMNS) for row in rows):
        raise Mistake(f"its columns are not {', '.join(COLUMNS)}")
    return [[float(number) for number in row] for row in rows]
