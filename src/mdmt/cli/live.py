"""A comparison while it runs, on stderr: a table that fills, or plain lines where that is no terminal."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console
from rich.live import Live as RichLive

import mdmt.metrics as metrics
from mdmt.experiments.comparison import Row
from mdmt.experiments.workers import Event, Outcome
from mdmt.metrics import A_T
from mdmt.report.text import Grid, format_metric, rich_table


class Live:
    """Shows each row as soon as one of its runs is finished, and where the others are."""

    def __init__(self, labels: list[str], seeds: int, quiet: bool) -> None:
        self.console = Console(stderr=True)
        self.seeds, self.quiet, self.plain = seeds, quiet, not self.console.is_terminal
        self.rows: dict[str, Row | None] = dict.fromkeys(labels)
        self.ended: dict[str, int] = dict.fromkeys(labels, 0)
        self.at: dict[str, dict[int, str]] = {label: {} for label in labels}
        self.screen = RichLive(console=self.console, transient=True, refresh_per_second=4, get_renderable=self.table)

    def __enter__(self) -> Live:
        if not (self.quiet or self.plain):
            self.screen.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.screen.stop()

    def event(self, event: Event) -> None:
        """A run has started, goes on, or has something to tell, which is printed however quiet we are."""
        if event.kind == "warning":
            self.console.print(f"mdmt: {event.text}", markup=False, highlight=False, soft_wrap=True)
            return
        self.at[event.config.label][event.config.seed] = event.text
        if event.kind == "start":
            self._say(f"{event.config.label}, seed {event.config.seed}: started")

    def outcome(self, outcome: Outcome, row: Row | None) -> None:
        """A run has ended; `row` is what its method has measured so far."""
        label, seed = outcome.config.label, outcome.config.seed
        self.at[label].pop(seed, None)
        self.rows[label] = row
        self.ended[label] += 1
        if outcome.record is None:
            self._say(f"{label}, seed {seed}: failed: {outcome.reason}")
        elif not outcome.read:
            accuracy, seconds = outcome.record["metrics"][A_T.name], outcome.record["seconds"]
            self._say(f"{label}, seed {seed}: {A_T.name} {A_T.text(accuracy)} %, {seconds:.1f} s")

    def table(self) -> Any:
        """What is known now."""
        lines = []
        for label, row in self.rows.items():
            cells = row.metrics if row else {}
            told = [f"{self.ended[label]}/{self.seeds}", *(f"{s}: {text}" for s, text in list(self.at[label].items()))]
            lines.append([label, *(format_metric(m, cells.get(m.name)) for m in metrics.METRICS), ", ".join(told)])
        columns = ["method", *(metric.heading for metric in metrics.METRICS), "seeds"]
        return rich_table(Grid(columns, lines), self.console.width)

    def _say(self, text: str) -> None:
        if self.plain and not self.quiet:
            print(text, file=sys.stderr, flush=True)
