"""The axes of charts: ticks are few, round, evenly spaced and inside the range."""

import numpy as np
import pytest

from mdmt.report.axes import Axis, linear_ticks, log_ticks, padded_range


def ranges(count=300):
    """Ranges of all sizes and places, as charts may have them."""
    draw = np.random.default_rng(0)
    for _ in range(count):
        low = draw.normal() * 10 ** draw.uniform(-6, 10)
        yield padded_range(np.array([low, low + abs(low) * 10 ** draw.uniform(-8, 3)]))


@pytest.mark.parametrize("most", [2, 5, 9])
def test_linear_ticks_are_few_round_and_inside(most):
    for low, high in ranges():
        ticks = np.array(linear_ticks(low, high, most))
        assert 1 <= len(ticks) <= most
        assert ticks.min() >= low - 1e-9 * abs(low)
        assert ticks.max() <= high + 1e-9 * abs(high)
        if len(ticks) > 1:
            steps = np.diff(ticks)
            assert steps == pytest.approx(steps[0], rel=1e-5)
            mantissa = float(f"{steps.mean():.4e}".partition("e")[0])
            assert mantissa in (1.0, 2.0, 2.5, 5.0)


def test_whole_numbers_where_tasks_are_counted():
    for tasks in (1, 2, 7, 17, 40, 1000):
        low, high = padded_range(np.arange(1.0, tasks + 1))
        ticks = linear_ticks(low, high, 9, integers=True)
        assert 1 <= len(ticks) <= 9
        assert all(tick == int(tick) for tick in ticks)


@pytest.mark.parametrize("decades", [1.05, 2, 5, 12])
def test_ticks_in_powers_of_ten(decades):
    for start in (1e-4, 0.7, 3.0, 900.0):
        ticks = log_ticks(start, start * 10**decades, 9)
        assert 1 <= len(ticks) <= 9
        assert {f"{tick:.0e}"[0] for tick in ticks} <= set("125")
        assert all(start <= tick <= start * 10**decades for tick in ticks)


def test_different_ticks_have_different_labels():
    for low, high in ranges():
        axis = Axis(low, high, 0, 100)
        labels = axis.labels(axis.ticks())
        if high - low > 1e-7 * max(abs(low), abs(high)):
            assert len(set(labels)) == len(labels), labels


def test_values_keep_their_order_between_the_ends():
    for low, high in ranges(50):
        places = Axis(low, high, 200, 10).positions(np.linspace(low, high, 5))
        assert places == pytest.approx(np.linspace(200, 10, 5), abs=1e-4)
