"""Rankings: the best row by a metric, and the rows that are not worse, on common seeds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from mdmt.metrics import Metric
from mdmt.runs.rows import Row, interval, values_by_seed

# joint learns all tasks at once: an upper bound for the others, not a competitor
BOUND = "joint"
ENOUGH = 2  # seeds that an interval needs


@dataclass(frozen=True)
class Ranking:
    """Rows by a metric, the best first, on the seeds that all of them have."""

    metric: Metric
    seeds: list[int]
    rows: list[Row]
    left_out: list[Row]  # rows with too few of these seeds

    def values(self, row: Row) -> list[float]:
        """The metric of a row for each of the seeds."""
        values = values_by_seed(row, self.metric.name) or {}
        return [values[seed] for seed in self.seeds]

    def differences(self, row: Row, other: Row) -> list[float]:
        """A row minus another, seed by seed."""
        return [
            mine - theirs for mine, theirs in zip(self.values(row), self.values(other), strict=True)
        ]

    def is_worse(self, row: Row, other: Row) -> bool:
        """Whether a row is worse than another; with several seeds, significantly worse."""
        sign = 1 if self.metric.better == "lower" else -1
        differences = [sign * difference for difference in self.differences(row, other)]
        ends = interval(differences)
        return (statistics.fmean(differences) if ends is None else ends[0]) > 0

    @property
    def leaders(self) -> list[Row]:
        """The best row and the rows that are not worse; empty if there is nothing to compare."""
        if len(self.rows) < 2:
            return []
        return [row for row in self.rows if not self.is_worse(row, self.rows[0])]


def ranking(rows: Sequence[Row], metric: Metric) -> Ranking:
    """Rank the rows that have a metric, except the upper bound.

    A row with too few seeds is left out, so that the others keep theirs.
    """
    candidates = [
        row for row in rows if row.metrics.get(metric.name) is not None and row.method != BOUND
    ]
    candidates.sort(key=lambda row: -len(row.seeds))
    seeds = list(candidates[0].seeds) if candidates else []
    enough = min(ENOUGH, len(seeds))
    ranked: list[Row] = []
    left_out: list[Row] = []
    for row in candidates:
        both = [seed for seed in seeds if seed in row.seeds]
        if len(both) < enough:
            left_out.append(row)
        else:
            seeds = both
            ranked.append(row)
    unsorted = Ranking(metric, seeds, ranked, left_out)
    sign = 1 if metric.better == "lower" else -1
    order = sorted(ranked, key=lambda row: sign * statistics.fmean(unsorted.values(row)))
    return Ranking(metric, seeds, order, left_out)
