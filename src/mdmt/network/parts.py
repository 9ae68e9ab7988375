"""Passing a batch through the network in parts, one on each rank.

Every rank has the whole batch, passes its own part through the backbone, and receives the features
of all parts. Head and loss therefore see the whole batch, and a loss may use any sample. In the
backward pass each rank multiplies the gradient with respect to its own features by the number of
ranks. The mean over the ranks (`ranks.mean_`) is then the gradient of the whole batch. Gradients
that all ranks compute alike, such as that of the head, are equal to their mean.

If a batch has fewer samples than there are ranks, every rank passes the whole batch.
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
_passing = 0  # the size of the whole batch while its parts pass through the network, otherwise 0


def share(count: int, rank: int | None = None) -> slice:
    """The slice of `count` samples that a rank passes; sizes differ by at most one."""
    number = ranks.rank() if rank is None else rank
    return slice(count * number // ranks.size(), count * (number + 1) // ranks.size())


def own_sizes(sizes: Sequence[int]) -> list[int]:
    """The number of samples of each group in this rank's share of all groups joined in order."""
    own = share(sum(sizes))
    begin = 0
    overlaps = []
    for group in sizes:
        overlaps.append(max(0, min(own.stop, begin + group) - max(own.start, begin)))
        begin += group
    return overlaps


def pass_parts(work: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
    """The rows of `work(inputs)`, where each rank does the work for its own share of the inputs."""
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
    """Joins the rows of all ranks."""

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
    """The gradient with respect to this rank's own features, times the number of ranks."""
    return gradient[share(len(gradient))] * ranks.size()


# Batch norm.


def is_passing() -> bool:
    """Whether the current pass is of a part of a batch, to be normalised by the whole batch."""
    return _passing > 0


def normalise(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """A part of a batch normalised by the whole batch, with the mean and the biased variance."""
    result: tuple[Tensor, Tensor, Tensor] = _Normalise.apply(x, weight, bias, eps)  # type: ignore[no-untyped-call]
    return result


@lru_cache(maxsize=64)
def _shares(count: int, size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The share of each rank in `count` samples, as a column.

    It is cached, so that no step waits for a copy to the device.
    """
    parts = [share(count, rank) for rank in range(size)]
    return torch.tensor(
        [[(part.stop - part.start) / count] for part in parts], dtype=dtype, device=device
    )


class _Normalise(torch.autograd.Function):
    """Batch norm over the ranks; torch's SyncBatchNorm does not run on a CPU."""

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
        # The variance within parts plus that between them: no difference of large numbers.
        variance = (shares * (variances + (means - mean).square())).sum(0)
        ctx.save_for_backward(x, weight, mean, variance)
        ctx.mark_non_differentiable(mean, variance)
        ctx.eps = eps
        ctx.count = x.numel() // x.shape[1] // len(x) * _passing
        return functional.batch_norm(x, mean, variance, weight, bias, eps=eps), mean, variance

    @staticmethod
    def backward(ctx: Any, of_out: Tensor, *_: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        x, weight, mean, variance = ctx.saved_tensors
        # The gradients of weight and bias are the same as with fixed statistics (train=False).
        statistics = (mean, variance, None, None, False, ctx.eps)
        _, of_weight, of_bias = _batch_norm_backward(
            of_out, x, weight, *statistics, [False, True, True]
        )
        by_weight, by_bias = ranks.sum_(torch.stack([of_weight, of_bias])) / ctx.count
        slope = weight * (variance + ctx.eps).rsqrt()
        # of_x = slope * (of_out - by_bias - normalised x * by_weight). `batch_norm` is torch's
        # fastest kernel that scales and shifts channels.
        zeros = torch.zeros_like(mean)
        of_x = functional.batch_norm(
            of_out, zeros, torch.ones_like(mean), slope, -slope * by_bias, eps=0.0
        )
        of_x += functional.batch_norm(x, mean, variance, -slope * by_weight, zeros, eps=ctx.eps)
        return of_x, of_weight, of_bias, None


# Networks of users.


def can_split(backbone: nn.Module, example: Tensor) -> bool:
    """Whether batches can be split: each sample passes independently, without random draws.

    The network passes two inputs in training mode, together and one by one; afterwards its
    statistics and the random state are restored.
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
