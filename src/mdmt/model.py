"""Backbone and head, all their weights in one flat vector.

Weights are views of `flat`, so that a gradient is one vector, a projection is a dot product and an update is one call.
The head is one matrix of capacity x (d + 1), the bias in its last column, and stands last in `flat`: growing it is a pad
at the end of the parameters and of every vector that runs along them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

import torch
from torch import Tensor, nn
from torch.nn import functional

from mdmt.backbones import Backbone, uniform_rows
from mdmt.errors import Mistake


class Model:
    """A backbone with a growing head over its features, linear or cosine."""

    def __init__(
        self,
        backbone: nn.Module,
        features: int,
        outputs: int,
        *,
        cosine: bool = False,
        scale: float = 1.0,
        mean: Tensor | None = None,
        seed: int = 0,
        device: str | torch.device = "cpu",
        channels_last: bool | None = None,
    ) -> None:
        self.cosine, self.scale, self.seed = cosine, scale, seed
        if isinstance(backbone, Backbone) and not backbone.drawn:
            backbone.draw(_generator(seed, 0))
        self.backbone = backbone.to(device)  # moved before flattening: a later move would cut the views
        self.mean = None if mean is None else mean.to(device, torch.float32)
        self.outputs = outputs  # classes in all: those declared for the stream, or those in use when they are more
        self.head = nn.Parameter(torch.empty(0, features + 1, device=device))
        self.head_of_class = torch.empty(0, dtype=torch.int64, device=device)
        self.leaves = [p for p in backbone.parameters() if p.requires_grad] + [self.head]
        self.channels_last = _asks_channels_last(backbone) if channels_last is None else channels_last
        self.flat = nn.Parameter(torch.cat([self._line(p.detach()) for p in self.leaves]))
        self.grow(outputs)

    def grow(self, capacity: int) -> None:
        """Give the head `capacity` rows; the new ones are drawn as the backbone asks and belong to no task."""
        old, features = len(self.head_of_class), self.head.shape[1] - 1
        rows = getattr(self.backbone, "head_rows", uniform_rows)(
            capacity - old, features, _generator(self.seed, 1 + old)
        )
        free = torch.full((capacity - old,), -1, device=self.flat.device)
        self.head_of_class = torch.cat([self.head_of_class, free])
        self.head.data = torch.empty(capacity, features + 1, device=self.flat.device)
        self.flat.data = torch.cat([self.flat.data, rows.to(self.flat).flatten()])
        position = 0
        for leaf in self.leaves:
            size = leaf.numel()
            leaf.data = self._unline(self.flat.data[position : position + size], leaf.shape)
            position += size

    def _line(self, x: Tensor) -> Tensor:
        """A weight as a vector; kernels in the layout that the backbone asks for."""
        return (x.permute(0, 2, 3, 1) if self.channels_last and x.ndim == 4 else x).reshape(-1)

    def _unline(self, line: Tensor, shape: torch.Size) -> Tensor:
        """The view of a vector that `_line` would make of a weight of this shape."""
        if not self.channels_last or len(shape) != 4:
            return line.view(shape)
        return line.view(shape[0], shape[2], shape[3], shape[1]).permute(0, 3, 1, 2)

    def claim(self, head: int, count: int) -> Tensor:
        """Hand the first `count` free rows to a head, growing to twice the capacity (or more) when they do not suffice."""
        free = (self.head_of_class < 0).nonzero()[:, 0]
        if len(free) < count:
            capacity = len(self.head_of_class)
            self.grow(max(2 * capacity, capacity + count - len(free)))
            free = (self.head_of_class < 0).nonzero()[:, 0]
        self.head_of_class[free[:count]] = head
        self.outputs = max(self.outputs, int((self.head_of_class >= 0).sum()))
        return free[:count]

    def features(self, inputs: Tensor) -> Tensor:
        """Feature vectors of a batch of raw inputs."""
        x = inputs.to(self.flat.dtype)
        if self.scale != 1:
            x = x * self.scale
        if self.mean is not None:
            x = x - self.mean
        if self.channels_last and x.ndim == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        return self.backbone(x)  # type: ignore[no-any-return]

    def scores(self, features: Tensor) -> Tensor:
        """What a class is chosen by: cosines, or logits W x + b."""
        weight, bias = self.head[:, :-1], self.head[:, -1]
        return (
            functional.linear(unit(features), unit(weight))
            if self.cosine
            else functional.linear(features, weight, bias)
        )

    def only(self, rows: Tensor) -> Tensor:
        """A mask over the head that admits these rows."""
        mask = torch.zeros_like(self.head_of_class, dtype=torch.bool)
        mask[rows] = True
        return mask

    def gradient(self, loss: Tensor) -> Tensor:
        """The gradient of a loss in all parameters, as one new vector along `flat`."""
        return torch.cat([self._line(g) for g in torch.autograd.grad(loss, self.leaves, materialize_grads=True)])

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Frozen, and nothing tracked."""
        with self.frozen(), torch.no_grad():
            yield

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Evaluation mode with gradients: batch-norm statistics stay as they are; the modes it found are restored."""
        modes = [(m, m.training) for m in self.backbone.modules()]
        self.backbone.eval()
        try:
            yield
        finally:
            for module, training in modes:
                module.training = training

    def state(self) -> dict[str, Tensor]:
        """All weights and statistics by name; they share memory with the model."""
        return {
            **{f"backbone.{name}": value for name, value in self.backbone.state_dict().items()},
            "head": self.head.detach(),
            "head_of_class": self.head_of_class,
        }

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Take over what `state` gave, growing the head to its size."""
        if len(state["head"]) > len(self.head):
            self.grow(len(state["head"]))
        with torch.no_grad():
            for name, value in chain(self.backbone.state_dict().items(), [("head", self.head)]):
                key = name if name == "head" else f"backbone.{name}"
                if key not in state or state[key].shape != value.shape:
                    raise Mistake(f"the saved model has no fitting {key!r}: is the backbone the one it was saved with?")
                value.copy_(state[key])
        self.head_of_class = state["head_of_class"].to(self.flat.device)
        self.outputs = max(self.outputs, int((self.head_of_class >= 0).sum()))

    def sha256(self) -> str:
        """A fingerprint of the parameters and the batch-norm statistics."""
        digest = hashlib.sha256(self.flat.detach().cpu().numpy().tobytes())
        for buffer in self.backbone.buffers():
            digest.update(buffer.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()


def unit(x: Tensor) -> Tensor:
    """Rows scaled to length 1; a row of zeros stays one, with a finite gradient."""
    length = x.norm(dim=1, keepdim=True)
    scaled: Tensor = x / length.masked_fill(length == 0, 1.0)
    return scaled


def _asks_channels_last(backbone: nn.Module) -> bool:
    """The memory layout is the backbone's own affair: it says so, or its kernels came in that layout."""
    asked = getattr(backbone, "channels_last", None)
    if isinstance(asked, bool):
        return asked
    kernels = [p for p in backbone.parameters() if p.ndim == 4 and not p.is_contiguous()]
    return any(p.is_contiguous(memory_format=torch.channels_last) for p in kernels)


def _generator(seed: int, purpose: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed * 1_000_003 + purpose)
