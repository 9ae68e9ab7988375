"""Rankings and paired differences: bold in simulated studies, unequal seeds, degenerate studies."""

import json

import numpy as np
import pytest
from scipy import stats

from mdmt.metrics import A_T, METRICS
from mdmt.runs.ranking import ranking
from mdmt.runs.rows import mean_std
from support.helpers import some_row

F_T = METRICS[1]


def row(label, values, metric="A_T"):
    """A row with these values by seed."""
    return some_row(
        label=label,
        method=label,
        seeds=list(values),
        metrics={metric: mean_std(list(values.values()))},
    )


def labels(rows):
    return [one.label for one in rows]


def simulated(draw, seeds, sds):
    """Six methods whose noise differs, 90 to 85 %, on seeds that are easy or hard for all."""
    means = dict(zip("abcdef", (90, 89.5, 89, 88, 87, 85), strict=True))
    effects = draw.normal(0, 2, seeds)
    return [
        row(label, dict(enumerate((mean + effects + draw.normal(0, sd, seeds)) / 100)))
        for (label, mean), sd in zip(means.items(), sds, strict=True)
    ]


@pytest.mark.parametrize("seeds", [2, 3, 5])
@pytest.mark.parametrize("kind", ["spread", "one noisy"])
def test_the_best_is_bold_and_a_method_five_points_worse_is_not(seeds, kind):
    """Neither few seeds nor a noisy method change that."""
    draw = np.random.default_rng(seeds)
    studies = 200
    bold = []
    for _ in range(studies):
        spread = draw.permutation([0.2, 0.3, 0.5, 0.8, 1.2, 1.5])
        sds = spread if kind == "spread" else [0.2, 0.2, 0.2, 5, 0.2, 0.2]
        bold.append(labels(ranking(simulated(draw, seeds, sds), A_T).leaders))
    assert sum("a" in names for names in bold) > 0.9 * studies
    assert sum("f" in names for names in bold) < 0.05 * studies


def test_two_rows_alone_have_the_interval_of_the_paired_t_test():
    a, b = [0.91, 0.85, 0.80, 0.77], [0.90, 0.80, 0.78, 0.77]
    rows = [row("a", dict(enumerate(a))), row("b", dict(enumerate(b)))]
    expected = stats.ttest_rel(a, b).confidence_interval(0.95)
    gap = ranking(rows, A_T).lead(*rows)
    assert gap["interval"] == pytest.approx((expected.low, expected.high))
    json.dumps(gap)


def test_a_row_that_only_follows_its_seeds_has_no_noise():
    """The rows rise and fall together: their differences are known exactly."""
    easy = np.array([0.0, 0.1, -0.2])
    rows = [row(label, dict(enumerate(0.7 + k / 100 + easy))) for k, label in enumerate("abcde")]
    ranked = ranking(rows, A_T)
    assert labels(ranked.leaders) == ["e"]
    assert ranked.lead(rows[4], rows[0])["interval"] == pytest.approx((0.04, 0.04))


def test_each_pair_is_compared_on_the_seeds_that_both_have():
    """An interrupted comparison: two methods have but the first seed, which is a hard one."""
    rows = [
        row("van", {1: 0.30, 2: 0.50, 3: 0.52}),
        row("ewc", {1: 0.35, 2: 0.56, 3: 0.57}),
        row("er", {1: 0.44}),
        row("mdmt-r", {1: 0.48}),
    ]
    ranked = ranking(rows, A_T)
    assert labels(ranked.rows) == ["mdmt-r", "er", "ewc", "van"]
    assert ranked.lead(rows[3], rows[1])["runs"] == pytest.approx([0.13])
    assert len(ranked.lead(rows[1], rows[0])["interval"]) == 2
    assert labels(ranked.leaders) == ["mdmt-r"]
    assert ranked.left_out == []


def test_a_single_seed_in_common_makes_nothing_bold_but_the_best():
    """Whichever of the two rows has no other seed."""
    rows = [
        row("van", {1: 0.8208, 2: 0.7532, 3: 0.8116}),
        row("ewc", {1: 0.8578, 2: 0.8486, 3: 0.8691}),
        row("a-gem", {1: 0.8696, 2: 0.8774, 3: 0.8789}),
        row("er", {1: 0.9084}),
        row("mega", {1: 0.8992}),
    ]
    ranked = ranking(rows, A_T)
    assert labels(ranked.leaders) == ["er"]
    assert labels(ranked.unsure) == ["mega", "a-gem", "ewc"]
    assert labels(ranking([rows[0], rows[2], rows[4]], A_T).leaders) == ["mega"]
    three = [row("er", {1: 0.9084, 2: 0.9072, 3: 0.9099}), *rows[:3], rows[4]]
    assert labels(ranking(three, A_T).leaders) == ["er"]
    assert labels(ranking(three, A_T).unsure) == ["mega"]


def test_one_seed_of_another_row_takes_no_bold_away():
    rows = [
        row("a", {1: 0.80, 2: 0.70, 3: 0.63}),
        row("b", {1: 0.79, 2: 0.71, 3: 0.61}),  # not shown to be worse than a
        row("c", {1: 0.795}),
    ]
    assert labels(ranking(rows, A_T).rows) == ["a", "c", "b"]
    assert labels(ranking(rows, A_T).leaders) == ["a", "b"]


def test_a_row_that_shares_no_seed_with_the_best_is_left_out():
    rows = [row("a", {1: 0.8, 2: 0.9}), row("b", {1: 0.7, 2: 0.8}), row("lucky", {7: 0.99})]
    ranked = ranking(rows, A_T)
    assert (labels(ranked.rows), labels(ranked.left_out)) == (["a", "b"], ["lucky"])
    assert ranked.lead(rows[0], rows[2]) is None


def test_studies_without_an_interval():
    alone = row("a", {1: 0.5, 2: 0.6})
    assert ranking([alone], A_T).rows == [alone]
    assert ranking([alone], A_T).leaders == []
    assert ranking([alone], F_T).rows == ranking([], A_T).rows == []
    two_seeds = [alone, row("b", {1: 0.4, 2: 0.2})]
    one_seed = [row("a", {1: 0.5}), row("b", {1: 0.4}), row("c", {1: 0.3})]
    for rows in (two_seeds, one_seed):
        ranked = ranking(rows, A_T)
        assert ranked.lead(rows[0], rows[1])["interval"] is None
        assert labels(ranked.leaders) == ["a"]


def test_identical_records_are_bold_together():
    values = {1: 0.5, 2: 0.6, 3: 0.7}
    rows = [row("a", values), row("b", dict(values)), row("c", {1: 0.1, 2: 0.2, 3: 0.3})]
    assert labels(ranking(rows, A_T).leaders) == ["a", "b"]
    constant = [row(label, {1: 0.1, 2: 0.1, 3: 0.1}) for label in "ab"]
    assert labels(ranking(constant, A_T).leaders) == ["a", "b"]


def test_lower_is_better_for_forgetting():
    rows = [
        row("a", {1: 0.30, 2: 0.31, 3: 0.30}, "F_T"),
        row("b", {1: 0.10, 2: 0.11, 3: 0.11}, "F_T"),
    ]
    assert labels(ranking(rows, F_T).rows) == ["b", "a"]
    assert labels(ranking(rows, F_T).leaders) == ["b"]
