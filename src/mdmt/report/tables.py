"""The tables of a comparison (Tables 1 and 2) and of the cost of methods."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rich.table import Table
from rich.text import Text

import mdmt.metrics as metrics
from mdmt.metrics import Metric
from mdmt.report.text import (
    BOLD,
    INTERVALS,
    NOTE_MARK,
    Grid,
    Strong,
    TableBlock,
    format_difference,
    format_metric,
)
from mdmt.report.verdict import verdict
from mdmt.runs.paper import NEWER
from mdmt.runs.ranking import ranking
from mdmt.runs.rows import MetricSpreads, Row, metrics_in
from mdmt.words import bytes_text, count, shared_settings

NOTEBOOK = "* not in the paper's Table 1: from the public notebooks behind it"
ONE_STREAM = (
    "published on {benchmark}: runs on the stream of seed {seed} alone, which differ in first"
    " weights; --set stream=published learns it with every seed"
)


def reduction(reduced: Mapping[str, object], *, own_data: bool = False) -> str:
    """A line that says how runs are reduced from the protocol, or from the user's own data."""
    what = "not all of the data" if own_data else "reduced, not the published protocol"
    return f"{what}: " + ", ".join(f"{key} {value}" for key, value in reduced.items())


def setup_line(rows: list[Row]) -> str:
    """How the user's own data were learned: settings of all rows, and the memory's contents."""
    parts = dict.fromkeys(itertools.chain.from_iterable(row.setup for row in rows))
    shared = [part for part in parts if all(part in row.setup for row in rows)]
    kept = [part for part in parts if part.endswith(" kept") and part not in shared]
    return ", ".join([*shared, *kept[:1]])


def warnings(rows: list[Row]) -> list[str]:
    """Warnings about rows that learned almost nothing, or whose network has collapsed."""
    return [*chance_lines(rows), *dead_lines(rows)]


def dead_lines(rows: list[Row]) -> list[str]:
    """A warning about rows in which most features are dead at the end of a run."""
    shares = {row.label: row.dead for row in rows if row.dead is not None and row.is_mostly_dead}
    if not shares:
        return []
    each = ", ".join(f"{label} {100 * max(dead['runs']):.0f} %" for label, dead in shares.items())
    return [
        f"most features are dead at the end ({each}): they are the same for every example, so that"
        " the network tells few of them apart; try a lower rate (--set lr=X)"
    ]


def chance_lines(rows: list[Row]) -> list[str]:
    """Warnings about rows whose accuracy is close to chance, with and without the task."""
    near = [row for row in rows if row.is_near_chance]
    free = [row for row in rows if row.is_near_free_chance and row not in near]
    lines = []
    if near and near[0].chance is not None:
        more = ", or a pretrained network (--weights imagenet)" if near[0].setup else ""
        lines.append(
            f"{_names(near, rows)}accuracy is close to chance ({100 * near[0].chance:.1f} %):"
            " almost nothing was learned; try more epochs (--set epochs=N), another rate"
            f" (--set lr=X){more}"
        )
    if free and free[0].free_chance is not None:
        remedy = "a method with a memory, such as er, or a larger memory (--set memory=N)"
        if free[0].heads != "shared":
            remedy = "one shared head (--set heads=shared) and a method with a memory, such as er"
        lines.append(
            f"{_names(free, rows)}if the task is not given, accuracy (A_free) is close to chance"
            f" ({100 * free[0].free_chance:.1f} %); if you will not know the task, try {remedy}"
        )
    return lines


def _names(some: list[Row], rows: list[Row]) -> str:
    return "" if len(rows) == 1 else f"{', '.join(row.label for row in some)}: "


def metrics_table(cells: MetricSpreads) -> Table:
    """The metrics of one method with their formulas."""
    table = Table("metric", "value", "formula", box=None, header_style="bold")
    for metric in (*metrics.METRICS, *metrics.ANYTIME):
        if metric.name not in cells:
            continue
        value = format_metric(metric, cells[metric.name])
        # As Text, because rich reads the brackets of a formula as markup.
        table.add_row(metric.heading, value, Text(metric.formula))
    return table


def published_metrics(rows: list[Row]) -> list[Metric]:
    """The metrics that are published for any of these rows."""
    return [
        metric
        for metric in metrics.METRICS
        if any((row.published or {}).get(metric.name) is not None for row in rows)
    ]


def published_text(metric: Metric, row: Row) -> str:
    """The published value of a metric, marked if the row's note is about this metric."""
    values = row.published or {}
    noted = "note" in values and metric.name in values.get("note_on", [metric.name])
    return format_metric(metric, values.get(metric.name), mark=NOTE_MARK if noted else "")


def footnotes(rows: list[Row]) -> list[str]:
    """Notes on the published values of these rows."""
    lines = [NOTEBOOK] if any(map(_has_notebook_value, rows)) else []
    for row in rows:
        if row.published and "note" in row.published:
            lines.append(f"{NOTE_MARK} {row.label}: {row.published['note']}")
    for benchmark, seed in {(row.benchmark, row.published_stream): None for row in rows}:
        if seed is not None:
            lines.append(ONE_STREAM.format(benchmark=benchmark, seed=seed))
    for row in rows:
        if "preset=best" in row.label:
            lines.append(f"{row.label}: settings of our own, which the other rows did not get")
    newer = dict.fromkeys(row.method for row in rows if row.method in NEWER)
    if newer:
        lines.append(f"newer than the paper: {', '.join(newer)}")
    return lines


def _has_notebook_value(row: Row) -> bool:
    cells = [(row.published or {}).get(metric.name) or {} for metric in metrics.METRICS]
    return any(cell.get("source") == "notebook" for cell in cells)


def main_grid(rows: list[Row]) -> Grid:
    """Method, metrics (with published values if any row has them), seconds and memory."""
    published = published_metrics(rows)
    shown = metrics_in(rows)
    leaders = {metric: ranking(rows, metric).leaders for metric in shown}
    columns = ["method"]
    for metric in shown:
        columns += [metric.heading, "published"] if metric in published else [metric.heading]
    lines = []
    for row in rows:
        cells = [row.label]
        for metric in shown:
            cell = format_metric(metric, row.metrics.get(metric.name))
            cells.append(Strong(cell) if row in leaders[metric] else cell)
            if metric in published:
                cells.append(published_text(metric, row))
        seconds = row.seconds["mean"]
        time = f"{seconds:.1f}" if seconds < 100 else f"{seconds:.0f}"
        lines.append([*cells, time, bytes_text(row.memory_bytes)])
    return Grid([*columns, "seconds", "memory"], lines)


def difference_grid(rows: list[Row]) -> Grid:
    """Each row minus the reference row."""
    shown = metrics_in(rows)
    lines = []
    for row in rows:
        if row.differences is not None:
            cells = row.differences.metrics
            values = [format_difference(m, cells.get(m.name)) for m in shown]
            lines.append([row.label, *values, str(len(row.differences.seeds))])
    return Grid(["method", *(metric.heading for metric in shown), "seeds"], lines)


def captions(rows: list[Row]) -> list[str]:
    """The lines above the table: the benchmark, the seeds, and how the runs are reduced."""
    seeds = sorted(set().union(*(row.seeds for row in rows)))
    runs = f"seed {seeds[0]}"
    if len(seeds) > 1:
        runs = f"{count('seed', len(seeds))} from {seeds[0]}, mean ± population std"
    lines = [f"{rows[0].benchmark}, {runs}"]
    reduced: dict[str, object] = {}
    for row in rows:
        reduced |= row.reduced or {}
    if rows[0].setup:
        lines.append(setup_line(rows))
    if reduced:
        lines.append(reduction(reduced, own_data=bool(rows[0].setup)))
    for row in rows:
        if row.seeds != seeds:
            lines.append(f"{row.label}: only seeds {', '.join(map(str, row.seeds))}")
    return lines


def blocks(rows: list[Row]) -> list[TableBlock]:
    """The table of a comparison and, if the rows have differences, the table of those.

    Settings that all rows share are listed once above the table, not in each label.
    """
    shared, labels = shared_settings([row.label for row in rows])
    above = [*captions(rows), *([f"all with {', '.join(shared)}"] if shared else [])]
    rows = [replace(row, label=label) for row, label in zip(rows, labels, strict=True)]
    grid = main_grid(rows)
    has_bold = any(isinstance(cell, Strong) for cell in itertools.chain(*grid.rows))
    notes = []
    if has_bold:
        answer = verdict(rows)
        notes = [BOLD, answer.label + answer.sentence]
    tables = [TableBlock(above, grid, [*notes, *footnotes(rows)])]
    against = [row.differences.against for row in rows if row.differences is not None]
    if against:
        above = [f"difference to {against[0]}, paired by seed"]
        grid = difference_grid(rows)
        has_intervals = any("[" in cell for _, *cells in grid.rows for cell in cells)
        tables.append(TableBlock(above, grid, [INTERVALS] if has_intervals else []))
    return tables


def csv_lines(rows: list[Row]) -> list[dict[str, object]]:
    """The rows for programs: accuracies as fractions, not percent."""
    lines = []
    for row in rows:
        line: dict[str, object] = {
            "benchmark": row.benchmark,
            "label": row.label,
            "seeds": len(row.seeds),
        }
        sources: dict[str, dict[str, Any]] = {
            "": row.metrics,
            "published_": row.published or {},
            "difference_": {} if row.differences is None else row.differences.metrics,
        }
        for metric in metrics_in(rows):
            for prefix, source in sources.items():
                cell = source.get(metric.name) or {"mean": None, "std": None}
                line |= {f"{prefix}{metric.name}_{part}": cell[part] for part in ("mean", "std")}
            ends = (sources["difference_"].get(metric.name) or {}).get("interval") or (None, None)
            for part, end in zip(("low", "high"), ends, strict=True):
                line[f"difference_{metric.name}_{part}"] = end
        lines.append({**line, "seconds": row.seconds["mean"], "memory_bytes": row.memory_bytes})
    return lines


LETTERS = {
    "parameters": "P",
    "buffers": "S",
    "vectors": "G",
    "memory": "M",
    "representations": "F",
    "activations": "H",
    "total": "sum",
}
LEGEND = (
    "P parameters, S what the method remembers from step to step, "
    "G gradients and other vectors as long as P, M examples in memory, F their representations, "
    "H activations of the whole batch"
)
PAPER = (
    "paper: its formulas, with T tasks, B samples in a batch, H activations of one sample and H_l"
    " of its last layer; most of G is left out there"
)
BUSY = "other jobs on this machine make its times longer, not its bytes more"
MACHINE = "published: milliseconds of the authors' machine, which say nothing of yours"


def cost_blocks(cost: dict[str, Any]) -> list[TableBlock]:
    """Three tables: times, memory of training, memory of inference."""
    rows = cost["rows"]
    above = [
        f"{cost['benchmark']}, cost of a mini-batch at task {cost['task']}",
        f"median of {cost['steps']} after warming up, {count('thread', cost['threads'])}",
    ]
    if cost["reduced"]:
        above.append(reduction(cost["reduced"]))
    times = _time_grid(rows)
    training = _size_grid(rows, "training", "memory_training")
    inference = _size_grid(rows, "inference", "memory_testing")
    return [
        TableBlock(above, times, [BUSY, MACHINE] if "published" in times.columns else [BUSY]),
        TableBlock(["MB of training"], training, []),
        TableBlock(
            ["MB of inference"],
            inference,
            [LEGEND, PAPER] if "paper" in inference.columns else [LEGEND],
        ),
    ]


def _time_grid(rows: list[dict[str, Any]]) -> Grid:
    """Milliseconds, with the published ones if any row has them."""
    columns = ["method", "batch", "step ms", "inference ms"]
    lines = [
        [
            row["label"],
            str(row["batch"]),
            milliseconds(row["step_ms"]),
            milliseconds(row["inference_ms"]),
        ]
        for row in rows
    ]
    published = [(row["published"] or {}).get("inference_ms") for row in rows]
    if any(value is not None for value in published):
        columns.append("published")
        for line, value in zip(lines, published, strict=True):
            line.append("-" if value is None else f"{value:.2f}")
    return Grid(columns, lines)


def _size_grid(rows: list[dict[str, Any]], kind: str, formula: str) -> Grid:
    """Megabytes of each kind, with the paper's formula if any row has one."""
    names = [name for name in LETTERS if name in rows[0][kind]]
    columns = ["method", *(LETTERS[name] for name in names)]
    lines = [[row["label"], *(megabytes(row[kind][name]) for name in names)] for row in rows]
    if any(row["published"] for row in rows):
        columns.append("paper")
        for line, row in zip(lines, rows, strict=True):
            line.append((row["published"] or {}).get(formula, "-"))
    return Grid(columns, lines)


def milliseconds(value: float) -> str:
    """Milliseconds as text with about three digits.

    >>> milliseconds(0.2345), milliseconds(12.345), milliseconds(123.45)
    ('0.23', '12.3', '123')
    """
    if value < 10:
        return f"{value:.2f}"
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def megabytes(number: int) -> str:
    """Bytes in megabytes, without the unit.

    >>> megabytes(0), megabytes(1_200), megabytes(4_560_000), megabytes(123_400_000)
    ('-', '<0.01', '4.56', '123')
    """
    if number < 10_000:
        return "<0.01" if number else "-"
    return milliseconds(number / 1e6)


def cost_lines(cost: dict[str, Any]) -> list[dict[str, object]]:
    """The rows for programs, in milliseconds and bytes."""
    lines = []
    for row in cost["rows"]:
        line = {"benchmark": cost["benchmark"], "task": cost["task"], "steps": cost["steps"]}
        line |= {key: row[key] for key in ("label", "batch", "step_ms", "inference_ms")}
        for kind in ("training", "inference"):
            line |= {f"{kind}_{name}": value for name, value in row[kind].items()}
        published = row["published"] or {}
        for name in ("inference_ms", "memory_training", "memory_testing"):
            line[f"published_{name}"] = published.get(name)
        lines.append(line)
    return lines
