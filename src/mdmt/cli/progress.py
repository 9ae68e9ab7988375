"""What a command says on stderr while it works."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from mdmt.words import printable

if TYPE_CHECKING:
    from mdmt.learner import Learner


def tell(message: str) -> None:
    """One line for a person, on stderr."""
    print(f"mdmt: {printable(message)}", file=sys.stderr, flush=True)


class Progress:
    """Task, step, accuracy so far and time left, on stderr; plain lines where that is no terminal."""

    def __init__(self, title: str, quiet: bool) -> None:
        self.title, self.quiet, self.said = title, quiet, ""

    def __enter__(self) -> Progress:
        from rich.console import Console
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        console = Console(stderr=True)
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            TimeRemainingColumn(),
        )
        hidden = self.quiet or not console.is_terminal
        self.bar = Bar(*columns, console=console, transient=True, refresh_per_second=4, disable=hidden)
        self.row = self.bar.add_task(self.title, total=None)
        self.bar.start()
        return self

    def step(self, learner: Learner) -> None:
        """After every step of learning."""
        number, task = learner.current + 1, learner.task
        assert task is not None
        accuracy = learner.record.accuracy[-1] if learner.record.accuracy else []
        known = [a for a in accuracy[: learner.current] if a is not None]
        so_far = f", accuracy {100 * sum(known) / len(known):.1f} %" if known else ""
        where = f"{self.title}: task {number}/{learner.recorder.stream_length}"
        steps = learner.steps_of(task) // len(task.parts)
        self._show(f"{where}, step {learner.step_in_task}{so_far}", (number - len(task.parts)) * steps + learner.step_in_task,
                   learner.recorder.stream_length * steps, where + so_far)  # fmt: skip

    def image(self, done: int, total: int) -> None:
        """After some images were decoded."""
        self._show(f"decoding images: {done:,} of {total:,}", done, total, "decoding images, once")

    def _show(self, text: str, done: int, total: int, plain: str) -> None:
        self.bar.update(self.row, description=text, completed=done, total=total)
        if self.bar.disable and not self.quiet and plain != self.said:
            print(plain, file=sys.stderr, flush=True)
            self.said = plain

    def __exit__(self, *_: object) -> None:
        self.bar.stop()
