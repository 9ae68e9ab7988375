"""The network of a run, with first weights that are drawn or read from a file."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
from torch import nn

import mdmt.backbones as backbones
from mdmt.benchmarks.registry import Benchmark
from mdmt.benchmarks.splits import NetworkSpec
from mdmt.errors import Mistake
from mdmt.network.first_weights import load_first_weights
from mdmt.runs.config import RunConfig
from mdmt.system.own_code import is_own, load, refusal

CONVOLUTIONAL = ("reduced_resnet18", "resnet18")  # they take images of any size
Arguments = Mapping[str, str | int]  # of a network, as --backbone gives them


def image_size_for(bench: Benchmark, network: str) -> int | None:
    """The default size of images: own photos are twice as large for ResNet-18.

    Its first layer halves them.
    """
    if bench.is_own and bench.image_size is not None and network == "resnet18":
        return 2 * bench.image_size
    return bench.image_size


def backbone_for(
    bench: Benchmark, asked: tuple[str, Arguments] | None, weights: str | None
) -> NetworkSpec:
    """The spec of the network that --backbone names; module:name is the user's own.

    Without --backbone it is the benchmark's, or ResNet-18 if colour images start from --weights.
    """
    channels = bench.backbone["arguments"].get("channels")
    if asked is None:
        if weights is None or bench.backbone["name"] == "resnet18" or channels != 3:
            return bench.backbone
        asked = ("resnet18", {})
    name, arguments = asked
    if is_own(name):
        return own_spec(name, arguments, weights)
    if channels is None:
        raise Mistake(f"--backbone {name}: {bench.name} has no images; only its own network fits")
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


def own_spec(name: str, arguments: Arguments, weights: str | None) -> NetworkSpec:
    """The spec of a user's own network, which must be importable."""
    if weights is not None:
        raise Mistake(f"--weights is for our networks: load them in {name}")
    for key, value in arguments.items():
        if not str(value).isdecimal() or int(value) < 1:
            raise Mistake(f"--backbone {name}[{key}={value}]: must be a whole number from 1")
    load("network", name)  # a mistake in it should stop the command before any run
    return {"name": name, "arguments": {key: int(value) for key, value in arguments.items()}}


def make_network(config: RunConfig) -> nn.Module:
    """Build the network of a run; the learner draws the weights of ours."""
    name = config.backbone["name"]
    if is_own(name):
        return own_network(name, config.backbone["arguments"], config.seed)
    backbone = backbones.make(config.backbone)
    if config.weights_file is not None:
        load_first_weights(backbone, config.weights_file, config.seed)
    return backbone


def own_network(name: str, arguments: Arguments, seed: int) -> nn.Module:
    """Build a user's own network with torch's generator at this seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        own = load("network", name)
        try:
            network = copy.deepcopy(own) if isinstance(own, nn.Module) else own(**arguments)
        except Exception as error:
            raise refusal("network", name, "made", error) from error
    if not isinstance(network, nn.Module):
        raise Mistake(
            f"network {name!r} is a {type(network).__name__}: it must be a torch.nn.Module, or"
            " a function that returns one"
        )
    return network
