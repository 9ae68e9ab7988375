"""The words and tables of the page."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from mdmt.metrics import A_FREE, A_T, Metric
from mdmt.report.charts import Chart, Series, measured
from mdmt.report.features import first_run
from mdmt.report.figures import task_sample
from mdmt.report.study import Entry, Run, Study
from mdmt.report.tables import footnotes, published_metrics, published_text
from mdmt.report.text import format_difference, format_metric
from mdmt.runs.config import RunConfig
from mdmt.runs.differences import with_differences
from mdmt.runs.ranking import ranking
from mdmt.runs.request import RunRequest
from mdmt.runs.rows import Row, Spread, metrics_in, reference
from mdmt.system.own_code import is_in_memory
from mdmt.words import bytes_text


@dataclass(frozen=True)
class TableCell:
    """A cell's text, the number it is sorted by (empty without one), and whether it is bold."""

    text: str
    value: str
    best: bool = False
    below: str = ""  # a second line, in small letters


@dataclass(frozen=True)
class TableRow:
    """A method's line of a table."""

    label: str
    cells: list[TableCell]


@dataclass(frozen=True)
class Table:
    """A table that the page can sort; its first column names the rows."""

    columns: list[str]
    rows: list[TableRow]
    published: bool = False  # whether it has published values
    footnotes: list[str] = field(default_factory=list)
    against: str = ""  # the row that the others are compared with


@dataclass(frozen=True)
class MethodDetails:
    """A method with its settings, each metric's value and formula, and its run folders."""

    label: str
    settings: str
    metrics: list[tuple[str, str, str]]
    folders: list[str]


def setup(study: Study) -> dict[str, str]:
    """The protocol and the settings of the runs; rows with other settings are named."""
    tasks = study.runs[0].record.tasks
    reduced = ", ".join(f"{key.replace('_', ' ')}: {value}" for key, value in study.reduced.items())
    train, test = (_range([task.get(part) for task in tasks]) for part in ("train", "test"))
    return {
        "benchmark": study.benchmark,
        "protocol": (
            f"reduced ({reduced}): not comparable with published values" if reduced else "full"
        ),
        "tasks": (
            f"{study.tasks}, learned one after the other ({train} examples each, {test} to test)"
            + (", the published ones with every seed" if study.stream == "published" else "")
        ),
        "heads": (
            "one head that all tasks share" if study.heads == "shared" else "a head for each task"
        ),
        "network": _over_rows(study, lambda entry: _network(entry.runs[0].config)),
        "epochs": _over_rows(study, lambda entry: _epochs(entry.runs[0].config)),
        "batch": _over_rows(study, lambda entry: str(entry.runs[0].config.batch)),
        "seeds": _over_rows(study, lambda entry: _seeds(entry.row.seeds)),
    }


def _seeds(seeds: list[int]) -> str:
    """Seeds as text.

    >>> _seeds([1, 2]), _seeds([1234, 1235, 1236, 1240])
    ('1, 2', '1234 to 1236, 1240')
    """
    parts = []
    for first, number in spans(seeds):
        own = [str(first + k) for k in range(number)]
        parts.append(", ".join(own) if number < 3 else f"{own[0]} to {own[-1]}")
    return ", ".join(parts)


def _epochs(config: RunConfig) -> str:
    return f"{config.epochs}{config.steps_an_example}"


def _network(config: RunConfig) -> str:
    arguments = config.backbone["arguments"]
    words = ", ".join(f"{key} {value}" for key, value in arguments.items())
    return f"{config.backbone['name']} ({words})" if words else str(config.backbone["name"])


def _over_rows(study: Study, value_of: Callable[[Entry], str]) -> str:
    """The value that most rows share, then the rows that differ; without a majority, all rows."""
    labels: dict[str, list[str]] = {}
    for entry in study.entries:
        labels.setdefault(value_of(entry), []).append(entry.label)
    common = max(labels, key=lambda value: len(labels[value]))
    if len(labels) == 1:
        return common
    has_majority = 2 * len(labels[common]) > len(study.entries)
    if has_majority:
        del labels[common]
    rows = "; ".join(f"{', '.join(names)}: {value}" for value, names in labels.items())
    return f"{common}, except {rows}" if has_majority else rows


def _range(numbers: list[object]) -> str:
    counts = [number for number in numbers if isinstance(number, int)]
    if not counts:
        return "?"
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def versions(runs: Iterable[Run]) -> str:
    """Every version that the runs were made with, each named once."""
    found: dict[str, set[str]] = {}
    for run in runs:
        for name, version in run.record.versions.items():
            found.setdefault(name, set()).add(version)
    return "; ".join(f"{name} {', '.join(sorted(each))}" for name, each in found.items())


def snapshot_numbers(study: Study) -> list[int]:
    """The tasks whose features are shown, counted from 1."""
    tasks = (first_run(entry).snapshots.tasks for entry in study.entries)
    return [task + 1 for task in next(filter(None, tasks), [])]


def sample_note(study: Study) -> str:
    """A sentence for maps that show only some of the tasks."""
    number = len(task_sample(study.tasks))
    if number == study.tasks:
        return ""
    return f" Of the {study.tasks} tasks {number} are shown, evenly spaced."


def main_table(study: Study) -> Table:
    """Table 1 of these runs."""
    shown = shown_metrics(study.rows)
    leaders = {metric: ranking(study.rows, metric).leaders for metric in shown}
    rows = []
    for row in study.rows:
        cells = []
        for metric in shown:
            ours = row.metrics.get(metric.name)
            cell = _cell(format_metric(metric, ours), _mean(ours), row in leaders[metric])
            cells.append(replace(cell, below=_beside(metric, row)))
        seconds = row.seconds["mean"]
        cells.append(_cell(f"{seconds:.1f}" if seconds < 100 else f"{seconds:,.0f}", seconds))
        cells.append(_cell(bytes_text(row.memory_bytes), row.memory_bytes))
        cells.append(_cell(str(len(row.seeds)), len(row.seeds)))
        rows.append(TableRow(row.label, cells))
    columns = ["method", *map(heading, shown), "seconds ↓", "memory ↓", "seeds"]
    return Table(columns, rows, bool(published_metrics(study.rows)), footnotes(study.rows))


def heading(metric: Metric) -> str:
    """A metric's heading with the direction that is better.

    >>> heading(A_T)
    'A_T (%) ↑'
    """
    return f"{metric.heading} {metric.arrow}"


def shown_metrics(rows: Sequence[Row]) -> list[Metric]:
    """The metrics that any row has, without A_free if it is A_T in all of them."""
    known = [one for one in metrics_in(rows) if any(row.metrics.get(one.name) for row in rows)]
    if all(row.metrics[A_FREE.name] == row.metrics[A_T.name] for row in rows):
        known = [metric for metric in known if metric is not A_FREE]
    return known


def _beside(metric: Metric, row: Row) -> str:
    """The published value and, in brackets, our value minus it; empty without one."""
    ours = row.metrics.get(metric.name)
    theirs: Spread | None = (row.published or {}).get(metric.name)
    if theirs is None:
        return ""
    text = published_text(metric, row)
    if ours is None:
        return text
    return f"{text} ({metric.text(ours['mean'] - theirs['mean'], signed=True)})"


def _mean(cell: Spread | None) -> float | None:
    return None if cell is None else cell["mean"]


def _cell(text: str, value: float | None, best: bool = False) -> TableCell:
    return TableCell(text, "" if value is None else repr(float(value)), best)


def difference_table(study: Study) -> Table | None:
    """Each method minus the reference method; None if there is only one method."""
    against = reference(study.rows).label
    shown = shown_metrics(study.rows)
    rows = []
    for row in with_differences(study.rows, against):
        gaps = row.differences
        if gaps is None:
            continue
        cells = []
        for metric in shown:
            gap = gaps.metrics.get(metric.name)
            mean, _, interval = format_difference(metric, gap).partition(" ")
            cells.append(replace(_cell(mean, _mean(gap)), below=interval))
        cells.append(_cell(str(len(gaps.seeds)), len(gaps.seeds)))
        rows.append(TableRow(row.label, cells))
    columns = ["method", *map(heading, shown), "seeds"]
    return Table(columns, rows, against=against) if rows else None


def methods(study: Study) -> list[MethodDetails]:
    """The details of each method."""
    details = []
    for entry in study.entries:
        cells = entry.row.metrics
        values = [
            (heading(metric), format_metric(metric, cells.get(metric.name)), metric.formula)
            for metric in shown_metrics(study.rows)
        ]
        commits = sorted({run.record.versions.get("commit", "unknown") for run in entry.runs})
        settings = f"{_settings(entry.runs[0].config)}, commit {' and '.join(commits)}"
        details.append(MethodDetails(entry.label, settings, values, entry.row.runs))
    return details


def _settings(config: RunConfig) -> str:
    settings = {"lr": config.lr, **config.arguments, **config.memory}
    return ", ".join(f"{key} {value}" for key, value in settings.items())


def chart_rows(chart: Chart) -> tuple[list[str], list[list[str]]]:
    """The columns and rows of the table below a chart."""
    if chart.points:
        columns = ["method", chart.x_label, chart.y_label, "spread"]
        return columns, [
            [
                point.label,
                measured(point.x[0]),
                f"{point.y[0]:.2f}",
                f"{point.low[0]:.2f} to {point.high[0]:.2f}",
            ]
            for point in chart.series
        ]
    xs = np.unique(np.concatenate([line.x for line in chart.series])).tolist()
    rows = []
    for line in chart.series:
        places = {float(x): place for place, x in enumerate(line.x)}
        rows.append([line.label, *(_point(line, places.get(x), chart.digits) for x in xs)])
    return [f"method \\ {chart.x_label}", *(f"{x:g}" for x in xs)], rows


def _point(line: Series, place: int | None, digits: int) -> str:
    """A value and, in brackets, the ends of its spread."""
    if place is None or math.isnan(line.y[place]):
        return "-"
    low, high = line.low[place], line.high[place]
    spread = "" if high == low else f" [{low:.{digits}f}, {high:.{digits}f}]"
    return f"{line.y[place]:.{digits}f}{spread}"


def commands(study: Study) -> list[str]:
    """The `mdmt compare` commands that repeat the runs of a study, one for each set of seeds.

    Held-out tasks have none, because only `mdmt tune` runs them; nor has a stream in memory.
    """
    if study.runs[0].config.cross_validation or is_in_memory(study.benchmark):
        return []
    labels: dict[tuple[tuple[int, ...], tuple[str, ...]], list[str]] = {}
    for entry in study.entries:
        config = entry.runs[0].config
        seeds = tuple(run.config.seed for run in entry.runs)
        labels.setdefault((seeds, _flags(config)), []).append(config.label)
    lines = []
    for (seeds, flags), names in labels.items():
        command = ["mdmt", "compare", study.benchmark, "--methods", ",".join(names)]
        for first, number in spans(list(seeds)):
            seed_flags = ["--seed", str(first), "--seeds", str(number)]
            lines.append(shlex.join([*command, *seed_flags, *flags]))
    return lines


def _flags(config: RunConfig) -> tuple[str, ...]:
    """The options of a run without its seed."""
    return tuple(replace(RunRequest.of(config), seed=RunRequest.seed).flags())


def spans(seeds: list[int]) -> list[tuple[int, int]]:
    """The first seed and the length of each unbroken sequence of seeds.

    >>> spans([1234, 1235, 1240])
    [(1234, 2), (1240, 1)]
    """
    sequences: list[tuple[int, int]] = []
    for seed in sorted(seeds):
        if sequences and seed == sum(sequences[-1]):
            first, number = sequences.pop()
            sequences.append((first, number + 1))
        else:
            sequences.append((seed, 1))
    return sequences
