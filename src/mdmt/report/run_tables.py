"""Runs on the terminal: a list of runs, or all measurements of one."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any, TypedDict

from rich.text import Text

from mdmt.errors import Mistake
from mdmt.metrics import A_T
from mdmt.report.tables import metrics_table, reduction
from mdmt.report.text import Grid, rich_table, screen
from mdmt.runs.config import NOT_HASHED, RunConfig
from mdmt.runs.folder import RunFolder
from mdmt.runs.record import RunRecord
from mdmt.runs.rows import mean_std
from mdmt.words import bytes_text, count, moment, printable

NESTED = ("arguments", "backbone", "memory")  # keys of a config that hold several settings
ROOMY = 76  # columns of a screen with room for tasks and date


class RunSummary(TypedDict):
    """A run as lists of runs show it; None for unknown values."""

    benchmark: str | None
    label: str | None
    seed: int | None
    tasks: int | None
    A_T: float | None
    seconds: float | None
    finished_at: str | None
    held_out: bool
    state: str
    at: dict[str, int] | None  # the last checkpoint
    reason: str
    bytes: int
    path: str
    differs: str  # the settings in which it differs from others with its label


def describe(run: RunFolder, differs: str = "") -> RunSummary:
    """Summarise a run, also one that cannot be read."""
    state = run.state
    about = RunSummary(
        benchmark=None,
        label=None,
        seed=None,
        tasks=None,
        A_T=None,
        seconds=None,
        finished_at=None,
        held_out=False,
        state=state.kind,
        at=None if state.at is None else asdict(state.at),
        reason=state.reason,
        bytes=run.bytes,
        path=str(run.path),
        differs=differs,
    )
    with suppress(Mistake, OSError):
        config = run.config
        about["benchmark"] = config.benchmark
        about["label"] = config.label
        about["seed"] = config.seed
        about["held_out"] = config.cross_validation
        about["tasks"] = run.task_count
        record = run.record_so_far
        if record is not None and state.kind != "damaged":
            about["seconds"] = record.seconds
        if record is not None and state.kind == "finished":
            about["A_T"] = record.metrics["A_T"]
            about["tasks"] = len(record.tasks)
            about["finished_at"] = run.finished_at.isoformat(timespec="seconds")
    return about


def distinctions(runs: Sequence[RunFolder]) -> dict[Path, str]:
    """For each run the settings in which it differs from others with its label, except seeds."""
    groups: dict[tuple[str, str], dict[Path, dict[str, str]]] = {}
    for run in runs:
        with suppress(Mistake, OSError):
            config = run.config
            group = groups.setdefault((config.benchmark, config.label), {})
            group[run.path] = _distinguishing(config)
    words: dict[Path, str] = {}
    for group in groups.values():
        keys = dict.fromkeys(itertools.chain(*group.values()))
        differing = [
            key for key in keys if len({settings.get(key) for settings in group.values()}) > 1
        ]
        for path, settings in group.items():
            words[path] = ", ".join(
                f"{key}={settings[key]}" for key in differing if key in settings
            )
    return words


def _distinguishing(config: RunConfig) -> dict[str, str]:
    """Every setting that may differ between configs with the same label, as flat text."""
    content = config.to_json()
    flat = {
        key: value
        for key, value in content.items()
        if key not in (*NOT_HASHED, *NESTED, "tasks", "fingerprint")
    }
    flat |= content["arguments"] | content["backbone"]["arguments"]
    flat |= {
        "backbone": content["backbone"]["name"],
        "memory": " ".join(map(str, content["memory"].values())),
    }
    if config.fingerprint is not None:
        flat["data"] = f"{Path(config.data or '').name} {config.fingerprint[:4]}"
    return {key: printable(str(value)) for key, value in flat.items()}


def list_runs(runs: list[RunSummary], out: str) -> None:
    """Print a table per benchmark, and the progress of each unfinished run."""
    console = screen()
    for benchmark, group in itertools.groupby(runs, key=lambda run: run["benchmark"]):
        members = [(_name(run, out), run) for run in group]
        grid = Grid(
            ["label", "run", "state", "A_T %", "secs", "size", "tasks", "finished"],
            [_run_line(name, run) for name, run in members],
        )
        if console.width < ROOMY:
            grid = Grid(grid.columns[:-2], [line[:-2] for line in grid.rows])
        console.print(Text(benchmark or f"unknown benchmark, in {out}", style="bold"))
        console.print(rich_table(grid, console.width))
        for name, words in {
            name.rpartition("/")[0]: run["differs"] for name, run in members if run["differs"]
        }.items():
            console.print(Text(f"{name}: {words}"))
        for name, run in members:
            if run["state"] != "finished" or run["reason"]:
                console.print(Text(f"{name}: {_progress(run)}"))
        if any(run["held_out"] for _, run in members):
            console.print(Text("* on the held-out tasks"))
        console.print()
    total = bytes_text(sum(run["bytes"] for run in runs))
    console.print(Text(f"{count('run', len(runs))}, {total}, in {out}"))


def _name(run: RunSummary, out: str) -> str:
    """hash/seed, or the whole path if the folder lies in an unusual place."""
    parts = Path(run["path"]).relative_to(out).parts
    in_its_place = len(parts) == 4 and parts[0] == run["benchmark"]
    return printable("/".join(parts[-2:] if in_its_place else parts) or ".")


def _run_line(name: str, run: RunSummary) -> list[str]:
    label = str(run["label"] or "-") + ("*" if run["held_out"] else "")
    at = run["finished_at"]
    return [
        label,
        name,
        run["state"],
        "-" if run["A_T"] is None else A_T.text(run["A_T"]),
        "-" if run["seconds"] is None else f"{run['seconds']:.1f}",
        bytes_text(run["bytes"]),
        "-" if run["tasks"] is None else str(run["tasks"]),
        "-" if at is None else moment(datetime.fromisoformat(at)),
    ]


def _progress(run: RunSummary) -> str:
    """How far an unfinished run, or the repetition of a finished one, has come."""
    state = f"{run['state']}: {run['reason']}"
    if run["at"] is None:
        return state
    task, step = run["at"]["task"], run["at"]["step"]
    place = f"task {task}, step {step}" if run["at"]["of_task"] else f"the end of task {task}"
    if run["state"] == "running":
        return f"running: its last checkpoint is at {place}"
    checkpoint = f"checkpoint at {place}; the same command resumes it"
    return f"{state}\n{checkpoint}" if run["reason"] else checkpoint


def show_run(about: RunSummary, config: RunConfig, record: RunRecord | None) -> None:
    """Print one run: metrics with formulas, accuracies, drift, cost, versions, settings."""
    console = screen()
    console.print(Text(f"{config.name}: {about['state']}", style="bold"))
    console.print(Text(printable(about["path"]), style="dim"), soft_wrap=True)
    if about["state"] != "finished" or about["reason"]:
        console.print(Text(_progress(about)))
    if record is not None:
        for part in _measurements(config, record, console.width):
            console.print(part)
        stored = record.stored_bytes
        memory = f"memory {bytes_text(stored)}" if stored else "no memory"
        by = f" by {record.ranks} ranks" if record.ranks > 1 else ""
        cost = [
            count("step", record.steps),
            f"{record.seconds:.1f} s of learning{by}",
            memory,
        ]
        console.print(Text(", ".join([*cost, f"{bytes_text(about['bytes'])} on disk"])))
        if record.versions:
            versions = ", ".join(f"{name} {version}" for name, version in record.versions.items())
            console.print(Text(f"versions: {versions}"))
    uses_memory = record is None or record.memory_bytes > 0
    console.print(Text(f"settings: {_settings(config, uses_memory)}"))


def _measurements(config: RunConfig, record: RunRecord, width: int) -> list[Any]:
    parts: list[Any] = []
    if record.reduced:
        parts.append(Text(reduction(record.reduced, own_data=config.is_own_data)))
    cells = {name: mean_std([value]) for name, value in record.metrics.items()}
    parts += [Text(""), metrics_table(cells)]
    after = [
        number for number, row in enumerate(record.accuracy) if any(a is not None for a in row)
    ]
    if not after:
        return [*parts, Text("no task is finished yet"), Text("")]
    accuracies = {
        str(number + 1): [None if a is None else 100 * a for a in record.accuracy[number]]
        for number in after
    }
    parts += [Text("\naccuracy (%) on each task (column) after learning a task (row)")]
    parts += task_table(accuracies, 1, width)
    free = [None if a is None else 100 * a for a in record.accuracy_task_free[after[-1]]]
    parts += [Text("\nfinal accuracy (%) on each task without task labels")]
    parts += task_table({"": free}, 1, width)
    parts += [Text("\ndrift of each task's features since it was learned (1 - cos)")]
    parts += task_table({"": record.drift[after[-1]]}, 3, width)
    dead = [None if share is None else 100 * share for share in record.dead_features]
    for name, values in (("dead features (%)", dead), ("effective rank", record.feature_rank)):
        if any(value is not None for value in values):
            parts += [Text(f"\n{name} after learning a task (column)")]
            parts += task_table({"": values}, 1, width)
    return [*parts, Text("")]


def task_table(rows: dict[str, list[float | None]], digits: int, width: int) -> list[Any]:
    """Numbers by task; a narrow screen gets fewer digits, then only some of the tasks."""
    tasks = len(next(iter(rows.values())))
    margin = len(str(tasks))
    for places, gap in ((digits, 2), (max(0, digits - 1), 1)):
        cells = {
            name: ["" if value is None else f"{value:.{places}f}" for value in row]
            for name, row in rows.items()
        }
        widest = max([margin, *map(len, itertools.chain(*cells.values()))])
        room = max(1, (width - margin - 2) // (widest + gap))
        if room >= tasks:
            break
    columns = min(room, tasks)
    sample = [round(i * (tasks - 1) / max(1, columns - 1)) for i in range(columns)]
    lines = [
        [name, *(line[j] for j in sample)]
        for name, line in cells.items()
        if columns == tasks or not name or int(name) - 1 in sample
    ]
    table = rich_table(Grid(["", *(str(j + 1) for j in sample)], lines), width)
    if columns == tasks:
        return [table]
    return [table, Text(f"{columns} of {count('task', tasks)}; --json has all")]


def _settings(config: RunConfig, uses_memory: bool) -> str:
    settings = {
        key: getattr(config, key)
        for key in ("tasks", "heads", "lr", "batch", "epochs", "optimiser")
    }
    settings |= config.arguments
    if uses_memory:
        settings["memory"] = " ".join(str(part) for part in config.memory.values())
    return ", ".join(f"{key}={value}" for key, value in settings.items())
