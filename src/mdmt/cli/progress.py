"""What a command says on stderr while it works: a bar or a table on a terminal, plain lines elsewhere.

rich and whatever loads torch are imported when something is drawn, so that help stays quick.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from mdmt.words import printable

if TYPE_CHECKING:
    from mdmt.experiments.comparison import Row
    from mdmt.experiments.workers import Event, Outcome
    from mdmt.learner import Learner


def tell(message: str) -> None:
    """One line for a person, on stderr."""
    print(f"mdmt: {printable(message)}", file=sys.stderr, flush=True)


class _Screen:
    """Stderr: a terminal to draw on, or a file for plain lines; neither when quiet."""

    def __init__(self, quiet: bool) -> None:
        from rich.console import Console

        self.console = Console(stderr=True)
        self.quiet = quiet
        self.draws = not quiet and self.console.is_terminal

    def line(self, text: str) -> None:
        """A plain line, where nothing is drawn."""
        if not (self.quiet or self.draws):
            print(text, file=sys.stderr, flush=True)

    def bar(self, *columns: Any) -> Any:
        """A bar of rich: a text before these columns, the time left behind them."""
        from rich.progress import Progress, TextColumn, TimeRemainingColumn

        text = TextColumn("{task.description}", markup=False)
        return Progress(
            text,
            *columns,
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            refresh_per_second=4,
            disable=not self.draws,
        )


class RunBar(_Screen):
    """A run: task, step, accuracy so far and time left."""

    def __init__(self, title: str, quiet: bool) -> None:
        from rich.progress import BarColumn, TaskProgressColumn

        super().__init__(quiet)
        self.title = title
        self.last_line = ""
        self.progress = self.bar(BarColumn(bar_width=None), TaskProgressColumn())
        self.row = self.progress.add_task(title, total=None)

    def __enter__(self) -> RunBar:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def step(self, learner: Learner) -> None:
        """After every step of learning."""
        task = learner.task
        assert task is not None
        number = learner.current + 1
        tasks = learner.recorder.stream_length
        accuracies = learner.record.accuracy[-1] if learner.record.accuracy else []
        known = [accuracy for accuracy in accuracies[: learner.current] if accuracy is not None]
        accuracy = f", accuracy {100 * sum(known) / len(known):.1f} %" if known else ""
        place = f"{self.title}: task {number}/{tasks}"
        steps = learner.steps_of(task) // len(task.parts)
        done = (number - len(task.parts)) * steps + learner.step_in_task
        self._update(f"{place}, step {learner.step_in_task}{accuracy}", done, tasks * steps)
        self._line_once(place + accuracy)

    def image(self, done: int, total: int) -> None:
        """After some images were decoded."""
        self._update(f"decoding images: {done:,} of {total:,}", done, total)
        self._line_once("decoding images, once")

    def _update(self, text: str, done: int, total: int) -> None:
        self.progress.update(self.row, description=text, completed=done, total=total)

    def _line_once(self, text: str) -> None:
        if text != self.last_line:
            self.line(text)
            self.last_line = text


class LiveTable(_Screen):
    """A comparison: each row as soon as one of its runs is finished, and where the others are."""

    def __init__(self, labels: list[str], seeds: int, quiet: bool) -> None:
        from rich.live import Live

        super().__init__(quiet)
        self.seeds = seeds
        self.rows: dict[str, Row | None] = dict.fromkeys(labels)
        self.finished: dict[str, int] = dict.fromkeys(labels, 0)
        self.warnings: set[str] = set()
        self.places: dict[str, dict[int, str]] = {label: {} for label in labels}
        self.live = Live(console=self.console, transient=True, refresh_per_second=4, get_renderable=self.table)

    def __enter__(self) -> LiveTable:
        if self.draws:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.live.stop()

    def event(self, event: Event) -> None:
        """A run has started, goes on, or warns, which is printed however quiet we are."""
        label, seed = event.config.label, event.config.seed
        if event.kind == "warning":
            if event.text in self.warnings:  # every seed may find the same
                return
            self.warnings.add(event.text)
            self.console.print(f"mdmt: {event.text}", markup=False, highlight=False, soft_wrap=True)
            return
        self.places[label][seed] = event.text
        if event.kind == "start":
            self.line(f"{label}, seed {seed}: {event.text}")

    def outcome(self, outcome: Outcome, row: Row | None) -> None:
        """A run has ended; `row` is what its method has measured so far."""
        from mdmt.metrics import A_T

        label, seed, record = outcome.config.label, outcome.config.seed, outcome.record
        self.places[label].pop(seed, None)
        self.rows[label] = row
        self.finished[label] += 1
        if record is None:
            self.line(f"{label}, seed {seed}: failed: {outcome.reason}")
        elif not outcome.read:
            accuracy = f"{A_T.name} {A_T.text(record['metrics'][A_T.name])} %"
            self.line(f"{label}, seed {seed}: {accuracy}, {record['seconds']:.1f} s")

    def table(self) -> Any:
        """What is known now."""
        from mdmt.metrics import METRICS
        from mdmt.report.text import Grid, format_metric, rich_table

        lines = []
        for label, row in self.rows.items():
            cells = row.metrics if row else {}
            places = [f"{seed}: {text}" for seed, text in list(self.places[label].items())]
            seeds = ", ".join([f"{self.finished[label]}/{self.seeds}", *places])
            lines.append([label, *(format_metric(metric, cells.get(metric.name)) for metric in METRICS), seeds])
        columns = ["method", *(metric.heading for metric in METRICS), "seeds"]
        return rich_table(Grid(columns, lines), self.console.width)


class DownloadBar(_Screen):
    """Downloads: bytes of each file and the time left."""

    def __init__(self, quiet: bool) -> None:
        from rich.progress import BarColumn, DownloadColumn

        super().__init__(quiet)
        self.progress = self.bar(BarColumn(), DownloadColumn())
        self.rows: dict[str, Any] = {}

    def __enter__(self) -> DownloadBar:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def step(self, file: str, done: int, total: int | None) -> None:
        """After some bytes of a file."""
        if file not in self.rows:
            self.rows[file] = self.progress.add_task(file, total=total)
            size = "" if total is None else f", {total / 1e6:,.1f} MB"
            position = f", continuing at {done / 1e6:,.1f} MB" if done else ""
            self.line(f"{file}{size}{position}")
        self.progress.update(self.rows[file], completed=done, total=total)
