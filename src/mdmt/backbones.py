"""The three networks of the published experiments, without their heads.

Each is a `torch.nn.Module` that maps inputs to feature vectors; so may be any module of yours. The
head is in `network/model.py`. Weights are drawn from the learner's seed unless `draw` or
`load_state_dict` was called before.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

import mdmt.network.parts as parts
from mdmt.errors import Mistake

NormStart = Literal["fast", "zero"]


class Backbone(nn.Module):
    """A network that draws its weights, and the rows of its head, from a generator."""

    def __init__(self, name: str, **arguments: Any) -> None:
        super().__init__()
        self.spec = {"name": name, "arguments": arguments}  # `make(spec)` builds the same network
        self.drawn = False  # whether the weights are final, so that the learner keeps them

    def load_state_dict(self, *arguments: Any, **more: Any) -> Any:
        """Load weights; the learner then does not draw new ones."""
        self.drawn = True
        return super().load_state_dict(*arguments, **more)

    def draw(self, generator: torch.Generator) -> None:
        """Draw new weights for all layers."""
        for module in self.modules():
            if isinstance(module, (Dense, Conv)):
                module.draw(generator)
        self.drawn = True

    def head_rows(self, rows: int, features: int, generator: torch.Generator) -> Tensor:
        """New rows of the head, with the bias in the last column."""
        return uniform_rows(rows, features, generator)


def uniform_rows(
    rows: int, features: int, generator: torch.Generator, *, bias: bool = True
) -> Tensor:
    """Rows drawn from U(+-1/sqrt(features)); the bias, in the last column, is drawn too or 0."""
    bound = 1 / math.sqrt(features)
    drawn = torch.empty(rows, features + 1).uniform_(-bound, bound, generator=generator)
    if not bias:
        drawn[:, -1] = 0
    return drawn


class Dense(nn.Linear):
    """A linear layer; weights are truncated normal (sigma .1, cut at two sigma), biases .1."""

    def __init__(self, inputs: int, outputs: int) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = inputs, outputs
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.bias = nn.Parameter(torch.full((outputs,), 0.1))

    def draw(self, generator: torch.Generator) -> None:
        """Draw new weights, and set the biases to .1."""
        nn.init.trunc_normal_(self.weight, std=0.1, a=-0.2, b=0.2, generator=generator)
        nn.init.constant_(self.bias, 0.1)


class MLP(Backbone):
    """Two hidden layers with ReLU; the features are the outputs of the second."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__("mlp", inputs=inputs, width=width)
        self.layers = nn.Sequential(Dense(inputs, width), nn.ReLU(), Dense(width, width), nn.ReLU())
        self.draw(torch.Generator().manual_seed(0))
        self.drawn = False

    def head_rows(self, rows: int, features: int, generator: torch.Generator) -> Tensor:
        """Rows drawn like the weights of the layers."""
        drawn = torch.empty(rows, features + 1)
        nn.init.trunc_normal_(drawn, std=0.1, a=-0.2, b=0.2, generator=generator)
        drawn[:, -1] = 0.1
        return drawn

    def forward(self, x: Tensor, tape: list[Tensor] | None = None) -> Tensor:
        """Feature vectors of a batch; inputs are flattened.

        If given, `tape` receives the inputs and the outputs of both layers for the backward pass.
        """
        inputs = x.flatten(1)
        if tape is None:
            return self.layers(inputs)  # type: ignore[no-any-return]
        first, _, second, _ = self.layers
        hidden = functional.linear(inputs, first.weight, first.bias).relu_()  # type: ignore[arg-type]
        features = functional.linear(hidden, second.weight, second.bias).relu_()  # type: ignore[arg-type]
        tape += [inputs, hidden, features]
        return features


class Conv(nn.Module):
    """A convolution without bias, padded so that stride s divides the image's size by s.

    An odd padding is larger at the end than at the beginning.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs, kernel, kernel))
        self.kernel, self.stride = kernel, stride
        self.bias: Tensor | None = None  # only with a batch norm folded in

    def draw(self, generator: torch.Generator) -> None:
        """Draw new weights from U(+-1/sqrt(kernel * inputs)): the kernel's side, not its area."""
        bound = 1 / math.sqrt(self.kernel * self.weight.shape[1])
        with torch.no_grad():
            self.weight.uniform_(-bound, bound, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        """Feature maps of a batch."""
        weight, bias = self.weight, self.bias
        # oneDNN's weight gradient of a strided 1x1 kernel writes out of bounds on AVX2.
        if self.kernel == 1:
            return functional.conv2d(x[:, :, :: self.stride, :: self.stride], weight, bias)
        (top, bottom), (left, right) = self._padding(x.shape[2]), self._padding(x.shape[3])
        if top == bottom and left == right:
            return functional.conv2d(x, weight, bias, stride=self.stride, padding=(top, left))
        padded = functional.pad(x, (left, right, top, bottom))
        return functional.conv2d(padded, weight, bias, stride=self.stride)

    def _padding(self, size: int) -> tuple[int, int]:
        total = max((-(-size // self.stride) - 1) * self.stride + self.kernel - size, 0)
        return total // 2, total - total // 2


class BatchNorm(nn.Module):
    """Batch normalisation as in the published runs: biased variance, eps 1e-3, momentum .1.

    Running mean and variance start at 0. With `start="zero"`, as published, every batch enters them
    with the momentum as its weight: after n batches a share of .9^n is missing, and features at
    test are far too long until a task has had some 30 steps. With `start="fast"` batch n = 1, 2,
    ... enters with weight 9 / (8 + n) as long as this is more than the momentum: the first batch
    enters with weight 1, and old batches soon count little, because early weights move fast.
    """

    running_mean: Tensor
    running_var: Tensor
    batches: Tensor  # the number of batches so far; only with start="fast"

    def __init__(
        self, channels: int, eps: float = 1e-3, momentum: float = 0.1, start: NormStart = "zero"
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.zeros(channels))
        if start == "fast":
            self.register_buffer("batches", torch.zeros((), dtype=torch.int64))
        self.eps, self.momentum, self.start = eps, momentum, start

    @torch.no_grad()
    def fold_into(self, conv: Conv) -> None:
        """Make a convolution compute what it and this normalisation compute in evaluation."""
        factor = self.weight * (self.running_var + self.eps).rsqrt()
        conv.weight = nn.Parameter(conv.weight * factor[:, None, None, None], requires_grad=False)
        conv.bias = self.bias - self.running_mean * factor

    def forward(self, x: Tensor) -> Tensor:
        """Normalise by the batch's statistics in training, by running statistics in evaluation."""
        if not self.training:
            return functional.batch_norm(
                x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
            )
        if parts.is_passing():
            out, mean, variance = parts.normalise(x, self.weight, self.bias, self.eps)
        else:
            out, mean, inverse = torch.native_batch_norm(
                x, self.weight, self.bias, None, None, True, 0.0, self.eps
            )
            variance = (inverse.detach().pow(-2) - self.eps).clamp_min(0)
        with torch.no_grad():
            share: Any = self.momentum
            if self.start == "fast":
                self.batches += 1
                share = (9 / (8 + self.batches)).clamp_min(self.momentum).to(mean)
            self.running_mean.lerp_(mean, share)
            self.running_var.lerp_(variance, share)
        return out


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut, which is a 1x1 convolution if the shape changes."""

    def __init__(
        self, inputs: int, outputs: int, stride: int, norm_shortcut: bool, norm_start: NormStart
    ) -> None:
        super().__init__()
        self.conv1 = Conv(inputs, outputs, 3, stride)
        self.norm1 = BatchNorm(outputs, start=norm_start)
        self.conv2 = Conv(outputs, outputs, 3)
        self.norm2 = BatchNorm(outputs, start=norm_start)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut.append(Conv(inputs, outputs, 1, stride))
            if norm_shortcut:
                self.shortcut.append(BatchNorm(outputs, start=norm_start))

    def forward(self, x: Tensor) -> Tensor:
        """Feature maps of the block."""
        out = functional.relu(self.norm1(self.conv1(x)))
        return functional.relu(self.norm2(self.conv2(out)) + self.shortcut(x))


class ResNet(Backbone):
    """Four stages of two blocks with widths w, 2w, 4w, 8w, then the mean over the feature map.

    There is no max-pooling after the first layer.
    """

    channels_last = True  # convolutions are faster in this layout

    def __init__(
        self,
        name: str,
        channels: int,
        width: int,
        norm_start: NormStart,
        *,
        kernel: int,
        stride: int,
        norm_shortcut: bool,
    ) -> None:
        unlike_published = {} if norm_start == "zero" else {"norm_start": norm_start}  # see `make`
        super().__init__(name, channels=channels, width=width, **unlike_published)
        self.conv = Conv(channels, width, kernel, stride)
        self.norm = BatchNorm(width, start=norm_start)
        self.stages = nn.Sequential()
        self.head_bias = norm_shortcut
        inputs = width
        for factor in (1, 2, 4, 8):
            outputs = factor * width
            first_stride = 1 if factor == 1 else 2
            self.stages.append(Block(inputs, outputs, first_stride, norm_shortcut, norm_start))
            self.stages.append(Block(outputs, outputs, 1, norm_shortcut, norm_start))
            inputs = outputs
        self.draw(torch.Generator().manual_seed(0))
        self.drawn = False

    def head_rows(self, rows: int, features: int, generator: torch.Generator) -> Tensor:
        """Uniform rows; the bias is drawn for the reduced network and 0 for the full one."""
        return uniform_rows(rows, features, generator, bias=self.head_bias)

    def forward(self, x: Tensor) -> Tensor:
        """Feature vectors of a batch of images."""
        return self.stages(functional.relu(self.norm(self.conv(x)))).mean((2, 3))  # type: ignore[no-any-return]


def folded(backbone: nn.Module) -> nn.Module:
    """A copy for evaluation alone, with every batch norm folded into the convolution before it.

    Its features are equal but for rounding. A network without our batch norm is given back as it
    is.
    """
    if not isinstance(backbone, ResNet):
        return backbone
    network = copy.deepcopy(backbone)
    norms = [name for name, module in network.named_modules() if isinstance(module, BatchNorm)]
    for name in norms:
        conv, norm = network.get_submodule(_conv_before(name)), network.get_submodule(name)
        assert isinstance(conv, Conv)
        assert isinstance(norm, BatchNorm)
        norm.fold_into(conv)
        network.set_submodule(name, nn.Identity())
    return network


def _conv_before(norm: str) -> str:
    """The name of the convolution that a batch norm of a ResNet follows."""
    return norm.replace("shortcut.1", "shortcut.0").replace("norm", "conv")


def mlp(inputs: int = 784, width: int = 256) -> MLP:
    """The network of Permuted MNIST: two hidden layers of 256.

    With ten outputs it has 269,312 parameters, without the biases of the outputs.
    """
    return MLP(inputs, width)


def reduced_resnet18(channels: int = 3, width: int = 20, norm_start: NormStart = "fast") -> ResNet:
    """The network of Split CIFAR: a ResNet-18 with 20-40-80-160 channels; 1,109,140 parameters.

    Its first layer is 3x3 and its shortcuts are normalised. In the published runs `norm_start` was
    "zero", which needs tasks of many steps: see `BatchNorm`.
    """
    return ResNet(
        "reduced_resnet18", channels, width, norm_start, kernel=3, stride=1, norm_shortcut=True
    )


def resnet18(channels: int = 3, width: int = 64, norm_start: NormStart = "fast") -> ResNet:
    """The network of Split CUB and AWA: a full ResNet-18; 11,277,120 parameters for CUB.

    Its first layer is 7x7 with stride 2, and its shortcuts are not normalised. In the published
    runs `norm_start` was "zero", which needs tasks of many steps: see `BatchNorm`.
    """
    return ResNet("resnet18", channels, width, norm_start, kernel=7, stride=2, norm_shortcut=False)


MAKERS: dict[str, Callable[..., Backbone]] = {
    "mlp": mlp,
    "reduced_resnet18": reduced_resnet18,
    "resnet18": resnet18,
}


def make(spec: dict[str, Any]) -> Backbone:
    """Build a backbone from its name and arguments.

    Without `norm_start` batch norm starts at "zero", as in the published networks and in those that
    mdmt 0.1.0 saved.

    >>> make({"name": "mlp", "arguments": {"inputs": 4, "width": 8}}).spec
    {'name': 'mlp', 'arguments': {'inputs': 4, 'width': 8}}
    """
    if spec["name"] not in MAKERS:
        raise Mistake(f"backbone {spec['name']!r} is not one of {', '.join(MAKERS)}")
    start = {} if spec["name"] == "mlp" else {"norm_start": "zero"}
    return MAKERS[spec["name"]](**{**start, **spec["arguments"]})


def spec_of(backbone: nn.Module) -> dict[str, Any] | None:
    """The name and arguments of one of our networks; None for any other, including subclasses."""
    return backbone.spec if type(backbone) in (MLP, ResNet) else None  # type: ignore[return-value]
