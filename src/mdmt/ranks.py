"""One run on several ranks: the number of each process, and the exchange between them.

`torchrun --nproc-per-node K -m mdmt run ...` starts K processes, the ranks. All of them do the same
work in the same order and hold the same weights and the same memory; each passes its part of a
batch through the network (`network/parts.py`). Only the first rank writes files and prints. Outside
`group`, and with one process, these functions do nothing. This module does not load torch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from mdmt.errors import Mistake, RankLost, summarise

if TYPE_CHECKING:
    from torch import Tensor

START = "torchrun --nproc-per-node K -m mdmt run ..."
RANK_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # torchrun sets them
# How long ranks wait while one of them prepares data, weights or a checkpoint.
GROUP_TIMEOUT = timedelta(minutes=30)
SILENCE = timedelta(seconds=45)  # within a step: a rank that is silent longer is lost

T = TypeVar("T")


@dataclass
class _Group:
    """The number of this process, and the processes of its run."""

    rank: int = 0
    size: int = 1
    steps: Any = None  # the process group for exchanges within a step


_group = _Group()


def rank() -> int:
    """The number of this process in its run, from 0."""
    return _group.rank


def size() -> int:
    """The number of processes of this run."""
    return _group.size


def launched() -> tuple[int, int]:
    """The rank and the number of ranks that torchrun set; 0 and 1 without it."""
    given = {name: os.environ[name] for name in RANK_VARIABLES if os.environ.get(name)}
    if not {"RANK", "WORLD_SIZE"} & set(given):
        return 0, 1
    missing = [name for name in RANK_VARIABLES if name not in given]
    if missing:
        raise Mistake(
            f"{', '.join(given)} in the environment without {', '.join(missing)}: "
            f"start several ranks with {START}, or unset {', '.join(given)}"
        )
    number, count = given["RANK"], given["WORLD_SIZE"]
    if not (number.isdecimal() and count.isdecimal() and int(number) < int(count)):
        raise Mistake(
            f"RANK={number} and WORLD_SIZE={count} in the environment: start several ranks with"
            f" {START}"
        )
    return int(number), int(count)


def was_launched() -> bool:
    """Whether torchrun started this process together with others."""
    with suppress(Mistake):
        return launched()[1] > 1
    return False


def is_follower() -> bool:
    """Whether this is a rank after the first; only the first one prints."""
    return was_launched() and launched()[0] > 0


@contextmanager
def group() -> Iterator[None]:
    """Join the ranks that torchrun started, until the end of the block."""
    number, count = launched()
    if count == 1:
        yield
        return
    import torch
    import torch.distributed as dist

    backend = "gloo"
    if torch.cuda.is_available():
        backend = "cpu:gloo,cuda:nccl"
        if local_rank() < torch.cuda.device_count():  # the others may still learn on the CPU
            torch.cuda.set_device(local_rank())
    with _losses():
        dist.init_process_group(backend, timeout=GROUP_TIMEOUT)
        _group.steps = dist.new_group(timeout=SILENCE)
    _group.rank = number
    _group.size = count
    try:
        yield
        with _losses():
            # Not after an error: the other ranks may be gone, and the process is about to end.
            dist.destroy_process_group()
    finally:
        _group.rank = 0
        _group.size = 1
        _group.steps = None


def local_rank() -> int:
    """The number of this process on its machine."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def sum_(x: Tensor) -> Tensor:
    """Sum a tensor over all ranks, in place."""
    if size() > 1:
        import torch.distributed as dist

        with _losses():
            dist.all_reduce(x, group=_group.steps)
    return x


def mean_(x: Tensor) -> Tensor:
    """Average a tensor over all ranks, in place."""
    return sum_(x).div_(size()) if size() > 1 else x


def any_of(flag: bool) -> bool:
    """Whether the flag is set on any rank; all ranks get the same answer."""
    if size() == 1:
        return flag
    import torch

    return bool(sum_(torch.tensor(int(flag))))


def first(work: Callable[[], T]) -> T:
    """Do some work on the first rank only; all ranks return its result or raise its error."""
    if size() == 1:
        return work()
    answer: list[Any] = [None, None]
    if rank() == 0:
        try:
            answer[0] = work()
        except Exception as error:
            answer[1] = error
    import torch.distributed as dist

    with _losses():
        dist.broadcast_object_list(answer, src=0)
    if answer[1] is not None:
        raise answer[1]
    result: T = answer[0]
    return result


def together(work: Callable[[], T]) -> T:
    """Do some work on every rank; if it fails on one of them, all raise an error."""
    if size() == 1:
        return work()
    result: T | None = None
    failure: Exception | None = None
    try:
        result = work()
    except Exception as error:
        failure = error
    import torch.distributed as dist

    reasons: list[str | None] = [None] * size()
    with _losses():
        dist.all_gather_object(reasons, None if failure is None else summarise(failure))
    if failure is not None:
        raise failure
    for number, reason in enumerate(reasons):
        if reason is not None:
            raise Mistake(f"rank {number}: {reason}")
    return result  # type: ignore[return-value]


def check_equal(what: str, value: str) -> None:
    """Raise an error unless all ranks have the same value."""
    if size() == 1:
        return
    import torch.distributed as dist

    values: list[Any] = [None] * size()
    with _losses():
        dist.all_gather_object(values, value)
    if len(set(values)) > 1:
        raise RuntimeError(
            f"the {what} of the ranks differ: they must run on the same kind of processor"
        )


@contextmanager
def _losses() -> Iterator[None]:
    """Turn torch's error for a rank that does not answer into one line."""
    try:
        yield
    except RuntimeError as error:
        raise RankLost("another rank has ended, or does not answer") from error
