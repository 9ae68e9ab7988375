"""The picture of README and site, docs/report.png, from the records in results/.

    python bench/picture.py

Two charts of the report, for readers who do not know its words yet.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import matplotlib as mpl

from mdmt.report.charts import Chart
from mdmt.report.drawing import RC, draw_lines
from mdmt.report.figures import charts_of
from mdmt.report.study import Study, read_studies
from mdmt.report.style import styles
from mdmt.runs.folder import find_runs
from mdmt.runs.picture import Picture
from results import DIGITS, RESULTS, ROOT

PICTURE = ROOT / "docs" / "report.png"
WORDS = {  # the methods of `make run`
    "van": "plain fine-tuning (van)",
    "ewc": "elastic weight consolidation (ewc)",
    "a-gem": "averaged gradient episodic memory (a-gem)",
    "mega": "mixed stochastic gradient (mega)",
    "er": "experience replay (er)",
    "mdmt-r": "multi-domain multi-task rehearsal (mdmt-r)",
}
CHARTS = {  # title and axes
    "fig4": ("Accuracy on the tasks learned so far", "tasks learned", "mean accuracy (%)"),
    "forgetting": ("Accuracy lost on each task by the end", "task", "percentage points"),
}


def read_study(results: Path) -> Study:
    """The runs of these methods on the embedded digits."""
    (study,), _ = read_studies(find_runs(results / DIGITS))
    entries = [entry for entry in study.entries if entry.label in WORDS]
    return replace(study, entries=entries)


def charts(study: Study) -> list[Chart]:
    """The charts of the picture, with plain words for the report's titles and axes."""
    named = charts_of(study)
    return [
        replace(named[name], title=title, x_label=x_label, y_label=y_label)
        for name, (title, x_label, y_label) in CHARTS.items()
    ]


def description(study: Study) -> str:
    """What the picture shows in words; a test compares it with the one inside the file."""
    return " ".join(f"{chart.title}: {chart.summary()}" for chart in charts(study))


def draw(study: Study) -> Picture:
    looks = styles([study])
    with mpl.rc_context(RC):
        picture = Picture(figsize=(9.8, 4.8), layout="constrained")
        left, right = picture.subplots(1, 2)
        for axes, chart in zip((left, right), charts(study), strict=True):
            draw_lines(axes, chart, looks)
        names = [WORDS[entry.label] for entry in study.entries]
        picture.legend(left.get_lines(), names, loc="outside lower center", ncols=2)
    return picture


if __name__ == "__main__":
    study = read_study(RESULTS)
    about = {"Description": description(study)}
    draw(study).savefig(PICTURE, dpi=150, facecolor="white", metadata=about)
    print(PICTURE)
