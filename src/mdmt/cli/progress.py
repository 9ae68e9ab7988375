"""Progress on stderr: a bar or a table on a terminal, plain lines elsewhere.

A notebook shows the table below its cell, as plain text that changes.

rich and torch are imported only when something is drawn, so that help texts stay quick.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import mdmt.ranks as ranks
from mdmt.words import clock, printable, shared_settings, wrap

if TYPE_CHECKING:
    from rich.progress import TaskID

    from mdmt.experiments.workers import Event, Outcome
    from mdmt.learner import Learner
    from mdmt.runs.rows import Row

WIDTH = 100  # columns of a table in a notebook
MINUTE = 60.0  # seconds between two lines of progress if nothing is drawn


def tell(message: str, *, from_any_rank: bool = False) -> None:
    """Print a line for the user on stderr; of several ranks only the first one prints."""
    if from_any_rank or not ranks.is_follower():
        text = f"mdmt: {printable(message)}"
        width = _columns()
        _print(text if width is None else wrap(text, width))


def _columns() -> int | None:
    """The width of the terminal that stderr is; None if it is a file or a pipe."""
    with suppress(OSError, ValueError):
        return os.get_terminal_size(sys.stderr.fileno()).columns or None
    return None


def _print(text: str) -> None:
    with suppress(OSError):  # the terminal was closed, or the reader has gone: nobody is told
        print(text, file=sys.stderr, flush=True)


class _Screen:
    """Stderr: a terminal to draw on, a notebook, or a file for plain lines; unused if quiet."""

    def __init__(self, quiet: bool) -> None:
        from rich.console import Console

        self.console = Console(stderr=True)
        self.quiet = quiet
        self.draws = not quiet and self.console.is_terminal
        self.is_notebook = not quiet and self.console.is_jupyter

    def line(self, text: str) -> None:
        """Print a plain line if nothing is drawn."""
        if not (self.quiet or self.draws or self.is_notebook):
            _print(printable(text))

    def bar(self, *columns: Any) -> Any:
        """A bar of rich: a text that shrinks to fit, these columns, and the time left."""
        from rich.progress import Progress, TextColumn, TimeRemainingColumn
        from rich.table import Column

        shrinking = Column(ratio=1, no_wrap=True, overflow="ellipsis")
        return Progress(
            TextColumn("{task.description}", markup=False, table_column=shrinking),
            *columns,
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            refresh_per_second=4,
            disable=not self.draws,
            expand=True,
        )


class RunBar(_Screen):
    """The progress of one run: task, step, accuracy so far and time left."""

    def __init__(self, title: str, quiet: bool) -> None:
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn

        super().__init__(quiet)
        self.title = title
        self.last_line = ""
        self.begin = self.last_time = time.monotonic()
        place = TextColumn("{task.fields[place]}", markup=False)
        self.progress = self.bar(place, BarColumn(bar_width=12), TaskProgressColumn())
        self.row = self.progress.add_task(title, total=None, place="")

    def __enter__(self) -> RunBar:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self.progress.stop()

    def step(self, learner: Learner) -> None:
        """Show the progress after a step of learning."""
        from mdmt.learning.progress import progress_of

        now = progress_of(learner)
        accuracy = "" if now.accuracy is None else f", accuracy {100 * now.accuracy:.1f} %"
        self._update(self.title, f"{now.place}, step {now.step}{accuracy}", now.done)
        self._line_once(f"{self.title}: {now.place}{accuracy}")
        elapsed = time.monotonic() - self.begin
        if time.monotonic() - self.last_time >= MINUTE and now.done > 0:
            left = clock(elapsed * (1 - now.done) / now.done)
            self.line(f"{self.title}: {100 * now.done:.0f} %, {clock(elapsed)}, about {left} left")
            self.last_time = time.monotonic()

    def image(self, done: int, total: int) -> None:
        """Show how many images are decoded."""
        self._update("decoding images", f"{done:,} of {total:,}", done / total)
        self._line_once("decoding images, once")

    def _update(self, text: str, place: str, done: float) -> None:
        self.progress.update(self.row, description=text, place=place, completed=done, total=1.0)

    def _line_once(self, text: str) -> None:
        if text != self.last_line:
            self.line(text)
            self.last_line = text


class LiveTable(_Screen):
    """The progress of many runs: the rows so far, and the position of the unfinished runs."""

    def __init__(self, labels: list[str], seeds: int, quiet: bool) -> None:
        from rich.live import Live

        super().__init__(quiet)
        self.seeds = seeds
        self.shared, short = shared_settings(labels)
        self.short = dict(zip(labels, short, strict=True))
        self.rows: dict[str, Row | None] = dict.fromkeys(labels)
        self.finished: dict[str, int] = dict.fromkeys(labels, 0)
        self.places: dict[str, dict[int, Event]] = {label: {} for label in labels}
        self.warnings: set[str] = set()  # those that were printed
        self.computed = 0  # runs that were computed, not read
        self.display_id = ""  # of the table in a notebook, once it is shown
        self.begin = self.last_time = time.monotonic()
        self.live = Live(
            console=self.console, transient=True, refresh_per_second=4, get_renderable=self.table
        )

    def __enter__(self) -> LiveTable:
        if self.draws:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self.live.stop()
        if self.display_id:
            self._show(", ".join(self._so_far()))

    def event(self, event: Event) -> None:
        """A run has started, advanced or warned; warnings are printed even if quiet."""
        label, seed = event.config.label, event.config.seed
        if event.kind == "warning":
            if event.text in self.warnings:  # every seed may give the same warning
                return
            self.warnings.add(event.text)
            if self.draws:
                text = f"mdmt: {printable(event.text)}"
                with suppress(OSError):
                    self.console.print(text, markup=False, highlight=False, soft_wrap=True)
            else:
                tell(event.text)
            return
        self.places[label][seed] = event
        if event.kind == "start":
            self.line(f"{label}, seed {seed}: {event.text}")
        elif time.monotonic() - self.last_time >= MINUTE:
            self.line(self.summary())
            self.last_time = time.monotonic()
        self._show_table()

    def outcome(self, outcome: Outcome, row: Row | None) -> None:
        """A run has ended; `row` summarises the finished runs of its variant."""
        from mdmt.metrics import A_T

        label, seed, record = outcome.config.label, outcome.config.seed, outcome.record
        self.places[label].pop(seed, None)
        self.rows[label] = row
        self.finished[label] += 1
        self.computed += not outcome.read
        if record is None:
            self.line(f"{label}, seed {seed}: failed: {outcome.reason}")
        elif not outcome.read:
            value = A_T.of(record)
            accuracy = "not tested" if value is None else f"{A_T.name} {A_T.text(value)} %"
            self.line(f"{label}, seed {seed}: {accuracy}, {record.seconds:.1f} s")
        self._show_table()

    def _show_table(self) -> None:
        """Show the table in a notebook, in the place of the one before."""
        if self.is_notebook:
            from mdmt.report.text import plain_text

            self._show(plain_text([self.table()], WIDTH))

    def _show(self, text: str) -> None:
        from IPython.display import display, update_display

        content = {"text/plain": text}
        if self.display_id:
            update_display(content, raw=True, display_id=self.display_id)
        else:
            self.display_id = f"mdmt-{id(self)}-{time.monotonic_ns()}"
            display(content, raw=True, display_id=self.display_id)

    def summary(self) -> str:
        """The number of finished runs, the time elapsed, and the estimated time left."""
        total = len(self.rows) * self.seeds
        over = sum(self.finished.values())
        elapsed = time.monotonic() - self.begin
        words = self._so_far()
        work = self.computed + sum(
            event.done for events in self.places.values() for event in list(events.values())
        )
        if work > 0:
            left = total - (over - self.computed) - work
            words.append(f"about {clock(elapsed * left / work)} left")
        return ", ".join(words)

    def _so_far(self) -> list[str]:
        total, over = len(self.rows) * self.seeds, sum(self.finished.values())
        return [f"{over} of {total} runs", clock(time.monotonic() - self.begin)]

    def table(self) -> Any:
        """The rows so far, in columns of constant width."""
        from rich.console import Group
        from rich.text import Text

        from mdmt.metrics import A_T
        from mdmt.report.text import Grid, format_metric, rich_table

        lines = []
        for label, row in self.rows.items():
            events = list(self.places[label].values())
            known = [event.accuracy for event in events if event.accuracy is not None]
            so_far = f"{100 * sum(known) / len(known):.1f}" if known else "-"
            share = (
                f"{100 * sum(event.done for event in events) / len(events):.0f} %"
                if events
                else "-"
            )
            metric = format_metric(A_T, row.metrics.get(A_T.name) if row else None)
            runs = f"{self.finished[label]}/{self.seeds}"
            lines.append([self.short[label], f"{metric:>13}", runs, f"{share:>5}", f"{so_far:>6}"])
        header = self.summary() + (f"; all with {', '.join(self.shared)}" if self.shared else "")
        grid = Grid(["method", A_T.heading, "runs", "now", "so far"], lines)
        width = WIDTH if self.is_notebook else self.console.width
        return Group(Text(header), rich_table(grid, width))


class DownloadBar(_Screen):
    """The progress of downloads: bytes of each file and the time left."""

    def __init__(self, quiet: bool) -> None:
        from rich.progress import BarColumn, DownloadColumn

        super().__init__(quiet)
        self.progress = self.bar(BarColumn(), DownloadColumn())
        self.rows: dict[str, TaskID] = {}

    def __enter__(self) -> DownloadBar:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self.progress.stop()

    def step(self, file: str, done: int, total: int | None) -> None:
        """Show how much of a file is downloaded."""
        if file not in self.rows:
            self.rows[file] = self.progress.add_task(file, total=total)
            size = "" if total is None else f", {total / 1e6:,.1f} MB"
            position = f", continuing at {done / 1e6:,.1f} MB" if done else ""
            self.line(f"{file}{size}{position}")
        self.progress.update(self.rows[file], completed=done, total=total)
