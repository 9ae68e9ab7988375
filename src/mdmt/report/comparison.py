"""A comparison in Python: the rows of `mdmt compare` as a table, a frame, a picture or LaTeX."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING

from mdmt.errors import Mistake
from mdmt.report.figures import charts_of
from mdmt.report.study import Study, read_studies
from mdmt.report.style import styles
from mdmt.report.tables import blocks, csv_lines, warnings
from mdmt.report.text import as_html, as_latex, as_markdown, as_table, plain_text, without_bold
from mdmt.runs.folder import RunFolder
from mdmt.runs.record import RunRecord
from mdmt.runs.rows import Failure, Row, failure_text
from mdmt.system.packages import optional

if TYPE_CHECKING:
    from pandas import DataFrame

    from mdmt.runs.picture import Picture

WIDTH = 120  # characters of a table as text


@dataclass(frozen=True)
class Comparison:
    """The runs of several methods on one stream, a row for each method.

    A notebook shows it as a table. `rows` hold means, spreads and the folders of the runs, `failed`
    the runs that failed and why, and `against` is the row that the others are compared with.
    """

    rows: list[Row]
    failed: list[Failure] = field(default_factory=list)
    against: str | None = None

    @property
    def notes(self) -> list[str]:
        """Rows that learned almost nothing, failed runs and missing differences, in words."""
        notes = [*warnings(self.rows), *map(failure_text, self.failed)]
        if self.rows and self.against not in (None, *(row.label for row in self.rows)):
            notes.append(
                f"no differences: {self.against}, the row to compare with, has no finished run"
            )
        return notes

    def to_pandas(self) -> DataFrame:
        """A frame of pandas with a row for each method, accuracies as fractions.

        Its columns are those of `mdmt compare --format csv`; columns without a number are left out.
        """
        pandas = optional("pandas", "to_pandas")
        frame: DataFrame = pandas.DataFrame(csv_lines(self.rows))
        if frame.empty:
            return frame
        return frame.set_index("label").dropna(axis="columns", how="all")

    def to_latex(self) -> str:
        """A table for the package booktabs, as `mdmt compare --format latex` prints it."""
        return as_latex(blocks(self.rows)) if self.rows else ""

    def to_markdown(self) -> str:
        """A table of markdown, as `mdmt compare --format markdown` prints it."""
        return as_markdown(blocks(self.rows)) if self.rows else ""

    def records(self, label: str) -> list[RunRecord]:
        """The records of a row, one for each of its seeds; `record.plot()` draws one."""
        rows = {row.label: row for row in self.rows}
        if label not in rows:
            raise Mistake(f"there is no row {label!r}; the rows are {', '.join(rows)}")
        return [RunFolder(folder).record for folder in rows[label].runs]

    def plot(self, name: str = "fig4") -> Picture:
        """A figure of matplotlib; mean over seeds, with one standard deviation around it.

        `name`: `fig4` (average accuracy along learning), `free` (where the task is not given),
        `forgetting` (task by task), `fig7` (how fast a task is learned), `drift` (of features),
        `dead` (features), `rank` (of features), `cost-seconds` or `cost-bytes` (accuracy against
        cost).
        """
        optional("matplotlib", "plot")
        from mdmt.report.drawing import draw_chart

        charts = charts_of(self._study)
        if name not in charts:
            raise Mistake(f"there is no figure {name!r}; there are {', '.join(charts)}")
        return draw_chart(charts[name], styles([self._study]))

    @cached_property
    def _study(self) -> Study:
        folders = [RunFolder(folder) for row in self.rows for folder in row.runs]
        studies, unusable = read_studies(folders)
        if not studies:
            why = f": {unusable[0].path}: {unusable[0].reason}" if unusable else ""
            raise Mistake(f"there is no finished run to draw{why}")
        if len(studies) > 1:
            raise Mistake("these rows have different kinds of head: they fit into no figure")
        return studies[0]

    def __repr__(self) -> str:
        """The table as text."""
        table = as_table(without_bold(blocks(self.rows)), WIDTH) if self.rows else []
        return plain_text([*table, *self.notes], WIDTH)

    def _repr_html_(self) -> str:
        table = as_html(blocks(self.rows)) if self.rows else ""
        return table + "".join(f"<div>{escape(note)}</div>" for note in self.notes)
