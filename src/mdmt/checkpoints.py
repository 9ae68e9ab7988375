"""When a learner's state is written while it learns."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

from mdmt.errors import Mistake
from mdmt.saving import learner_state, place
from mdmt.state import write_state

if TYPE_CHECKING:
    from mdmt.learner import Learner

SECONDS, SHARE = 60.0, 50  # a checkpoint every minute, and never more than a fiftieth of the time


class Checkpoints:
    """Writes a learner's state into a folder: every so many steps, or by the clock, and when a task is over.

    The state before the last is kept. `every` is a number of steps, or a time such as "30s"; without it a checkpoint comes
    every max(60 s, 50 x what the last one took).
    """

    def __init__(self, folder: str | Path, every: int | str | None = None) -> None:
        self.folder = Path(folder)
        self.steps, self.seconds = (None, None) if every is None else parse_every(every)
        self.cost, self.last = 0.0, time.monotonic()

    def after_step(self, learner: Learner) -> None:
        """Write when it is time."""
        if self.steps is not None:
            due = learner.record.steps % self.steps == 0
        else:
            wait = max(SECONDS, SHARE * self.cost) if self.seconds is None else self.seconds
            due = time.monotonic() - self.last >= wait
        if due:
            self.write(learner)

    def write(self, learner: Learner) -> None:
        """Write now; weights that are not finite are never written."""
        start = time.monotonic()
        learner.check_finite("sum of the weights", learner.model.flat.detach())
        write_state(self.folder, *learner_state(learner), keep=True)
        self.last = time.monotonic()
        self.cost = self.last - start
        learner.saved = place(learner, self.folder)


def parse_every(every: int | str) -> tuple[int | None, float | None]:
    """Steps, or seconds, between two checkpoints.

    >>> parse_every(200), parse_every("200"), parse_every("1.5s"), parse_every("5m")
    ((200, None), (200, None), (None, 1.5), (None, 300.0))
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h|)", str(every))
    number, unit = (float(match[1]), match[2]) if match else (0.0, "")
    if number <= 0 or (not unit and number % 1):
        raise Mistake(f"checkpoint-every {every}: must be a number of steps, or a time such as 30s, 5m or 1h")
    return (None, number * {"s": 1, "m": 60, "h": 3600}[unit]) if unit else (int(number), None)
