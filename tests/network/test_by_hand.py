"""Gradients by hand against autograd's, over a short stream and for single steps."""

from functools import partial

import pytest
import torch

import mdmt
import mdmt.network.by_hand
from mdmt.backbones import mlp
from mdmt.learner import Learner
from mdmt.memory import Reservoir, Ring, TaskRing
from mdmt.methods import METHODS
from mdmt.network.by_hand import ByHand
from mdmt.tasks import Stream, Task


def tasks(count=3, heads="shared"):
    generator = torch.Generator().manual_seed(2)
    made = []
    for number in range(count):
        inputs = torch.randint(0, 256, (60, 12), dtype=torch.uint8, generator=generator)
        labels = torch.arange(60) % 3 + (0 if heads == "shared" else 3 * number)
        made.append(Task(f"task {number}", inputs, labels, test=(inputs[:20], labels[:20])))
    return made


def learned(method, heads, outputs=0):
    memory = Reservoir(30) if method.policy == "Reservoir" else Ring(4)
    learner = Learner(
        mlp(12, 8), method, memory=memory, lr=0.01, heads=heads, outputs=outputs, seed=4
    )
    learner.run(Stream("short", tasks(heads=heads), heads=heads))
    return learner


@pytest.mark.parametrize("heads", ["shared", "per-task"])
@pytest.mark.parametrize("name", METHODS)
def test_a_stream_by_hand_is_that_of_autograd(name, heads, monkeypatch, float64):
    """In double precision: in single precision rounding errors grow over a stream."""
    outputs = 11  # free rows, too
    ours = learned(METHODS[name](), heads, outputs)
    assert isinstance(ours.gradients, ByHand)
    monkeypatch.setattr(mdmt.network.by_hand, "MLP", type(None))
    theirs = learned(METHODS[name](), heads, outputs)
    assert not isinstance(theirs.gradients, ByHand)
    torch.testing.assert_close(ours.model.flat, theirs.model.flat, rtol=0, atol=1e-9)
    assert not torch.equal(
        ours.model.flat[:100], Learner(mlp(12, 8)).backbone.layers[0].weight.flatten()[:100]
    )


@pytest.mark.parametrize("method", [mdmt.AGEM, partial(mdmt.MDMTR, distance="mse")])
def test_each_batch_has_its_own_row_and_one_sum(method):
    """The slopes of the L1 distance are signs, and features that have not moved are ties in it."""
    learner = learned(method(), "per-task")
    method = learner.method
    old, new = learner.memory.sample(7), learner.read(tasks(heads="per-task")[2], torch.arange(10))
    losses, rows = method.grads(old, new)
    for batch, loss, row in zip((old, new), losses, rows, strict=True):
        alone = method.grad(batch)
        torch.testing.assert_close((loss, row), alone, rtol=1e-5, atol=1e-6)
    both = method.grad(old, new)
    torch.testing.assert_close(
        both, (losses[0] + losses[1], rows[0] + rows[1]), rtol=1e-5, atol=1e-6
    )


def test_many_batches_pass_in_groups(monkeypatch):
    learner = learned(METHODS["gem"](), "shared")
    batches = learner.memory.by_task(before=3) * 2
    whole = learner.method.grads(*batches)[1]
    monkeypatch.setattr("mdmt.network.by_hand.GROUP", 25)
    torch.testing.assert_close(learner.method.grads(*batches)[1], whole, rtol=1e-5, atol=1e-6)


def test_a_network_of_ones_own_and_a_frozen_weight_go_through_autograd():
    class Doubled(mdmt.backbones.MLP):
        def forward(self, x):
            return 2 * super().forward(x)

    frozen = mlp(12, 8)
    frozen.layers[0].bias.requires_grad_(False)
    for backbone in (Doubled(12, 8), frozen):
        learner = Learner(backbone, METHODS["van"]())
        learner.learn(tasks()[0])
        assert not isinstance(learner.gradients, ByHand)


@pytest.mark.parametrize("policy", [Ring, TaskRing])
@pytest.mark.parametrize("epochs", [1, 2])
def test_features_are_computed_only_for_what_lasts_and_the_memory_is_the_same(
    policy, epochs, monkeypatch
):
    def run():
        passes = []
        learner = Learner(
            mlp(12, 8),
            mdmt.MDMTR(),
            memory=policy(3),
            lr=0.05,
            heads="shared",
            outputs=3,
            epochs=epochs,
            batch=5,
        )
        embed = learner.with_features
        learner.with_features = lambda batch: passes.append(len(batch)) or embed(batch)
        for task in tasks(2):
            learner.learn(task)
        return learner, len(passes)

    few, rare = run()
    monkeypatch.setattr(policy, "announce", lambda self, counts: None)
    all_of_them, often = run()
    assert rare < often / 2
    assert few.model.sha256() == all_of_them.model.sha256()
    for ours, theirs in zip(
        few.memory.state()[0].values(), all_of_them.memory.state()[0].values(), strict=True
    ):
        assert torch.equal(ours, theirs)
