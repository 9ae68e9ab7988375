"""First weights from a file: a state dict of the same network, or torchvision's of a ResNet-18."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from mdmt.backbones import Backbone
from mdmt.errors import Mistake

StateDict = dict[str, Any]  # tensors by name; a foreign file may hold other values
TORCHVISION_EPS = 1e-5  # of its batch norms


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
