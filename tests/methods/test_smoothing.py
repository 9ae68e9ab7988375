"""Label smoothing: every method with cross entropy gives a part of a label to all competitors."""

import math

import pytest
import torch

import mdmt
from mdmt.checks import CHECKS, KINDS, Trial
from mdmt.methods import METHODS
from mdmt.tasks import Batch
from support.helpers import mistake

NAMES = ["er", "er-ace", "der++", "mega", "a-gem"]


def learned(name, heads, **settings):
    """Two tasks of three classes; with a head each, some rows belong to no task yet."""
    draws = torch.Generator().manual_seed(0)
    learner = mdmt.Learner(
        mdmt.backbones.mlp(5, 7),
        METHODS[name](reference_batch=6, **settings),
        memory=mdmt.memory.Reservoir(12),
        heads=heads,
        outputs=8 if heads == "per-task" else 6,
        seed=2,
    )
    for number in range(2):
        x = torch.randn(40, 5, generator=draws)
        y = torch.arange(40) % 3 + 3 * number
        learner.learn(mdmt.Task(f"t{number}", x, y.tolist()))
    return learner


@pytest.mark.parametrize("heads", ["per-task", "shared"])
@pytest.mark.parametrize("name", NAMES)
def test_a_label_is_shared_by_the_classes_that_compete(name, heads):
    learner = learned(name, heads, smoothing=0.3)
    method, model = learner.method, learner.model
    labels = [3, 5, 5, 3]
    x = torch.randn(4, 5, generator=torch.Generator().manual_seed(1))
    batch = Batch(x, torch.tensor(labels), torch.ones(4, dtype=torch.int64))
    method.incoming = batch
    found = method.loss(model.features(x), batch)
    rivals = [3, 4, 5] if heads == "per-task" else list(range(6))
    rivals = [3, 5] if name == "er-ace" else rivals
    for row, label, loss in zip(
        model.scores(model.features(x)).tolist(), labels, found.tolist(), strict=True
    ):
        total = math.log(sum(math.exp(row[j]) for j in rivals))
        even = sum(total - row[j] for j in rivals) / len(rivals)
        assert loss == pytest.approx(0.7 * (total - row[label]) + 0.3 * even, abs=1e-5)


@pytest.mark.parametrize("heads", ["per-task", "shared"])
@pytest.mark.parametrize("name", NAMES)
def test_by_hand_is_autograd_and_it_has_an_effect(name, heads, monkeypatch, float64):
    ours, plain = learned(name, heads, smoothing=0.3), learned(name, heads)
    assert not torch.allclose(ours.model.flat, plain.model.flat, atol=1e-3)
    monkeypatch.setattr("mdmt.network.by_hand.MLP", type(None))
    theirs = learned(name, heads, smoothing=0.3)
    torch.testing.assert_close(ours.model.flat, theirs.model.flat, rtol=0, atol=1e-9)


def test_what_it_may_be():
    assert mistake(METHODS["er"], smoothing=1.0) == "ER: smoothing=1.0: must be less than 1.0"
    assert "smoothing" not in METHODS["er"]().arguments
    with pytest.raises(TypeError):
        METHODS["mdmt-r"](smoothing=0.1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", ["der++", "er-ace"])
def test_the_battery(name, check, kind):
    check(Trial(lambda: METHODS[name](smoothing=0.1, reference_batch=12), kind))
