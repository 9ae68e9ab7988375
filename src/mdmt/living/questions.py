"""Files to answer for: images decoded as the model reads them, and .npy, .npz and .csv."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from mdmt.errors import Mistake
from mdmt.inputs.arrays import read_inputs
from mdmt.inputs.files import read_npy, read_npz
from mdmt.living.tables import read_table
from mdmt.words import printable


def read_files(
    paths: Sequence[str | Path],
    shape: tuple[int, ...],
    kind: str,
    columns: Sequence[str] | None = None,
) -> tuple[list[str], Tensor]:
    """The inputs in files, each with a name, for a model whose inputs have this shape and type.

    `columns` are the names of the model's columns, if it learned tables.
    """
    names: list[str] = []
    parts: list[Tensor] = []
    for path in map(Path, paths):
        shown = printable(str(path))
        suffix = path.suffix.lower()
        if suffix in (*READERS, ".csv"):
            is_table = suffix == ".csv"
            x = read_table(path, None, columns).numbers if is_table else READERS[suffix](path)
            inputs = as_model(shown, x, shape, kind)
            names += [f"{shown}[{row}]" for row in range(len(inputs))]
        else:
            inputs = _image(path, shape, kind)
            names.append(shown)
        parts.append(inputs)
    return names, torch.cat(parts)


def _image(path: Path, shape: tuple[int, ...], kind: str) -> Tensor:
    """An image file as the model reads it."""
    shown = printable(str(path))
    if path.is_dir():
        raise Mistake(f"{shown} is a folder: name the files in it")
    return as_image(shown, path, shape, kind)


def as_image(shown: str, source: Path | IO[bytes], shape: tuple[int, ...], kind: str) -> Tensor:
    """An image as the model reads it: of its size, in colour or grey."""
    from mdmt.data.images import as_grey, decode

    square = len(shape) == 3 and shape[0] in (1, 3) and shape[1] == shape[2]
    if not square or kind != "torch.uint8":
        raise Mistake(
            f"{shown}: the model does not read images but inputs of shape {shape} and type"
            f" {kind.removeprefix('torch.')}: give an .npy, .npz or .csv file"
        )
    pixels = decode(source, shape[1], name=shown).pixels
    if shape[0] == 1:
        pixels = as_grey(pixels)
    return torch.from_numpy(pixels.copy())[None]


def as_model(shown: str, x: Any, shape: tuple[int, ...], kind: str) -> Tensor:
    """Inputs of the model's shape and type; one input alone is a batch of one."""
    inputs = read_inputs(shown, x)
    assert isinstance(inputs, Tensor)
    if tuple(inputs.shape) == shape:
        inputs = inputs[None]
    if kind == "torch.float32" and inputs.dtype != torch.uint8:
        inputs = inputs.float()  # whole numbers of a table
    if (tuple(inputs.shape[1:]), str(inputs.dtype)) != (shape, kind):
        raise Mistake(
            f"{shown}: one input has shape {tuple(inputs.shape[1:])} and type {inputs.dtype}; those"
            f" of the model have shape {shape} and type {kind}"
        )
    return inputs


def _npz(path: Path) -> Any:
    """The array x, or the only one."""
    content = read_npz(path)
    names = list(content)
    if "x" not in names and len(names) != 1:
        found = printable(", ".join(names)) or "none"
        raise Mistake(f"{path} must hold the array x; it has {found}")
    return content["x" if "x" in names else names[0]].read()


READERS = {".npy": read_npy, ".npz": _npz}
