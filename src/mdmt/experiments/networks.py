"""The network of a run: the benchmark's own, or another one, from scratch or from a file of
weights.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

import mdmt.backbones as backbones
from mdmt.benchmarks.registry import Benchmark
from mdmt.errors import Mistake
from mdmt.experiments.first_weights import load_first_weights
from mdmt.runs.config import RunConfig
from mdmt.system.own_code import is_own, load

CONVOLUTIONAL = ("reduced_resnet18", "resnet18")  # what images may be given to, of any size


def image_size_for(bench: Benchmark, network: str) -> int | None:
    """The size of images unless another is asked for; ResNet-18 halves them at once, and gets one's
    own photos larger.
    """
    if bench.is_own and bench.image_size is not None and network == "resnet18":
        return 2 * bench.image_size
    return bench.image_size


def backbone_for(
    bench: Benchmark, asked: tuple[str, dict[str, Any]] | None, weights: str | None
) -> dict[str, Any]:
    """The spec of the network that --backbone asks for, by name and arguments; module:name is a
    person's own.

    Without it this is the benchmark's own, or ResNet-18 where colour images are to start from
    weights.
    """
    channels = bench.backbone["arguments"].get("channels")
    if asked is None:
        if weights is None or bench.backbone["name"] == "resnet18" or channels != 3:
            return bench.backbone
        asked = ("resnet18", {})
    name, arguments = asked
    if is_own(name):
        return _own_spec(name, arguments, weights)
    if channels is None:
        raise Mistake(f"--backbone {name}: {bench.name} has no images, and its own network")
    if name not in CONVOLUTIONAL:
        known = ", ".join(CONVOLUTIONAL)
        raise Mistake(
            f"--backbone {name}: must be one of {known}, such as 'resnet18[width=32]', or your own,"
            " module:name"
        )
    for key, value in arguments.items():
        if key != "width" or not str(value).isdecimal() or int(value) < 1:
            raise Mistake(
                f"--backbone {name}[{key}={value}]: it takes width=N, a whole number from 1"
            )
    chosen = {key: int(value) for key, value in arguments.items()}
    usual = {"reduced_resnet18": 20, "resnet18": 64}[name]
    return {
        "name": name,
        "arguments": {"channels": channels, "width": usual, "norm_start": "fast", **chosen},
    }


def _own_spec(name: str, arguments: dict[str, Any], weights: str | None) -> dict[str, Any]:
    if weights is not None:
        raise Mistake(f"--weights is for our networks: load them in {name}")
    for key, value in arguments.items():
        if not str(value).isdecimal() or int(value) < 1:
            raise Mistake(f"--backbone {name}[{key}={value}]: must be a whole number from 1")
    load("network", name)  # refused before any run
    return {"name": name, "arguments": {key: int(value) for key, value in arguments.items()}}


def make_network(config: RunConfig) -> nn.Module:
    """The network of a run: weights of ours are drawn by the learner, those of others here, from
    the seed.
    """
    name = config.backbone["name"]
    if not is_own(name):
        backbone = backbones.make(config.backbone)
        if config.weights_file is not None:
            load_first_weights(backbone, config.weights_file, config.seed)
        return backbone
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        given = load("network", name)
        network = (
            copy.deepcopy(given)
            if isinstance(given, nn.Module)
            else given(**config.backbone["arguments"])
        )
    if not isinstance(network, nn.Module):
        raise Mistake(
            f"network {name!r} is a {type(network).__name__}: it must be a torch.nn.Module, or"
            " make one"
        )
    return network
