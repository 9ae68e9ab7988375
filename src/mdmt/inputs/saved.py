"""Checks of what a file holds: tensors of the expected shape and type, names and labels."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from mdmt.errors import Mistake
from mdmt.words import printable

Shape = Sequence[int | None]  # None: any number
LARGEST_LABEL = 2**64  # numbers below it, also negative ones


def saved_tensor(
    tensors: Mapping[str, Tensor],
    name: str,
    shape: Shape,
    dtype: torch.dtype = torch.float32,
    *,
    whose: str = "",
) -> Tensor:
    """The tensor of this name; a Mistake says if it is missing, or of another shape or type.

    Every floating-point type is as good as another one.
    """
    shown = printable(f"{whose}{name}")
    if name not in tensors:
        raise Mistake(f"{shown} is missing")
    value = tensors[name]
    alike = value.dtype == dtype or (
        value.dtype.is_floating_point and dtype.is_floating_point and value.dtype.itemsize > 1
    )
    fits = value.ndim == len(shape) and all(
        wanted is None or size == wanted for size, wanted in zip(value.shape, shape, strict=True)
    )
    if not alike or not fits:
        sizes = " x ".join("N" if size is None else str(size) for size in shape) or "one number"
        raise Mistake(
            f"{shown} has shape {tuple(value.shape)} and type {_type(value.dtype)}: it must be"
            f" {sizes}, {_type(dtype)}"
        )
    return value


def check_range(name: str, values: Tensor, least: int, most: int) -> None:
    """Refuse whole numbers outside of a range."""
    if values.numel() and (int(values.min()) < least or int(values.max()) > most):
        raise Mistake(f"{name} has numbers outside of {least} to {most}")


def check_finite(name: str, values: Tensor) -> None:
    """Refuse NaN and infinite numbers."""
    if not bool(torch.isfinite(values).all()):
        raise Mistake(f"{printable(name)} has NaN or infinite values")


def is_text(value: Any) -> bool:
    """Whether a value is a text that can be written to a file; half of a surrogate pair cannot."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_label(value: Hashable) -> bool:
    """Whether a label can be saved and read back: a number, a text, or a tuple of them."""
    if isinstance(value, tuple):
        return all(map(is_label, value))
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return abs(value) < LARGEST_LABEL
    return is_text(value)


def as_label(value: Any) -> Any:
    """Make tuples again of the lists that JSON made of them."""
    return tuple(map(as_label, value)) if isinstance(value, list) else value


def _type(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
