"""How far a run is: its place, the share that is done, and how accurate it is so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mdmt.learner import Learner


@dataclass(frozen=True)
class Progress:
    """Where a run is; `done` is a fraction of its steps, tasks taken as equally long."""

    task: int
    tasks: int
    step: int
    done: float
    accuracy: float | None  # the mean over the tasks learned before this one

    @property
    def place(self) -> str:
        return f"task {self.task}/{self.tasks}"


def progress_of(learner: Learner) -> Progress:
    """The progress of a learner that is learning a stream."""
    task = learner.task
    assert task is not None
    number = learner.current + 1
    tasks = learner.recorder.stream_length
    accuracies = learner.record.accuracy[-1] if learner.record.accuracy else []
    known = [accuracy for accuracy in accuracies[: learner.current] if accuracy is not None]
    steps = learner.steps_of(task) // len(task.parts)
    done = (number - len(task.parts)) * steps + learner.step_in_task
    accuracy = sum(known) / len(known) if known else None
    return Progress(number, tasks, learner.step_in_task, done / max(1, tasks * steps), accuracy)
