"""What `learn` uses unless told otherwise."""

from __future__ import annotations

import math
from typing import Any

from mdmt.errors import Mistake
from mdmt.methods import METHODS
from mdmt.methods.base import Method, Rehearsal

MEMORY = 50_000_000  # bytes
HOLDOUT = 0.1
METHOD = "er"
SMALLEST_IMAGE = 8  # pixels
SETTINGS: dict[str, Any] = {"lr": 0.05, "batch": 10, "epochs": 5}
REPLAY = 32  # examples drawn from the memory at every step
REBUILD_EPOCHS = 4  # times the usual epochs: a rebuilt network sees the memory alone


def method_for(name: str | None) -> Method:
    """The method of a new model."""
    name = name or METHOD
    if name not in METHODS:
        raise Mistake(f"method={name!r}: must be one of {', '.join(METHODS)}")
    arguments: dict[str, Any] = {}
    if issubclass(METHODS[name], Rehearsal):
        arguments["reference_batch"] = REPLAY
    return METHODS[name](**arguments)


def network_for(shape: tuple[int, ...]) -> dict[str, Any]:
    """The spec of a network for such inputs: a reduced ResNet-18 for images, else an MLP."""
    if len(shape) == 3 and shape[0] in (1, 3) and min(shape[1:]) >= SMALLEST_IMAGE:
        arguments = {"channels": shape[0], "width": 20, "norm_start": "fast"}
        return {"name": "reduced_resnet18", "arguments": arguments}
    return {"name": "mlp", "arguments": {"inputs": math.prod(shape), "width": 256}}
