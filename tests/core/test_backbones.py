"""The three networks: sizes as published, and their differences from torch's layers."""

import math
import os
import platform
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from mdmt import backbones, benchmarks
from support.models import model_of


def parameters(backbone, outputs):
    """The number of weights with `outputs` outputs, without their biases, as published."""
    features = backbone(torch.zeros(2, *SHAPES[backbone.spec["name"]])).shape[1]
    return model_of(backbone, features, outputs).flat.numel() - outputs


SHAPES = {"mlp": (784,), "reduced_resnet18": (3, 32, 32), "resnet18": (3, 64, 64)}


@pytest.mark.parametrize(
    ("make", "outputs", "count"),
    [
        (backbones.mlp, 10, 269_312),
        (backbones.reduced_resnet18, 100, 1_109_140),
        (backbones.resnet18, 200, 11_277_120),
        (backbones.resnet18, 850, 11_609_920),
    ],
)
def test_published_parameter_counts(make, outputs, count):
    assert parameters(make(), outputs) == count


@pytest.mark.parametrize(
    ("make", "size", "expected", "features"),
    [
        (backbones.reduced_resnet18, 32, [32, 32, 16, 8, 4], 8),
        (backbones.resnet18, 224, [112, 112, 56, 28, 14], 8),
        (backbones.reduced_resnet18, 28, [28, 28, 14, 7, 4], 8),
    ],
)
def test_map_sizes_without_max_pool(make, size, expected, features):
    backbone, seen = make(width=1), []
    for module in (backbone.conv, *list(backbone.stages)[1::2]):
        module.register_forward_hook(lambda _m, _i, out: seen.append(out.shape[-1]))
    out = backbone(torch.zeros(1, 3, size, size))
    assert seen == expected
    assert out.shape == (1, features)


@pytest.mark.parametrize(
    ("kernel", "stride", "size"), [(3, 2, 8), (3, 2, 7), (7, 2, 10), (1, 2, 6), (3, 1, 5)]
)
def test_padding_is_as_needed_and_more_at_the_end(kernel, stride, size, generator):
    conv = backbones.Conv(2, 3, kernel, stride)
    conv.draw(generator)
    x = torch.randn(1, 2, size, size, generator=generator)
    wanted = math.ceil(size / stride)
    total = max((wanted - 1) * stride + kernel - size, 0)
    before = total // 2
    out = conv(x)
    assert out.shape[-1] == wanted
    for i in range(wanted):
        for j in range(wanted):
            value = torch.zeros(3)
            for u in range(kernel):
                for v in range(kernel):
                    r, c = i * stride + u - before, j * stride + v - before
                    if 0 <= r < size and 0 <= c < size:
                        value += conv.weight[:, :, u, v] @ x[0, :, r, c]
            assert torch.allclose(out[0, :, i, j], value, atol=1e-5)


def test_initialisation():
    net = backbones.reduced_resnet18()
    net.draw(torch.Generator().manual_seed(1))
    for module in net.modules():
        if isinstance(module, backbones.Conv):
            bound = 1 / math.sqrt(module.kernel * module.weight.shape[1])
            assert 0.95 * bound < module.weight.abs().max() <= bound
    dense = backbones.mlp().layers[0]
    assert dense.weight.abs().max() <= 0.2  # cut at two sigma
    assert dense.weight.std().item() == pytest.approx(0.088, abs=0.001)  # of a normal cut there
    assert (dense.bias == 0.1).all()
    rows = backbones.mlp().head_rows(50, 256, torch.Generator().manual_seed(1))
    assert (rows[:, -1] == 0.1).all()
    assert (backbones.resnet18(width=1).head_rows(3, 8, torch.Generator())[:, -1] == 0).all()
    drawn = net.head_rows(50, 160, torch.Generator().manual_seed(1))
    assert 0 < drawn[:, -1].abs().max() <= 1 / math.sqrt(160)


def test_batch_norm_statistics_start_at_zero_and_store_the_biased_variance(generator):
    norm = backbones.BatchNorm(3)
    assert norm.running_mean.abs().max() == norm.running_var.abs().max() == 0
    x = torch.randn(4, 3, 2, 2, generator=generator) * 3 + 1
    out = norm(x)
    mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0)
    assert torch.allclose(norm.running_mean, 0.1 * mean, atol=1e-6)
    assert torch.allclose(norm.running_var, 0.1 * var, rtol=1e-4)
    expected = (x - mean[:, None, None]) / (var[:, None, None] + 1e-3).sqrt()
    assert torch.allclose(out, expected, atol=1e-5)
    norm.eval()
    scaled = (x - norm.running_mean[:, None, None]) / (
        norm.running_var[:, None, None] + 1e-3
    ).sqrt()
    assert torch.allclose(norm(x), scaled, atol=1e-5)


def test_batch_norm_that_starts_fast_follows_early_batches_closely(generator):
    """Batch n enters with weight 9 / (8 + n), at least the momentum; computed by plain loops."""
    norm = backbones.BatchNorm(3, start="fast")
    mean = var = torch.zeros(3)
    for n in range(1, 101):
        x = torch.randn(4, 3, 2, 2, generator=generator) * (1 + n) + n
        norm(x)
        share = max(0.1, 9 / (8 + n))
        mean = mean + share * (x.mean((0, 2, 3)) - mean)
        var = var + share * (x.var((0, 2, 3), correction=0) - var)
        assert torch.allclose(norm.running_mean, mean, rtol=1e-4, atol=1e-4)
        assert torch.allclose(norm.running_var, var, rtol=1e-4)
    assert share == 0.1


@pytest.mark.parametrize("make", [backbones.reduced_resnet18, backbones.resnet18])
def test_a_spec_that_does_not_say_how_batch_norm_starts_is_the_published_network(make):
    """Published benchmarks and models of 0.1.0 have no count of batches in their state."""
    published = {"name": make.__name__, "arguments": {"channels": 1, "width": 2}}
    own = make(1, 2)
    for net, start in (
        (backbones.make(published), "zero"),
        (own, "fast"),
        (backbones.make(own.spec), "fast"),
    ):
        norms = [module for module in net.modules() if isinstance(module, backbones.BatchNorm)]
        assert {norm.start for norm in norms} == {start}
        assert any(name.endswith("batches") for name in net.state_dict()) == (start == "fast")
    assert make(1, 2, norm_start="zero").spec == published == backbones.make(published).spec
    for name in ("split-cifar", "split-cub", "split-awa"):
        assert "norm_start" not in benchmarks.find(name).backbone["arguments"]
    for name in ("split-digits", "folder"):
        assert benchmarks.find(name).backbone["arguments"]["norm_start"] == "fast"


@pytest.mark.parametrize("start", ["zero", "fast"])
def test_batch_norm_gradient(start, generator):
    norm = backbones.BatchNorm(2, start=start).double()
    x = torch.randn(3, 2, 2, 2, generator=generator, dtype=torch.float64, requires_grad=True)

    def forward(inputs):
        norm.running_mean.zero_()
        norm.running_var.zero_()
        return norm(inputs)

    assert torch.autograd.gradcheck(forward, x)


def test_shortcuts():
    """The reduced network normalises its shortcuts, the full one does not.

    A block that does not change the shape has an empty shortcut.
    """
    for make, kinds in (
        (backbones.reduced_resnet18, [backbones.Conv, backbones.BatchNorm]),
        (backbones.resnet18, [backbones.Conv]),
    ):
        blocks = list(make(width=2).stages)
        assert [type(m) for m in blocks[2].shortcut] == kinds
        assert len(blocks[0].shortcut) == len(blocks[1].shortcut) == len(blocks[3].shortcut) == 0


@pytest.mark.parametrize("make", [backbones.reduced_resnet18, backbones.resnet18])
def test_folded_batch_norm_gives_the_same_features(make, generator):
    network = make(width=4).double()
    network.train()
    for _ in range(3):
        network(torch.rand(8, 3, 32, 32, generator=generator, dtype=torch.float64))
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, backbones.BatchNorm):
                module.weight.uniform_(0.5, 2, generator=generator)
                module.bias.uniform_(-1, 1, generator=generator)
    network.eval()
    x = torch.rand(4, 3, 32, 32, generator=generator, dtype=torch.float64)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    folded = backbones.folded(network)
    assert not any(isinstance(module, backbones.BatchNorm) for module in folded.modules())
    assert torch.allclose(folded(x), network(x), rtol=1e-12, atol=1e-12)
    after = network.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())


def test_a_network_without_our_batch_norm_is_not_folded():
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten())
    assert backbones.folded(network) is network


def test_making_a_network_leaves_torchs_random_state_alone():
    before = torch.get_rng_state()
    backbones.reduced_resnet18(width=2)
    backbones.mlp(10, 4)
    assert torch.equal(before, torch.get_rng_state())


def test_loaded_weights_are_not_drawn_again():
    source, target = backbones.mlp(6, 4), backbones.mlp(6, 4)
    nn.init.constant_(source.layers[0].weight, 3.0)
    target.load_state_dict(source.state_dict())
    model_of(target, 4, 2, seed=9)
    assert (target.layers[0].weight == 3.0).all()


def test_unknown_backbone():
    with pytest.raises(ValueError, match="'alexnet' is not one of mlp"):
        backbones.make({"name": "alexnet", "arguments": {}})


STRIDED = """
import torch
w = torch.nn.Parameter(torch.randn(10, 5, 1, 1).contiguous(memory_format=torch.channels_last))
for _ in range(40):
    x = torch.rand(10, 5, 16, 16).contiguous(memory_format=torch.channels_last)
    torch.autograd.grad(torch.nn.functional.conv2d(x, w, stride=2).square().mean(), w)
    [torch.rand(50) for _ in range(50)]
"""


@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="the kernel is one of x86 processors"
)
def test_the_guard_against_strided_1x1_kernels_is_needed():
    """oneDNN's weight gradient writes outside of its buffer, and the process dies.

    Once this is mended, the guard may go.
    """
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"}
    ended = subprocess.run([sys.executable, "-c", STRIDED], env=environment, capture_output=True)
    if ended.returncode == 0:
        pytest.skip(
            f"torch {torch.__version__} has this kernel mended: Conv need not slice any more"
        )
    # By which signal depends on what lay behind the buffer.
    assert ended.returncode < 0, ended.stderr


class Convolutions(TorchDispatchMode):
    """Records kernel and stride of every convolution and of every gradient of one."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.convolution.default:
            self.calls.append(("forward", tuple(args[1].shape[2:]), tuple(args[3])))
        if func is torch.ops.aten.convolution_backward.default:
            self.calls.append(("backward", tuple(args[2].shape[2:]), tuple(args[4])))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("make", [backbones.reduced_resnet18, backbones.resnet18])
def test_our_networks_never_call_a_strided_1x1_kernel(make):
    model = model_of(make(3, 2), 16, 4)
    with Convolutions() as seen:
        model.gradient(model.scores(model.features(torch.rand(2, 3, 16, 16))).square().sum())
    kinds = {kind for kind, kernel, _ in seen.calls if kernel == (1, 1)}
    assert kinds == {"forward", "backward"}  # there are 1x1 kernels ...
    # ... and none has a stride.
    assert {stride for _, kernel, stride in seen.calls if kernel == (1, 1)} == {(1, 1)}


def test_the_slice_gives_what_the_strided_kernel_would(generator):
    conv = backbones.Conv(9, 4, 1, 2)
    conv.draw(generator)
    x = torch.rand(3, 9, 7, 6, generator=generator)
    assert torch.allclose(conv(x), nn.functional.conv2d(x, conv.weight, stride=2), atol=1e-6)
