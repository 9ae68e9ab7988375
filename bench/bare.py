"""A plain torch loop for each method, and the floor: its matrix products alone.

This is the code for one method on one network and nothing else: no flat vector, no check, no log,
no lock. Inputs are read by index from uint8, and old examples are drawn from the memory with
`randint`. Nothing is written to the memory; our own steps write nothing either in the middle of a
task if a later step would overwrite it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from mdmt.methods.gem import solve
from ours import BATCH, LONG, examples
from timing import Step


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU())


class Loop:
    """Data, memory, network and optimiser; `step` is one of the methods below."""

    def __init__(
        self,
        backbone: nn.Module,
        shape: tuple[int, ...] = (784,),
        *,
        features: int = 256,
        drawn: int = 256,
        past: int = 1,
        stored: int = 500,
        channels_last: bool = False,
    ) -> None:
        self.backbone, self.head = backbone, nn.Linear(features, 10)
        self.net = nn.Sequential(self.backbone, self.head)
        if channels_last:
            self.net.to(memory_format=torch.channels_last)
        self.channels_last = channels_last
        self.parameters = list(self.net.parameters())
        self.optimiser = torch.optim.SGD(self.parameters, lr=1e-3)
        self.inputs, self.labels = examples(LONG if len(shape) == 1 else 500, shape, 10, 3)
        self.old_inputs, self.old_labels = examples(stored, shape, 10, 4)
        self.old_features = torch.rand(stored, features)
        self.drawn, self.past = drawn, past
        self.anchors = [p.detach().clone() for p in self.parameters]
        self.importances = [torch.rand_like(p) for p in self.parameters]
        self.squares = [torch.zeros_like(p) for p in self.parameters]
        orders = (torch.randperm(len(self.inputs)).split(BATCH) for _ in itertools.count())
        self.order = itertools.chain.from_iterable(orders)

    def new(self) -> tuple[Tensor, Tensor]:
        index = next(self.order)
        return self._pixels(self.inputs[index]), self.labels[index]

    def old(self) -> tuple[Tensor, Tensor, Tensor]:
        index = torch.randint(len(self.old_inputs), (self.drawn,))
        return (
            self._pixels(self.old_inputs[index]),
            self.old_labels[index],
            self.old_features[index],
        )

    def _pixels(self, inputs: Tensor) -> Tensor:
        x = inputs.float() / 255
        return x.contiguous(memory_format=torch.channels_last) if self.channels_last else x

    def van(self) -> None:
        x, y = self.new()
        self.optimiser.zero_grad()
        functional.cross_entropy(self.net(x), y).backward()
        self.optimiser.step()

    def ewc(self) -> None:
        x, y = self.new()
        self.optimiser.zero_grad()
        functional.cross_entropy(self.net(x), y).backward()
        with torch.no_grad():
            for p, anchor, importance, squares in zip(
                self.parameters, self.anchors, self.importances, self.squares, strict=True
            ):
                squares += p.grad.square()
                p.grad += 2 * importance * (p - anchor)
        self.optimiser.step()

    def er(self) -> None:
        x, y = self.new()
        old_x, old_y, _ = self.old()
        self.optimiser.zero_grad()
        functional.cross_entropy(self.net(torch.cat([old_x, x])), torch.cat([old_y, y])).backward()
        self.optimiser.step()

    def a_gem(self) -> None:
        old_x, old_y, _ = self.old()
        r = self._gradient(old_x, old_y)
        g = self._gradient(*self.new())
        product = g @ r
        if product < 0:
            self._set(g - product / (r @ r) * r)
        self.optimiser.step()

    def gem(self) -> None:
        """GEM with `past` tasks, each with `drawn` examples in the memory."""
        rows = []
        for t in range(self.past):
            at = slice(t * self.drawn, (t + 1) * self.drawn)
            rows.append(self._gradient(self._pixels(self.old_inputs[at]), self.old_labels[at]))
        g = self._gradient(*self.new())
        stacked = torch.stack(rows)
        if bool((stacked @ g < 0).any()):
            exact = stacked.double()
            duals = solve(exact @ exact.T, exact @ g.double(), 0.5)
            self._set(g + stacked.T @ duals.to(g))
        self.optimiser.step()

    def mdmt_r(self) -> None:
        """MDMT-R with both batches in one pass; a sample weighs one over the size of its batch."""
        old_x, old_y, stored = self.old()
        x, y = self.new()
        self.optimiser.zero_grad()
        if self.channels_last or any(
            isinstance(m, nn.BatchNorm2d) for m in self.backbone.modules()
        ):
            loss = self._mdmt_r_loss(self.backbone(old_x), old_y, stored) + self._mdmt_r_loss(
                self.backbone(x), y, None
            )
        else:
            weight = torch.cat(
                [torch.full((len(old_y),), 1 / len(old_y)), torch.full((len(y),), 1 / len(y))]
            )
            loss = self._mdmt_r_loss(
                self.backbone(torch.cat([old_x, x])), torch.cat([old_y, y]), stored, weight
            )
        loss.backward()
        self.optimiser.step()

    def _mdmt_r_loss(
        self, features: Tensor, y: Tensor, stored: Tensor | None, weight: Tensor | None = None
    ) -> Tensor:
        cosines = functional.linear(
            functional.normalize(features), functional.normalize(self.head.weight)
        )
        angles = torch.acos(cosines.clamp(-1 + 1e-7, 1 - 1e-7))
        target = functional.one_hot(y, 10).bool()
        logits = 24.0 * torch.where(target, torch.cos(angles + 0.01), cosines)
        each = functional.cross_entropy(logits, y, reduction="none")
        loss = each.mean() if weight is None else each @ weight
        return (
            loss if stored is None else loss + functional.l1_loss(features[: len(stored)], stored)
        )

    def _gradient(self, x: Tensor, y: Tensor) -> Tensor:
        self.optimiser.zero_grad()
        functional.cross_entropy(self.net(x), y).backward()
        return torch.cat([p.grad.flatten() for p in self.parameters])

    def _set(self, gradient: Tensor) -> None:
        for p, part in zip(
            self.parameters, gradient.split([p.numel() for p in self.parameters]), strict=True
        ):
            p.grad.copy_(part.view_as(p))


def mlp_products(*samples: int, backward: bool = True) -> Step:
    """The matrix products of passes with these numbers of samples, into existing tensors."""
    weights = [torch.rand(256, 784), torch.rand(256, 256), torch.rand(10, 256)]
    passes = []
    for n in samples:
        a, b, c = torch.empty(n, 256), torch.empty(n, 256), torch.empty(n, 10)
        passes.append(
            (
                torch.rand(n, 784),
                a,
                b,
                c,
                torch.rand(n, 10),
                torch.empty(n, 256),
                torch.empty(n, 256),
            )
        )
    gradients = [torch.empty_like(w) for w in weights]

    def step() -> None:
        for x, a, b, c, dc, db, da in passes:
            torch.mm(x, weights[0].T, out=a)
            torch.mm(a, weights[1].T, out=b)
            torch.mm(b, weights[2].T, out=c)
            if backward:
                torch.mm(dc.T, b, out=gradients[2])
                torch.mm(dc, weights[2], out=db)
                torch.mm(db.T, a, out=gradients[1])
                torch.mm(db, weights[1], out=da)
                torch.mm(da.T, x, out=gradients[0])

    return step


class BareBlock(nn.Module):
    """A block of the reduced ResNet-18 made of torch's own layers."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.body(x) + self.shortcut(x))


class BareResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers = [nn.Conv2d(3, 20, 3, 1, 1, bias=False), nn.BatchNorm2d(20), nn.ReLU()]
        for inputs, outputs, stride in ((20, 20, 1), (20, 40, 2), (40, 80, 2), (80, 160, 2)):
            layers += [BareBlock(inputs, outputs, stride), BareBlock(outputs, outputs, 1)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x).mean((2, 3))


def convolutions(*samples: int) -> Step:
    """The convolutions of the reduced ResNet-18 alone, forward and backward, channels last."""
    calls: list[Callable[[], object]] = []
    net = BareResNet().to(memory_format=torch.channels_last)

    def remember(layer: nn.Conv2d, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        x, weight, first = inputs[0].detach(), layer.weight.detach(), layer.in_channels == 3
        out = torch.rand_like(output)
        kind = (layer.stride, layer.padding, (1, 1), False, (0, 0), 1)
        calls.append(lambda: torch.ops.aten.convolution(x, weight, None, *kind))
        calls.append(
            lambda: torch.ops.aten.convolution_backward(
                out, x, weight, None, *kind, [not first, True, False]
            )
        )

    for layer in net.modules():
        if isinstance(layer, nn.Conv2d):
            layer.register_forward_hook(remember)
    with torch.no_grad():
        for n in samples:
            net(torch.rand(n, 3, 32, 32).contiguous(memory_format=torch.channels_last))

    def step() -> None:
        for call in calls:
            call()

    return step
