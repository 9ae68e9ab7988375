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
from mdmt.metrics import A_T
from mdmt.report import charts, drawing, features, heatmaps, panels, sections, tsne
from mdmt.report.charts import Chart
from mdmt.report.command import commands
from mdmt.report.folders import Absent
from mdmt.report.study import Study
from mdmt.report.style import TASKS, VARIABLES, Style, styles
from mdmt.report.text import format_metric
from mdmt.words import count


@dataclass(frozen=True)
class Drawing:
    """A study with everything that takes time to make."""

    study: Study
    number: int
    charts: dict[str, Chart]
    clouds: dict[str, panels.Clouds]  # Fig. 5 and 6


def charts_of(study: Study) -> dict[str, Chart]:
    """All charts that a study has numbers for, by name."""
    made = [
        charts.trend(study), charts.forgetting(study), charts.learning_speed(study), features.angles(study),
        charts.drift(study), *charts.cost(study),
    ]  # fmt: skip
    known = [
        replace(chart, series=[one for one in chart.series if np.isfinite(one.y).any()])
        for chart in made
        if chart is not None
    ]
    return {chart.name: chart for chart in known if chart.series}


def clouds_of(study: Study, cache: Path | None, *, compute: bool = True) -> dict[str, panels.Clouds]:
    """The points of Fig. 5 and 6, method by method; methods without features are left out."""
    found: dict[str, panels.Clouds] = {}
    for name, groups in (("fig5", features.groups_by_task), ("fig6", features.groups_by_time)):
        planes = {e.label: tsne.embed(groups(features.first_run(e)), cache, compute=compute) for e in study.entries}
        found[name] = {label: points for label, points in planes.items() if points is not None}
    return found


def drawings(studies: list[Study], cache: Path | None, *, compute: bool = True) -> list[Drawing]:
    """Everything that the page and the files show."""
    return [
        Drawing(study, number, charts_of(study), clouds_of(study, cache, compute=compute))
        for number, study in enumerate(studies)
    ]


def render(drawn: list[Drawing], absent: list[Absent], *, where: str, watched: str = "") -> str:
    """The page as text. A watched page has a version and asks its own server for news; any other asks nobody anything."""
    look = styles([d.study for d in drawn])
    script, css = _text("page.js"), _text("page.css")
    if watched:
        script += _text("watch.js")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["breaks"] = breaks
    environment.globals["count"] = count
    template = environment.from_string(_text("page.html"))
    return template.render(
        studies=[_context(d, look) for d in drawn],
        absent=absent,
        where=where,
        watched=watched,
        css=Markup(css),
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


def _context(drawn: Drawing, look: dict[str, Style]) -> dict[str, Any]:
    """What the template shows of a study."""
    study, prefix = drawn.study, f"s{drawn.number}"
    centres, shared = heatmaps.centres(study)
    best = max(study.entries, key=lambda entry: entry.row.accuracy)
    return {
        "id": prefix,
        "title": study.title,
        "study": study,
        "setup": sections.setup(study),
        "commands": commands(study),
        "best": {"label": best.label, "value": format_metric(A_T, best.row.metrics[A_T.name])},
        "table": sections.table(study),
        "charts": {name: _chart(chart, prefix, look) for name, chart in drawn.charts.items()},
        "clouds": {name: _clouds(name, found, prefix) for name, found in drawn.clouds.items()},
        "matrices": heatmaps.accuracies(study),
        "drifts": heatmaps.drifts(study),
        "centres": centres,
        "centres_shared": shared,
        "pairs": heatmaps.pairs(study),
        "differences": sections.differences(study),
        "methods": sections.methods(study),
        "swatches": {e.label: Markup(drawing.swatch(look[e.label])) for e in study.entries},
        "some": sections.some(study),
        "followed": sections.followed(study),
    }


def _chart(chart: Chart, prefix: str, look: dict[str, Style]) -> dict[str, Any]:
    """A chart with its text alternative."""
    figure = drawing.inline(drawing.draw(chart, look), f"{prefix}-{chart.name}")
    return {
        "id": f"{prefix}-{chart.name}",
        "chart": chart,
        "svg": Markup(figure),
        "labels": [one.label for one in chart.series],
        "data": sections.chart_rows(chart),
    }


def _clouds(name: str, found: panels.Clouds, prefix: str) -> list[dict[str, Any]]:
    """Panels of Fig. 5 or 6, a method each."""
    return [
        {
            "label": label,
            "svg": Markup(drawing.inline(panels.scatter(groups), f"{prefix}-{name}-{i}")),
            "groups": [
                (group, VARIABLES[TASKS[k % 3]], len(points)) for k, (group, points) in enumerate(groups.items())
            ],
        }
        for i, (label, groups) in enumerate(found.items())
    ]
