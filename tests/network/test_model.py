"""One flat vector under all weights, with the head at its end."""

import pytest
import torch
from torch import nn

from mdmt import backbones
from mdmt.network.model import unit
from support.models import model_of


def networks():
    return [(backbones.mlp(6, 5), (6,)), (backbones.reduced_resnet18(1, 2), (1, 8, 8))]


@pytest.mark.parametrize("which", [0, 1])
def test_the_flat_gradient_is_the_gradient_of_each_weight(which, generator):
    backbone, shape = networks()[which]
    model = model_of(backbone, backbone(torch.zeros(2, *shape)).shape[1], 4)
    x = torch.rand(3, *shape, generator=generator)
    loss = model.scores(model.features(x)).square().sum()
    flat = model.gradient(loss)
    backbone.zero_grad()
    model.scores(model.features(x)).square().sum().backward()
    # step through the flat vector: every weight must have moved by its own gradient
    before = [p.detach().clone() for p in model.leaves]
    with torch.no_grad():
        model.flat -= 0.5 * flat
    for old, leaf in zip(before, model.leaves, strict=True):
        assert torch.allclose(leaf, old - 0.5 * leaf.grad, atol=1e-6)


def test_growth_keeps_what_was_there_and_appends(generator):
    backbone = backbones.reduced_resnet18(1, 2)
    model = model_of(backbone, 16, 3, seed=5)
    x = torch.rand(2, 1, 8, 8, generator=generator)
    old_flat, old_scores = model.flat.detach().clone(), model.scores(model.features(x)).detach()
    model.grow(7)
    assert torch.equal(model.flat[: len(old_flat)], old_flat)
    assert torch.allclose(model.scores(model.features(x))[:, :3], old_scores)
    with torch.no_grad():
        model.flat.zero_()
    assert all(leaf.abs().max() == 0 for leaf in model.leaves)  # still views


@pytest.mark.parametrize("which", [0, 1])
def test_rows_that_a_head_gains_are_drawn_anew_from_the_seed_and_their_place(which):
    """New rows depend on seed and position only, and differ from those of a roomy head."""
    backbone, features = networks()[which][0], (5, 16)[which]
    heads = []
    for seed, noise in ((5, 0), (5, 1), (6, 0)):
        torch.manual_seed(noise)
        model = model_of(backbone, features, 40, seed=seed)
        with torch.no_grad():
            model.flat.mul_(1 + noise)  # what was learned meanwhile
        model.grow(80)
        heads.append(model.head[40:].detach().clone())
    assert torch.equal(heads[0], heads[1])
    assert not torch.equal(heads[0], heads[2])
    both = model_of(backbone, features, 80, seed=5).head.detach()
    assert not torch.equal(both[40:], heads[0])
    assert (
        len(
            torch.unique(torch.cat([model_of(backbone, features, 40, seed=5).head, heads[0]])[:, 0])
        )
        == 80
    )
    assert heads[0][:, :-1].std().item() == pytest.approx(both[:, :-1].std().item(), rel=0.15)


def test_rows_are_claimed_in_order_and_the_head_doubles():
    model = model_of(backbones.mlp(4, 3), 3, 4)
    assert model.heads.claim_rows(0, 3, model).tolist() == [0, 1, 2]
    assert model.heads.outputs == 4
    assert model.heads.claim_rows(1, 3, model).tolist() == [3, 4, 5]
    assert model.head_of_class.tolist() == [0, 0, 0, 1, 1, 1, -1, -1]
    assert model.heads.outputs == 6
    model.heads.claim_rows(2, 20, model)
    assert len(model.head) == 26


def test_scores(generator):
    linear = model_of(backbones.mlp(4, 3), 3, 2)
    cosine = model_of(backbones.mlp(4, 3), 3, 2, cosine=True)
    f = torch.randn(5, 3, generator=generator)
    assert torch.allclose(linear.scores(f), f @ linear.head[:, :-1].T + linear.head[:, -1])
    expected = nn.functional.cosine_similarity(f[:, None, :], cosine.head[None, :, :-1], dim=2)
    assert torch.allclose(cosine.scores(f), expected, atol=1e-6)


def test_a_zero_vector_has_finite_cosines_and_gradients():
    zero = torch.zeros(1, 4, requires_grad=True)
    unit(zero).sum().backward()
    assert torch.isfinite(zero.grad).all()


def test_normalisation_lives_in_the_model():
    x = torch.tensor([[0, 255]], dtype=torch.uint8)
    plain = model_of(nn.Identity(), 2, 1, scale=1 / 255)
    assert torch.allclose(plain.features(x), torch.tensor([[0.0, 1.0]]))
    shifted = model_of(nn.Identity(), 2, 1, scale=1 / 255, mean=torch.tensor([0.5, 0.25]))
    assert torch.allclose(shifted.features(x), torch.tensor([[-0.5, 0.75]]))


def test_frozen_weights_are_not_learned():
    net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    net[0].requires_grad_(False)
    model = model_of(net, 2, 5)
    assert model.flat.numel() == 4 * 2 + 2 + 5 * 3


def test_evaluating_restores_each_modules_mode():
    net = nn.Sequential(nn.Linear(2, 2), nn.Dropout())
    model = model_of(net, 2, 1)
    with model.training():
        net[1].eval()  # a person froze this one
        with model.evaluating():
            assert not net.training
            assert not torch.is_grad_enabled()
        assert net.training
        assert not net[1].training


def test_evaluation_is_the_resting_mode():
    net = nn.Sequential(nn.Linear(2, 2), nn.Dropout()).train()
    model = model_of(net, 2, 1)
    assert not any(module.training for module in net.modules())
    modes = []

    def fail():
        with model.training():
            modes.extend(module.training for module in net.modules())
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert all(modes)
    assert not any(module.training for module in net.modules())


class Kernels(nn.Sequential):
    """A user's network; `asks` is the layout that it asks for."""

    def __init__(self, asks=None):
        super().__init__(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten())
        if asks is not None:
            self.channels_last = asks


@pytest.mark.parametrize(
    ("asks", "given", "layout"),
    [
        (None, torch.contiguous_format, torch.contiguous_format),
        (None, torch.channels_last, torch.channels_last),
        (True, torch.contiguous_format, torch.channels_last),
        (False, torch.channels_last, torch.contiguous_format),
    ],
)
def test_a_network_keeps_the_layout_it_came_with_unless_it_asks(asks, given, layout, generator):
    net = Kernels(asks).to(memory_format=given)
    x = torch.rand(2, 3, 5, 5, generator=generator)
    expected = net(x).detach()
    model = model_of(net, expected.shape[1], 2)
    assert net[0].weight.is_contiguous(memory_format=layout)
    seen = []
    net[0].register_forward_hook(
        lambda _m, inputs, _o: seen.append(inputs[0].is_contiguous(memory_format=layout))
    )
    assert torch.allclose(model.features(x), expected, atol=1e-6)
    assert seen == [True]


def test_our_convolutions_have_their_channels_last():
    net = backbones.reduced_resnet18(3, 2)
    model_of(net, 16, 2)
    assert net.conv.weight.is_contiguous(memory_format=torch.channels_last)
