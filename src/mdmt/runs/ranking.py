"""Rankings: the best row by a metric, and the rows that are not shown to be worse.

Two rows are compared on the seeds that both have; the best row is the one that is ahead of most
others, and a row that shares no seed with it is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mdmt.metrics import Metric
from mdmt.runs.differences import PairedDifferences
from mdmt.runs.rows import Row, Spread

# joint learns all tasks at once: an upper bound for the others, not a competitor
BOUND = "joint"


@dataclass(frozen=True)
class Ranking:
    """Rows by a metric, the best first."""

    metric: Metric
    rows: list[Row]
    left_out: list[Row]  # rows that share no seed with the best
    paired: PairedDifferences

    def lead(self, row: Row, other: Row) -> Spread | None:
        """A row minus another, seed by seed; None if they share no seed."""
        return self.paired.between(row, other)

    def is_worse(self, row: Row, other: Row) -> bool:
        """Whether a row is shown to be worse than another.

        The whole interval of their difference shows it; without an interval, the mean of the
        difference to the best row does.
        """
        gap = self.lead(row, other)
        if gap is None:
            return False
        if gap["interval"] is None and other is not self.rows[0]:
            return False
        low, high = gap["interval"] or (gap["mean"], gap["mean"])
        return low > 0 if self.metric.better == "lower" else high < 0

    @property
    def leaders(self) -> list[Row]:
        """The best row, and those that several seeds in common do not show to be worse.

        Empty if there is nothing to compare.
        """
        return [self.rows[0], *self._unbeaten(several=True)] if len(self.rows) > 1 else []

    @property
    def unsure(self) -> list[Row]:
        """The rows that share one seed with the best, too little to show them to be worse."""
        return self._unbeaten(several=False)

    def _unbeaten(self, *, several: bool) -> list[Row]:
        """The rows after the best that no row is shown to be better than.

        They share `several` seeds with the best, or one.
        """
        unbeaten = []
        for row in self.rows[1:]:
            gap = self.lead(row, self.rows[0])
            if gap is not None and (len(gap["runs"]) > 1) == several and not self._is_beaten(row):
                unbeaten.append(row)
        return unbeaten

    def _is_beaten(self, row: Row) -> bool:
        return any(self.is_worse(row, other) for other in self.rows)


def ranking(rows: Sequence[Row], metric: Metric) -> Ranking:
    """Rank the rows that have a metric, except the upper bound."""
    paired = PairedDifferences(rows, metric.name)
    candidates = [row for row in rows if row.metrics.get(metric.name) and row.method != BOUND]
    sign = 1 if metric.better == "higher" else -1

    def rank(row: Row) -> tuple[int, float]:
        """How many rows it is ahead of, less those that are ahead of it; then its mean."""
        gaps = [gap["mean"] for other in candidates if (gap := paired.between(row, other))]
        cell = row.metrics[metric.name]
        assert cell is not None
        return sign * sum((gap > 0) - (gap < 0) for gap in gaps), sign * cell["mean"]

    order = sorted(candidates, key=rank, reverse=True)
    left_out = [row for row in order if paired.between(row, order[0]) is None]
    return Ranking(metric, [row for row in order if row not in left_out], left_out, paired)
