"""The page: one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment
from markupsafe import Markup, escape

import mdmt.metrics as metrics
from mdmt.metrics import A_T, average_accuracy
from mdmt.report import drawing, features, heatmaps, sections
from mdmt.report.charts import CHARTS, Chart, trend
from mdmt.report.drawing import Clouds
from mdmt.report.study import Study, UnusableRun, running_studies
from mdmt.report.style import TASKS, VARIABLES, Style, styles
from mdmt.report.verdict import verdict
from mdmt.words import count, printable

LONG = 22  # letters: a longer name in a legend gets the legend a place beside the chart
MANY = 8  # methods, likewise


@dataclass(frozen=True)
class Figures:
    """A study with everything about it that takes time to compute."""

    study: Study
    number: int
    charts: dict[str, Chart]
    clouds: dict[str, Clouds]  # Fig. 5 and 6


def charts_of(study: Study) -> dict[str, Chart]:
    """The charts that a study has numbers for, by name; methods without numbers are left out."""
    charts = {}
    for chart in (make(study) for make in (*CHARTS, features.angles)):
        if chart is None:
            continue
        series = [line for line in chart.series if np.isfinite(line.y).any()]
        if series:
            charts[chart.name] = replace(chart, series=series)
    return charts


def clouds_of(study: Study, cache: Path | None, *, compute: bool = True) -> dict[str, Clouds]:
    """The points of Fig. 5 and 6, method by method; methods without features are left out."""
    clouds: dict[str, Clouds] = {}
    for name, groups in (("fig5", features.groups_by_task), ("fig6", features.groups_by_time)):
        clouds[name] = {}
        for entry in study.entries:
            points = features.embed(groups(features.first_run(entry)), cache, compute=compute)
            if points is not None:
                clouds[name][entry.label] = points
    return clouds


def figures_of(studies: list[Study], cache: Path | None, *, compute: bool = True) -> list[Figures]:
    """Everything that page and files show; without `compute`, only the t-SNE in the cache."""
    return [
        Figures(study, number, charts_of(study), clouds_of(study, cache, compute=compute))
        for number, study in enumerate(studies)
    ]


def render(
    studies: list[Figures], unusable: list[UnusableRun], *, where: str, version: str = ""
) -> str:
    """The page. One with a version asks its own server for a newer one; any other asks nobody."""
    running = running_studies(unusable)
    look = styles([*(figures.study for figures in studies), *running])
    script = _text("page.js")
    if version:
        script += _text("watch.js")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["breaks"] = breaks
    environment.globals |= {"count": count, "printable": printable}
    template = environment.from_string(_text("page.html"))
    return template.render(
        studies=[_context(figures, look) for figures in studies],
        methods=list(
            dict.fromkeys(entry.method for figures in studies for entry in figures.study.entries)
        ),
        benchmarks=list(dict.fromkeys(figures.study.benchmark for figures in studies)),
        running=[_running(study, number, look) for number, study in enumerate(running)],
        symbols=[Markup(drawing.symbol(style, name)) for style, name in _symbols(look).items()],
        unusable=unusable,
        where=where,
        version=version,
        css=Markup(_text("page.css")),
        script=Markup(script),
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        metrics=metrics.METRICS,
    )


def breaks(label: object) -> Markup:
    """A label that a narrow screen breaks between its arguments.

    >>> breaks("er[lr=0.1,batch=5]")
    Markup('er[<wbr>lr=0.1,<wbr>batch=5]')
    """
    return Markup(str(escape(label)).replace("[", "[<wbr>").replace(",", ",<wbr>"))


def _text(name: str) -> str:
    return (files("mdmt.report") / name).read_text()


def _context(figures: Figures, look: dict[str, Style]) -> dict[str, Any]:
    """What the template shows of a study."""
    study, prefix = figures.study, f"s{figures.number}"
    centres, shared = heatmaps.centres(study)
    return {
        "id": prefix,
        "title": study.title,
        "study": study,
        "setup": sections.setup(study),
        "commands": sections.commands(study),
        "verdict": verdict(study),
        "method_of": {entry.label: entry.method for entry in study.entries},
        "table": sections.table(study),
        "charts": [_chart(chart, prefix, look) for chart in figures.charts.values()],
        "clouds": {name: _clouds(name, clouds, prefix) for name, clouds in figures.clouds.items()},
        "matrices": heatmaps.accuracies(study),
        "drifts": heatmaps.drifts(study),
        "centres": centres,
        "centres_shared": shared,
        "pairs": heatmaps.pairs(study),
        "differences": sections.differences(study),
        "methods": sections.methods(study),
        "swatches": _swatches(study, look),
        "sample_note": sections.sample_note(study),
        "snapshot_numbers": sections.snapshot_numbers(study),
    }


def _symbols(look: dict[str, Style]) -> dict[Style, str]:
    """Names of the lines and markers, each of which the page has once."""
    return {style: f"look-{number}" for number, style in enumerate(dict.fromkeys(look.values()))}


def _swatches(study: Study, look: dict[str, Style]) -> dict[str, Markup]:
    names = _symbols(look)
    use = Markup('<svg><use href="#{}"/></svg>')
    return {entry.label: use.format(names[look[entry.label]]) for entry in study.entries}


def _chart(chart: Chart, prefix: str, look: dict[str, Style]) -> dict[str, Any]:
    """A chart with its text alternative."""
    name = f"{prefix}-{chart.name}"
    return {
        "id": name,
        "section": chart.section,
        "title": chart.title,
        "summary": chart.summary(),
        "note": chart.note,
        "svg": Markup(drawing.inline(drawing.draw(chart, look), name)),
        "labels": [series.label for series in chart.series],
        "long": (
            len(chart.series) > MANY or max(len(series.label) for series in chart.series) > LONG
        ),
        "data": sections.chart_rows(chart),
    }


def _clouds(name: str, clouds: Clouds, prefix: str) -> dict[str, Any]:
    """Fig. 5 or 6: its legend, and a panel for each method."""
    names = drawing.group_names(clouds)
    panels = [
        {
            "label": label,
            "svg": Markup(
                drawing.inline(drawing.scatter(groups, names), f"{prefix}-{name}-{number}")
            ),
            "groups": [(group, len(points)) for group, points in groups.items()],
        }
        for number, (label, groups) in enumerate(clouds.items())
    ]
    return {
        "legend": [(group, VARIABLES[TASKS[k % 3]]) for k, group in enumerate(names)],
        "panels": panels,
    }


def _running(study: Study, number: int, look: dict[str, Style]) -> dict[str, Any]:
    """Runs that are going on: what each has learned, and its accuracy so far."""
    lines = []
    for entry in study.entries:
        accuracy = entry.runs[0].accuracy
        learned = int(np.isfinite(accuracy).any(axis=1).sum())
        so_far = A_T.text(average_accuracy(accuracy, learned)) if learned else "-"
        lines.append([entry.label, f"{learned} of {study.tasks}", so_far])
    chart = trend(study)
    series = [line for line in chart.series if np.isfinite(line.y).any()]
    note = (
        "A_t is the mean accuracy over tasks 1 to t after learning task t, as of the last"
        " checkpoint."
    )
    chart = replace(chart, name="so-far", title="Average accuracy so far", series=series, note=note)
    return {
        "title": study.title,
        "lines": lines,
        "chart": _chart(chart, f"r{number}", look) if series else None,
        "swatches": _swatches(study, look),
    }
