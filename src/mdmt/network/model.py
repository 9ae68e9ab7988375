"""Backbone and head, all their weights in one flat vector.

Weights are views of `flat`, so that a gradient is one vector, a projection is a dot product and an
update is one call. The head is one matrix of capacity x (d + 1), the bias in its last column, and
stands last in `flat`: growing it is a pad at the end of the parameters and of every vector that
runs along them. The optimiser knows that one vector alone.
"""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

import mdmt.network.parts as divided
import mdmt.ranks as ranks
from mdmt.backbones import MLP, Backbone, ResNet, uniform_rows
from mdmt.errors import Mistake
from mdmt.inputs.arrays import RowView
from mdmt.inputs.device import send

Precision = Literal["fp32", "bf16"]
# Numbers in one batch of inputs when nothing is trained: what its caches hold.
CHUNK = {"cpu": 2**19}
LARGE = 2**22  # and elsewhere


@dataclass
class Normalisation:
    """What is done to every input before the network sees it: x * scale - mean; None: not decided
    yet.
    """

    scale: float | None = None
    mean: Tensor | None = None


class Model:
    """A backbone with a growing head over its features, linear or cosine.

    Evaluation is its resting mode: only `training` leaves it, and goes back to it.
    """

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
        precision: Precision = "fp32",
        channels_last: bool | None = None,
        example: Tensor | None = None,
    ) -> None:
        self.cosine, self.scale, self.seed = cosine, scale, seed
        self.precision = precision
        # Modes are the module's own: one thread at a time passes through it.
        self.lock = threading.RLock()
        if isinstance(backbone, Backbone) and not backbone.drawn:
            backbone.cpu().draw(_generator(seed, 0))  # the generator is the processor's
        # Moved before flattening: a later move would cut the views.
        self.backbone = backbone.to(device).eval()
        self.mean = None if mean is None else mean.to(device, torch.float32)
        self.input: tuple[list[int], str] = ([], "")  # shape and type of one input
        if example is not None:
            self.input = (list(example.shape[1:]), str(example.dtype))
        self.answering: Tensor | None = (
            None  # weights to answer with, where they are not those that learn
        )
        # classes in all: those declared for the stream, or those in use when they are more
        self.outputs = outputs
        self.head = nn.Parameter(torch.empty(0, features + 1, device=device))
        self.head_of_class = torch.empty(0, dtype=torch.int64, device=device)
        self.leaves = [p for p in backbone.parameters() if p.requires_grad] + [self.head]
        self.channels_last = (
            _asks_channels_last(backbone) if channels_last is None else channels_last
        )
        self.flat = nn.Parameter(torch.cat([self._flatten(p.detach()) for p in self.leaves]))
        # A subclass may do something else in its forward pass, a frozen weight has no gradient, and
        # what is
        # computed in halves is autograd's affair.
        whole = type(backbone) is MLP and len(self.leaves) == 1 + len(list(backbone.parameters()))
        self.by_hand = whole and precision == "fp32"
        self.takes_parts = ranks.size() > 1 and (
            type(backbone) in (MLP, ResNet)
            or (example is not None and divided.takes_parts(backbone, example))
        )
        self.grow(outputs)

    def grow(self, capacity: int) -> None:
        """Give the head `capacity` rows; the new ones are drawn as the backbone asks and belong to
        no task.

        They are a draw of their own, from the seed and the number of rows before them: a head that
        grew does not start where one that had room from the start would have.
        """
        old, features = len(self.head_of_class), self.head.shape[1] - 1
        rows = getattr(self.backbone, "head_rows", uniform_rows)(
            capacity - old, features, _generator(self.seed, 1 + old)
        )
        free = torch.full((capacity - old,), -1, device=self.flat.device)
        self.head_of_class = torch.cat([self.head_of_class, free])
        self._note_heads()
        self.head.data = torch.empty(capacity, features + 1, device=self.flat.device)
        self.flat.data = torch.cat([self.flat.data, rows.to(self.flat).flatten()])
        self.leaf_sizes = [leaf.numel() for leaf in self.leaves]
        self.leaf_shapes = [leaf.shape for leaf in self.leaves]
        for leaf, view in zip(self.leaves, self.views(self.flat.data), strict=True):
            leaf.data = view

    def _flatten(self, x: Tensor) -> Tensor:
        """A weight as a vector; kernels in the layout that the backbone asks for."""
        return (x.permute(0, 2, 3, 1) if self.channels_last and x.ndim == 4 else x).reshape(-1)

    def _unflatten(self, line: Tensor, shape: torch.Size) -> Tensor:
        """The view of a vector that `_flatten` would make of a weight of this shape."""
        if not self.channels_last or len(shape) != 4:
            return line.view(shape)
        return line.view(shape[0], shape[2], shape[3], shape[1]).permute(0, 3, 1, 2)

    def claim(self, head: int, count: int) -> Tensor:
        """Hand the first `count` free rows to a head, growing to twice the capacity (or more) when
        they do not suffice.
        """
        free = (self.head_of_class < 0).nonzero()[:, 0]
        if len(free) < count:
            capacity = len(self.head_of_class)
            self.grow(max(2 * capacity, capacity + count - len(free)))
            free = (self.head_of_class < 0).nonzero()[:, 0]
        self.head_of_class[free[:count]] = head
        self._note_heads()
        self.outputs = max(self.outputs, int((self.head_of_class >= 0).sum()))
        return free[:count]

    def _note_heads(self) -> None:
        self.undivided = len(self.head_of_class) > 0 and bool(
            (self.head_of_class == self.head_of_class[0]).all()
        )
        self.undivided = self.undivided and bool(self.head_of_class[0] >= 0)

    def check_inputs(self, whose: str, inputs: Tensor | RowView) -> None:
        """Refuse inputs of another shape or type than those learned from."""
        if (list(inputs.shape[1:]), str(inputs.dtype)) != self.input:
            raise Mistake(
                f"{whose}: one input has shape {tuple(inputs.shape[1:])} and is {inputs.dtype}; "
                f"this learner's have shape {tuple(self.input[0])} and are {self.input[1]}"
            )

    def features(self, inputs: Tensor, tape: list[Tensor] | None = None) -> Tensor:
        """Feature vectors of a batch of raw inputs; a `tape` takes what a way back by hand
        needs.
        """
        if self.divides(len(inputs)):
            return divided.pass_parts(lambda part: self._features(part, tape), inputs)
        return self._features(inputs, tape)

    def divides(self, count: int) -> bool:
        """Whether so many samples pass in parts, one on each rank; a tape is that of the own part
        then.
        """
        return self.takes_parts and count >= ranks.size()

    @property
    def is_repeated(self) -> bool:
        """Whether every rank passes all samples, since the network cannot be asked for a part of
        them.
        """
        return ranks.size() > 1 and not self.takes_parts

    def _features(self, inputs: Tensor, tape: list[Tensor] | None) -> Tensor:
        if (
            self.scale != 1
            and inputs.dtype == torch.uint8
            and self.flat.dtype == torch.get_default_dtype()
        ):
            x = inputs * self.scale  # converts and scales at once
        else:
            x = inputs.to(self.flat.dtype)
            x = x * self.scale if self.scale != 1 else x
        if self.mean is not None:
            x = x - self.mean
        if self.channels_last and x.ndim == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        with self._rounding():
            features: Tensor = self.backbone(x) if tape is None else self.backbone(x, tape)
        return features.to(self.flat.dtype)

    def scores(self, features: Tensor) -> Tensor:
        """What a class is chosen by: cosines, or logits W x + b."""
        weight = self.head[:, :-1]
        if torch.is_grad_enabled():
            weight = weight.contiguous()  # autograd's products with it are quicker so
        with self._rounding():
            products = functional.linear(
                features, weight, None if self.cosine else self.head[:, -1]
            )
        products = products.to(self.flat.dtype)
        return products / (lengths(features) * lengths(weight).T) if self.cosine else products

    def _rounding(self) -> AbstractContextManager[Any]:
        """Products of matrices in bfloat16 where that is asked for; what comes out is made float32
        again for the losses.
        """
        if self.precision == "fp32":
            return nullcontext()
        return torch.autocast(self.flat.device.type, torch.bfloat16)

    def only(self, rows: Tensor) -> Tensor:
        """A mask over the head that admits these rows."""
        mask = torch.zeros_like(self.head_of_class, dtype=torch.bool)
        mask[send(rows, mask.device)] = True
        return mask

    def gradient(self, loss: Tensor) -> Tensor:
        """The gradient of a loss in all parameters, as one new vector along `flat`."""
        of_leaves = torch.autograd.grad(loss, self.leaves, materialize_grads=True)
        return ranks.mean_(torch.cat([self._flatten(g) for g in of_leaves]))

    def views(self, line: Tensor) -> list[Tensor]:
        """A vector along `flat` as views that have the shapes of the weights."""
        pieces = line.split(self.leaf_sizes)
        return [
            self._unflatten(piece, shape)
            for piece, shape in zip(pieces, self.leaf_shapes, strict=True)
        ]

    def embed(self, inputs: Tensor | RowView) -> Tensor:
        """Feature vectors of raw inputs in evaluation mode, in chunks of a size that is quick and
        fits.
        """
        with self.evaluating():
            device = self.flat.device
            pieces = [self.features(send(inputs[part], device)) for part in chunks(inputs, device)]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    @contextmanager
    def training(self) -> Iterator[None]:
        """Training mode, until the end of the block."""
        with self.lock:
            self.backbone.train()
        try:
            yield
        finally:
            with self.lock:
                self.backbone.eval()

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Evaluation mode, and nothing tracked; answers are given with `answering`, where there is
        such a thing.
        """
        with self.frozen(), torch.no_grad(), self._lent(self.answering):
            yield

    @contextmanager
    def _lent(self, weights: Tensor | None) -> Iterator[None]:
        """Other weights until the end of the block; inside it there is nothing more to lend."""
        if weights is None:
            yield
            return
        learning = self.flat.data.clone()
        self.flat.data.copy_(weights)
        self.answering = None
        try:
            yield
        finally:
            self.flat.data.copy_(learning)
            self.answering = weights

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Evaluation mode with gradients: batch-norm statistics stay as they are; modes are
        restored afterwards.
        """
        with self.lock:
            trained = [module for module in self.backbone.modules() if module.training]
            for module in trained:
                module.training = False
            try:
                yield
            finally:
                for module in trained:
                    module.training = True

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """All weights and statistics by name, which share memory with the model; and what is said
        of them.
        """
        tensors = {
            **{f"backbone.{name}": value for name, value in self.backbone.state_dict().items()},
            "head": self.head.detach(),
            "head_of_class": self.head_of_class,
        }
        return tensors, {
            "input": self.input,
            "outputs": self.outputs,
            "channels_last": self.channels_last,
        }

    def load_state(self, state: dict[str, Tensor], rest: dict[str, Any]) -> None:
        """Take over what `state` gave, growing the head to its size."""
        if len(state["head"]) > len(self.head):
            self.grow(len(state["head"]))
        with torch.no_grad():
            for name, value in chain(self.backbone.state_dict().items(), [("head", self.head)]):
                key = name if name == "head" else f"backbone.{name}"
                if key not in state or state[key].shape != value.shape:
                    raise Mistake(
                        f"the saved model has no fitting {key!r}: is the backbone the one it was"
                        " saved with?"
                    )
                value.copy_(state[key])
        self.head_of_class = state["head_of_class"].to(self.flat.device)
        self._note_heads()
        self.outputs = rest["outputs"]

    def sha256(self) -> str:
        """A fingerprint of the parameters and the batch-norm statistics."""
        digest = hashlib.sha256(self.flat.detach().cpu().numpy().tobytes())
        for buffer in self.backbone.buffers():
            digest.update(buffer.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()


class Optimiser:
    """Plain SGD, or any class of `torch.optim` by its name, over the one flat parameter."""

    def __init__(self, name: str, lr: float, arguments: dict[str, Any] | None = None) -> None:
        if (
            not isinstance(lr, (int, float))
            or isinstance(lr, bool)
            or not (math.isfinite(lr) and lr > 0)
        ):
            raise Mistake(f"lr={lr!r}: must be a number above 0")
        if not (isinstance(name, str) and isinstance(getattr(torch.optim, name, None), type)):
            raise Mistake(
                f"optimiser={name!r}: must be the name of a class of torch.optim, such as 'SGD' or"
                " 'Adam'"
            )
        self.name = name
        self.lr = lr
        self.arguments = arguments or {}
        self.flat: nn.Parameter | None = None
        self.engine: torch.optim.Optimizer | None = (
            None  # plain SGD needs none, and torch's takes a second to load
        )

    def bind(self, flat: nn.Parameter) -> None:
        """Belong to a model's parameters."""
        self.flat = flat
        if self.name != "SGD" or self.arguments:
            self.engine = getattr(torch.optim, self.name)([flat], lr=self.lr, **self.arguments)

    def step(self, gradient: Tensor) -> None:
        """One step against a gradient."""
        assert self.flat is not None
        if self.engine is None:
            self.flat.data.add_(gradient, alpha=-self.lr)
        else:
            self.flat.grad = gradient
            self.engine.step()

    def grow(self, before: int) -> None:
        """The parameters are more than they were before: pad what runs along them."""
        assert self.flat is not None
        memory = self._memory()
        for key, value in memory.items():
            if isinstance(value, Tensor) and value.shape == (before,):
                memory[key] = torch.cat([value, value.new_zeros(self.flat.numel() - before)])

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """What it remembers of the parameters; plain SGD remembers nothing."""
        return {
            key: value for key, value in self._memory().items() if isinstance(value, Tensor)
        }, {}

    def load_state(self, tensors: dict[str, Tensor], _: dict[str, Any]) -> None:
        """Take over what `state` gave."""
        if not tensors:
            return
        assert self.flat is not None
        for (
            name,
            value,
        ) in tensors.items():  # a single number, such as Adam's count of steps, is the processor's
            self._memory()[name] = value.to(self.flat.device) if value.ndim else value

    def _memory(self) -> dict[str, Any]:
        return {} if self.engine is None else self.engine.state[self.flat]  # type: ignore[index]


def count_features(backbone: nn.Module, example: Tensor) -> int:
    """How many features the backbone gives for inputs like this one; one that gives none is
    refused.
    """
    try:
        with torch.no_grad():
            backbone.to(example.device).eval()
            probe = backbone(torch.zeros(2, *example.shape[1:], device=example.device))
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise Mistake(
            f"the backbone cannot read inputs of shape {tuple(example.shape[1:])}: {reason}"
        ) from None
    if not isinstance(probe, Tensor) or probe.ndim != 2 or len(probe) != 2:
        shape = tuple(probe.shape) if isinstance(probe, Tensor) else type(probe).__name__
        raise Mistake(
            f"the backbone must return one feature vector per input; for 2 inputs it gave {shape}"
        )
    return probe.shape[1]


def chunks(inputs: Tensor | RowView, device: torch.device) -> Iterator[slice]:
    """Inputs in pieces of a size that is quick on a device, and fits; several ranks share each of
    them.
    """
    size = max(1, CHUNK.get(device.type, LARGE) // math.prod(inputs.shape[1:])) * ranks.size()
    yield from (
        slice(start, min(start + size, len(inputs))) for start in range(0, len(inputs), size)
    )


def unit(x: Tensor) -> Tensor:
    """Rows scaled to length 1; a row of zeros stays one, with a finite gradient."""
    scaled: Tensor = x / lengths(x)
    return scaled


def lengths(x: Tensor) -> Tensor:
    """The lengths of rows, as a column; 1 for a row of zeros."""
    length: Tensor = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    return length.masked_fill(length == 0, 1.0)


def _asks_channels_last(backbone: nn.Module) -> bool:
    """The memory layout is the backbone's own affair: it says so, or its kernels came in that
    layout.
    """
    asked = getattr(backbone, "channels_last", None)
    if isinstance(asked, bool):
        return asked
    kernels = [p for p in backbone.parameters() if p.ndim == 4 and not p.is_contiguous()]
    return any(p.is_contiguous(memory_format=torch.channels_last) for p in kernels)


def _generator(seed: int, purpose: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed * 1_000_003 + purpose)
