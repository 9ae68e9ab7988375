"""Studies: groups of runs that can be compared in one table."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mdmt.errors import Mistake
from mdmt.metrics import BETA
from mdmt.runs.config import RunConfig
from mdmt.runs.folder import CONFIG, RunFolder, RunState
from mdmt.runs.paper import NEWER, PAPER_METHODS
from mdmt.runs.record import RunRecord
from mdmt.runs.rows import Row, is_near, row_of
from mdmt.runs.snapshots import Snapshots
from mdmt.words import count, printable

Array = NDArray[np.float64]
SHARED = (  # what the runs of a study have in common, besides benchmark, heads and tasks
    "stream",
    "image_size",
    "subset",
    "weights",
    "cross_validation",
    "validation",
    "fingerprint",
)


@dataclass(frozen=True)
class Run:
    """A finished run, or a running one at its last checkpoint."""

    path: Path
    config: RunConfig
    record: RunRecord
    seconds_left: float | None = None  # of a running one

    @cached_property
    def accuracy(self) -> Array:
        """T x T; NaN if not evaluated."""
        return np.array(self.record.accuracy, dtype=float)

    @cached_property
    def drift(self) -> Array:
        """T x T; NaN if not measured."""
        return np.array(self.record.drift, dtype=float)

    @cached_property
    def curve(self) -> Array:
        """Z_0 to Z_10, a row per task."""
        return np.array(self.record.curve, dtype=float).reshape(-1, BETA + 1)

    @cached_property
    def snapshots(self) -> Snapshots:
        """Features and head during learning; empty if missing or damaged."""
        try:
            return RunFolder(self.path).snapshots
        except (Mistake, OSError):
            return Snapshots()


@dataclass(frozen=True)
class UnusableRun:
    """A run folder without a result, and the reason."""

    path: Path
    name: str
    reason: str
    is_running: bool = False
    so_far: Run | None = None  # of a running one: its measurements at the last checkpoint


@dataclass(frozen=True)
class Entry:
    """The runs of one method or variant, one per seed."""

    label: str
    runs: list[Run]

    @property
    def method(self) -> str:
        return self.runs[0].config.method

    @property
    def has_failed(self) -> bool:
        """Whether it ends at chance, on the task that it has just learned too.

        A method that learns its last task and has forgotten the others has not failed.
        """
        row = self.row
        last = float(np.mean([run.accuracy[-1, -1] for run in self.runs]))
        return row.is_near_chance and is_near(last, row.chance)

    @cached_property
    def row(self) -> Row:
        row = row_of(
            [run.config for run in self.runs],
            [run.record for run in self.runs],
            [str(run.path) for run in self.runs],
        )
        return replace(row, label=self.label)


@dataclass(frozen=True)
class Study:
    """Runs of one stream with one kind of head."""

    benchmark: str
    heads: str
    tasks: int
    reduced: dict[str, object]  # how the stream is reduced from the protocol
    entries: list[Entry]
    detail: str = ""  # the difference to other studies of the same name

    @property
    def title(self) -> str:
        heads = "one shared head" if self.heads == "shared" else "a head per task"
        tasks = count(
            "held-out task" if self.runs[0].config.cross_validation else "task", self.tasks
        )
        stream = ", the published stream" if self.stream == "published" else ""
        return f"{self.benchmark}, {tasks}, {heads}{stream}{self.detail}"

    @property
    def stream(self) -> str:
        return self.runs[0].config.stream

    @property
    def runs(self) -> list[Run]:
        return list(itertools.chain.from_iterable(entry.runs for entry in self.entries))

    @property
    def rows(self) -> list[Row]:
        return [entry.row for entry in self.entries]

    @property
    def failed(self) -> list[Entry]:
        """Entries that would spoil the scale of a chart; none if all of them failed."""
        failed = [entry for entry in self.entries if entry.has_failed]
        return failed if len(failed) < len(self.entries) else []


def read_studies(folders: Iterable[RunFolder]) -> tuple[list[Study], list[UnusableRun]]:
    """Group run folders into studies, the largest first, with methods in the paper's order."""
    unusable: list[UnusableRun] = []
    groups: dict[tuple[str, ...], dict[tuple[str, str], dict[int, Run]]] = {}
    for folder in folders:
        run = read_run(folder)
        if isinstance(run, UnusableRun):
            unusable.append(run)
            continue
        entries = groups.setdefault(_stream(run), {})
        seeds = entries.setdefault((run.config.label, run.path.parent.name), {})
        twin = seeds.setdefault(run.config.seed, run)
        if twin is not run:
            reason = f"the same run as {printable(str(twin.path))}, which is shown"
            unusable.append(UnusableRun(run.path, run.config.name, reason))
    studies = [_study(entries) for _, entries in sorted(groups.items())]
    studies.sort(key=lambda study: -len(study.runs))
    return _with_details(studies), unusable


def running_studies(unusable: Iterable[UnusableRun]) -> list[Study]:
    """Studies of the runs in progress, grouped by stream, with one entry per run."""
    groups: dict[tuple[str, ...], list[Run]] = {}
    for run in unusable:
        if run.so_far is not None:
            groups.setdefault(_stream(run.so_far), []).append(run.so_far)
    studies = []
    for _, runs in sorted(groups.items()):
        entries = [Entry(f"{run.config.label}, seed {run.config.seed}", [run]) for run in runs]
        config = runs[0].config
        studies.append(
            Study(
                config.benchmark,
                config.heads,
                len(runs[0].accuracy),
                {},
                sorted(entries, key=_order),
            )
        )
    return _with_details(studies)


def _with_details(studies: list[Study]) -> list[Study]:
    """Add to studies of the same name the facts in which they differ."""
    names = Counter(study.title for study in studies)
    distinct: list[Study] = []
    for study in studies:
        if names[study.title] > 1:
            others = [_facts(other) for other in studies if other.title == study.title]
            facts = [fact for fact in _facts(study) if not all(fact in one for one in others)]
            study = replace(study, detail="".join(f", {fact}" for fact in facts))
        number = 1 + sum(other.title == study.title for other in distinct)
        if number > 1:
            study = replace(study, detail=f"{study.detail} ({number})")
        distinct.append(study)
    return distinct


def _facts(study: Study) -> list[str]:
    """Facts about a stream that its title leaves out."""
    config = study.runs[0].config
    facts = [
        f"{key.replace('_', ' ')} {value}" for key, value in study.reduced.items() if key != "tasks"
    ]
    if config.data is not None:
        facts.append(f"data {printable(Path(config.data).name)}")
    for name, value in (("subset", config.subset), ("image size", config.image_size)):
        if value is not None and f"{name} {value}" not in facts:
            facts.append(f"{name} {value}")
    for name, digest in (("weights", config.weights), ("images", config.fingerprint)):
        if digest is not None:
            facts.append(f"{name} {digest[:6]}")
    return facts


def read_run(folder: RunFolder) -> Run | UnusableRun:
    """A finished run, or the reason why the folder has none."""
    state = folder.state
    if state.kind == "finished":
        return Run(folder.path, folder.config, folder.record)
    tasks: int | None = None
    name = printable(folder.path.name)
    try:
        name = folder.config.name
        tasks = folder.task_count
    except (Mistake, OSError):
        pass
    so_far = _run_so_far(folder) if state.kind == "running" else None
    return UnusableRun(
        folder.path, name, _reason(folder, state, tasks), state.kind == "running", so_far
    )


def _run_so_far(folder: RunFolder) -> Run | None:
    """A run's measurements at its last checkpoint, with empty rows for the tasks to come."""
    try:
        config, record = folder.config, folder.record_so_far
        tasks = folder.task_count
    except (Mistake, OSError):  # the run is writing it
        return None
    if record is None:
        return None
    tasks = max(tasks or 0, len(record.tasks))
    return Run(folder.path, config, record.padded(tasks), folder.seconds_left)


def _reason(folder: RunFolder, state: RunState, tasks: int | None) -> str:
    """Why a run has no result to show."""
    if state.kind in ("damaged", "foreign") or not (folder.has(CONFIG) or state.kind == "failed"):
        return state.reason
    reasons = {
        "running": "running now",
        "stopped": "stopped or killed before its end",
        "failed": f"failed: {state.reason}",
    }
    reason = reasons[state.kind]
    if state.at is not None:
        learned = state.at.task - state.at.of_task
        total = "? tasks" if tasks is None else count("task", tasks)
        return f"{reason}; {learned} of {total} learned at its last checkpoint"
    if state.kind == "running" or not folder.has(CONFIG):
        return reason
    return f"{reason}; it left no checkpoint"


def _stream(run: Run) -> tuple[str, ...]:
    """The settings that all runs of a study must share."""
    config = run.config
    options = {key: getattr(config, key) for key in SHARED}
    if config.benchmark == "folder" and config.fingerprint is None:  # written by an earlier version
        options["data"] = config.data
    content = json.dumps(options | _stream_reduction(run), sort_keys=True)
    return config.benchmark, config.heads, f"{len(run.accuracy):06}", content


def _stream_reduction(run: Run) -> dict[str, object]:
    """How the stream is reduced; the reference batch belongs to a method, and is in its label."""
    reduced = run.record.reduced or {}
    return {key: value for key, value in reduced.items() if key != "reference_batch"}


def _study(entries: dict[tuple[str, str], dict[int, Run]]) -> Study:
    times = Counter(label for label, _ in entries)
    rows = [
        Entry(
            label if times[label] == 1 else f"{label} ({configuration[:6]})",
            [seeds[seed] for seed in sorted(seeds)],
        )
        for (label, configuration), seeds in entries.items()
    ]
    rows.sort(key=_order)
    first = rows[0].runs[0]
    config = first.config
    tasks = len(first.record.tasks)
    return Study(config.benchmark, config.heads, tasks, _stream_reduction(first), rows)


def _order(entry: Entry) -> tuple[int, str]:
    """The sort key of an entry: the paper's methods in its order, newer ones, then all others."""
    methods = PAPER_METHODS + NEWER
    number = methods.index(entry.method) if entry.method in methods else len(methods)
    return number, entry.label
