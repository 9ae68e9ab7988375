"""Each figure and table as a file of its own, for slides and papers."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import numpy as np

from mdmt.experiments.comparison import Row, reference, with_differences
from mdmt.report import drawing, panels
from mdmt.report.charts import Chart
from mdmt.report.features import centre_angles, class_centres, first_run
from mdmt.report.page import Drawing
from mdmt.report.study import Study
from mdmt.report.style import Style, styles
from mdmt.report.tables import blocks, csv_lines
from mdmt.report.text import as_csv, as_latex

DRIFT = "1 - cosine"
TITLES = {"fig5": "Features at the end (Fig. 5)", "fig6": "Features of task 1 along learning (Fig. 6)"}


def write_all(drawn: list[Drawing], folder: Path) -> list[Path]:
    """Write every figure (SVG, PNG; its numbers as CSV) and every table (CSV, LaTeX), a folder for each study."""
    look = styles([d.study for d in drawn])
    written: list[Path] = []
    for d in drawn:
        place = folder / _slug(d)
        place.mkdir(parents=True, exist_ok=True)
        for name in figure_names(d):
            written += write_figure(d, name, look, place)
        for chart in d.charts.values():
            written.append(_write(place / f"{chart.name}.csv", chart_csv(chart).encode()))
        rows = table_rows(d.study)
        written.append(_write(place / "table1.csv", (as_csv(csv_lines(rows)) + "\n").encode()))
        written.append(_write(place / "table1.tex", (as_latex(blocks(rows)) + "\n").encode()))
    return written


def figure_names(drawn: Drawing) -> list[str]:
    """The figures that a study has."""
    clouds = [name for name, found in drawn.clouds.items() if found]
    maps = {"fig3b": centre_matrices(drawn.study), "drifts": drift_matrices(drawn.study)}
    return [*drawn.charts, *clouds, *(name for name, found in maps.items() if found), "matrices"]


def write_figure(drawn: Drawing, name: str, look: dict[str, Style], place: Path) -> list[Path]:
    """One figure as SVG and PNG."""
    if name in drawn.charts:
        figure = drawing.draw(drawn.charts[name], look, alone=True)
    elif name in drawn.clouds:
        figure = panels.scatters(TITLES[name], drawn.clouds[name])
    elif name == "fig3b":  # with one shared head the centres are mean features
        centres = "class means, one shared head" if drawn.study.heads == "shared" else "class weights"
        figure = panels.matrices(f"Angles between {centres} (Fig. 3b)", "degrees", centre_matrices(drawn.study))
    elif name == "drifts":
        figure = panels.matrices(
            "Drift of each task (columns) after each task (rows)", DRIFT, drift_matrices(drawn.study)
        )
    else:
        figure = panels.matrices(
            "Accuracy on each task (columns) after each task (rows)", "%", accuracy_matrices(drawn.study)
        )
    parts = {".svg": drawing.svg(figure).encode(), ".png": drawing.png(figure)}
    return [_write(place / f"{name}{ending}", content) for ending, content in parts.items()]


def centre_matrices(study: Study) -> panels.Matrices:
    """Fig. 3b of every method that has it."""
    found = {entry.label: class_centres(first_run(entry)) for entry in study.entries}
    return {label: (c[0], centre_angles(c[1])) for label, c in found.items() if c is not None}


def accuracy_matrices(study: Study) -> panels.Matrices:
    """Mean accuracies (%) of every method."""
    return {e.label: (_tasks(study), 100 * np.mean([run.accuracy for run in e.runs], axis=0)) for e in study.entries}


def drift_matrices(study: Study) -> panels.Matrices:
    """Mean drift of every method that has any."""
    found = {e.label: (_tasks(study), np.mean([run.drift for run in e.runs], axis=0)) for e in study.entries}
    return {label: (names, drift) for label, (names, drift) in found.items() if np.isfinite(drift).any()}


def _tasks(study: Study) -> list[str]:
    return [f"task {number + 1}" for number in range(study.tasks)]


def table_rows(study: Study) -> list[Row]:
    """Rows of Table 1, with the differences to the method that the page compares with."""
    rows = [entry.row for entry in study.entries]
    return with_differences(rows, reference(rows).label)


def chart_csv(chart: Chart) -> str:
    """The numbers of a chart: method, x, y and the ends of the spread."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["method", chart.x_label, chart.y_label, "low", "high"])
    for one in chart.series:
        for x, y, low, high in zip(one.x, one.y, one.low, one.high, strict=True):
            if y == y:
                writer.writerow([one.label, *(float(v) for v in (x, y, low, high))])
    return text.getvalue()


def _slug(drawn: Drawing) -> str:
    """A folder's name from a study's: letters that every system takes."""
    return f"{drawn.number + 1}-" + re.sub(r"[^a-z0-9]+", "-", drawn.study.title.lower()).strip("-")[:60]


def _write(path: Path, content: bytes) -> Path:
    from mdmt.files import write_file

    write_file(path, content)
    return path
