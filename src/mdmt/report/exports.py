"""Each figure and table as a file, for slides and papers."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from mdmt.report import drawing
from mdmt.report.charts import Chart
from mdmt.report.figures import Figures
from mdmt.report.study import Study
from mdmt.report.style import Style, styles
from mdmt.report.tables import blocks, csv_lines
from mdmt.report.text import as_csv, as_latex
from mdmt.runs.differences import with_differences
from mdmt.runs.rows import Row, reference
from mdmt.system.files import write_file

CLOUD_FILE_TITLES = {
    "fig5": "Features at the end (Fig. 5)",
    "fig6": "Features of task 1 along learning (Fig. 6)",
}


def write_all(studies: list[Figures], folder: Path) -> list[Path]:
    """Write every figure (SVG, PNG; its numbers as CSV) and table (CSV, LaTeX) of each study."""
    look = styles([figures.study for figures in studies])
    paths: list[Path] = []
    for figures in studies:
        place = folder / _folder_name(figures)
        place.mkdir(parents=True, exist_ok=True)
        for name in figure_names(figures):
            paths += write_figure(figures, name, look, place)
        rows = table_rows(figures.study)
        texts = {f"{chart.name}.csv": chart_csv(chart) for chart in figures.charts.values()}
        texts["table1.csv"] = as_csv(csv_lines(rows)) + "\n"
        texts["table1.tex"] = as_latex(blocks(rows)) + "\n"
        for name, text in texts.items():
            write_file(place / name, text.encode())
            paths.append(place / name)
    return paths


def figure_names(figures: Figures) -> list[str]:
    """The figures that a study has."""
    clouds = [name for name, methods in figures.clouds.items() if methods]
    centres = ["fig3b"] if figures.centres else []
    drifts = ["drifts"] if figures.drifts else []
    return [*figures.charts, *clouds, *centres, *drifts, "tasks", "matrices"]


def write_figure(figures: Figures, name: str, look: dict[str, Style], folder: Path) -> list[Path]:
    """One figure as SVG and PNG."""
    figure = _figure(figures, name, look)
    paths = [folder / f"{name}.svg", folder / f"{name}.png"]
    write_file(paths[0], drawing.svg(figure).encode())
    write_file(paths[1], drawing.png(figure))
    return paths


def _figure(figures: Figures, name: str, look: dict[str, Style]) -> Figure:
    if name in figures.charts:
        return drawing.draw_chart(figures.charts[name], look)
    if name in figures.clouds:
        return drawing.scatters(CLOUD_FILE_TITLES[name], figures.clouds[name])
    if name == "tasks":
        return drawing.task_bars(figures.by_task, look)
    if name == "fig3b":
        shared = figures.study.heads == "shared"
        centres = "class means, one shared head" if shared else "class weights"
        title = f"Angles between {centres} (Fig. 3b)"
        return drawing.matrices(title, "degrees", figures.centres)
    if name == "drifts":
        title = "Drift of each task (columns) after each task (rows)"
        return drawing.matrices(title, "1 - cosine", figures.drifts)
    title = "Accuracy on each task (columns) after each task (rows)"
    return drawing.matrices(title, "%", figures.accuracies)


def table_rows(study: Study) -> list[Row]:
    """The rows of Table 1 with their differences to the page's reference method."""
    return with_differences(study.rows, reference(study.rows).label)


def chart_csv(chart: Chart) -> str:
    """The numbers of a chart as CSV: method, x, y and the ends of the spread."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["method", chart.x_label, chart.y_label, "low", "high"])
    for series in chart.series:
        for point in zip(series.x, series.y, series.low, series.high, strict=True):
            if not np.isnan(point[1]):
                writer.writerow([series.label, *map(float, point)])
    return text.getvalue()


def _folder_name(figures: Figures) -> str:
    """A study's number and title, in letters that every file system allows."""
    title = re.sub(r"[^a-z0-9]+", "-", figures.study.title.lower()).strip("-")
    return f"{figures.number + 1}-{title[:60]}"
