"""Torch's global random numbers, which a user's dropout draws: the learner's own while it learns,
then the caller's again.

The processor has one generator of them, and an accelerator another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

ACCELERATORS = ("cuda", "mps", "xpu")  # devices with a generator of their own


class Randomness:
    """The states of the generators that a learner on a device draws from."""

    def __init__(self, seed: int, device: torch.device) -> None:
        devices = {"random": torch.device("cpu")}
        if device.type in ACCELERATORS:
            devices[f"random_{device.type}"] = device
        self.devices = devices
        self.states = {
            name: torch.Generator(place).manual_seed(seed).get_state()
            for name, place in devices.items()
        }
        self.in_use = False

    @contextmanager
    def drawn(self) -> Iterator[None]:
        """Until the end of the block torch draws from these; what it drew from before is as it
        was.
        """
        callers = self._get()
        self._set(self.states)
        self.in_use = True
        try:
            yield
        finally:
            self.states = self._get()
            self.in_use = False
            self._set(callers)

    def state(self) -> dict[str, Tensor]:
        """Each generator's state by name."""
        return self._get() if self.in_use else self.states

    def load_state(self, states: Mapping[str, Tensor]) -> None:
        """Take over those that are there: another device's are of no use on this one."""
        self.states |= {name: state for name, state in states.items() if name in self.devices}

    def _get(self) -> dict[str, Tensor]:
        return {
            name: _module(device).get_rng_state(*_which(device))
            for name, device in self.devices.items()
        }

    def _set(self, states: Mapping[str, Tensor]) -> None:
        for name, device in self.devices.items():
            _module(device).set_rng_state(states[name], *_which(device))


def _module(device: torch.device) -> Any:
    return torch if device.type == "cpu" else getattr(torch, device.type)


def _which(device: torch.device) -> tuple[torch.device, ...]:
    """What its functions want to be told: there may be several graphics cards."""
    return () if device.type in ("cpu", "mps") else (device,)
