"""Loss and gradient of every step: logged, and what is not finite stops the learning.

To read a number is to wait for the device that computes it. The processor's own are read at once,
before the weights change. Those of an accelerator are read many steps together, and before anything
is saved or a task ends; the step is named all the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

import torch
from torch import Tensor

from mdmt.learning.recorder import Recorder

TOGETHER = 64  # steps whose numbers are read from an accelerator at a time


@dataclass(frozen=True)
class Unread:
    """What one update was made of, still on the device."""

    step: int
    numbers: Tensor  # the losses, the sum of the gradient, its norm


class Vitals:
    """Watches the updates of a learner; `stop` is told what is not finite, and at which step."""

    def __init__(self, recorder: Recorder, stop: Callable[[str, int], NoReturn]) -> None:
        self.recorder = recorder
        self.stop = stop
        self.unread: list[Unread] = []

    def note(self, step: int, losses: Sequence[Tensor], gradient: Tensor) -> None:
        """An update is about to be made."""
        numbers = [*losses, gradient.sum(), gradient.dot(gradient).sqrt()]
        if gradient.device.type == "cpu":
            self._take(step, [number.item() for number in numbers])
            return
        self.unread.append(Unread(step, torch.stack(numbers)))
        self.recorder.step_stats = None
        if step - self.unread[0].step >= TOGETHER:
            self.read()

    def read(self) -> None:
        """Wait for the numbers of the steps so far."""
        unread = self.unread
        self.unread = []
        values = torch.cat([update.numbers for update in unread]).tolist() if unread else []
        for update in unread:
            count = len(update.numbers)
            self._take(update.step, values[:count])
            values = values[count:]
            self.recorder.fill_log(update.step + 1)

    def _take(self, step: int, values: Sequence[float]) -> None:
        *losses, total, norm = values
        last = losses[-1] if losses else math.nan
        self.recorder.step_stats = {"loss": last, "gradient": total, "gradient_norm": norm}
        if not all(map(math.isfinite, losses)):
            self.stop("loss", step)
        if not math.isfinite(total):
            self.stop("gradient", step)
        if not math.isfinite(norm):  # weights before a batch norm can grow so, and no loss shows it
            self.stop("length of the gradient", step)
