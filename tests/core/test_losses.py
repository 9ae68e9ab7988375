"""Every loss against a plain loop in float64, its gradient against differences, and its edges."""

import math
import random
from functools import partial

import pytest
import torch
from torch.nn import functional

from mdmt.losses import (
    angular_margin,
    cross_domain_softmax,
    episodic_distillation,
    released_angular_margin,
    two_level_angular_margin,
)
from mdmt.network.by_hand import (
    angular_margin_slopes,
    cross_entropy_slopes,
    episodic_distillation_slopes,
)


def situation(seed):
    """Random heads of random sizes with free rows between and after them, and their samples."""
    draw = random.Random(seed)
    head_of_class = [-1] * draw.randint(0, 2)
    for head in range(draw.randint(1, 4)):
        head_of_class += [head] * draw.randint(1, 4) + [-1] * draw.randint(0, 1)
    rows = [r for r, h in enumerate(head_of_class) if h >= 0]
    labels = [draw.choice(rows) for _ in range(draw.randint(1, 6))]
    scores = [[draw.uniform(-0.99, 0.99) for _ in head_of_class] for _ in labels]
    margins = {
        "class_margin": draw.uniform(0, 0.2),
        "task_margin": draw.uniform(0, 0.5),
        "scale": draw.uniform(1, 40),
    }
    tasks = [head_of_class[y] for y in labels]
    tensors = (
        torch.tensor(scores, dtype=torch.float64),
        *map(torch.tensor, (labels, tasks, head_of_class)),
    )
    return tensors, (scores, labels, tasks, head_of_class), margins


def negative_log_share(own, others):
    return math.log(sum(math.exp(v - own) for v in [own, *others]))


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("competitors", ["seen", "own"])
def test_cross_domain_softmax_is_equation_4(seed, competitors):
    tensors, (scores, labels, tasks, heads), _ = situation(seed)
    expected = []
    for row, y, k in zip(scores, labels, tasks, strict=True):
        rivals = [
            j
            for j, h in enumerate(heads)
            if j != y and (h >= 0 if competitors == "seen" else h == k)
        ]
        expected.append(negative_log_share(row[y], [row[j] for j in rivals]))
    got = cross_domain_softmax(*tensors, competitors=competitors)
    assert got.item() == pytest.approx(sum(expected) / len(expected), abs=1e-12)
    each = cross_domain_softmax(*tensors, competitors=competitors, reduction="none")
    assert each.tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("competitors", ["seen", "own"])
def test_smoothing_shares_a_part_of_the_label_among_those_that_compete(seed, competitors):
    tensors, (scores, labels, tasks, heads), _ = situation(seed)
    expected = []
    for row, y, k in zip(scores, labels, tasks, strict=True):
        rivals = [j for j, h in enumerate(heads) if (h >= 0 if competitors == "seen" else h == k)]
        costs = {j: negative_log_share(row[j], [row[i] for i in rivals if i != j]) for j in rivals}
        expected.append(0.7 * costs[y] + 0.3 * sum(costs.values()) / len(costs))
    got = cross_domain_softmax(*tensors, competitors=competitors, smoothing=0.3, reduction="none")
    assert got.tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("competitors", ["seen", "own"])
def test_two_level_angular_margin_is_equation_7(seed, competitors):
    tensors, (scores, labels, tasks, heads), margins = situation(seed)
    s, m_c, m_t = margins["scale"], margins["class_margin"], margins["task_margin"]
    expected = []
    for row, y, k in zip(scores, labels, tasks, strict=True):
        angles = [math.acos(c) for c in row]
        own = s * math.cos(angles[y] + m_c + m_t)
        others = [s * math.cos(angles[j] + m_t) for j, h in enumerate(heads) if h == k and j != y]
        if competitors == "seen":
            others += [s * math.cos(angles[j]) for j, h in enumerate(heads) if h >= 0 and h != k]
        expected.append(negative_log_share(own, others))
    got = two_level_angular_margin(*tensors, competitors=competitors, **margins)
    assert got.item() == pytest.approx(sum(expected) / len(expected), abs=1e-10)


@pytest.mark.parametrize("seed", range(30))
def test_released_angular_margin_is_the_released_form(seed):
    tensors, (scores, labels, tasks, heads), margins = situation(seed)
    s, m_c, m_t = margins["scale"], margins["class_margin"], margins["task_margin"]
    current, outputs = max(heads), sum(h >= 0 for h in heads) + seed % 5
    expected = []
    for row, y, i in zip(scores, labels, tasks, strict=True):
        selected = [j for j, h in enumerate(heads) if (h == i if i == current else 0 <= h <= i)]
        angles = [math.acos(c) for c in row]
        own = s * (math.cos(angles[y] + m_t) + math.cos(angles[y] + m_c) - math.cos(angles[y]))
        others = [s * math.cos(angles[j] + m_t) for j in selected if j != y] + [0.0] * (
            outputs - len(selected)
        )
        expected.append(negative_log_share(own, others))
    got = released_angular_margin(*tensors, current=current, outputs=outputs, **margins)
    assert got.item() == pytest.approx(sum(expected) / len(expected), abs=1e-10)


@pytest.mark.parametrize("distance", ["mse", "l1"])
def test_episodic_distillation_is_equation_10(distance, generator):
    features, stored = torch.randn(2, 5, 7, dtype=torch.float64, generator=generator)
    total = 0.0
    for f, g in zip(features.tolist(), stored.tolist(), strict=True):
        gaps = [a - b for a, b in zip(f, g, strict=True)]
        total += sum(gap**2 if distance == "mse" else abs(gap) for gap in gaps) / 7
    assert episodic_distillation(features, stored, distance).item() == pytest.approx(
        total / 5, abs=1e-12
    )


def test_distillation_by_cosines_compares_directions_alone(float64):
    stored = torch.tensor([[3.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
    features = torch.tensor([[9.0, 0.0], [5.0, 0.0], [-4.0, -4.0]])
    found = episodic_distillation(features, stored, "cosine", reduction="none")
    assert found.tolist() == pytest.approx([0.0, 1.0, 2.0])
    nothing = torch.zeros(3, 2, requires_grad=True)
    episodic_distillation(nothing, stored, "cosine").backward()
    assert nothing.grad.isfinite().all()


@pytest.mark.parametrize("seed", range(5))
def test_gradients(seed):
    (scores, *rest), _, margins = situation(seed)
    scores.requires_grad_()
    current = int(rest[2].max())
    for loss in (
        lambda x: cross_domain_softmax(x, *rest),
        lambda x: cross_domain_softmax(x, *rest, competitors="own", smoothing=0.3),
        lambda x: two_level_angular_margin(x, *rest, **margins),
        lambda x: released_angular_margin(
            x, *rest, current=current, outputs=len(rest[2]) + 3, **margins
        ),
    ):
        assert torch.autograd.gradcheck(loss, scores)
    pair = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    for distance in ("mse", "l1", "cosine"):
        assert torch.autograd.gradcheck(
            lambda p, d=distance: episodic_distillation(p[0], p[1], d), pair
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("edge", [1.0, -1.0, 1.0000001, -1.0000001])
def test_finite_where_the_cosine_is_one(edge, dtype):
    """The angle's slope is infinite there; a loss through acos has NaN gradients."""
    labels, tasks, heads = torch.tensor([0, 2]), torch.tensor([0, 1]), torch.tensor([0, 0, 1, -1])
    for loss in (
        lambda c: two_level_angular_margin(c, labels, tasks, heads),
        lambda c: released_angular_margin(c, labels, tasks, heads, current=1, outputs=5),
    ):
        cosines = torch.full((2, 4), edge, dtype=dtype, requires_grad=True)
        value = loss(cosines)
        value.backward()
        assert torch.isfinite(value)
        assert torch.isfinite(cosines.grad).all()


def test_values_at_the_edges_are_exact():
    """cos(0 + m) = cos m, although no angle is ever computed."""
    cosines = torch.tensor([[1.0, -1.0]], dtype=torch.float64)
    arguments = torch.tensor([0]), torch.tensor([0]), torch.tensor([0, 0])
    got = two_level_angular_margin(
        cosines, *arguments, class_margin=0.1, task_margin=0.2, scale=3.0
    )
    expected = negative_log_share(3 * math.cos(0.3), [3 * math.cos(math.pi + 0.2)])
    assert got.item() == pytest.approx(expected, abs=1e-12)


def test_margins_of_zero_are_the_cosine_softmax(generator):
    cosines = torch.rand(4, 6, generator=generator, dtype=torch.float64)
    rest = torch.tensor([0, 2, 5, 3]), torch.tensor([0, 1, 2, 1]), torch.tensor([0, 0, 1, 1, 2, 2])
    none = two_level_angular_margin(cosines, *rest, class_margin=0.0, task_margin=0.0, scale=10.0)
    assert torch.allclose(none, cross_domain_softmax(10 * cosines, *rest))


def test_free_rows_get_no_gradient(generator):
    scores = torch.rand(3, 4, generator=generator, requires_grad=True)
    rest = torch.tensor([0, 1, 1]), torch.tensor([0, 1, 1]), torch.tensor([0, 1, -1, -1])
    losses = (
        cross_domain_softmax(scores, *rest)
        + cross_domain_softmax(scores, *rest, smoothing=0.2)
        + two_level_angular_margin(scores, *rest)
        + released_angular_margin(scores, *rest, current=1, outputs=4)
    )
    losses.backward()
    assert scores.grad[:, 2:].abs().max() == 0


def test_wrong_names_are_refused():
    scores, rest = torch.zeros(1, 1), (torch.tensor([0]), torch.tensor([0]), torch.tensor([0]))
    with pytest.raises(ValueError, match="competitors='all'"):
        cross_domain_softmax(scores, *rest, competitors="all")
    with pytest.raises(ValueError, match="distance='l3'"):
        episodic_distillation(scores, scores, "l3")


@pytest.mark.parametrize("margin", [0.0, 0.01, 0.3])
def test_with_one_head_all_margin_losses_are_arcface(margin, generator):
    cosines = torch.rand(9, 5, generator=generator, dtype=torch.float64) * 2 - 1
    labels = torch.arange(9) % 5
    tasks = torch.zeros(9, dtype=torch.int64)
    owner = torch.zeros(5, dtype=torch.int64)
    margins = {"class_margin": margin, "task_margin": 0.0, "scale": 7.0, "reduction": "none"}
    found = angular_margin(cosines, labels, margin=margin, scale=7.0, reduction="none")
    released = released_angular_margin(
        cosines, labels, tasks, owner, current=3, outputs=5, **margins
    )
    torch.testing.assert_close(found, released)
    torch.testing.assert_close(
        found, two_level_angular_margin(cosines, labels, tasks, owner, **margins)
    )
    angles = cosines.acos()
    angles[range(9), labels] += margin
    slow = -(7 * angles.cos()).log_softmax(1)[range(9), labels]
    torch.testing.assert_close(found, slow)


def _slopes_by_autograd(loss, x, weights):
    leaf = x.clone().requires_grad_()
    losses = loss(leaf)
    return losses.detach(), torch.autograd.grad(losses @ weights[:, 0], leaf)[0]


@pytest.mark.parametrize("margin", [0.0, 0.01, 0.5])
def test_slopes_of_the_angular_margin_are_those_of_autograd(margin, float64):
    cosines = torch.rand(9, 5) * 2 - 1
    cosines[0, 2] = 1.0  # where the sine is 0 and its true slope infinite
    cosines[1, 3] = -1.0
    labels = torch.tensor([2, 3, 0, 1, 2, 3, 4, 0, 1])
    weights = torch.rand(9, 1)
    settings = {"margin": margin, "scale": 24.0}
    expected = _slopes_by_autograd(
        lambda c: angular_margin(c, labels, reduction="none", **settings), cosines, weights
    )
    found = angular_margin_slopes(cosines, labels, weights, **settings)
    torch.testing.assert_close((found.losses, found.wrt_scores), expected, rtol=0, atol=1e-12)


def test_slopes_of_the_cross_entropy_are_those_of_autograd_where_some_classes_never_compete(
    float64,
):
    logits = torch.randn(6, 4).masked_fill(torch.tensor([False, False, True, False]), -torch.inf)
    labels = torch.tensor([0, 1, 3, 0, 1, 3])
    weights = torch.rand(6, 1)
    loss = partial(functional.cross_entropy, target=labels, reduction="none")
    found = cross_entropy_slopes(logits, labels, weights)
    expected = _slopes_by_autograd(loss, logits, weights)
    torch.testing.assert_close((found.losses, found.wrt_scores), expected, rtol=0, atol=1e-12)


def test_slopes_of_the_smoothed_cross_entropy_are_those_of_autograd(float64):
    owner, labels = torch.tensor([0, 0, -1, 0]), torch.tensor([0, 1, 3, 0, 1, 3])
    logits, weights = torch.randn(6, 4), torch.rand(6, 1)
    loss = partial(
        cross_domain_softmax,
        labels=labels,
        tasks=torch.zeros_like(labels),
        head_of_class=owner,
        smoothing=0.3,
        reduction="none",
    )
    found = cross_entropy_slopes(logits.masked_fill(owner < 0, -torch.inf), labels, weights, 0.3)
    expected = _slopes_by_autograd(loss, logits, weights)
    torch.testing.assert_close((found.losses, found.wrt_scores), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("distance", ["l1", "mse", "cosine"])
def test_slopes_of_the_distillation_are_those_of_autograd(distance, float64):
    features, stored, weights = torch.randn(7, 3), torch.randn(7, 3), torch.rand(7, 1)
    loss = partial(episodic_distillation, stored=stored, distance=distance, reduction="none")
    found = episodic_distillation_slopes(features, stored, weights, distance)
    torch.testing.assert_close(
        found, _slopes_by_autograd(loss, features, weights), rtol=0, atol=1e-12
    )
