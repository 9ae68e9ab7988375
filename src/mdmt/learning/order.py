"""How a task's examples are cut into mini-batches."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from mdmt.backbones import BatchNorm
from mdmt.errors import Mistake
from mdmt.tasks import Task


def steps_in_epoch(size: int, batch: int, *, needs_two: bool = False) -> int:
    """The number of mini-batches; where one example is too few, a last single one joins those
    before it.

    >>> steps_in_epoch(31, 10), steps_in_epoch(31, 10, needs_two=True)
    (4, 3)
    """
    steps = math.ceil(size / batch)
    joins = needs_two and steps > 1 and size % batch == 1
    return steps - 1 if joins else steps


def indices(order: Tensor, position: int, batch: int, steps: int) -> Tensor:
    """The examples of one of so many mini-batches; the last one takes all that are left."""
    start = position * batch
    return order[start:] if position == steps - 1 else order[start : start + batch]


def needs_two(backbone: nn.Module, example: Tensor) -> bool:
    """Whether a batch norm sees a single value per channel of one example, so that nothing varies.

    Torch's refuses such a batch. Ours goes on, with a variance of 0; the published runs, whose
    statistics start at 0, did too, and stay as they were.
    """
    sizes: list[torch.Size] = []
    hooks = [
        module.register_forward_pre_hook(lambda _, inputs: sizes.append(inputs[0].shape))
        for module in backbone.modules()
        if isinstance(module, _BatchNorm)
        or (isinstance(module, BatchNorm) and module.start == "fast")
    ]
    if not hooks:
        return False
    try:
        with torch.no_grad():
            backbone(torch.zeros(1, *example.shape[1:], device=example.device))
    finally:
        for hook in hooks:
            hook.remove()
    return any(math.prod(size[2:]) == 1 for size in sizes)


def refuse_single_examples(backbone: nn.Module, one_by_one: bool, batch: int, task: Task) -> None:
    """Refuse what torch's batch norm would stop at, before the first step."""
    if not any(isinstance(module, _BatchNorm) for module in backbone.modules()):
        return
    need = "batch norm in this network needs two examples at a time"
    if one_by_one:
        raise Mistake(
            f"{need}, but this method learns one by one: take another method, or a network"
            " without it"
        )
    if batch == 1:
        raise Mistake(f"batch=1: {need}")
    if task.size == 1:
        raise Mistake(f"task {task.name!r} has one training example: {need}")
