"""Run folders as studies: the runs that may stand in one table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from mdmt.experiments.comparison import Row, row_of
from mdmt.experiments.paper import METHODS
from mdmt.experiments.store import RunFolder
from mdmt.report.folders import Absent, Run, read_run
from mdmt.words import count


@dataclass(frozen=True)
class Entry:
    """The runs of one method or variant, a seed each."""

    label: str
    runs: list[Run]

    @property
    def method(self) -> str:
        """Without its arguments."""
        return self.runs[0].config.method

    @cached_property
    def row(self) -> Row:
        """As tables have it."""
        row = row_of([r.config for r in self.runs], [r.record for r in self.runs], [str(r.folder) for r in self.runs])
        return replace(row, label=self.label)


@dataclass(frozen=True)
class Study:
    """Runs of one stream with one kind of head."""

    benchmark: str
    heads: str
    tasks: int
    less: dict[str, Any]  # what makes it less than the protocol
    entries: list[Entry]

    @property
    def title(self) -> str:
        """For people."""
        heads = "one shared head" if self.heads == "shared" else "a head per task"
        return f"{self.benchmark}, {count('task', self.tasks)}, {heads}"

    @property
    def runs(self) -> list[Run]:
        """All of them."""
        return [run for entry in self.entries for run in entry.runs]


def read(folders: Iterable[RunFolder]) -> tuple[list[Study], list[Absent]]:
    """What run folders hold: studies in the order of their names, methods in the paper's."""
    absent: list[Absent] = []
    grouped: dict[tuple[str, ...], dict[tuple[str, str], dict[int, Run]]] = {}
    for folder in folders:
        found = read_run(folder)
        if isinstance(found, Absent):
            absent.append(found)
            continue
        seeds = grouped.setdefault(_stream(found), {}).setdefault((found.config.label, folder.path.parent.name), {})
        seed = found.config.seed
        if seed in seeds:
            absent.append(
                Absent(folder.path, found.config.name, f"the same run as {seeds[seed].folder}, which is shown")
            )
        seeds.setdefault(seed, found)
    return [_study(entries) for _, entries in sorted(grouped.items())], absent


def _stream(run: Run) -> tuple[str, ...]:
    """What runs must have in common to stand in one table."""
    config, tasks = run.config, len(run.record["tasks"])
    options = {key: getattr(config, key) for key in ("image_size", "subset", "weights", "cross_validation")} | _less(
        run
    )
    return config.benchmark, config.heads, f"{tasks:06}", json.dumps(options, sort_keys=True)


def _less(run: Run) -> dict[str, Any]:
    """How the stream is reduced; the reference batch is a method's affair and stands in its label."""
    return {k: v for k, v in (run.record.get("reduced") or {}).items() if k != "reference_batch"}


def _study(entries: dict[tuple[str, str], dict[int, Run]]) -> Study:
    times = Counter(label for label, _ in entries)
    made = [
        Entry(label if times[label] == 1 else f"{label} ({configuration[:6]})", [by_seed[s] for s in sorted(by_seed)])
        for (label, configuration), by_seed in entries.items()
    ]
    made.sort(key=lambda e: (METHODS.index(e.method) if e.method in METHODS else len(METHODS), e.label))
    first = made[0].runs[0]
    return Study(
        first.config.benchmark, first.config.heads, len(first.record["tasks"]), _less(first), made
    )  # fmt: skip
