"""The progress of a learner: its position in numbers, and a bar while one task is learned."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from mdmt.learning.recorder import Recorder
from mdmt.runs.record import Record
from mdmt.tasks import Task

if TYPE_CHECKING:
    from rich.progress import TaskID


class Learning(Protocol):
    """The part of a learner that its progress is read from."""

    task: Task | None
    step_in_task: int
    recorder: Recorder

    @property
    def current(self) -> int: ...

    @property
    def record(self) -> Record: ...

    def steps_of(self, task: Task) -> int: ...


@dataclass(frozen=True)
class Progress:
    """The position of a run; `done` is the share of its training examples that were learned."""

    task: int
    tasks: int
    step: int
    done: float
    accuracy: float | None  # mean over the tasks learned before this one

    @property
    def place(self) -> str:
        return f"task {self.task}/{self.tasks}"


def progress_of(learner: Learning) -> Progress:
    """The progress of a learner that is learning a stream."""
    number = learner.current + 1
    tasks = learner.recorder.stream_length
    accuracies = learner.record.accuracy[-1] if learner.record.accuracy else []
    earlier = [accuracy for accuracy in accuracies[: learner.current] if accuracy is not None]
    accuracy = sum(earlier) / len(earlier) if earlier else None
    return Progress(number, tasks, learner.step_in_task, share_done(learner), accuracy)


def share_done(learner: Learning) -> float:
    """The share of a stream's training examples that were learned."""
    sizes = learner.recorder.stream_sizes
    task = learner.task
    current = [] if task is None else [part.name for part in task.parts]
    begun = [about["name"] for about in learner.record.tasks]
    learned: float = sum(sizes[name] for name in begun if name not in current)
    if task is not None:
        learned += task.size * learner.step_in_task / learner.steps_of(task)
    return learned / max(1, sum(sizes.values()))


@contextmanager
def step_bar(name: str, *, shown: bool = True) -> Iterator[Callable[[Learning], None] | None]:
    """Show a bar on stderr while one task is learned; yields a function to call after each step.

    If stderr is no terminal, it prints one line after the first step and one at the end. The number
    of steps is known only after the first step, since it depends on the network.
    """
    if not shown:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _line_at_first_step(name)
        print(f"{name}: learned", file=sys.stderr, flush=True)
        return
    description = TextColumn("{task.description}", markup=False)
    columns = (description, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bar(*columns, console=console) as bar:
        row = bar.add_task(name, total=None)
        yield lambda learner: bar.update(
            row, completed=learner.step_in_task, total=_steps_of_current_task(learner)
        )


@contextmanager
def image_bar(*, shown: bool = True) -> Iterator[Callable[[int, int], None] | None]:
    """Show how many images are decoded; yields a function of the number done and of all.

    If stderr is no terminal, it prints one line.
    """
    if not shown:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    columns = (
        TextColumn("decoding images"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=console, disable=not console.is_terminal) as bar:
        rows: list[TaskID] = []

        def show(done: int, total: int) -> None:
            if not rows:
                rows.append(bar.add_task("", total=total))
                if not console.is_terminal:
                    print(f"decoding {total:,} images", file=sys.stderr, flush=True)
            bar.update(rows[0], completed=done)

        yield show


def _line_at_first_step(name: str) -> Callable[[Learning], None]:
    is_first = True

    def after_step(learner: Learning) -> None:
        nonlocal is_first
        if is_first:
            steps = _steps_of_current_task(learner)
            print(f"{name}: {steps:,} steps", file=sys.stderr, flush=True)
            is_first = False

    return after_step


def _steps_of_current_task(learner: Learning) -> int:
    assert learner.task is not None
    return learner.steps_of(learner.task)
