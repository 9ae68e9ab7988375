"""The network: a backbone and a growing head over its features, linear or cosine."""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

import mdmt.network.parts as parts
import mdmt.ranks as ranks
from mdmt.backbones import MLP, Backbone, ResNet, uniform_rows
from mdmt.errors import Mistake, first_line
from mdmt.inputs.arrays import RowView
from mdmt.inputs.augment import mirrored
from mdmt.inputs.device import send
from mdmt.inputs.saved import check_finite, saved_tensor
from mdmt.network.heads import FREE, Heads
from mdmt.network.parameters import Parameters

Precision = Literal["fp32", "bf16"]
# Numbers in one batch of inputs during evaluation: on a CPU, what its caches hold.
CHUNK = {"cpu": 2**19}
LARGE_CHUNK = 2**22


@dataclass
class Normalisation:
    """Applied to every input first: x * scale - mean. None: not decided yet."""

    scale: float | None = None
    mean: Tensor | None = None


def normalisation_for(scale: float | None, mean: Tensor | None, example: Tensor) -> Normalisation:
    """The normalisation of inputs like this one; by default pixels are divided by 255."""
    if scale is None:
        scale = 1 / 255 if example.dtype == torch.uint8 else 1.0
    shape = tuple(example.shape[1:])
    if mean is not None:
        try:
            fits = torch.broadcast_shapes(mean.shape, shape) == shape
        except RuntimeError:
            fits = False
        if not fits:
            raise Mistake(f"mean has shape {tuple(mean.shape)}: one input has shape {shape}")
    return Normalisation(scale, mean)


class Model:
    """A backbone with a head, in evaluation mode unless a `training` block is open.

    Modes belong to the module, so one thread at a time passes through it, holding `lock`.
    """

    def __init__(
        self,
        backbone: nn.Module,
        features: int,
        heads: Heads,
        *,
        cosine: bool = False,
        normalisation: Normalisation | None = None,
        seed: int = 0,
        precision: Precision = "fp32",
        channels_last: bool | None = None,
        example: Tensor | None = None,
    ) -> None:
        device = heads.owner.device
        self.heads = heads
        self.cosine = cosine
        self.precision = precision
        self.seed = seed
        self.lock = threading.RLock()
        self.backbone = _prepare(backbone, seed, device)
        self.scale, self.mean = _normalisation(normalisation, device)
        self.input: tuple[list[int], str] = ([], "")  # shape and type of one input
        if example is not None:
            self.input = (list(example.shape[1:]), str(example.dtype))
        self.answer_weights = _no_other_values  # the weights for evaluation; None: `flat`
        self.answer_statistics = _no_other_values  # batch norm's; None: those of the backbone
        self.mirror = False  # whether answers are from an image and its mirror image
        self.head = nn.Parameter(torch.empty(0, features + 1, device=device))
        if channels_last is None:
            channels_last = _asks_channels_last(backbone)
        self.channels_last = channels_last
        self.parameters = Parameters(backbone, self.head, channels_last=channels_last)
        self.flat = self.parameters.flat
        self.ranks = ranks.size()
        self.can_split = self.ranks > 1 and _can_split(backbone, example)
        self.grow(heads.outputs)

    @property
    def head_of_class(self) -> Tensor:
        """The head that owns each row, -1 for a free row."""
        return self.heads.owner

    @property
    def leaves(self) -> list[nn.Parameter]:
        """The trained weights, the head last."""
        return self.parameters.leaves

    def grow(self, capacity: int) -> None:
        """Give the head `capacity` rows; the new ones are drawn as the backbone asks.

        They are drawn from the seed and the number of rows before them, so a head that grew does
        not start where one that had room from the start would have.
        """
        old, features = len(self.head), self.head.shape[1] - 1
        draw = getattr(self.backbone, "head_rows", uniform_rows)
        self.parameters.grow(draw(capacity - old, features, _generator(self.seed, 1 + old)))
        self.heads.add_rows(capacity - old)

    def redraw(self, rows: Tensor) -> None:
        """Give rows of the head first weights again."""
        features = self.head.shape[1] - 1
        draw = getattr(self.backbone, "head_rows", uniform_rows)
        fresh = draw(len(self.head), features, _generator(self.seed, 1)).to(self.head)
        rows = send(rows, self.head.device)
        with torch.no_grad():
            self.head.index_copy_(0, rows, fresh.index_select(0, rows))

    def positions(self, rows: Tensor) -> Tensor:
        """The positions of rows of the head in the flat vector."""
        width = self.head.shape[1]
        first = self.flat.numel() - self.head.numel()
        return (first + rows[:, None] * width + torch.arange(width)).flatten()

    def check_inputs(self, whose: str, inputs: Tensor | RowView) -> None:
        """Refuse inputs of another shape or type than those learned from."""
        if (list(inputs.shape[1:]), str(inputs.dtype)) != self.input:
            raise Mistake(
                f"{whose}: one input has shape {tuple(inputs.shape[1:])} and type {inputs.dtype};"
                f" this learner's inputs have shape {tuple(self.input[0])} and type {self.input[1]}"
            )

    # Passes.

    def features(self, inputs: Tensor, tape: list[Tensor] | None = None) -> Tensor:
        """Feature vectors of a batch of raw inputs; `tape` collects what the way back needs."""
        if self.can_split and self.splits(len(inputs)):
            return parts.pass_parts(lambda part: self._features(part, tape), inputs)
        return self._features(inputs, tape)

    def splits(self, count: int) -> bool:
        """Whether `count` samples pass in parts, one on each rank, each with its own tape."""
        return self.can_split and count >= self.ranks

    def answer_features(self, inputs: Tensor) -> Tensor:
        """Features to answer with: with `mirror`, the mean of an image's and its mirror image's."""
        features = self.features(inputs)
        return (features + self.features(mirrored(inputs))) / 2 if self.mirror else features

    @property
    def repeats_batches(self) -> bool:
        """Whether every rank passes whole batches, as the network cannot pass parts of them."""
        return self.ranks > 1 and not self.can_split

    def _features(self, inputs: Tensor, tape: list[Tensor] | None) -> Tensor:
        in_one_go = inputs.dtype == torch.uint8 and self.flat.dtype == torch.get_default_dtype()
        x = inputs if self.scale != 1 and in_one_go else inputs.to(self.flat.dtype)
        if self.scale != 1:
            x = x * self.scale  # converts pixels as well
        if self.mean is not None:
            x = x - self.mean
        if self.channels_last and x.ndim == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        if self.precision == "fp32":
            features: Tensor = self.backbone(x) if tape is None else self.backbone(x, tape)
            return features.to(self.flat.dtype)
        with torch.autocast(x.device.type, torch.bfloat16):
            rounded: Tensor = self.backbone(x)
        return rounded.to(self.flat.dtype)  # losses are computed in float32

    def scores(self, features: Tensor) -> Tensor:
        """A score per row of the head: cosines, or logits W x + b."""
        weight = self.head[:, :-1]
        if torch.is_grad_enabled():
            weight = weight.contiguous()  # autograd's products with it are faster
        bias = None if self.cosine else self.head[:, -1]
        if self.precision == "fp32":
            products = functional.linear(features, weight, bias)
        else:
            with torch.autocast(features.device.type, torch.bfloat16):
                products = functional.linear(features, weight, bias)
        products = products.to(self.flat.dtype)
        return products / (lengths(features) * lengths(weight).T) if self.cosine else products

    def only(self, rows: Tensor) -> Tensor:
        """A mask over the head that admits these rows."""
        mask = torch.zeros_like(self.heads.owner, dtype=torch.bool)
        mask[send(rows, mask.device)] = True
        return mask

    def seen(self) -> Tensor:
        """A mask over the head that admits every row that a head owns."""
        return self.heads.owner != FREE

    def gradient(self, loss: Tensor) -> Tensor:
        """The gradient of a loss in all parameters, as one new vector along `flat`."""
        of_leaves = torch.autograd.grad(loss, self.leaves, materialize_grads=True)
        return ranks.mean_(self.parameters.flatten(of_leaves))

    def embed(self, inputs: Tensor | RowView, *, to_answer: bool = False) -> Tensor:
        """Feature vectors of raw inputs in evaluation mode, in chunks that fit the caches."""
        pass_on = self.answer_features if to_answer else self.features
        device = self.flat.device
        with self.evaluating():
            pieces = [pass_on(_on(device, inputs[chunk])) for chunk in self.chunks(inputs)]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    def chunks(self, inputs: Tensor | RowView) -> list[slice]:
        """Slices of inputs that the device evaluates fast; several ranks share each of them."""
        numbers = CHUNK.get(self.flat.device.type, LARGE_CHUNK)
        size = max(1, numbers // math.prod(inputs.shape[1:])) * self.ranks
        total = len(inputs)
        return [slice(start, min(start + size, total)) for start in range(0, total, size)]

    # Modes.

    @contextmanager
    def training(self) -> Iterator[None]:
        """Training mode inside the block."""
        with self.lock:
            self.backbone.train()
        try:
            yield
        finally:
            with self.lock:
                self.backbone.eval()

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Evaluation mode without gradients, with the averaged weights if the method has them."""
        with self.frozen(), torch.no_grad():
            weights = self.answer_weights()
            if weights is None:
                yield
            else:
                with self.at(weights, self.answer_statistics()):
                    yield

    @contextmanager
    def at(self, weights: Tensor, statistics: Tensor | None = None) -> Iterator[None]:
        """Temporarily replace the weights, also those used in evaluation, and batch norm's values.

        Statistics that change inside the block keep their new values, unless others were given.
        """
        with self.lock:
            learned = self.flat.data.clone()
            before = None if statistics is None else self.statistics_vector()
            answer_weights = self.answer_weights
            self.set_values(weights, statistics)
            self.answer_weights = _no_other_values
            try:
                yield
            finally:
                self.set_values(learned, before)
                self.answer_weights = answer_weights

    def statistics(self) -> list[Tensor]:
        """The running statistics of batch norm: all buffers of the backbone that are no counts."""
        return [buffer for buffer in self.backbone.buffers() if buffer.is_floating_point()]

    def statistics_vector(self) -> Tensor:
        """A copy of the statistics as one vector; empty without batch norm."""
        parts = [buffer.detach().flatten().to(self.flat.dtype) for buffer in self.statistics()]
        return torch.cat(parts) if parts else self.flat.new_zeros(0).detach()

    def set_values(self, weights: Tensor, statistics: Tensor | None = None) -> None:
        """Copy weights, and statistics if given, into the network."""
        self.flat.data.copy_(weights)
        if statistics is not None:
            buffers = self.statistics()
            parts = statistics.split([buffer.numel() for buffer in buffers])
            for buffer, part in zip(buffers, parts, strict=True):
                buffer.copy_(part.view_as(buffer))

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Evaluation mode with gradients: batch-norm statistics stay; modes are restored."""
        with self.lock:
            trained = [module for module in self.backbone.modules() if module.training]
            for module in trained:
                module.training = False
            try:
                yield
            finally:
                for module in trained:
                    module.training = True

    # State.

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Weights and statistics by name, sharing memory with the model, and their layout."""
        tensors = {
            **{f"backbone.{name}": value for name, value in self.backbone.state_dict().items()},
            "head": self.head.detach(),
            "head_of_class": self.heads.owner,
        }
        about = {
            "input": self.input,
            "outputs": self.heads.outputs,
            "channels_last": self.channels_last,
        }
        return tensors, about

    def load_state(self, state: dict[str, Tensor], rest: dict[str, Any]) -> None:
        """Restore what `state` gave, growing the head to its size."""
        trained = {"head", *(f"backbone.{name}" for name, _ in self.backbone.named_parameters())}
        try:
            head = saved_tensor(state, "head", (None, self.head.shape[1]), whose="model.")
            if len(head) > len(self.head):
                self.grow(len(head))
            own = {f"backbone.{name}": value for name, value in self.backbone.state_dict().items()}
            own["head"] = self.head.detach()
            for name, value in own.items():
                given = saved_tensor(state, name, value.shape, value.dtype, whose="model.")
                if name in trained:
                    check_finite(f"model.{name}", given)
                value.copy_(given)
        except Mistake as error:
            raise Mistake(f"{error}; is the backbone the one it was saved with?") from None
        owner = saved_tensor(state, "head_of_class", (len(head),), torch.int64, whose="model.")
        self.heads.set_owner(owner.to(self.flat.device))
        self.heads.outputs = rest["outputs"]

    def sha256(self) -> str:
        """A fingerprint of the parameters and the batch-norm statistics."""
        digest = hashlib.sha256(self.flat.detach().cpu().numpy().tobytes())
        for buffer in self.backbone.buffers():
            digest.update(buffer.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()


def count_features(backbone: nn.Module, example: Tensor) -> int:
    """The length of the backbone's feature vectors, found by trying it on zeros like `example`."""
    try:
        with torch.no_grad():
            backbone.to(example.device).eval()
            probe = backbone(torch.zeros(2, *example.shape[1:], device=example.device))
    except RuntimeError as error:
        reason = first_line(error)
        raise Mistake(
            f"the backbone cannot read inputs of shape {tuple(example.shape[1:])}: {reason}"
        ) from None
    if not isinstance(probe, Tensor) or probe.ndim != 2 or len(probe) != 2:
        shape = tuple(probe.shape) if isinstance(probe, Tensor) else type(probe).__name__
        raise Mistake(
            f"the backbone must return one feature vector per input; for 2 inputs it gave {shape}"
        )
    return probe.shape[1]


def best_rows(scores: Tensor, allowed: Tensor) -> Tensor:
    """The row with the highest score among the allowed ones, for each sample."""
    return scores.masked_fill(~allowed, -math.inf).argmax(1)


def unit(x: Tensor) -> Tensor:
    """Rows scaled to length 1; a row of zeros stays one, with a finite gradient."""
    scaled: Tensor = x / lengths(x)
    return scaled


def lengths(x: Tensor) -> Tensor:
    """The lengths of rows, as a column; 1 for a row of zeros."""
    length: Tensor = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    return length.masked_fill(length == 0, 1.0)


def _on(device: torch.device, inputs: Tensor) -> Tensor:
    return inputs if inputs.device == device else send(inputs, device)


def _no_other_values() -> Tensor | None:
    return None


def _prepare(backbone: nn.Module, seed: int, device: torch.device) -> nn.Module:
    """Draw the first weights of one of our networks, then move it, in evaluation mode."""
    if isinstance(backbone, Backbone) and not backbone.drawn:
        backbone.cpu().draw(_generator(seed, 0))  # the generator is the CPU's
    return backbone.to(device).eval()


def _normalisation(
    given: Normalisation | None, device: torch.device
) -> tuple[float, Tensor | None]:
    if given is None:
        return 1.0, None
    mean = None if given.mean is None else given.mean.to(device, torch.float32)
    return 1.0 if given.scale is None else given.scale, mean


def _can_split(backbone: nn.Module, example: Tensor | None) -> bool:
    """Whether parts of a batch can pass the network on different ranks."""
    if type(backbone) in (MLP, ResNet):
        return True
    return example is not None and parts.can_split(backbone, example)


def _asks_channels_last(backbone: nn.Module) -> bool:
    """Whether kernels are laid out channels-last: the backbone says so, or they came that way."""
    asked = getattr(backbone, "channels_last", None)
    if isinstance(asked, bool):
        return asked
    kernels = [p for p in backbone.parameters() if p.ndim == 4 and not p.is_contiguous()]
    return any(p.is_contiguous(memory_format=torch.channels_last) for p in kernels)


def _generator(seed: int, purpose: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed * 1_000_003 + purpose)
