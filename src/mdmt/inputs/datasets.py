"""A `torch.utils.data.Dataset` as arrays: one tensor of inputs and one list of labels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from mdmt.errors import Mistake
from mdmt.inputs.arrays import read_input


def gather(where: str, dataset: Any) -> tuple[Tensor, list[Any]]:
    """Collect the inputs and labels of all items; a Mistake names an item that does not fit."""
    inputs: list[Tensor] = []
    labels: list[Any] = []
    for number, item in enumerate(_items(dataset)):
        if not isinstance(item, (tuple, list)) or len(item) != 2:
            raise Mistake(f"{where}: item {number} is not an (input, label) pair")
        inputs.append(read_input(f"{where}: item {number}", item[0]))
        labels.append(_label(f"{where}: item {number}", item[1]))
        first = inputs[0]
        if inputs[-1].shape != first.shape or inputs[-1].dtype != first.dtype:
            raise Mistake(
                f"{where}: item {number} has shape {tuple(inputs[-1].shape)} and is"
                f" {inputs[-1].dtype}, item 0 has shape {tuple(first.shape)} and is {first.dtype};"
                " they must agree"
            )
    return (torch.stack(inputs) if inputs else torch.empty(0, 1)), labels


def _items(dataset: Any) -> Iterator[Any]:
    """Iterate by number if the data set has a length, else in its own order."""
    if hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__"):
        return (dataset[i] for i in range(len(dataset)))
    return iter(dataset)


def _label(where: str, value: Any) -> Any:
    """Convert a label to a plain value."""
    if hasattr(value, "item"):
        try:
            value = value.item()
        except (ValueError, RuntimeError):
            raise Mistake(
                f"{where}: its label holds several values; one class per item is needed"
            ) from None
    if not isinstance(value, (int, float, str)):
        raise Mistake(f"{where}: its label is a {type(value).__name__}, not a number or a name")
    return value
