"""What the page says in words and tables, cell by cell."""

from __future__ import annotations

import math
import shlex
from typing import Any

import mdmt.metrics as metrics
import mdmt.runs.rows as comparison
from mdmt.metrics import Metric
from mdmt.report.charts import Chart, Series, measured
from mdmt.report.features import first_run, snapshot_tasks
from mdmt.report.heatmaps import task_sample
from mdmt.report.study import Study
from mdmt.report.tables import footnotes, published_metrics, published_text
from mdmt.report.text import format_difference, format_metric
from mdmt.runs.config import RunConfig
from mdmt.runs.ranking import ranking
from mdmt.runs.rows import Row, Spread
from mdmt.words import size


def setup(study: Study) -> dict[str, str]:
    """What was learned, and how."""
    config, tasks = study.runs[0].config, study.runs[0].record["tasks"]
    seeds = sorted({run.config.seed for run in study.runs})
    reduced = ", ".join(f"{key.replace('_', ' ')}: {value}" for key, value in study.reduced.items())
    train, test = (_range([task.get(part) for task in tasks]) for part in ("train", "test"))
    return {
        "benchmark": study.benchmark,
        "protocol": (
            f"reduced ({reduced}): not comparable with published values" if reduced else "full"
        ),
        "tasks": (
            f"{study.tasks}, learned one after the other ({train} examples each, {test} to test)"
        ),
        "heads": (
            "one head that all tasks share" if study.heads == "shared" else "a head for each task"
        ),
        "network": str(config.backbone["name"]),
        "epochs, batch": f"{config.epochs}, {config.batch}",
        "seeds": ", ".join(map(str, seeds)),
        "versions": _versions(study),
    }


def _range(numbers: list[Any]) -> str:
    counts = [number for number in numbers if isinstance(number, int)]
    if not counts:
        return "?"
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _versions(study: Study) -> str:
    versions = [run.record.get("versions") or {} for run in study.runs]
    texts = {
        ", ".join(f"{name} {version}" for name, version in parts.items()) for parts in versions
    }
    return "; ".join(sorted(texts)) or "-"


def snapshot_numbers(study: Study) -> list[int]:
    """The tasks whose features are shown, counted from 1."""
    tasks = (snapshot_tasks(first_run(entry).snapshots) for entry in study.entries)
    return [task + 1 for task in next(filter(None, tasks), [])]


def sample_note(study: Study) -> str:
    """Note that only some tasks are shown."""
    number = len(task_sample(study.tasks))
    if number == study.tasks:
        return ""
    return f" Of the {study.tasks} tasks {number} are shown, evenly spaced."


def table(study: Study) -> dict[str, Any]:
    """Table 1 of these runs: each cell with the number it is sorted by."""
    published = published_metrics(study.rows)
    leaders = {metric: ranking(study.rows, metric).leaders for metric in metrics.METRICS}
    columns = ["method"]
    for metric in metrics.METRICS:
        columns += [metric.heading, *(["published", "difference"] if metric in published else [])]
    lines: list[dict[str, Any]] = []
    for row in study.rows:
        cells = []
        for metric in metrics.METRICS:
            ours = row.metrics[metric.name]
            cells.append(
                _cell(format_metric(metric, ours), _mean(ours), best=row in leaders[metric])
            )
            if metric in published:
                cells += _published_cells(metric, row)
        cells.append(_cell(f"{row.seconds['mean']:.1f}", row.seconds["mean"]))
        cells.append(_cell(size(row.memory_bytes), row.memory_bytes))
        cells.append(_cell(str(len(row.seeds)), len(row.seeds)))
        lines.append({"label": row.label, "cells": cells})
    return {
        "columns": [*columns, "seconds", "memory", "seeds"],
        "lines": lines,
        "published": bool(published),
        "footnotes": footnotes(study.rows),
    }


def _published_cells(metric: Metric, row: Row) -> list[dict[str, Any]]:
    """The published value, and ours less it."""
    ours = row.metrics[metric.name]
    theirs: Spread | None = (row.published or {}).get(metric.name)
    gap: Spread | None = None
    if ours and theirs:
        gap = {"mean": ours["mean"] - theirs["mean"], "std": None}
    return [
        _cell(published_text(metric, row), _mean(theirs)),
        _cell(format_metric(metric, gap, signed=True), _mean(gap)),
    ]


def _mean(cell: Spread | None) -> float | None:
    return None if cell is None else cell["mean"]


def _cell(text: str, value: float | None, best: bool = False) -> dict[str, Any]:
    return {"text": text, "value": "" if value is None else repr(float(value)), "best": best}


def differences(study: Study) -> dict[str, Any] | None:
    """The others less the reference; None where there is but one method."""
    other = comparison.reference(study.rows)
    lines = []
    for row in study.rows:
        if row is other:
            continue
        gaps = comparison.differences(row, other)
        cells = []
        for metric in metrics.METRICS:
            gap = gaps.metrics[metric.name]
            cells.append(_cell(format_difference(metric, gap), _mean(gap)))
        cells.append(_cell(str(len(gaps.seeds)), len(gaps.seeds)))
        lines.append({"label": row.label, "cells": cells})
    columns = ["method", *(metric.heading for metric in metrics.METRICS), "seeds"]
    return {"against": other.label, "columns": columns, "lines": lines} if lines else None


def methods(study: Study) -> list[dict[str, Any]]:
    """Each method with its settings, and each metric with its value and formula."""
    return [
        {
            "label": entry.label,
            "settings": _settings(entry.runs[0].config),
            "metrics": [
                (
                    metric.heading,
                    format_metric(metric, entry.row.metrics[metric.name]),
                    metric.formula,
                )
                for metric in metrics.METRICS
            ],
            "folders": entry.row.runs,
        }
        for entry in study.entries
    ]


def _settings(config: RunConfig) -> str:
    settings = {"lr": config.lr, **config.arguments, **config.memory}
    return ", ".join(f"{key} {value}" for key, value in settings.items())


def chart_rows(chart: Chart) -> tuple[list[str], list[list[str]]]:
    """The numbers of a chart as a table: its columns and rows."""
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
    xs = sorted({float(x) for line in chart.series for x in line.x})
    rows = []
    for line in chart.series:
        places = {float(x): place for place, x in enumerate(line.x)}
        rows.append([line.label, *(_point(line, places.get(x), chart.digits) for x in xs)])
    return [f"method \\ {chart.x_label}", *(f"{x:g}" for x in xs)], rows


def _point(line: Series, place: int | None, digits: int) -> str:
    """A value with the ends of its spread."""
    if place is None or math.isnan(line.y[place]):
        return "-"
    low, high = line.low[place], line.high[place]
    spread = "" if high == low else f" [{low:.{digits}f}, {high:.{digits}f}]"
    return f"{line.y[place]:.{digits}f}{spread}"


def commands(study: Study) -> list[str]:
    """The `mdmt compare` commands that ask for the runs of a study, one for each set of seeds.

    Held-out tasks have none: `mdmt tune` alone runs them.
    """
    if study.runs[0].config.cross_validation:
        return []
    labels: dict[tuple[int, ...], list[str]] = {}
    for entry in study.entries:
        seeds = tuple(run.config.seed for run in entry.runs)
        labels.setdefault(seeds, []).append(entry.runs[0].config.label)
    return [
        shlex.join([
            "mdmt", "compare", study.benchmark, "--methods", ",".join(names), "--seed", str(first),
            "--seeds", str(number), *_options(study),
        ])
        for seeds, names in labels.items()
        for first, number in spans(list(seeds))
    ]  # fmt: skip


def _options(study: Study) -> list[str]:
    """What differs from the defaults of the command."""
    config = study.runs[0].config
    some_tasks = "tasks" in study.reduced or study.benchmark == "folder"
    values = {
        "--tasks": config.tasks if some_tasks else None,
        "--image-size": config.image_size,
        "--subset": config.subset,
        "--weights": config.weights_file,
        "--data": config.data,
        "--threads": config.threads if config.threads != 1 else None,
        "--device": config.device if config.device != "cpu" else None,
        "--precision": config.precision if config.precision != "fp32" else None,
    }
    return [
        text for name, value in values.items() if value is not None for text in (name, str(value))
    ]


def spans(seeds: list[int]) -> list[tuple[int, int]]:
    """Seeds as (first, how many) of each unbroken sequence.

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
