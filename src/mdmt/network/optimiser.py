"""The optimiser: plain SGD, or any class of `torch.optim`, over the one flat parameter."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from mdmt.errors import Mistake, first_line
from mdmt.inputs.saved import saved_tensor
from mdmt.words import printable


class Optimiser:
    """Moves the flat vector of weights against a gradient."""

    def __init__(self, name: str, lr: float, arguments: dict[str, Any] | None = None) -> None:
        number = isinstance(lr, (int, float)) and not isinstance(lr, bool)
        if not number or not (math.isfinite(lr) and lr > 0):
            raise Mistake(f"lr={lr!r}: must be a number above 0")
        if not (isinstance(name, str) and isinstance(getattr(torch.optim, name, None), type)):
            raise Mistake(
                f"optimiser={name!r}: must be the name of a class of torch.optim, such as 'SGD' or"
                " 'Adam'"
            )
        self.name = name
        self.lr = lr
        self.arguments = arguments or {}
        self.share = 1.0  # of the learning rate that the current step has
        self._try()
        self.flat: nn.Parameter | None = None
        # Plain SGD needs no torch.optim, which takes a second to load.
        self.engine: torch.optim.Optimizer | None = None

    @property
    def plain_lr(self) -> float | None:
        """The learning rate if a step is `weights -= lr * gradient`, else None."""
        return self.share * self.lr if self.engine is None else None

    def bind(self, flat: nn.Parameter) -> None:
        """Belong to a model's parameters."""
        self.flat = flat
        self.engine = self._engine(flat)

    def _engine(self, flat: nn.Parameter) -> torch.optim.Optimizer | None:
        if self.name == "SGD" and not self.arguments:
            return None
        made: torch.optim.Optimizer = getattr(torch.optim, self.name)(
            [flat], lr=self.lr, **self.arguments
        )
        return made

    def _try(self) -> None:
        """Refuse an optimiser that needs more than one vector of weights and its gradient."""
        flat = nn.Parameter(torch.zeros(2))
        flat.grad = torch.ones(2)
        try:
            engine = self._engine(flat)
            if engine is not None:
                engine.step()
        except (TypeError, ValueError, RuntimeError) as error:
            if self.arguments:
                raise Mistake(
                    f"optimiser_arguments={self.arguments}: {self.name} does not take them"
                    f" ({first_line(error)})"
                ) from None
            raise Mistake(
                f"optimiser={self.name!r} cannot be used here: {first_line(error)}; try 'SGD' or"
                " 'Adam'"
            ) from None

    def step(self, gradient: Tensor) -> None:
        """Move the weights against a gradient."""
        assert self.flat is not None
        if self.engine is None:
            self.flat.data.add_(gradient, alpha=-self.share * self.lr)
        else:
            self.engine.param_groups[0]["lr"] = self.share * self.lr
            self.flat.grad = gradient
            self.engine.step()

    def grow(self, before: int) -> None:
        """Pad every vector that had the length `before` of the parameters to their new length."""
        assert self.flat is not None
        memory = self._memory()
        for key, value in memory.items():
            if isinstance(value, Tensor) and value.shape == (before,):
                memory[key] = torch.cat([value, value.new_zeros(self.flat.numel() - before)])

    def release(self, positions: Tensor, length: int) -> None:
        """Forget what it knows of some positions of the parameters, which are `length` long."""
        for value in self._memory().values():
            if isinstance(value, Tensor) and value.shape == (length,):
                value[positions.to(value.device)] = 0

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The tensors that torch's optimiser keeps; plain SGD keeps none."""
        kept = self._memory().items()
        return {key: value for key, value in kept if isinstance(value, Tensor)}, {}

    def load_state(self, tensors: dict[str, Tensor], _: dict[str, Any]) -> None:
        """Restore what `state` gave."""
        if not tensors:
            return
        assert self.flat is not None
        expected = self._kept_after_a_step()
        for name in {**expected, **tensors}:
            if name not in expected:
                raise Mistake(f"optimiser.{printable(name)} is not what {self.name} keeps")
            shape = self.flat.shape if expected[name].ndim else ()
            value = saved_tensor(tensors, name, shape, expected[name].dtype, whose="optimiser.")
            if not value.ndim and not 0 <= float(value) < math.inf:
                raise Mistake(f"optimiser.{name} is {float(value)}: it must be 0 or more")
        for name, value in tensors.items():
            # Torch keeps single numbers, such as Adam's count of steps, on the CPU.
            self._memory()[name] = value.to(self.flat.device) if value.ndim else value

    def _kept_after_a_step(self) -> dict[str, Tensor]:
        """What torch's optimiser keeps of a vector of one weight."""
        if self.engine is None:
            return {}
        one = nn.Parameter(torch.zeros(1, dtype=self.flat.dtype))  # type: ignore[union-attr]
        one.grad = torch.zeros_like(one)
        engine = type(self.engine)([one], lr=self.lr, **self.arguments)  # type: ignore[call-arg]
        engine.step()
        return {
            name: value for name, value in engine.state[one].items() if isinstance(value, Tensor)
        }

    def _memory(self) -> dict[str, Any]:
        return {} if self.engine is None else self.engine.state[self.flat]  # type: ignore[index]
