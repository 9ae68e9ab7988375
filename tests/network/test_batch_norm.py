"""Batch norm's statistics at the end of a task."""

import pytest
import torch
from torch import nn

import mdmt
from mdmt.network.batch_norm import retake_statistics


class Slow(nn.Module):
    """A network of torch's own batch norm, whose statistics hardly move."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 8)
        self.norm = nn.BatchNorm1d(8, momentum=0.001)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(torch.relu(self.norm(self.layer(x))))


def learner_with(backbone, shape, **more):
    draws = torch.Generator().manual_seed(5)
    x = 3 + torch.randn(80, *shape, generator=draws)
    y = (x.flatten(1)[:, 0] > 3).long()
    memory = mdmt.memory.Balanced(100_000)
    learner = mdmt.Learner(backbone, mdmt.ER(reference_batch=8), memory=memory, lr=0.05, **more)
    learner.learn(mdmt.Task("signs", x, y, test=(x, y)))
    return learner, x


def resnet():
    return mdmt.backbones.reduced_resnet18(1, width=4, norm_start="fast")


@pytest.mark.parametrize(("make", "shape"), [(Slow, (6,)), (resnet, (1, 8, 8))])
def test_statistics_are_the_mean_over_batches_and_nothing_else_changes(make, shape):
    torch.manual_seed(3)
    learner, x = learner_with(make(), shape)
    model = learner.model
    counts = [b.clone() for b in model.backbone.buffers() if not b.is_floating_point()]
    weights = model.flat.detach().clone()
    expected = []
    norms = [m for m in model.backbone.modules() if hasattr(m, "running_mean")]
    modes = [norm.momentum for norm in norms]
    inputs = [x[:40], x[40:]]
    for batch in inputs:  # by hand: the first layer's mean over each batch
        seen = []
        hook = norms[0].register_forward_pre_hook(
            lambda _, values, seen=seen: seen.append(values[0])
        )
        model.embed(batch)
        hook.remove()
        expected.append(seen[0].transpose(0, 1).flatten(1).mean(1))
    with model.training():
        retake_statistics(model, inputs)
    assert torch.allclose(norms[0].running_mean, torch.stack(expected).mean(0), atol=1e-5)
    assert torch.equal(model.flat, weights)
    after = [b for b in model.backbone.buffers() if not b.is_floating_point()]
    assert all(torch.equal(a, b) for a, b in zip(counts, after, strict=True))
    assert [norm.momentum for norm in norms] == modes
    assert not any(module.training for module in model.backbone.modules())


def test_a_short_task_ends_with_statistics_that_fit_its_weights():
    accuracies = {}
    for balance in (False, True):
        torch.manual_seed(3)
        learner, _ = learner_with(Slow(), (6,), balance=balance, epochs=15)
        accuracies[balance] = learner.record.accuracy[0][0]
    assert accuracies[True] > 0.85 > accuracies[False] + 0.15


class Frozen(Slow):
    """A network that stays as it is, with its statistics."""

    def __init__(self):
        super().__init__()
        self.requires_grad_(False)

    def train(self, mode=True):
        return super().train(False)


def test_a_frozen_network_keeps_its_weights_and_statistics():
    torch.manual_seed(3)
    network = Frozen()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    learner_with(network, (6,), balance=True)
    after = network.state_dict()
    assert [name for name in before if not torch.equal(before[name], after[name])] == []
