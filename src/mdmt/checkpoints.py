"""When a learner's state is written while it learns."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from mdmt.saving import learner_state
from mdmt.state import write_state

if TYPE_CHECKING:
    from mdmt.learner import Learner

SECONDS, SHARE = 60.0, 50  # a checkpoint every minute, and never more than a fiftieth of the time


class Checkpoints:
    """Writes a learner's state into a folder: every so many steps, or by the clock, and when a task is over.

    The state before the last is kept. `every` is a number of steps; without it a checkpoint comes every
    max(`seconds`, 50 x what the last one took).
    """

    def __init__(self, folder: str | Path, every: int | None = None, seconds: float = SECONDS) -> None:
        if every is not None and every < 1:
            raise ValueError(f"checkpoint_every={every}: must be 1 step or more")
        self.folder, self.every, self.seconds = Path(folder), every, seconds
        self.cost, self.last = 0.0, time.monotonic()

    def after_step(self, learner: Learner) -> None:
        """Write when it is time."""
        if self.every is not None:
            due = learner.record.steps % self.every == 0
        else:
            due = time.monotonic() - self.last >= max(self.seconds, SHARE * self.cost)
        if due:
            self.write(learner)

    def write(self, learner: Learner) -> None:
        """Write now."""
        start = time.monotonic()
        write_state(self.folder, *learner_state(learner), keep=True)
        self.last = time.monotonic()
        self.cost = self.last - start
