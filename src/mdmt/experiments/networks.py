"""The network of a run: the benchmark's own, or another one, from scratch or from a file of weights."""

from __future__ import annotations

from typing import Any

from mdmt.benchmarks.registry import Benchmark
from mdmt.errors import Mistake

CONVOLUTIONAL = ("reduced_resnet18", "resnet18")  # what images may be given to, of any size


def backbone_for(bench: Benchmark, asked: tuple[str, dict[str, Any]] | None, weights: str | None) -> dict[str, Any]:
    """The spec of the network that --backbone asks for, by name and arguments.

    Without it this is the benchmark's own, or ResNet-18 where colour images are to start from weights.
    """
    channels = bench.backbone["arguments"].get("channels")
    if asked is None:
        if weights is None or bench.backbone["name"] == "resnet18" or channels != 3:
            return bench.backbone
        asked = ("resnet18", {})
    name, arguments = asked
    if channels is None:
        raise Mistake(f"--backbone {name}: {bench.name} has no images, and its own network")
    if name not in CONVOLUTIONAL:
        raise Mistake(f"--backbone {name}: must be one of {', '.join(CONVOLUTIONAL)}, such as 'resnet18[width=32]'")
    for key, value in arguments.items():
        if key != "width" or not str(value).isdecimal() or int(value) < 1:
            raise Mistake(f"--backbone {name}[{key}={value}]: it takes width=N, a whole number from 1")
    chosen = {key: int(value) for key, value in arguments.items()}
    usual = {"reduced_resnet18": 20, "resnet18": 64}[name]
    return {"name": name, "arguments": {"channels": channels, "width": usual, "norm_start": "fast", **chosen}}
