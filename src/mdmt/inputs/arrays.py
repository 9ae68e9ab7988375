"""What a person hands in as inputs and labels, as tensors: arrays, tensors, frames, lists, files
mapped into memory.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import mdmt.inputs.maps as maps
from mdmt.errors import Mistake

CHUNK = 2**22  # numbers that are looked at together


@dataclass(frozen=True)
class RowView:
    """Some rows of a larger tensor, such as a memory map: read when they are asked for, never
    copied as a whole.

    >>> rows = RowView(torch.tensor([[0], [10], [20], [30]]), torch.tensor([3, 1]))
    >>> rows.shape, rows[torch.tensor([1])].tolist()
    (torch.Size([2, 1]), [[10]])
    """

    base: Tensor
    index: Tensor

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, index: Tensor | slice | int) -> Tensor:
        return self.base[self.index[index]]

    @property
    def shape(self) -> torch.Size:
        """As if it were a tensor of its own."""
        return torch.Size((len(self.index), *self.base.shape[1:]))

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self.base.ndim

    @property
    def dtype(self) -> torch.dtype:
        """The kind of numbers."""
        return self.base.dtype


def read_inputs(where: str, x: Any) -> Tensor | RowView:
    """Inputs as a tensor, not copied where they can be used as they are; float64 becomes
    float32.
    """
    if isinstance(x, RowView):
        return x
    if hasattr(x, "to_numpy") and hasattr(x, "columns"):
        return _frame(where, x)
    if isinstance(x, (list, tuple)):
        return _listed(where, x)
    if not isinstance(x, (Tensor, np.ndarray)) and not hasattr(x, "__array__"):
        raise Mistake(
            f"{where}: inputs are a {type(x).__name__}; arrays, tensors, frames and lists are read"
        )
    maps.adopt(x)
    inputs = x if isinstance(x, Tensor) else _tensor(where, np.asarray(x))
    return inputs.float() if inputs.dtype == torch.float64 else inputs


def first_not_finite(inputs: Tensor | RowView) -> int | None:
    """The first example with a NaN or infinite value; looked for in pieces, for there may be more
    than fits memory.
    """
    if not inputs.dtype.is_floating_point:
        return None
    rows = max(1, CHUNK // max(1, math.prod(inputs.shape[1:])))
    for start in range(0, len(inputs), rows):
        piece = inputs[start : start + rows]
        if not bool(torch.isfinite(piece).all()):
            return start + int((~torch.isfinite(piece)).flatten(1).any(1).nonzero()[0])
        maps.after_gathering(piece.nbytes)
    return None


def read_labels(where: str, y: Any) -> tuple[list[Hashable], NDArray[np.int64]]:
    """Labels as the distinct ones, and which of them each example has.

    They become plain Python values, so that they compare, hash and save alike wherever they came
    from.
    """
    if isinstance(y, Tensor):
        y = y.detach().cpu().numpy()
    if isinstance(y, str) or not hasattr(y, "__len__"):
        raise Mistake(f"{where}: labels are a {type(y).__name__}; one class per example is needed")
    if not isinstance(y, (list, tuple)):
        y = np.asarray(y)
        if y.ndim != 1:
            raise Mistake(f"{where}: labels of shape {y.shape}; one class per example is needed")
        if y.dtype.kind in "iub":
            distinct, which = np.unique(y, return_inverse=True)
            return distinct.tolist(), which.astype(np.int64, copy=False)
        y = y.tolist()
    number: dict[Hashable, int] = {}
    try:
        codes = [number.setdefault(v.item() if hasattr(v, "item") else v, len(number)) for v in y]
    except (TypeError, ValueError, RuntimeError):
        raise Mistake(
            f"{where}: a label is neither a number nor a name; one class per example is needed"
        ) from None
    for label, code in number.items():
        if _is_missing(label):
            raise Mistake(
                f"{where}: example {codes.index(code)} has no label ({label}); name its class, or"
                " leave it out"
            )
    return list(number), np.array(codes, np.int64)


def _is_missing(label: Hashable) -> bool:
    """None, NaN, or the like of a frame."""
    return label is None or type(label).__name__ in ("NAType", "NaTType") or label != label


def _frame(where: str, frame: Any) -> Tensor:
    """The columns of a frame, all of them numbers, as float32."""
    try:
        return _tensor(where, frame.to_numpy(dtype=np.float32, na_value=np.nan))
    except (TypeError, ValueError):
        for name in frame.columns:
            try:
                frame[name].to_numpy(dtype=np.float32, na_value=np.nan)
            except (TypeError, ValueError):
                raise Mistake(
                    f"{where}: column {name!r} holds text or other things than numbers; leave it"
                    " out, or code it"
                ) from None
        raise


def _listed(where: str, rows: Sequence[Any]) -> Tensor:
    """A list with an input each: numbers, arrays, tensors or images; numbers alone become
    float32.
    """
    if rows and (isinstance(rows[0], (Tensor, np.ndarray)) or hasattr(rows[0], "getbands")):
        inputs = [read_input(f"{where}: input {number}", row) for number, row in enumerate(rows)]
        for number, row in enumerate(inputs):
            if row.shape != inputs[0].shape or row.dtype != inputs[0].dtype:
                raise Mistake(
                    f"{where}: input {number} has shape {tuple(row.shape)} and is {row.dtype},"
                    f" input 0 has shape {tuple(inputs[0].shape)} and is {inputs[0].dtype}; they"
                    " must agree"
                )
        stacked = torch.stack(inputs)
        return stacked.float() if stacked.dtype == torch.float64 else stacked
    try:
        array = np.asarray(rows)
    except ValueError:
        raise Mistake(f"{where}: inputs are not of one shape") from None
    if array.dtype.kind not in "iubf":
        raise Mistake(
            f"{where}: inputs are not numbers; arrays, tensors, frames and lists of numbers are"
            " read"
        )
    return torch.from_numpy(array.astype(np.float32))


def read_input(where: str, value: Any) -> Tensor:
    """One input as a tensor; a PIL image as uint8 with its channels first."""
    if isinstance(value, Tensor):
        return value
    image = hasattr(value, "getbands")
    try:
        tensor = torch.from_numpy(np.array(value))  # a copy: a data set may reuse its memory
    except (TypeError, ValueError):
        raise Mistake(
            f"{where}: its input is a {type(value).__name__}, not numbers or an image"
        ) from None
    if image:
        tensor = tensor[None] if tensor.ndim == 2 else tensor.permute(2, 0, 1)
    return tensor


def _tensor(where: str, array: NDArray[Any]) -> Tensor:
    """An array as a tensor that shares its memory, writable or not: nothing here writes to
    inputs.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        try:
            return torch.as_tensor(array)
        except TypeError:
            raise Mistake(
                f"{where}: inputs are not numbers; arrays, tensors, frames and lists of numbers are"
                " read"
            ) from None


def read_dataset(where: str, dataset: Any) -> tuple[Tensor, list[Any]]:
    """The inputs and labels of a torch Dataset; a Mistake names an item that does not fit."""
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
