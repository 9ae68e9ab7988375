"""A batch that passes through the network in parts, one on each rank.

Every rank has the whole batch. It passes its own part through the backbone and gets the features of
all parts, so that head and loss see the whole batch: a loss may look at any sample it likes. On the
way back the gradient in a rank's own features counts as often as there are ranks; the mean over the
ranks (`ranks.mean_`) is then the gradient of the whole, and what all ranks computed alike, such as
that of the head, is its own mean.

A batch of fewer samples than ranks is passed by each of them as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import mdmt.ranks as ranks

_batch_norm_backward = torch.ops.aten.native_batch_norm_backward.default
_passing = 0  # samples of the whole batch while its parts are in the network


def share(count: int, rank: int | None = None) -> slice:
    """Which of so many samples a rank passes; those of two ranks differ by one at most."""
    number = ranks.rank() if rank is None else rank
    return slice(count * number // ranks.size(), count * (number + 1) // ranks.size())


def own_sizes(sizes: Sequence[int]) -> list[int]:
    """How many samples of each group, one group after the other, are in the own share of all of
    them.
    """
    own = share(sum(sizes))
    begin = 0
    overlaps = []
    for group in sizes:
        overlaps.append(max(0, min(own.stop, begin + group) - max(own.start, begin)))
        begin += group
    return overlaps


def pass_parts(work: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
    """What some work gives for all inputs, where each rank does it for its own share."""
    with _parts_of(len(inputs)):
        part = work(inputs[share(len(inputs))])
    whole: Tensor = _Gather.apply(part, len(inputs))  # type: ignore[no-untyped-call]
    return whole


@contextmanager
def _parts_of(count: int) -> Iterator[None]:
    global _passing
    _passing = count
    try:
        yield
    finally:
        _passing = 0


class _Gather(torch.autograd.Function):
    """The rows of all ranks, from those of each."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, count: int) -> Tensor:
        ctx.count = count
        whole = part.new_zeros(count, *part.shape[1:])
        whole[share(count)] = part
        return ranks.sum_(whole)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return own_rows(gradient), None


def own_rows(gradient: Tensor) -> Tensor:
    """The gradient in the own samples' features, as it counts on this rank."""
    return gradient[share(len(gradient))] * ranks.size()


# Batch norm.


def is_passing() -> bool:
    """Whether what passes now is a part of a batch, whose statistics are those of the whole."""
    return _passing > 0


def normalise(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """A part of a batch normalised by the mean and the biased variance of the whole batch; and
    these two.
    """
    result: tuple[Tensor, Tensor, Tensor] = _Normalise.apply(x, weight, bias, eps)  # type: ignore[no-untyped-call]
    return result


@lru_cache(maxsize=64)
def _shares(count: int, size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The share of each rank in so many samples, as a column; kept, so that no step waits for a
    copy to the device.
    """
    parts = [share(count, rank) for rank in range(size)]
    return torch.tensor(
        [[(part.stop - part.start) / count] for part in parts], dtype=dtype, device=device
    )


class _Normalise(torch.autograd.Function):
    """Batch norm over the ranks; torch's own such layer does not run on a processor."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        mean, variance = torch.batch_norm_update_stats(x.to(weight.dtype), None, None, 0.0)
        of_ranks = mean.new_zeros(ranks.size(), 2, len(mean))
        of_ranks[ranks.rank()] = torch.stack([mean, variance])
        means, variances = ranks.sum_(of_ranks).unbind(1)
        shares = _shares(_passing, ranks.size(), mean.dtype, mean.device)
        mean = (shares * means).sum(0)
        # No difference of large numbers.
        variance = (shares * (variances + (means - mean).square())).sum(0)
        ctx.save_for_backward(x, weight, mean, variance)
        ctx.mark_non_differentiable(mean, variance)
        ctx.eps = eps
        ctx.count = x.numel() // x.shape[1] // len(x) * _passing
        return functional.batch_norm(x, mean, variance, weight, bias, eps=eps), mean, variance

    @staticmethod
    def backward(ctx: Any, of_out: Tensor, *_: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        x, weight, mean, variance = ctx.saved_tensors
        fixed = (
            mean,
            variance,
            None,
            None,
            False,
            ctx.eps,
        )  # sums alone, which do not ask where the statistics come from
        _, of_weight, of_bias = _batch_norm_backward(of_out, x, weight, *fixed, [False, True, True])
        by_weight, by_bias = ranks.sum_(torch.stack([of_weight, of_bias])) / ctx.count
        slope = weight * (variance + ctx.eps).rsqrt()
        # slope * (of_out - by_bias - x normalised * by_weight), by torch's quickest kernel for a
        # channel's factor and shift
        nothing = torch.zeros_like(mean)
        of_x = functional.batch_norm(
            of_out, nothing, torch.ones_like(mean), slope, -slope * by_bias, eps=0.0
        )
        of_x += functional.batch_norm(x, mean, variance, -slope * by_weight, nothing, eps=ctx.eps)
        return of_x, of_weight, of_bias, None


# Networks of one's own.


def can_split(backbone: nn.Module, example: Tensor) -> bool:
    """Whether a network in training looks at each sample by itself and draws nothing: then its
    batches can be divided.

    It is tried on two inputs, together and one by one; its statistics and the random state are as
    before.
    """
    kind = example.device.type
    generator = torch if kind == "cpu" else torch.get_device_module(kind)
    inputs = torch.rand(2, *example.shape[1:], generator=torch.Generator().manual_seed(0)).to(
        example.device
    )
    before = [buffer.clone() for buffer in backbone.buffers()]
    random = generator.get_rng_state()
    backbone.train()
    try:
        with torch.no_grad():
            whole = backbone(inputs)
            parts = torch.cat([backbone(inputs[:1]), backbone(inputs[1:])])
        drew = not torch.equal(random, generator.get_rng_state())
        return not drew and torch.allclose(whole, parts, rtol=1e-4, atol=1e-6)
    except (RuntimeError, ValueError):  # torch's batch norm refuses a single sample
        return False
    finally:
        backbone.eval()
        generator.set_rng_state(random)
        for buffer, value in zip(backbone.buffers(), before, strict=True):
            buffer.copy_(value)
