"""The axes of a chart: ranges, round numbers for the ticks, and positions in a drawing."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal
from typing import NamedTuple

import numpy as np

from mdmt.report.study import Array

MARGIN = 0.05  # of the range, left free on each side of the data
TICK_STEPS = (1.0, 2.0, 2.5, 5.0)
MOST_TICKS = 9
MINUS = "\N{MINUS SIGN}"  # as wide as a digit, unlike a hyphen
PLAIN = (1e-5, 1e9)  # numbers outside this range are written with a power of ten


class Axis(NamedTuple):
    """A range of values and the two ends of the drawing it is mapped to."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def positions(self, values: Array) -> Array:
        """Map values to positions in the drawing.

        >>> Axis(0, 10, 100, 200).positions(np.array([0, 2.5])).tolist()
        [100.0, 125.0]
        >>> Axis(1, 100, 0, 60, log=True).positions(np.array([1, 10.0])).tolist()
        [0.0, 30.0]
        """
        low, high = self.low, self.high
        if self.log:
            low, high = math.log10(low), math.log10(high)
            values = np.log10(values)
        share = (values - low) / (high - low)
        return np.asarray(self.start + share * (self.end - self.start), dtype=float)

    def ticks(self, most: int = MOST_TICKS, *, integers: bool = False) -> list[float]:
        """At most `most` round numbers inside the range."""
        if self.log:
            return log_ticks(self.low, self.high, most)
        return linear_ticks(self.low, self.high, most, integers=integers)

    def labels(self, ticks: list[float]) -> list[str]:
        """The ticks as text; on a linear axis all have the same number of decimals.

        >>> Axis(-1, 1, 0, 1).labels([-0.5, 0.0, 0.25])
        ['−0.50', '0.00', '0.25']
        >>> Axis(0.1, 1e5, 0, 1, log=True).labels([0.5, 1.0, 20000.0])
        ['0.5', '1', '20,000']
        """
        decimals = [_decimals(tick) for tick in ticks]
        most = max(decimals, default=0)
        pairs = zip(ticks, decimals, strict=True)
        return [_number(tick, own if self.log else most) for tick, own in pairs]


def padded_range(values: Array, *, log: bool = False) -> tuple[float, float]:
    """The range of the values plus a margin; equal values get room around them.

    >>> padded_range(np.array([0.0, 10.0])), padded_range(np.array([40.0]))
    ((-0.5, 10.5), (38.0, 42.0))
    """
    if log:
        low, high = padded_range(np.log10(values))
        return 10**low, 10**high
    low, high = float(values.min()), float(values.max())
    largest = max(abs(low), abs(high))
    margin = (high - low) * MARGIN
    if high - low <= 1e-9 * largest:  # nothing but noise of the arithmetic
        margin = largest * MARGIN or 1.0
    return low - margin, high + margin


def linear_ticks(low: float, high: float, most: int, *, integers: bool = False) -> list[float]:
    """Multiples of the smallest round step that gives at most `most` of them.

    >>> linear_ticks(-0.5, 10.5, 9)
    [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    >>> linear_ticks(0.8, 3.2, 5), linear_ticks(0.8, 3.2, 5, integers=True)
    ([1.0, 1.5, 2.0, 2.5, 3.0], [1.0, 2.0, 3.0])
    """
    power = math.floor(math.log10((high - low) / most))
    if integers:
        power = max(0, power)
    for exponent, factor in itertools.product((power, power + 1), TICK_STEPS):
        step = factor * 10.0**exponent
        if integers and step % 1:
            continue
        first = math.ceil(low / step)
        number = math.floor(high / step) - first + 1
        if number <= most:
            return [step * (first + k) for k in range(number)]
    raise AssertionError(f"no step for {low} to {high}")


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """1, 2 and 5 times the powers of ten; over many decades, only some powers of ten.

    >>> log_ticks(0.9, 30, 9), log_ticks(1, 1e5, 9)
    ([1.0, 2.0, 5.0, 10.0, 20.0], [1.0, 10.0, 100.0, 1000.0, 10000.0, 100000.0])
    """
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    choices = [[factor * 10.0**k for k, factor in itertools.product(decades, (1, 2, 5))]]
    choices += [[10.0**k for k in decades[::stride]] for stride in range(1, len(decades) + 1)]
    ticks = [[value for value in values if low <= value <= high] for values in choices]
    return next(values for values in ticks if len(values) <= most)


def _decimals(value: float) -> int:
    exponent = Decimal(f"{value:.10g}").normalize().as_tuple().exponent
    return max(0, -int(exponent))


def _number(value: float, decimals: int) -> str:
    if value and not PLAIN[0] <= abs(value) < PLAIN[1]:
        text = f"{value:.10g}"
    elif abs(value) >= 1e4:
        text = f"{value:,.{decimals}f}"
    else:
        text = f"{value + 0.0:.{decimals}f}"  # + 0.0, because -0.0 would have a sign
    return text.replace("-", MINUS)
