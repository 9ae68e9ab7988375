"""What the page says in words and tables, cell by cell."""

from __future__ import annotations

import math
from typing import Any

import mdmt.experiments.comparison as comparison
import mdmt.metrics as metrics
from mdmt.experiments.comparison import Spread
from mdmt.experiments.config import RunConfig
from mdmt.metrics import Metric
from mdmt.report import features, heatmaps
from mdmt.report.charts import Chart, Series
from mdmt.report.study import Study
from mdmt.report.tables import published_metrics
from mdmt.report.text import format_difference, format_metric
from mdmt.words import size


def setup(study: Study) -> dict[str, str]:
    """What was learned and how, for people."""
    first, tasks = study.runs[0].config, study.runs[0].record["tasks"]
    seeds = sorted({run.config.seed for run in study.runs})
    less = ", ".join(f"{key.replace('_', ' ')}: {value}" for key, value in study.less.items())
    versions = sorted({", ".join(f"{k} {v}" for k, v in (r.record.get("versions") or {}).items()) for r in study.runs})
    return {
        "benchmark": study.benchmark,
        "protocol": f"reduced ({less}): not comparable with published values" if less else "full",
        "tasks": f"{study.tasks}, learned one after the other ({_range([t.get('train') for t in tasks])} examples each, "
        f"{_range([t.get('test') for t in tasks])} to test)",
        "heads": "one head that all tasks share" if study.heads == "shared" else "a head for each task",
        "network": str(first.backbone["name"]),
        "epochs, batch": f"{first.epochs}, {first.batch}",
        "seeds": ", ".join(map(str, seeds)),
        "versions": "; ".join(versions) or "-",
    }  # fmt: skip


def _range(numbers: list[Any]) -> str:
    known = [n for n in numbers if isinstance(n, int)]
    if not known:
        return "?"
    low, high = min(known), max(known)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def followed(study: Study) -> list[int]:
    """The tasks whose features are shown, counted from 1."""
    kept = (features.followed(features.first_run(entry).snapshots) for entry in study.entries)
    return [task + 1 for task in next(filter(None, kept), [])]


def some(study: Study) -> str:
    """That maps show some tasks of a long stream, which they do not show all."""
    count = len(heatmaps.shown(study.tasks))
    return "" if count == study.tasks else f" Of the {study.tasks} tasks {count} are shown, evenly spaced."


def table(study: Study) -> dict[str, Any]:
    """Table 1 of these runs: each cell with the number it is sorted by."""
    rows = [entry.row for entry in study.entries]
    beside = published_metrics(rows)
    best = {metric: _best(metric, [row.metrics[metric.name] for row in rows]) for metric in metrics.METRICS}
    heads = ["method"]
    lines: list[dict[str, Any]] = []
    for metric in metrics.METRICS:
        heads += [metric.heading, *(["published", "difference"] if metric in beside else [])]
    for row in rows:
        cells = []
        for metric in metrics.METRICS:
            ours, theirs = row.metrics[metric.name], (row.published or {}).get(metric.name)
            is_best = ours is not None and ours is best[metric]
            cells.append(_cell(format_metric(metric, ours), _mean(ours), best=is_best))
            if metric in beside:
                gap: Spread | None = {"mean": ours["mean"] - theirs["mean"], "std": None} if ours and theirs else None
                cells.append(_cell(format_metric(metric, theirs), _mean(theirs)))
                cells.append(_cell(format_metric(metric, gap, signed=True), _mean(gap)))
        cells.append(_cell(f"{row.seconds['mean']:.1f}", row.seconds["mean"]))
        cells.append(_cell(size(row.memory_bytes), row.memory_bytes))
        cells.append(_cell(str(len(row.seeds)), len(row.seeds)))
        lines.append({"label": row.label, "cells": cells})
    return {
        "heads": [*heads, "seconds", "memory", "seeds"],
        "lines": lines,
        "published": bool(beside),
        "starred": any(cell["text"].endswith("*") for line in lines for cell in line["cells"]),
    }


def _best(metric: Metric, cells: list[Spread | None]) -> Spread | None:
    known = [cell for cell in cells if cell is not None]
    pick = min if metric.better == "lower" else max
    return pick(known, key=lambda cell: cell["mean"]) if len(known) > 1 else None


def _mean(cell: Spread | None) -> float | None:
    return None if cell is None else cell["mean"]


def _cell(text: str, value: float | None, best: bool = False) -> dict[str, Any]:
    return {"text": text, "value": "" if value is None else repr(float(value)), "best": best}


def differences(study: Study) -> dict[str, Any] | None:
    """The others less the reference; None where there is but one method."""
    rows = [entry.row for entry in study.entries]
    other = comparison.reference(rows)
    lines = []
    for row in rows:
        if row is not other:
            found = comparison.differences(row, other)
            cells = [
                _cell(format_difference(metric, found.metrics[metric.name]), _mean(found.metrics[metric.name]))
                for metric in metrics.METRICS
            ]
            lines.append({"label": row.label, "cells": [*cells, _cell(str(len(found.seeds)), len(found.seeds))]})
    heads = ["method", *(metric.heading for metric in metrics.METRICS), "seeds"]
    return {"against": other.label, "heads": heads, "lines": lines} if lines else None


def methods(study: Study) -> list[dict[str, Any]]:
    """Each method with its settings, and each metric with its value and formula."""
    return [
        {
            "label": entry.label,
            "settings": _settings(entry.runs[0].config),
            "metrics": [
                (metric.heading, format_metric(metric, entry.row.metrics[metric.name]), metric.formula)
                for metric in metrics.METRICS
            ],
            "folders": [str(run.folder) for run in entry.runs],
        }
        for entry in study.entries
    ]


def _settings(config: RunConfig) -> str:
    settings = {"lr": config.lr, **config.arguments, **config.memory}
    return ", ".join(f"{key} {value}" for key, value in settings.items())


def chart_rows(chart: Chart) -> tuple[list[str], list[list[str]]]:
    """The numbers of a chart as a table."""
    if chart.points:
        heads = ["method", chart.x_label, chart.y_label, "spread"]
        return heads, [
            [one.label, f"{one.x[0]:.4g}", f"{one.y[0]:.2f}", f"{one.low[0]:.2f} to {one.high[0]:.2f}"]
            for one in chart.series
        ]
    columns = sorted({float(x) for one in chart.series for x in one.x})
    rows = []
    for one in chart.series:
        at = {float(x): k for k, x in enumerate(one.x)}
        rows.append([one.label, *(_spread(one, at.get(x), chart.digits) for x in columns)])
    return [f"method \\ {chart.x_label}", *(f"{x:g}" for x in columns)], rows


def _spread(one: Series, k: int | None, digits: int) -> str:
    if k is None or math.isnan(one.y[k]):
        return "-"
    ends = "" if one.high[k] == one.low[k] else f" [{one.low[k]:.{digits}f}, {one.high[k]:.{digits}f}]"
    return f"{one.y[k]:.{digits}f}{ends}"
