"""The update of the one flat parameter."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from mdmt.errors import Mistake


class Optimiser:
    """Plain SGD, or any class of `torch.optim` by its name, over the one flat parameter."""

    def __init__(self, name: str, lr: float, arguments: dict[str, Any] | None = None) -> None:
        if not isinstance(lr, (int, float)) or isinstance(lr, bool) or not (math.isfinite(lr) and lr > 0):
            raise Mistake(f"lr={lr!r}: must be a number above 0")
        if not (isinstance(name, str) and isinstance(getattr(torch.optim, name, None), type)):
            raise Mistake(f"optimiser={name!r}: must be the name of a class of torch.optim, such as 'SGD' or 'Adam'")
        self.name = name
        self.lr = lr
        self.arguments = arguments or {}
        self.flat: nn.Parameter | None = None
        self.engine: torch.optim.Optimizer | None = None  # plain SGD needs none, and torch's takes a second to load

    def bind(self, flat: nn.Parameter) -> None:
        """Belong to a model's parameters."""
        self.flat = flat
        if self.name != "SGD" or self.arguments:
            self.engine = getattr(torch.optim, self.name)([flat], lr=self.lr, **self.arguments)

    def step(self, gradient: Tensor) -> None:
        """One step against a gradient."""
        assert self.flat is not None
        if self.engine is None:
            self.flat.data.add_(gradient, alpha=-self.lr)
        else:
            self.flat.grad = gradient
            self.engine.step()

    def grow(self, before: int) -> None:
        """The parameters are more than they were before: pad what runs along them."""
        assert self.flat is not None
        memory = self._memory()
        for key, value in memory.items():
            if isinstance(value, Tensor) and value.shape == (before,):
                memory[key] = torch.cat([value, value.new_zeros(self.flat.numel() - before)])

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """What it remembers of the parameters; plain SGD remembers nothing."""
        return {key: value for key, value in self._memory().items() if isinstance(value, Tensor)}, {}

    def load_state(self, tensors: dict[str, Tensor], _: dict[str, Any]) -> None:
        """Take over what `state` gave."""
        if tensors:
            self._memory().update(tensors)

    def _memory(self) -> dict[str, Any]:
        return {} if self.engine is None else self.engine.state[self.flat]  # type: ignore[index]
