"""Differences between rows, paired by seed, with 95 % intervals.

Two rows are compared on the seeds that both have. A study has few seeds, so the noise of a row is
estimated with the help of all rows: the effect of each seed that the rows share is taken out, and
the variance of what is left is shrunk towards the variance that is typical of the study's rows, as
in moderated t-statistics (Smyth 2004). For two rows alone this is the paired t-test.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mdmt.runs.rows import Differences, MetricSpreads, Row, Spread, mean_std, values_by_seed

LEVEL = 0.95  # the confidence of an interval
PRIOR = 3  # degrees of freedom that the typical variance of the rows counts for
ENOUGH = 2  # degrees of freedom that an interval needs; with one it is six times as wide
ROUNDS = 20  # of fitting the effects of seeds; one is enough if all rows have the same seeds

Floats = NDArray[np.float64]


class PairedDifferences:
    """Differences between rows by one metric."""

    def __init__(self, rows: Sequence[Row], name: str) -> None:
        self._rows = list(rows)
        self._values = [values_by_seed(row, name) or {} for row in rows]
        seeds = sorted(set().union(*self._values))
        table = np.full((len(rows), len(seeds)), np.nan)
        for line, values in zip(table, self._values, strict=True):
            line[:] = [values.get(seed, np.nan) for seed in seeds]
        self._variances, self._freedoms = noise(table)

    def between(self, row: Row, other: Row) -> Spread | None:
        """A row minus another over the seeds that both have; None if there are none."""
        pair = [self._rows.index(row), self._rows.index(other)]
        mine, theirs = (self._values[place] for place in pair)
        difference = mean_std([mine[seed] - theirs[seed] for seed in mine if seed in theirs])
        if difference is not None:
            variance = float(self._variances[pair].sum())
            freedom = int(self._freedoms[pair].min())
            difference["interval"] = interval(difference["runs"], variance, freedom)
        return difference


def interval(values: list[float], variance: float, freedom: int) -> tuple[float, float] | None:
    """The 95 % interval of the mean of values that have this variance (Student's t).

    None with fewer than two degrees of freedom.

    >>> [round(end, 4) for end in interval([1.0, 2.0, 3.0], 1.0, 2)]
    [-0.4841, 4.4841]
    >>> interval([1.0, 2.0], 0.5, 1) is None
    True
    """
    from scipy.special import stdtrit

    if freedom < ENOUGH:
        return None
    half = float(stdtrit(freedom, (1 + LEVEL) / 2)) * math.sqrt(variance / len(values))
    mean = statistics.fmean(values)
    return mean - half, mean + half


def noise(table: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """The variance of each row's noise, and its degrees of freedom.

    `table` has a row for each row of a study and a column for each seed; NaN is a missing value.
    Without two rows that have two seeds in common there are no degrees of freedom.
    """
    kept = _with_pairs(np.isfinite(table))
    rows, seeds = kept.any(axis=1), kept.any(axis=0)
    own_freedom = np.maximum(kept.sum(axis=1) - 1, 0)
    total = own_freedom.sum() - max(seeds.sum() - 1, 0)
    variances = np.zeros(len(table))
    if total < 1:
        return variances, np.zeros(len(table), dtype=np.int64)
    left = _without_effects(np.where(kept, table, np.nan)[np.ix_(rows, seeds)])
    # The effects of seeds were fitted to the same values, which makes what is left smaller.
    correction = own_freedom.sum() / total
    variances[rows] = correction * np.nansum(left**2, axis=1) / own_freedom[rows]
    typical = typical_variance(variances[rows], own_freedom[rows])
    freedom = np.minimum(own_freedom + PRIOR, total)
    prior = np.maximum(freedom - own_freedom, 0)
    return (own_freedom * variances + prior * typical) / (own_freedom + prior), freedom


def _with_pairs(kept: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The values whose row has another value, and whose seed has another row."""
    while True:
        fewer = kept & (kept.sum(axis=1, keepdims=True) > 1) & (kept.sum(axis=0) > 1)
        if (fewer == kept).all():
            return kept
        kept = fewer


def _without_effects(table: Floats) -> Floats:
    """What is left of each value without the mean of its row and the effect of its seed.

    The effect is a median over rows, so that a noisy row does not spoil those of the others.
    """
    left = table
    for _ in range(ROUNDS):
        left = left - np.nanmean(left, axis=1, keepdims=True)
        effects = np.nanmedian(left, axis=0)
        left = left - effects
        if np.ptp(effects) == 0:
            break
    return np.asarray(left - np.nanmean(left, axis=1, keepdims=True))


def typical_variance(variances: Floats, freedom: NDArray[np.int64]) -> float:
    """The typical one of several estimated variances.

    The mean of their cube roots, which are nearly normal (Wilson and Hilferty 1931); each is
    divided by its expectation for a variance of 1. Unlike the mean of variances it hardly notices
    one noisy row, and unlike the mean of logarithms it can take a variance of 0.
    """
    from scipy.special import gamma

    half = freedom / 2
    expected = gamma(half + 1 / 3) / gamma(half) / np.cbrt(half)
    return float(np.mean(np.cbrt(variances) / expected) ** 3)


def with_differences(rows: list[Row], label: str) -> list[Row]:
    """Add to each row its differences to the row with this label, which itself gets none."""
    other = next((row for row in rows if row.label == label), None)
    if other is None:
        return [replace(row, against=label) for row in rows]
    by_metric = {name: PairedDifferences(rows, name) for name in other.metrics}
    compared = []
    for row in rows:
        found = None
        if row is not other:
            both = [seed for seed in row.seeds if seed in other.seeds]
            cells: MetricSpreads = {
                name: paired.between(row, other) for name, paired in by_metric.items()
            }
            found = Differences(other.label, both, cells)
        compared.append(replace(row, against=label, differences=found))
    return compared
