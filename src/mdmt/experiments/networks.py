"""The network of a run, with first weights that are drawn or read from a file."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import mdmt.backbones as backbones
from mdmt.backbones import Backbone
from mdmt.benchmarks.registry import Benchmark
from mdmt.benchmarks.splits import NetworkSpec
from mdmt.errors import Mistake
from mdmt.runs.config import RunConfig
from mdmt.system.own_code import is_own, load

CONVOLUTIONAL = ("reduced_resnet18", "resnet18")  # they take images of any size
Arguments = Mapping[str, str | int]  # of a network, as --backbone gives them
StateDict = dict[str, Any]  # tensors by name; a foreign file may hold other values
TORCHVISION_EPS = 1e-5  # of its batch norms


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
        return _own_spec(name, arguments, weights)
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


def _own_spec(name: str, arguments: Arguments, weights: str | None) -> NetworkSpec:
    if weights is not None:
        raise Mistake(f"--weights is for our networks: load them in {name}")
    for key, value in arguments.items():
        if not str(value).isdecimal() or int(value) < 1:
            raise Mistake(f"--backbone {name}[{key}={value}]: must be a whole number from 1")
    load("network", name)  # a mistake in it should stop the command before any run
    return {"name": name, "arguments": {key: int(value) for key, value in arguments.items()}}


def make_network(config: RunConfig) -> nn.Module:
    """Build the network of a run.

    The learner draws the weights of our networks; a user's own network is built with torch's
    generator at the seed of the run.
    """
    name = config.backbone["name"]
    if not is_own(name):
        backbone = backbones.make(config.backbone)
        if config.weights_file is not None:
            load_first_weights(backbone, config.weights_file, config.seed)
        return backbone
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        own = load("network", name)
        is_module = isinstance(own, nn.Module)
        network = copy.deepcopy(own) if is_module else own(**config.backbone["arguments"])
    if not isinstance(network, nn.Module):
        raise Mistake(
            f"network {name!r} is a {type(network).__name__}: it must be a torch.nn.Module, or"
            " a function that returns one"
        )
    return network


# Weights from a file.


def read_weights(file: str | Path) -> StateDict:
    """Read a state dict that `torch.save` or safetensors wrote."""
    try:
        if str(file).endswith(".safetensors"):
            return load_file(file)
        given = torch.load(file, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise Mistake(
            f"{file} is missing: --weights takes a state dict, such as torchvision's of resnet18"
        ) from None
    # A foreign file can fail in many ways; weights_only refuses everything except tensors.
    except Exception as error:
        raise Mistake(f"{file} is not a state dict of tensors ({type(error).__name__})") from None
    return given if isinstance(given, dict) else {}


def load_first_weights(backbone: Backbone, file: str | Path, seed: int) -> None:
    """Load a state dict of the same network into it, or torchvision's into a ResNet-18."""
    given = read_weights(file)
    own = backbone.state_dict()
    if not given.keys() >= own.keys():
        if backbone.spec["name"] != "resnet18":
            missing = next(name for name in own if name not in given)
            raise Mistake(
                f"{file} has no {missing!r}: it is not a state dict of {backbone.spec['name']}"
            )
        load_imagenet(backbone, file, seed)
        return
    for name, value in own.items():
        if getattr(given[name], "shape", None) != value.shape:
            raise Mistake(
                f"{file} has no {name!r} of shape {tuple(value.shape)}: it is of another network"
            )
    backbone.load_state_dict({name: given[name] for name in own})


def load_imagenet(backbone: Backbone, file: str | Path, seed: int) -> None:
    """Load the kernels and batch-norm weights of a torchvision state dict into a ResNet-18.

    The head is drawn from the seed, and statistics are not loaded. This is not the published
    checkpoint: its shortcuts have no batch norm, as in our network, while torchvision's have one.
    That one is folded in as it acts in evaluation: its factor gamma / sqrt(var + eps) into the 1x1
    kernel, its shift into the bias of the block's second batch norm, which joins the same sum.
    """
    given = read_weights(file)
    names = {"conv.weight": "conv1.weight", "norm.weight": "bn1.weight", "norm.bias": "bn1.bias"}
    for stage in range(8):
        ours, theirs = f"stages.{stage}", f"layer{stage // 2 + 1}.{stage % 2}"
        for i in (1, 2):
            names[f"{ours}.conv{i}.weight"] = f"{theirs}.conv{i}.weight"
            names |= {
                f"{ours}.norm{i}.{part}": f"{theirs}.bn{i}.{part}" for part in ("weight", "bias")
            }
        names[f"{ours}.shortcut.0.weight"] = f"{theirs}.downsample.0.weight"
    backbone.draw(torch.Generator().manual_seed(seed))
    with torch.no_grad():
        for name, value in backbone.named_parameters():
            source = given.get(names[name])
            if not isinstance(source, Tensor) or source.shape != value.shape:
                raise Mistake(
                    f"{file} has no {names[name]!r} of shape {tuple(value.shape)}: it is not a"
                    " resnet18"
                )
            value.copy_(source)
        for stage in (2, 4, 6):
            block: Any = backbone.get_submodule(f"stages.{stage}")
            factor, shift = _shortcut_norm(given, f"layer{stage // 2 + 1}.0.downsample.1", file)
            block.shortcut[0].weight.mul_(factor[:, None, None, None])
            block.norm2.bias.add_(shift)


def _shortcut_norm(given: StateDict, name: str, file: str | Path) -> tuple[Tensor, Tensor]:
    """The factor and the shift of a torchvision batch norm in evaluation mode."""
    parts: list[Any] = [
        given.get(f"{name}.{part}") for part in ("weight", "bias", "running_mean", "running_var")
    ]
    if not all(isinstance(part, Tensor) for part in parts):
        raise Mistake(f"{file} has no {name!r} with its statistics: it is not a resnet18")
    weight, bias, mean, variance = parts
    factor = weight / (variance + TORCHVISION_EPS).sqrt()
    return factor, bias - mean * factor
