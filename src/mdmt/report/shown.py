"""Runs on the terminal: a list of many, or one with all it measured."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

from rich.text import Text

from mdmt.experiments.comparison import mean_std
from mdmt.experiments.config import RunConfig
from mdmt.metrics import A_T
from mdmt.report.tables import metrics_table
from mdmt.report.text import rich_table, screen
from mdmt.words import count, size

Rows = list[list[float | None]]


def list_runs(found: list[dict[str, Any]], out: str) -> None:
    """A table for each benchmark, and a line for each run that is not finished, with where it is or what is wrong."""
    console = screen()
    for benchmark, of_benchmark in groupby(found, key=lambda run: run["benchmark"]):
        runs = list(of_benchmark)
        names = [_name(run, out) for run in runs]
        lines = [
            [
                str(run["label"] or "-") + ("*" if run["held_out"] else ""),
                name,
                run["state"],
                "-" if run["A_T"] is None else A_T.text(run["A_T"]),
                "-" if run["seconds"] is None else f"{run['seconds']:.1f}",
                size(run["bytes"]),
            ]
            for run, name in zip(runs, names, strict=True)
        ]
        console.print(Text(benchmark or f"no benchmark known, in {out}", style="bold"))
        console.print(rich_table((["label", "run", "state", "A_T %", "secs", "size"], lines), console.width))
        for run, name in zip(runs, names, strict=True):
            if run["state"] != "finished":
                console.print(Text(f"{name}: {_where(run)}"))
        if any(run["held_out"] for run in runs):
            console.print(Text("* on the held-out tasks"))
        console.print()
    console.print(Text(f"{count('run', len(found))}, {size(sum(run['bytes'] for run in found))}, in {out}"))


def _name(run: dict[str, Any], out: str) -> str:
    """hash/seed, or the path where a folder does not lie as runs do."""
    parts = Path(run["path"]).relative_to(out).parts
    return "/".join(parts[-2:] if len(parts) == 4 and parts[0] == run["benchmark"] else parts) or "."


def _where(run: dict[str, Any]) -> str:
    state = f"{run['state']}: {run['reason']}"
    if run["at"] is None:
        return state
    task, step = run["at"]["task"], run["at"]["step"]
    place = f"task {task}, step {step}" if run["at"]["of_task"] else f"the end of task {task}"
    if run["state"] == "running":
        return f"running: its last checkpoint is at {place}"
    checkpoint = f"checkpoint at {place}; the same command goes on from there"
    return f"{state}\n{checkpoint}" if run["reason"] else checkpoint


def show_run(about: dict[str, Any], config: RunConfig, record: dict[str, Any] | None) -> None:
    """What the run is, its metrics with their formulas, accuracies, drift, cost, versions and settings."""
    console = screen()
    title = config.name
    console.print(Text(f"{title}: {about['state']}", style="bold"))
    console.print(Text(about["path"], style="dim"), soft_wrap=True)
    if about["state"] != "finished":
        console.print(Text(_where(about)))
    if record is not None:
        for part in _measured(record, console.width):
            console.print(part)
        cost = [count("step", record["steps"]), f"{record['seconds']:.1f} s of learning"]
        memory = f"memory {size(record['memory_bytes'])}" if record["memory_bytes"] else "no memory"
        console.print(Text(", ".join([*cost, memory, f"{size(about['bytes'])} on disk"])))
        if record.get("versions"):
            console.print(Text("versions: " + ", ".join(f"{k} {v}" for k, v in record["versions"].items())))
    console.print(Text(f"settings: {_settings(config, uses_memory=record is None or record['memory_bytes'] > 0)}"))


def _measured(record: dict[str, Any], width: int) -> list[Any]:
    parts: list[Any] = []
    if record.get("reduced"):
        less = ", ".join(f"{key} {value}" for key, value in record["reduced"].items())
        parts.append(Text(f"reduced, not the published protocol: {less}"))
    parts += [Text(""), metrics_table({name: mean_std([value]) for name, value in record["metrics"].items()})]
    rows = [(number, row) for number, row in enumerate(record["accuracy"]) if any(a is not None for a in row)]
    if not rows:
        return [*parts, Text("no task is finished yet"), Text("")]
    last = len(rows) - 1
    accuracies = [(str(number + 1), [None if a is None else 100 * a for a in row]) for number, row in rows]
    parts += [Text("\naccuracy (%) on each task (column) after learning a task (row)"), *matrix(accuracies, 1, width)]
    drift = record["drift"][rows[last][0]]
    parts += [Text("\ndrift of each task's features since it was learned (1 - cos)"), *matrix([("", drift)], 3, width)]
    return [*parts, Text("")]


def matrix(rows: list[tuple[str, list[float | None]]], digits: int, width: int) -> list[Any]:
    """Numbers by task; whole ones where there is little room, and evenly chosen tasks where there is too little."""
    tasks = len(rows[0][1])
    for places in (digits, max(0, digits - 1)):
        cells = [["" if v is None else f"{v:.{places}f}" for v in row] for _, row in rows]
        widest = max([len(str(tasks)), *(len(cell) for line in cells for cell in line)])
        room = (width - len(str(tasks)) - 2) // (widest + 2 if places == digits else widest + 1)
        if room >= tasks:
            break
    shown = max(1, min(room, tasks))
    chosen = [round(i * (tasks - 1) / max(1, shown - 1)) for i in range(shown)]
    whole = len(chosen) == tasks
    kept = [i for i, (name, _) in enumerate(rows) if whole or not name or int(name) - 1 in chosen]
    grid = (
        ["", *(str(i + 1) for i in chosen)],
        [[rows[i][0], *(cells[i][j] for j in chosen)] for i in kept],
    )
    told = [] if whole else [Text(f"{len(chosen)} of {count('task', tasks)}; --json has all")]
    return [rich_table(grid, width), *told]


def _settings(config: RunConfig, uses_memory: bool) -> str:
    told = {key: getattr(config, key) for key in ("tasks", "heads", "lr", "batch", "epochs", "optimiser")}
    kept = {"memory": " ".join(str(part) for part in config.memory.values())} if uses_memory else {}
    return ", ".join(f"{key}={value}" for key, value in {**told, **config.arguments, **kept}.items())
