"""The metrics against the published matrices and the paper's tables, and their edges."""

import importlib.resources
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest

from mdmt import metrics
from mdmt.runs.record import Record

MATRICES = json.loads((importlib.resources.files("mdmt.published") / "matrices.json").read_text())[
    "matrices"
]

# A_T in percent, F_T with the maximum over l < T, LTR: computed from the twelve matrices by a
# separate program.
EXPECTED = {
    ("permuted-mnist", "mdmt-r"): (94.333, 0.0228, 0.2478),
    ("permuted-mnist", "mega"): (91.209, 0.0491, 0.5248),
    ("permuted-mnist", "a-gem"): (89.323, 0.0689, 0.7164),
    ("split-cifar", "mdmt-r"): (69.433, 0.0294, 0.2165),
    ("split-cifar", "mega"): (66.125, 0.0402, 0.2788),
    ("split-cifar", "a-gem"): (61.280, 0.0784, 0.6221),
    ("split-cub", "mdmt-r"): (84.208, -0.0145, 0.0),
    ("split-cub", "mega"): (80.534, -0.0104, 0.0),
    ("split-cub", "a-gem"): (62.165, 0.0451, 0.3139),
    ("split-awa", "mdmt-r"): (61.567, -0.0045, 0.0),
    ("split-awa", "mega"): (54.281, 0.0173, 0.0),
    ("split-awa", "a-gem"): (44.948, 0.0177, 0.0403),
}


@pytest.mark.parametrize(("benchmark", "method"), EXPECTED)
def test_published_matrices(benchmark, method):
    a = MATRICES[benchmark][method]
    average, forgotten, remembered = EXPECTED[benchmark, method]
    assert 100 * metrics.average_accuracy(a) == pytest.approx(average, abs=6e-4)
    assert metrics.forgetting(a) == pytest.approx(forgotten, abs=6e-5)
    assert metrics.long_term_remembering(a) == pytest.approx(remembered, abs=6e-5)


def test_all_twelve_matrices_are_tested():
    assert {(b, m) for b, of in MATRICES.items() for m in of} == set(EXPECTED)
    assert all(np.shape(a) == (17, 17) for of in MATRICES.values() for a in of.values())


def test_table_1_where_averaging_over_runs_changes_nothing():
    """A_T, and LTR if every drop is positive, of the mean matrix are the table's (truncated)."""
    for method, average, remembered in (
        ("mdmt-r", 94.33, 0.247),
        ("mega", 91.21, 0.524),
        ("a-gem", 89.32, 0.716),
    ):
        a = MATRICES["permuted-mnist"][method]
        assert 100 * metrics.average_accuracy(a) == pytest.approx(average, abs=0.0051)
        assert math.floor(1000 * metrics.long_term_remembering(a)) / 1000 == remembered


def test_the_trend_ends_in_the_total():
    a = MATRICES["split-cifar"]["mega"]
    trend = [metrics.average_accuracy(a, t) for t in range(1, 18)]
    assert trend[0] == a[0][0]
    assert trend[-1] == metrics.average_accuracy(a)
    assert metrics.forgetting(a, t=1) is None
    assert metrics.forgetting(a, t=2) == pytest.approx(a[0][0] - a[1][0])


def test_forgetting_is_from_the_best_not_the_first():
    a = [[0.5, 0.0, 0.0], [0.9, 0.5, 0.0], [0.6, 0.5, 0.5]]
    assert metrics.forgetting(a) == pytest.approx((0.3 + 0.0) / 2)


def test_forgetting_may_be_negative():
    assert metrics.forgetting([[0.5, 0.0], [0.7, 0.5]]) == pytest.approx(-0.2)


def test_what_was_not_evaluated_takes_no_part():
    a = [[0.8, None], [0.6, 0.5]]
    assert metrics.forgetting(a) == pytest.approx(0.2)
    assert metrics.long_term_remembering(a) == pytest.approx(0.2)


def test_one_task():
    values = metrics.metrics_of(SimpleNamespace(accuracy=[[0.8]], curve=[[0.1] * 11]))
    assert values == {
        "A_T": 0.8,
        "F_T": None,
        "LCA_10": pytest.approx(0.1),
        "LTR": None,
        "A_free": None,
    }


def test_learning_curve_area_is_the_trapezoid():
    z = np.linspace(0.1, 0.9, 11) ** 2
    assert metrics.learning_curve_area(z) == pytest.approx(np.trapezoid(z) / 10)
    assert metrics.learning_curve_area(z, form="sum") == pytest.approx(z.sum() / 11)
    assert metrics.learning_curve_area(z, beta=3) == pytest.approx(np.trapezoid(z[:4]) / 3)
    assert metrics.learning_curve_area(z, beta=0) == pytest.approx(z[0])


def test_learning_curve_area_averages_over_the_tasks_that_were_long_enough():
    long, short = [0.5] * 11, [0.9] * 4 + [None] * 7
    assert metrics.learning_curve_area([long, short]) == pytest.approx(0.5)
    assert metrics.learning_curve_area([long, short], beta=3) == pytest.approx(0.7)
    assert metrics.learning_curve_area([short]) is None


@pytest.mark.parametrize("tasks", [2, 5])
def test_transfer_by_plain_loops(tasks):
    draw = np.random.default_rng(tasks)
    a, before = draw.uniform(size=(tasks, tasks)), draw.uniform(size=tasks)
    last = tasks - 1
    backward = sum(a[last][j] - a[j][j] for j in range(last)) / last
    forward = sum(a[j - 1][j] - before[j] for j in range(1, tasks)) / last
    assert metrics.backward_transfer(a) == pytest.approx(backward)
    assert metrics.forward_transfer(a, before) == pytest.approx(forward)


def test_transfer_that_was_not_measured():
    a = [[0.8, None], [0.6, 0.5]]
    assert metrics.backward_transfer(a) == pytest.approx(-0.2)
    assert metrics.forward_transfer(a, [0.1, 0.1]) is None
    assert metrics.backward_transfer([[0.8]]) is metrics.forward_transfer([[0.8]], [0.1]) is None
    assert metrics.BWT.of(Record([[None, None], [0.5, 0.5]])) is None  # joint
    with pytest.raises(ValueError, match="each of 2 tasks"):
        metrics.forward_transfer(a, [0.1])


def test_bad_matrices_are_refused():
    with pytest.raises(ValueError, match="square"):
        metrics.average_accuracy([[0.1, 0.2]])
    with pytest.raises(ValueError, match="t=3"):
        metrics.average_accuracy([[0.1]], t=3)


def test_a_metric_is_of_the_matrix_that_it_names():
    free = metrics.METRICS[-1]
    record = Record([[0.9]], [[0.5]], [[0.25] * 11])
    assert free.of(record) == 0.5
    assert free.of(SimpleNamespace(accuracy=[[0.9]])) is None
    values = {"A_T": 0.9, "F_T": None, "LCA_10": 0.25, "LTR": None, "A_free": 0.5}
    assert metrics.metrics_of(record) == values


def test_accuracy_without_the_task_is_that_of_the_last_row():
    free = [[0.9, None], [0.3, 0.5]]
    assert metrics.metrics_of(SimpleNamespace(accuracy_task_free=free))["A_free"] == pytest.approx(
        0.4
    )


def test_what_is_not_a_number_is_none():
    assert metrics.metrics_of(SimpleNamespace(accuracy=[[None, None], [None, None]], curve=[])) == {
        "A_T": None, "F_T": None, "LCA_10": None, "LTR": None, "A_free": None,
    }  # fmt: skip


def test_percent_is_for_people():
    assert [metric.heading for metric in metrics.METRICS] == [
        "A_T (%)",
        "F_T",
        "LCA_10",
        "LTR",
        "A_free (%)",
    ]
    assert [metric.text(0.12345) for metric in metrics.METRICS] == [
        "12.35",
        "0.123",
        "0.123",
        "0.123",
        "12.35",
    ]


# Two tasks of two steps each, a third of one: before the first step, at each step, at the end.
POINTS = [
    [0.5], [0.7], [0.9],
    [0.9, 0.4], [0.3, 0.6], [0.8, 0.8],
    [0.8, 0.8, 0.0], [0.6, 0.9, 0.9],
]  # fmt: skip


def test_metrics_along_the_steps_by_hand():
    means = [0.5, 0.7, 0.9, 0.65, 0.45, 0.8, 1.6 / 3, 0.8]
    assert metrics.average_anytime_accuracy(POINTS) == pytest.approx(sum(means) / 8)
    gaps = [0.9 - 0.3, 0.8 - 0.6, 0.8 - 0.8]  # task 1 twice, then task 2
    assert metrics.stability_gap(POINTS) == pytest.approx(sum(gaps) / 3)
    assert metrics.min_accuracy(POINTS) == pytest.approx((0.3 + 0.8) / 2)
    worse = [*POINTS[:-1], [0.1, 0.9, 0.9]]
    assert metrics.stability_gap(worse) == pytest.approx((0.6 + 0.7 + 0.0) / 3)
    assert metrics.min_accuracy(worse) == pytest.approx((0.1 + 0.8) / 2)


def test_metrics_along_the_steps_that_are_undefined():
    of_one = POINTS[:3]
    assert metrics.average_anytime_accuracy(of_one) == pytest.approx(0.7)
    assert metrics.stability_gap(of_one) is metrics.min_accuracy(of_one) is None
    assert metrics.average_anytime_accuracy([]) is metrics.stability_gap([]) is None
    untested = [[0.5, None], [0.5, None, 0.2], [0.3, None, 0.6]]
    assert metrics.average_anytime_accuracy(untested) == pytest.approx((0.5 + 0.35 + 0.45) / 3)
    assert metrics.stability_gap(untested) == pytest.approx(0.2)
    assert metrics.min_accuracy(untested) == pytest.approx(0.3)


def test_metrics_along_the_steps_are_named_only_where_they_were_measured():
    record = Record([[0.9]], [[0.5]], [[0.25] * 11])
    assert "AAA" not in metrics.metrics_of(record)
    record.anytime = {"steps": [0, 3], "accuracy": [[0.25], [0.75]]}
    assert metrics.metrics_of(record)["AAA"] == 0.5
    assert metrics.metrics_of(record)["gap"] is None
