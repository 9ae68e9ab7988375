"""Whether a network has batch norm, and what that demands of the size of a mini-batch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from mdmt.backbones import BatchNorm
from mdmt.errors import Mistake
from mdmt.tasks import Task

if TYPE_CHECKING:
    from mdmt.network.model import Model


def has_batch_norm(backbone: nn.Module) -> bool:
    """Whether features in evaluation mode depend on running statistics."""
    return any(isinstance(module, (_BatchNorm, BatchNorm)) for module in backbone.modules())


def retake_statistics(model: Model, batches: Iterable[Tensor]) -> None:
    """Set batch norm's running statistics to their mean over these batches of raw inputs.

    While weights move, running statistics lag behind them, by hundreds of steps in a network with
    a small momentum. A short task ends before they have caught up. The model is in training mode;
    layers that a network keeps in evaluation mode even then keep their statistics.
    """
    kinds = (_BatchNorm, BatchNorm)
    norms = [m for m in model.backbone.modules() if isinstance(m, kinds) and m.training]
    if not norms:
        return
    momenta = [norm.momentum for norm in norms]
    counts = {name: value.clone() for name, value in _counts(model)}
    means: list[Tensor] = []
    with torch.no_grad(), model.frozen():
        try:
            for norm in norms:
                norm.momentum, norm.training = 1.0, True  # keep the statistics of one batch
            for batch in batches:
                model.features(batch)
                means.append(model.statistics_vector())
        finally:
            for norm, momentum in zip(norms, momenta, strict=True):
                norm.momentum, norm.training = momentum, False
        for name, value in _counts(model):
            value.copy_(counts[name])
        if means:
            model.set_values(model.flat.detach().clone(), torch.stack(means).mean(0))


def _counts(model: Model) -> Iterator[tuple[str, Tensor]]:
    """The buffers of the backbone that count."""
    buffers = model.backbone.named_buffers()
    return ((name, value) for name, value in buffers if not value.is_floating_point())


def running_statistics(backbone: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The running means and variances of a network, which features in evaluation mode depend on."""
    for module in backbone.modules():
        if isinstance(module, (_NormBase, BatchNorm)):
            for name, value in (("mean", module.running_mean), ("variance", module.running_var)):
                if value is not None:
                    yield f"running {name}", value


def min_batch(backbone: nn.Module, example: Tensor) -> int:
    """The smallest mini-batch that the network can train on: 2 if a single example has no variance.

    Torch's batch norm refuses a batch with one value per channel. Ours accepts it, with a variance
    of 0, if its statistics start at 0: so did the published runs, which stay as they were.
    """
    sizes: list[torch.Size] = []
    hooks = [
        module.register_forward_pre_hook(lambda _, inputs: sizes.append(inputs[0].shape))
        for module in backbone.modules()
        if isinstance(module, _BatchNorm)
        or (isinstance(module, BatchNorm) and module.start == "fast")
    ]
    if not hooks:
        return 1
    try:
        with torch.no_grad():
            backbone(torch.zeros(1, *example.shape[1:], device=example.device))
    finally:
        for hook in hooks:
            hook.remove()
    return 2 if any(math.prod(size[2:]) == 1 for size in sizes) else 1


def refuse_single_examples(backbone: nn.Module, one_by_one: bool, batch: int, task: Task) -> None:
    """Refuse, before the first step, a batch of one that torch's batch norm would stop at."""
    if not any(isinstance(module, _BatchNorm) for module in backbone.modules()):
        return
    need = "batch norm in this network needs two examples at a time"
    if one_by_one:
        raise Mistake(
            f"{need}, but this method learns one by one: use another method, or a network without"
            " batch norm"
        )
    if batch == 1:
        raise Mistake(f"batch=1: {need}")
    if task.size == 1:
        raise Mistake(f"task {task.name!r} has one training example: {need}")
