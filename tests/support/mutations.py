"""Saved states that are signed but wrong: the checksums fit, the content does not."""

import copy
import json
import random
from pathlib import Path

import safetensors.torch
import torch

from mdmt.system.state import StateFolder

WRONG = (
    None,
    True,
    False,
    -1,
    0,
    0.5,
    -0.5,
    2**31,
    2**63,
    10**30,
    1e308,
    float("nan"),
    float("inf"),
    "",
    "x",
    "torch.nothing",
    "../../x",
    "\x1b[2J",
    "\ud800",
    "x" * 5000,
    [],
    [1],
    [[1]],
    [[-1, None]],
    {},
    {"a": {}},
)
TYPES = (
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
    torch.complex64,
)


def mutate(folder: Path, manifest: str, seed: int) -> str:
    """Change one thing in a saved state, sign it again, and say what was changed."""
    draw = random.Random(seed)
    saved = StateFolder(folder).open(manifest)
    rest = copy.deepcopy(saved.rest)
    parts = {name: saved.part(name) for name in saved.files}
    what = draw.choice(
        (_mutate_json, _mutate_json, _mutate_tensors, _mutate_tensors, _mutate_bytes)
    )
    told = what(draw, rest, parts)
    for name in [name for name, data in parts.items() if not data]:
        del parts[name]
    StateFolder(folder).write_as(manifest, parts.items(), rest)
    return told


def change(folder: Path, manifest: str, edit) -> None:
    """Let `edit` change the JSON and the tensors of a saved state, and sign it again."""
    saved = StateFolder(folder).open(manifest)
    rest = copy.deepcopy(saved.rest)
    tensors = {name: safetensors.torch.load(saved.part(name)) for name in saved.files}
    edit(rest, tensors)
    parts = {name: safetensors.torch.save(values) for name, values in tensors.items()}
    StateFolder(folder).write_as(manifest, parts.items(), rest)


def _mutate_json(draw, rest, parts):
    places = list(_places(rest))
    place = draw.choice(places)
    value = rest
    for key in place[:-1]:
        value = value[key]
    if draw.random() < 0.3:
        del value[place[-1]]
        return f"{place} deleted"
    wrong = copy.deepcopy(draw.choice(WRONG))
    value[place[-1]] = wrong
    return f"{place} = {wrong!r}"[:200]


def _places(value, trail=()):
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in pairs:
        yield (*trail, key)
        if isinstance(inner, dict | list):
            yield from _places(inner, (*trail, key))


def _mutate_tensors(draw, rest, parts):
    part = draw.choice(sorted(parts))
    tensors = safetensors.torch.load(parts[part])
    name = draw.choice(sorted(tensors))
    value = tensors[name]
    kind = draw.choice(
        ("delete", "rename", "dtype", "flat", "row", "rows", "dimension", "empty", "number", "fill")
    )
    told = kind
    if kind == "delete":
        del tensors[name]
    elif kind == "rename":
        tensors[draw.choice((f"{name}x", "x", "\u202e", f"{name}.0", "method.gradient"))] = value
        del tensors[name]
    elif kind == "dtype":
        dtype = draw.choice(TYPES)
        told += str(dtype)
        tensors[name] = value.to(dtype)
    elif kind == "flat":
        tensors[name] = value.reshape(-1)
    elif kind == "row":
        tensors[name] = value[:-1].clone() if value.ndim else value[None]
    elif kind == "rows":
        tensors[name] = torch.cat([value, value]) if value.ndim else value.expand(3).clone()
    elif kind == "dimension":
        tensors[name] = value[None].clone()
    elif kind == "empty":
        tensors[name] = value.new_empty(0)
    elif kind == "number":
        tensors[name] = value.new_zeros(())
    else:
        fill = draw.choice((-1, 0, 1, 100, 2**40, float("nan"), float("inf")))
        told += str(fill)
        filled = torch.full_like(value, -7) if value.dtype.is_floating_point else value.clone()
        try:
            filled.fill_(fill)
        except (RuntimeError, ValueError, OverflowError):
            filled.fill_(1)
        tensors[name] = filled
    parts[part] = safetensors.torch.save(tensors)
    return f"{part}: {name}: {told}"


def _mutate_bytes(draw, rest, parts):
    part = draw.choice(sorted(parts))
    data = bytearray(parts[part])
    kind = draw.choice(("flip", "cut", "none", "header", "long"))
    if kind == "flip":
        for _ in range(3):
            data[draw.randrange(min(len(data), 400))] ^= 1 << draw.randrange(8)
    elif kind == "cut":
        del data[draw.randrange(len(data)) :]
    elif kind == "none":
        data.clear()
    elif kind == "header":
        data[:8] = draw.choice((0, 1, 7, 10**8, 2**40, 2**63)).to_bytes(8, "little")
    else:
        header = json.dumps(
            {"x": {"dtype": "F32", "shape": [2**62, 2**62], "data_offsets": [0, 0]}}
        ).encode()
        data[:] = len(header).to_bytes(8, "little") + header
    parts[part] = bytes(data)
    return f"{part}: bytes {kind}"
