"""One run on several ranks: who is who, and what they say to each other.

`torchrun --nproc-per-node K -m mdmt run ...` starts K processes, the ranks. All of them do the same
work in the same order and hold the same weights and the same memory; a batch passes through the
network in parts (`divided.py`). The first rank alone writes and speaks. Outside `group`, and with
one process, everything here does nothing. Loading this module does not load torch.
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
NAMES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # what torchrun tells each process
# While one rank prepares what the others wait for: data, weights, a checkpoint.
PATIENCE = timedelta(minutes=30)
SILENCE = timedelta(seconds=45)  # within a step: a rank that is silent for so long is gone

T = TypeVar("T")


@dataclass
class _Group:
    """The ranks of this run, as this process sees them."""

    rank: int = 0
    size: int = 1
    steps: Any = None  # the group for all that is said within steps


_group = _Group()


def rank() -> int:
    """The number of this process in its group, from 0."""
    return _group.rank


def size() -> int:
    """How many processes do this run."""
    return _group.size


def launched() -> tuple[int, int]:
    """The rank and the number of ranks that torchrun has given this process; 0 and 1 without it."""
    given = {name: os.environ[name] for name in NAMES if os.environ.get(name)}
    if not {"RANK", "WORLD_SIZE"} & set(given):
        return 0, 1
    missing = [name for name in NAMES if name not in given]
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
    """Whether torchrun has started this process and others."""
    with suppress(Mistake):
        return launched()[1] > 1
    return False


def is_follower() -> bool:
    """Whether it is not the first of them, which speaks for all."""
    return was_launched() and launched()[0] > 0


@contextmanager
def group() -> Iterator[None]:
    """Belong to the ranks that torchrun started, until the end of the block."""
    number, count = launched()
    if count == 1:
        yield
        return
    import torch
    import torch.distributed as dist

    backend = "gloo"
    if torch.cuda.is_available():
        backend = "cpu:gloo,cuda:nccl"
        if local_rank() < torch.cuda.device_count():  # else it may still learn on the processor
            torch.cuda.set_device(local_rank())
    with _losses():
        dist.init_process_group(backend, timeout=PATIENCE)
        _group.steps = dist.new_group(timeout=SILENCE)
    _group.rank = number
    _group.size = count
    try:
        yield
        with _losses():
            # after an error the others may be gone: the end of the process does it
            dist.destroy_process_group()
    finally:
        _group.rank = 0
        _group.size = 1
        _group.steps = None


def local_rank() -> int:
    """The number of this process on its machine."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def sum_(x: Tensor) -> Tensor:
    """The sum of a tensor over all ranks, in its place."""
    if size() > 1:
        import torch.distributed as dist

        with _losses():
            dist.all_reduce(x, group=_group.steps)
    return x


def mean_(x: Tensor) -> Tensor:
    """The mean of a tensor over all ranks, in its place."""
    return sum_(x).div_(size()) if size() > 1 else x


def any_of(flag: bool) -> bool:
    """Whether it is true on any rank; all learn it in the same step."""
    if size() == 1:
        return flag
    import torch

    return bool(sum_(torch.tensor(int(flag))))


def first(work: Callable[[], T]) -> T:
    """What the first rank gets by some work, on all ranks; what it raises, all raise."""
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
    """What each rank gets by some work of its own; where it fails on one of them, it does on
    all.
    """
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
    """Stop where the ranks do not all have the same."""
    if size() == 1:
        return
    import torch.distributed as dist

    values: list[Any] = [None] * size()
    with _losses():
        dist.all_gather_object(values, value)
    if len(set(values)) > 1:
        raise RuntimeError(
            f"the {what} of the ranks differ: they must run on processors of one kind"
        )


@contextmanager
def _losses() -> Iterator[None]:
    """What torch raises where another rank does not answer, as one line."""
    try:
        yield
    except RuntimeError as error:
        raise RankLost("another rank has ended, or does not answer") from error
