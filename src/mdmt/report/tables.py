"""What a comparison prints: the tables of its rows, with what stands above and below them."""

from __future__ import annotations

from typing import Any

import mdmt.metrics as metrics
from mdmt.experiments.comparison import Cells, Row
from mdmt.report.text import Block, Grid, format_metric
from mdmt.words import count, size

NOTEBOOK = "* not in the paper's Table 1: from the public notebooks behind it"


def metrics_table(cells: Cells) -> Any:
    """The metrics of one method, the formula beside each, as a rich table."""
    from rich.table import Table
    from rich.text import Text

    table = Table("metric", "value", "formula", box=None, header_style="bold")
    for metric in metrics.METRICS:
        value = format_metric(metric, cells[metric.name])
        table.add_row(metric.heading, value, Text(metric.formula))  # its brackets are no markup
    return table


def main_grid(rows: list[Row]) -> Grid:
    """Method, metrics (the published value beside each, where any row has one), seconds and bytes."""
    beside = published_metrics(rows)
    heads = ["method"]
    lines: list[list[str]] = []
    for metric in metrics.METRICS:
        heads += [metric.heading, "published"] if metric in beside else [metric.heading]
    for row in rows:
        cells = [row.label]
        for metric in metrics.METRICS:
            cells.append(format_metric(metric, row.metrics[metric.name]))
            if metric in beside:
                cells.append(format_metric(metric, (row.published or {}).get(metric.name)))
        seconds = row.seconds["mean"]
        lines.append([*cells, f"{seconds:.1f}" if seconds < 100 else f"{seconds:.0f}", size(row.memory_bytes)])
    return [*heads, "seconds", "memory"], lines


def published_metrics(rows: list[Row]) -> list[metrics.Metric]:
    """The metrics that have a published value beside any of these rows."""
    return [m for m in metrics.METRICS if any((row.published or {}).get(m.name) for row in rows)]


def difference_grid(rows: list[Row]) -> Grid:
    """Each row less the chosen one."""
    lines = [
        [
            row.label,
            *(format_metric(metric, row.differences.metrics[metric.name], signed=True) for metric in metrics.METRICS),
            str(len(row.differences.seeds)),
        ]
        for row in rows
        if row.differences is not None
    ]
    return ["method", *(metric.heading for metric in metrics.METRICS), "seeds"], lines


def captions(rows: list[Row]) -> list[str]:
    """What stands above the table: what was learned, on how many seeds, and what makes it less than the protocol."""
    first = rows[0]
    seeds = sorted({seed for row in rows for seed in row.seeds})
    told = (
        f"seed {seeds[0]}" if len(seeds) == 1 else f"{count('seed', len(seeds))} from {seeds[0]}, mean ± population std"
    )
    lines = [f"{first.benchmark}, {told}"]
    less: dict[str, Any] = {}
    for row in rows:
        less |= row.reduced or {}
    if less:
        named = ", ".join(f"{key} {value}" for key, value in less.items())
        lines.append(f"reduced, not the published protocol: {named}")
    for row in rows:
        if row.seeds != seeds:
            lines.append(f"{row.label}: only seeds {', '.join(map(str, row.seeds))}")
    return lines


def blocks(rows: list[Row]) -> list[Block]:
    """Each table with what stands above and below it."""
    grid = main_grid(rows)
    below = [NOTEBOOK] if any(cell.endswith("*") for line in grid[1] for cell in line[1:]) else []
    found = [(captions(rows), grid, below)]
    against = [row.differences.against for row in rows if row.differences is not None]
    if against:
        found.append(([f"difference to {against[0]}, paired by seed"], difference_grid(rows), []))
    return found


def csv_lines(rows: list[Row]) -> list[dict[str, Any]]:
    """The rows for programs: fractions, not percent."""
    lines = []
    for row in rows:
        line: dict[str, Any] = {"benchmark": row.benchmark, "label": row.label, "seeds": len(row.seeds)}
        sources: dict[str, dict[str, Any]] = {
            "": row.metrics,
            "published_": row.published or {},
            "difference_": {} if row.differences is None else row.differences.metrics,
        }
        for name in (metric.name for metric in metrics.METRICS):
            for prefix, source in sources.items():
                cell = source.get(name) or {"mean": None, "std": None}
                line |= {f"{prefix}{name}_{part}": cell[part] for part in ("mean", "std")}
        lines.append({**line, "seconds": row.seconds["mean"], "memory_bytes": row.memory_bytes})
    return lines
