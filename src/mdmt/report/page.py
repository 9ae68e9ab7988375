"""The page: a single HTML file that loads nothing else."""

from __future__ import annotations

import base64
import hashlib
import itertools
from dataclasses import dataclass, replace
from importlib.resources import files

import numpy as np
from jinja2 import Environment
from markupsafe import Markup, escape

from mdmt.metrics import A_T, BWT, GAP, Metric, average_accuracy
from mdmt.report import heatmaps, sections, svg
from mdmt.report.charts import Chart, trend
from mdmt.report.figures import Clouds, Figures, group_names
from mdmt.report.heatmaps import Heatmap
from mdmt.report.sections import MethodDetails, Table
from mdmt.report.study import Study, UnusableRun, running_studies
from mdmt.report.style import CSS_VARIABLES, TASK_COLOURS, Style, styles
from mdmt.report.tables import dead_lines
from mdmt.report.text import BOLD, INTERVALS, format_metric
from mdmt.report.verdict import Verdict, verdict
from mdmt.runs.rows import mean_std
from mdmt.words import clock, count, printable

# A legend with longer labels or more methods than this stands beside its chart, not above it.
LONGEST_LABEL = 22
MOST_METHODS = 8
CLOUD_TITLES = {"fig5": "Features at the end (Fig. 5)", "fig6": "What became of task 1 (Fig. 6)"}


@dataclass(frozen=True)
class ChartView:
    """A chart with its legend and the table of its numbers."""

    id: str
    section: str
    title: str
    summary: str
    note: str
    better: str
    svg: Markup
    labels: list[str]
    long: bool  # whether the legend stands beside it
    columns: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class CloudView:
    """Fig. 5 or 6: the colours of its groups, and a panel for each method."""

    title: str
    legend: list[tuple[str, str]]
    panels: list[tuple[str, Markup]]


@dataclass(frozen=True)
class StudyView:
    """Everything that the template shows of a study."""

    id: str
    title: str
    study: Study
    setup: dict[str, str]
    commands: list[str]
    verdict: Verdict
    method_of: dict[str, str]  # by label
    swatches: dict[str, Markup]  # by label
    table: Table
    warnings: list[str]
    metrics: list[Metric]
    differences: Table | None
    pairs: Heatmap
    charts: list[ChartView]
    bars: list[tuple[str, str, Markup]]  # label, backward transfer, drawing
    steps: list[tuple[str, str, Markup]]  # label, stability gap, drawing
    clouds: dict[str, CloudView]
    matrices: list[Heatmap]
    drifts: list[Heatmap]
    centres: list[Heatmap]
    methods: list[MethodDetails]
    sample_note: str
    snapshot_numbers: list[int]


@dataclass(frozen=True)
class RunningView:
    """Unfinished runs of one stream: the tasks and the accuracy that each has reached."""

    title: str
    rows: list[list[str]]
    chart: ChartView | None
    swatches: dict[str, Markup]


def render(
    studies: list[Figures], unusable: list[UnusableRun], *, where: str, version: str = ""
) -> str:
    """The page as HTML.

    A page with a version asks its own server for a newer one; any other makes no request.
    """
    running = running_studies(unusable)
    look = styles([*(figures.study for figures in studies), *running])
    entries = itertools.chain.from_iterable(figures.study.entries for figures in studies)
    script = _read("page.js")
    if version:
        script += _read("watch.js")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["breaks"] = breaks
    environment.globals |= {"count": count, "printable": printable}
    environment.globals |= {"bold": BOLD, "intervals": INTERVALS}
    template = environment.from_string(_read("page.html"))
    return template.render(
        studies=[_study_view(figures, look) for figures in studies],
        methods=list(dict.fromkeys(entry.method for entry in entries)),
        benchmarks=list(dict.fromkeys(figures.study.benchmark for figures in studies)),
        running=[_running_view(study, number, look) for number, study in enumerate(running)],
        definitions=Markup(svg.definitions(look.values())),
        unusable=unusable,
        where=where,
        version=version,
        css=Markup(_read("page.css")),
        script=Markup(script),
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        versions=sections.versions(
            itertools.chain.from_iterable(figures.study.runs for figures in studies)
        ),
    )


def breaks(label: object) -> Markup:
    """A label that a narrow screen may break between its arguments.

    >>> breaks("er[lr=0.1,batch=5]")
    Markup('er[<wbr>lr=0.1,<wbr>batch=5]')
    """
    return Markup(str(escape(label)).replace("[", "[<wbr>").replace(",", ",<wbr>"))


def _read(name: str) -> str:
    return (files("mdmt.report") / name).read_text()


def _study_view(figures: Figures, look: dict[str, Style]) -> StudyView:
    study = figures.study
    prefix = f"s{figures.number}"
    return StudyView(
        id=prefix,
        title=study.title,
        study=study,
        setup=sections.setup(study),
        commands=sections.commands(study),
        verdict=verdict(study.rows),
        method_of={entry.label: entry.method for entry in study.entries},
        swatches=_swatches(study, look),
        table=sections.main_table(study),
        warnings=dead_lines(study.rows),
        metrics=sections.shown_metrics(study.rows),
        differences=sections.difference_table(study),
        pairs=heatmaps.pairs(study),
        charts=[_chart_view(chart, prefix, look) for chart in figures.charts.values()],
        bars=_task_bars(figures, prefix, look),
        steps=_task_lines(figures, prefix, look),
        clouds={name: _cloud_view(name, clouds, prefix) for name, clouds in figures.clouds.items()},
        matrices=heatmaps.accuracy_maps(figures),
        drifts=heatmaps.drift_maps(figures),
        centres=heatmaps.centre_maps(figures),
        methods=sections.methods(study),
        sample_note=sections.sample_note(study),
        snapshot_numbers=sections.snapshot_numbers(study),
    )


def _swatches(study: Study, look: dict[str, Style]) -> dict[str, Markup]:
    return {entry.label: Markup(svg.swatch(look[entry.label])) for entry in study.entries}


def _task_bars(
    figures: Figures, prefix: str, look: dict[str, Style]
) -> list[tuple[str, str, Markup]]:
    panels = []
    for number, entry in enumerate(figures.study.entries):
        label = entry.label
        bars = figures.by_task[label]
        transfer = mean_std([BWT.of(run.record) for run in entry.runs])
        colour = CSS_VARIABLES[look[label].colour]
        title = f"Accuracy on each task, {label}"
        drawing = svg.task_bars(bars, colour, f"{prefix}-bars-{number}", title)
        panels.append((label, format_metric(BWT, transfer, signed=True), Markup(drawing)))
    return panels


def _task_lines(
    figures: Figures, prefix: str, look: dict[str, Style]
) -> list[tuple[str, str, Markup]]:
    panels = []
    for number, entry in enumerate(figures.study.entries):
        label = entry.label
        if label not in figures.along_steps:
            continue
        colour = CSS_VARIABLES[look[label].colour]
        title = f"Accuracy on earlier tasks along the steps, {label}"
        name = f"{prefix}-steps-{number}"
        drawing = svg.task_lines(figures.along_steps[label], colour, name, title)
        gap = format_metric(GAP, entry.row.metrics.get(GAP.name))
        panels.append((label, gap, Markup(drawing)))
    return panels


def _chart_view(chart: Chart, prefix: str, look: dict[str, Style]) -> ChartView:
    name = f"{prefix}-{chart.name}"
    labels = [series.label for series in chart.series]
    columns, rows = sections.chart_rows(chart)
    return ChartView(
        id=name,
        section=chart.section,
        title=chart.title,
        summary=chart.summary(),
        note=chart.note,
        better=chart.better,
        svg=Markup(svg.chart_svg(chart, look, name)),
        labels=labels,
        long=len(labels) > MOST_METHODS or max(map(len, labels)) > LONGEST_LABEL,
        columns=columns,
        rows=rows,
    )


def _cloud_view(name: str, clouds: Clouds, prefix: str) -> CloudView:
    names = group_names(clouds)
    panels = []
    for number, (label, groups) in enumerate(clouds.items()):
        title = f"{CLOUD_TITLES[name]}, {label}"
        sizes = [f"{len(points)} examples of {group}" for group, points in groups.items()]
        drawing = svg.cloud(groups, names, f"{prefix}-{name}-{number}", title, ", ".join(sizes))
        panels.append((label, Markup(drawing)))
    legend = [
        (group, CSS_VARIABLES[TASK_COLOURS[k % len(TASK_COLOURS)]]) for k, group in enumerate(names)
    ]
    return CloudView(CLOUD_TITLES[name], legend, panels)


def _running_view(study: Study, number: int, look: dict[str, Style]) -> RunningView:
    rows = []
    for entry in study.entries:
        accuracy = entry.runs[0].accuracy
        learned = int(np.isfinite(accuracy).any(axis=1).sum())
        so_far = A_T.text(average_accuracy(accuracy, learned)) if learned else "-"
        left = entry.runs[0].seconds_left
        time_left = "-" if left is None else f"about {clock(left)}"
        rows.append([entry.label, f"{learned} of {study.tasks}", so_far, time_left])
    chart = trend(study)
    series = [one for one in chart.series if np.isfinite(one.y).any()]
    note = (
        "A_t is the mean accuracy over tasks 1 to t after learning task t, as of the last"
        " checkpoint."
    )
    chart = replace(chart, name="so-far", title="Average accuracy so far", series=series, note=note)
    view = _chart_view(chart, f"r{number}", look) if series else None
    return RunningView(study.title, rows, view, _swatches(study, look))
