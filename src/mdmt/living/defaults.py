"""What `learn` uses unless told otherwise."""

from __future__ import annotations

import math
from typing import Any

from mdmt.errors import Mistake
from mdmt.memory import Balanced, BalancedFirst, Memory
from mdmt.methods import METHODS
from mdmt.methods.base import Method, Rehearsal

MEMORY = 50_000_000  # bytes
HOLDOUT = 0.1
METHOD = "er-ace"
SMALLEST_IMAGE = 8  # pixels
SETTINGS: dict[str, Any] = {"lr": 0.1, "batch": 10, "epochs": 5}
# Learning rates for pixels, of the methods that were tried on held-out data
# (bench/living_methods.py --tune). Features of an unknown scale get the smaller one above.
RATES = {"er": 0.3, "er-ace": 0.2, "mdmt-r": 0.2}
REPLAY = 32  # examples drawn from the memory at every step
# Arguments of methods that draw twice a step, or whose defaults are for one head per task.
ARGUMENTS: dict[str, dict[str, Any]] = {
    "der++": {"reference_batch": REPLAY // 2, "alpha": 0.03},
    "mdmt-r": {"reading": "paper", "distance": "none", "scale": 16.0},
}
# Methods that rehearse new classes while they are new; for the others a delivery enters the memory
# at its end.
MEMORIES: dict[str, type[Balanced]] = {"er-ace": BalancedFirst}
REBUILD_EPOCHS = 4  # times the usual epochs: a rebuilt network sees the memory alone


def settings_for(name: str) -> dict[str, Any]:
    """The arguments of a method; its steps shorten to nothing, so that a delivery ends settled."""
    if name not in METHODS:
        raise Mistake(f"method={name!r}: must be one of {', '.join(METHODS)}")
    replay = {"reference_batch": REPLAY} if issubclass(METHODS[name], Rehearsal) else {}
    return {"last_step": 0.0, **replay, **ARGUMENTS.get(name, {})}


def learning_for(name: str | None, *, pixels: bool) -> dict[str, Any]:
    """The learning rate of a method for such inputs, examples in a mini-batch, and passes."""
    rates = RATES if pixels else {}
    return {**SETTINGS, "lr": rates.get(name or METHOD, SETTINGS["lr"])}


def method_for(name: str | None) -> Method:
    """The method of a new model."""
    name = name or METHOD
    arguments = settings_for(name)
    return METHODS[name](**arguments)


def memory_for(method: Method, size: int) -> Memory:
    """A memory of so many bytes, as it suits a method."""
    return MEMORIES.get(method.name, Balanced)(size)


def network_for(shape: tuple[int, ...]) -> dict[str, Any]:
    """The spec of a network for such inputs: a reduced ResNet-18 for images, else an MLP."""
    if len(shape) == 3 and shape[0] in (1, 3) and min(shape[1:]) >= SMALLEST_IMAGE:
        arguments = {"channels": shape[0], "width": 20, "norm_start": "fast"}
        return {"name": "reduced_resnet18", "arguments": arguments}
    return {"name": "mlp", "arguments": {"inputs": math.prod(shape), "width": 256}}
