"""Asymmetric competition: which classes compete for new examples, and which for old ones."""

import math

import pytest
import torch

import mdmt
from mdmt.checks import CHECKS, KINDS, Trial
from mdmt.losses import cross_domain_softmax, two_level_angular_margin
from mdmt.methods import ERACE, MDMTR
from mdmt.tasks import Batch

MARGINS = {"class_margin": 0.05, "task_margin": 0.2, "scale": 8.0}
METHODS = {
    "er-ace": lambda: ERACE(reference_batch=6),
    "er-ace, seen": lambda: ERACE(reference_batch=6, lone_class="seen"),
    "cosine": lambda: MDMTR(
        competitors="asymmetric", reference_batch=6, distance="none", **MARGINS
    ),
    "linear": lambda: MDMTR(
        competitors="asymmetric", reference_batch=6, distance="none", head="linear"
    ),
}
HEADS = ("per-task", "shared")


def learned(method, heads, **more):
    """Two tasks of three classes; with a head each, some rows belong to no task yet."""
    draws = torch.Generator().manual_seed(0)
    learner = mdmt.Learner(
        mdmt.backbones.mlp(5, 7),
        method,
        memory=mdmt.memory.Reservoir(12),
        heads=heads,
        outputs=8 if heads == "per-task" else 6,
        seed=2,
        **more,
    )
    for number in range(2):
        x = torch.randn(40, 5, generator=draws)
        y = torch.randint(0, 3, (40,), generator=draws)
        y[:3] = torch.arange(3)
        learner.learn(mdmt.Task(f"t{number}", x, (y + 3 * number).tolist()))
    return learner


def expected_loss(learner, batch, rivals):
    """By loops: each sample against `rivals`, rows of the head."""
    method, model = learner.method, learner.model
    scores = model.scores(model.features(batch.inputs)).detach().double()
    owner = model.head_of_class.tolist()
    losses = []
    for row, label in zip(scores.tolist(), batch.labels.tolist(), strict=True):
        shifted = dict(enumerate(row))
        if getattr(method, "head", None) == "cosine":
            task_margin = 0.0 if learner.heads.shared else MARGINS["task_margin"]
            for j, cosine in shifted.items():
                angle = math.acos(cosine) + task_margin * (owner[j] == owner[label])
                angle += MARGINS["class_margin"] * (j == label)
                shifted[j] = MARGINS["scale"] * math.cos(angle)
        total = sum(math.exp(shifted[j]) for j in rivals)
        losses.append(math.log(total) - shifted[label])
    return losses


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("name", METHODS)
def test_new_examples_compete_among_their_mini_batch_and_old_ones_with_all_seen(name, heads):
    learner = learned(METHODS[name](), heads)
    method, model = learner.method, learner.model
    draws = torch.Generator().manual_seed(1)
    x = torch.randn(6, 5, generator=draws)
    tasks = torch.ones(6, dtype=torch.int64)
    seen = list(range(6))
    rows = {"two": [3, 5, 3, 5, 5, 3], "one": [4] * 6}
    for count, labels in rows.items():
        batch = Batch(x, torch.tensor(labels), tasks)
        method.incoming = batch
        lone = count == "one" and name != "er-ace"
        new = method.loss(model.features(x), batch)
        assert new.tolist() == pytest.approx(
            expected_loss(learner, batch, seen if lone else sorted(set(labels))), abs=1e-5
        )
        gradient = method.grad(batch)[1][-model.head.numel() :].view_as(model.head)
        touched = [row for row in range(len(gradient)) if gradient[row].abs().max() > 0]
        expected = {("two", False): [3, 5], ("one", False): [], ("one", True): seen}
        assert touched == expected[count, lone]
        method.incoming = None
        old = method.loss(model.features(x), batch)
        assert old.tolist() == pytest.approx(expected_loss(learner, batch, seen), abs=1e-5)


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("name", METHODS)
def test_by_hand_is_autograd(name, heads, monkeypatch, float64):
    ours = learned(METHODS[name](), heads)
    monkeypatch.setattr("mdmt.network.by_hand.MLP", type(None))
    theirs = learned(METHODS[name](), heads)
    torch.testing.assert_close(ours.model.flat, theirs.model.flat, rtol=0, atol=1e-9)


def test_a_step_learns_new_and_old_examples_as_they_compete():
    """The update of the second task's steps is that of both losses, the memory first."""
    learner = learned(METHODS["cosine"](), "per-task")
    method, model = learner.method, learner.model
    new = learner.memory.take(torch.tensor([0, 1, 2, 3]))
    old = learner.memory.take(torch.tensor([4, 5, 6, 7]))
    learner.memory.sample = lambda count: old
    update = method.gradient(new)
    owner = model.head_of_class
    present = model.only(new.labels)[None]
    total = 0
    for batch, competitors in ((old, "seen"), (new, present)):
        cosines = model.scores(model.features(batch.inputs))
        total = total + two_level_angular_margin(
            cosines, batch.labels, batch.tasks, owner, competitors=competitors, **MARGINS
        )
    torch.testing.assert_close(update, model.gradient(total))


def test_a_mask_of_competitors_is_like_their_name():
    draws = torch.Generator().manual_seed(3)
    scores = torch.rand(5, 4, generator=draws)
    labels, tasks = torch.tensor([0, 1, 1, 0, 1]), torch.zeros(5, dtype=torch.int64)
    owner = torch.tensor([0, 0, 1, -1])
    mask = torch.tensor([[True, True, False, False]])
    for loss in (cross_domain_softmax, two_level_angular_margin):
        by_mask = loss(scores, labels, tasks, owner, competitors=mask)
        assert torch.equal(by_mask, loss(scores, labels, tasks, owner, competitors="own"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(
    "make",
    [
        lambda: MDMTR(competitors="asymmetric", reference_batch=12),
        lambda: ERACE(lone_class="seen", reference_batch=12),
    ],
    ids=["mdmt-r", "er-ace"],
)
def test_the_battery(make, check, kind):
    check(Trial(make, kind))
