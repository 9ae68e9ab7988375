"""Random numbers: a generator for each purpose, and torch's global ones while a learner learns.

A user's dropout draws from torch's global generators: one of the CPU, another of an accelerator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mdmt.errors import Mistake
from mdmt.inputs.saved import saved_tensor

ACCELERATORS = ("cuda", "mps", "xpu")  # devices with a generator of their own


class Purpose(IntEnum):
    """What random numbers are for. Each purpose has its own, so that none disturbs another."""

    ORDER = 1  # of a task's examples
    MEMORY = 2  # draws and replacements
    SAMPLE = 3  # of a task's examples, for a method that looks back
    AUGMENT = 5  # crops and flips of new examples
    ORDER_OF_MORE = 6  # of more data of an earlier task
    AUGMENT_MORE = 7
    STATISTICS = 8  # which stored examples batch norm's statistics are taken from


def generator(seed: int, purpose: Purpose, *numbers: int) -> np.random.Generator:
    """A generator that depends on the seed, the purpose and, say, the task and the step."""
    return np.random.default_rng([seed, int(purpose), *numbers])


class Randomness:
    """The states of torch's global generators that belong to a learner."""

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
        """Use these generators inside the block, then restore the caller's."""
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
        """Restore the states of this learner's devices; those of other devices are of no use."""
        for name, device in self.devices.items():
            if name not in states and name != "random":
                continue  # saved on another kind of device
            own = self.states[name]
            state = saved_tensor(states, name, own.shape, own.dtype)
            try:
                torch.Generator(device).set_state(state)
            except RuntimeError:
                raise Mistake(f"{name} is not the state of a generator") from None
            self.states[name] = state

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
    """The argument that names one of several GPUs to torch's functions; none for the CPU."""
    return () if device.type in ("cpu", "mps") else (device,)
