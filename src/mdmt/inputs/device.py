"""Moving examples to a device.

Labels, tasks and indices stay on the CPU, so that no step waits for the device. `send` is the only
way to a device, and does not wait either.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

EXAMPLES_SHARE = 0.5  # the share of a device's free memory for examples; the network needs the rest


def send(x: Tensor, device: torch.device) -> Tensor:
    """A tensor on the device, copied through pinned memory while the CPU continues."""
    if x.device.type == device.type == "cpu":
        return x
    if x.device.type != "cpu" or device.type in ("cpu", "mps"):  # mps shares the CPU's memory
        return x.to(device)
    return x.pin_memory().to(device, non_blocking=True)


def free_bytes(device: torch.device) -> int:
    """The free memory of a device; 0 if it cannot be measured."""
    module: Any = getattr(torch, device.type, None)
    if hasattr(module, "mem_get_info"):  # cuda, and xpu from torch 2.6 on
        return int(module.mem_get_info(device)[0])
    if device.type == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
    return 0


def fits(size: int, device: torch.device) -> bool:
    """Whether `size` more bytes of examples may be kept on a device; always true for the CPU."""
    return device.type == "cpu" or size <= EXAMPLES_SHARE * free_bytes(device)


def gather(column: Tensor, index: Tensor, device: torch.device) -> Tensor:
    """Rows of a column, on the device; `column` is there or on the CPU, `index` is on the CPU."""
    if column.device.type == "cpu":
        return send(column.index_select(0, index), device)
    return column.index_select(0, send(index, column.device))
