"""Where examples lie: in the memory of the device when they fit, else in the processor's, and
gathered from there.

Bookkeeping (labels, tasks, indices) stays on the processor, so that no step has to wait for an
answer of the device. What goes there goes through `send`, which does not wait either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from mdmt.inputs.arrays import RowView
from mdmt.inputs.maps import after_gathering

if TYPE_CHECKING:
    from mdmt.tasks import Task

SHARE = 0.5  # of what is free on a device: the rest is for the network and what passes through it
PIECE = 2**26  # bytes that are copied at a time


def send(x: Tensor, device: torch.device) -> Tensor:
    """A tensor on the device. It is copied through pinned memory, which the device reads while the
    processor goes on.
    """
    if x.device.type == device.type == "cpu":
        return x
    if x.device.type != "cpu" or device.type in (
        "cpu",
        "mps",
    ):  # mps shares the processor's memory, and pins none
        return x.to(device)
    return x.pin_memory().to(device, non_blocking=True)


def free_bytes(device: torch.device) -> int:
    """What is free on a device now; 0 where that cannot be measured."""
    module: Any = getattr(torch, device.type, None)
    if hasattr(module, "mem_get_info"):  # cuda, and xpu from torch 2.6 on
        return int(module.mem_get_info(device)[0])
    if device.type == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
    return 0


def fits(size: int, device: torch.device) -> bool:
    """Whether so many bytes more may lie there; what is the processor's own is there already."""
    return device.type == "cpu" or size <= SHARE * free_bytes(device)


def gather(column: Tensor, index: Tensor, device: torch.device) -> Tensor:
    """Rows of a column, which lies on the device or not, on the device; the index is the
    processor's.
    """
    if column.device.type == "cpu":
        return send(column.index_select(0, index), device)
    return column.index_select(0, send(index, column.device))


class Shelf:
    """The inputs of tasks, for a device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        # Of inputs and views, on the device; None: they do not fit.
        self._copies: Any = WeakIdKeyDictionary()

    def inputs(self, task: Task, split: Literal["train", "test"], index: Tensor) -> Tensor:
        """Some inputs of a task as the network sees them, on the device.

        A view of one's own, which has no `to(device)` as ours have, is applied on the processor.
        """
        examples = task.train if split == "train" else task.test
        movable = task.view is None or hasattr(task.view, "to")
        if self.device.type == "cpu" or not movable or examples is None:
            return send(task.inputs(split, index), self.device)
        rows = examples.inputs
        whole, places = (
            (rows.base, rows.index[index]) if isinstance(rows, RowView) else (rows, index)
        )
        copy = self._copy(whole)
        if copy is None:
            return send(task.inputs(split, index), self.device)
        inputs = gather(copy, places, self.device)
        return inputs if task.view is None else self._view(task.view)(inputs)

    def _copy(self, whole: Tensor) -> Tensor | None:
        """These inputs on the device, copied when they are asked for first; None where they do not
        fit.
        """
        if whole.device.type == self.device.type:  # a person has put them there
            return whole
        if whole not in self._copies:
            copy = None
            if fits(whole.nbytes, self.device):
                copy = torch.empty_like(whole, device=self.device)
                rows = max(1, PIECE // max(1, whole[:1].nbytes))
                for into, piece in zip(copy.split(rows), whole.split(rows), strict=True):
                    into.copy_(piece)
                    after_gathering(piece.nbytes)
            self._copies[whole] = copy
        return self._copies[whole]  # type: ignore[no-any-return]

    def _view(self, view: Any) -> Any:
        if view not in self._copies:
            self._copies[view] = view.to(self.device)
        return self._copies[view]
