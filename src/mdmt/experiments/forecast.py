"""How long a run will take, told early where that is long."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mdmt.learner import Learner

LONG = 3600.0  # seconds
STEPS, SECONDS = 20, 5.0  # what an estimate is made of: so many steps of a task, or so much time


class Forecast:
    """Tells once that the rest of a run is expected to take more than an hour: the time of a step x the steps left.

    Until then every task is measured anew, since rehearsal makes later steps longer. Its first step is left out, which is
    slower than the others. Evaluation is not counted.
    """

    def __init__(self, what: str, total: int, tell: Callable[[str], None]) -> None:
        self.what, self.total, self.tell = what, total, tell
        self.task = -1
        self.start = (0, 0.0)  # steps and seconds of the run after the first step of the task
        self.measured = self.told = False

    def after_step(self, learner: Learner) -> None:
        """Estimate when enough of a task was seen."""
        now = learner.record
        if learner.current != self.task:
            self.task, self.start, self.measured = learner.current, (now.steps, now.seconds), False
            return
        steps, seconds = now.steps - self.start[0], now.seconds - self.start[1]
        if self.told or self.measured or (steps < STEPS and seconds < SECONDS):
            return
        self.measured = True
        left = (self.total - now.steps) * seconds / steps
        if left > LONG:
            self.told = True
            self.tell(
                f"{self.what} will take about {duration(left)}; "
                "Ctrl-C leaves a checkpoint, and the same command goes on from there"
            )


def duration(seconds: float) -> str:
    """A long time for people.

    >>> duration(5400), duration(40_000), duration(1e6)
    ('1.5 h', '11 h', '12 days')
    """
    hours = seconds / 3600
    if hours >= 48:
        return f"{hours / 24:.0f} days"
    return f"{hours:.0f} h" if hours >= 10 else f"{hours:.1f} h"
