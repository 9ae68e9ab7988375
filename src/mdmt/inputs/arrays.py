"""Conversion of the user's inputs and labels: arrays, tensors, DataFrames, lists, memory maps."""

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
from mdmt.inputs.saved import is_label

SCAN_CHUNK = 2**22  # numbers checked at a time
NOT_NUMBERS = "{}: inputs are not numbers; pass an array, tensor, DataFrame or list of numbers"


@dataclass(frozen=True)
class RowView:
    """Some rows of a larger tensor, such as a memory map, which are read only when indexed.

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
        """The shape of the rows as one tensor."""
        return torch.Size((len(self.index), *self.base.shape[1:]))

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self.base.ndim

    @property
    def dtype(self) -> torch.dtype:
        """The type of the numbers."""
        return self.base.dtype


def read_inputs(where: str, x: Any) -> Tensor | RowView:
    """Inputs as a tensor, copied only if necessary; float64 becomes float32."""
    if isinstance(x, RowView):
        return x
    if hasattr(x, "to_numpy") and hasattr(x, "columns"):
        return _frame(where, x)
    if isinstance(x, (list, tuple)):
        return _listed(where, x)
    _refuse_sparse(where, x)
    if not isinstance(x, (Tensor, np.ndarray)) and not hasattr(x, "__array__"):
        raise Mistake(
            f"{where}: cannot read inputs of type {type(x).__name__}; pass an array, tensor,"
            " DataFrame or list"
        )
    _refuse_masked(where, "inputs", x)
    maps.adopt(x)
    inputs = x if isinstance(x, Tensor) else _tensor(where, np.asarray(x))
    return inputs.float() if inputs.dtype == torch.float64 else inputs


def read_scale(scale: Any) -> float | None:
    """The factor of inputs, a finite number other than 0; None stays None."""
    if scale is None:
        return None
    value = scale.item() if hasattr(scale, "item") and np.size(scale) == 1 else scale
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value == 0:
        raise Mistake(f"scale={value!r}: must be a finite number other than 0")
    return float(value)


def read_mean(mean: Any) -> Tensor | None:
    """The mean of inputs as float32, from a number, an array or a tensor; None stays None."""
    if mean is None:
        return None
    try:
        array = np.asarray(mean.detach().cpu() if isinstance(mean, Tensor) else mean)
        value = torch.as_tensor(_native(array))
        fits = value.dtype.is_floating_point or not value.dtype.is_complex
        checked = value.float() if fits and value.dtype != torch.bool else None
    except (TypeError, ValueError, RuntimeError):
        checked = None
    if checked is None or not bool(torch.isfinite(checked).all()):
        raise Mistake("mean must be an array or a tensor of finite numbers")
    return checked


def _refuse_masked(where: str, what: str, values: Any) -> None:
    """Refuse masked values: an array without its mask has arbitrary numbers in their place."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise Mistake(f"{where}: {what} have masked values; fill them, or leave those examples out")


def _refuse_sparse(where: str, x: Any) -> None:
    """Refuse sparse matrices, of scipy or torch: a dense one may be larger than memory."""
    if hasattr(x, "toarray") or (isinstance(x, Tensor) and x.layout != torch.strided):
        advice = "x.to_dense()" if isinstance(x, Tensor) else "x.toarray()"
        raise Mistake(f"{where}: inputs are sparse; pass {advice}, or fewer columns")
    if isinstance(x, Tensor) and x.is_quantized:
        raise Mistake(f"{where}: inputs are quantized; pass x.dequantize()")


def first_not_finite(inputs: Tensor | RowView) -> int | None:
    """The first example with a NaN or infinite value; inputs may be larger than memory."""
    if not inputs.dtype.is_floating_point:
        return None
    rows = max(1, SCAN_CHUNK // max(1, math.prod(inputs.shape[1:])))
    for start in range(0, len(inputs), rows):
        piece = inputs[start : start + rows]
        if not bool(torch.isfinite(piece).all()):
            return start + int((~torch.isfinite(piece)).flatten(1).any(1).nonzero()[0])
        maps.after_gathering(piece.nbytes)
    return None


def read_labels(where: str, y: Any) -> tuple[list[Hashable], NDArray[np.int64]]:
    """The distinct labels, and the index of each example's label among them.

    Labels become plain Python values, so that they compare, hash and save alike whatever their
    source.
    """
    _refuse_masked(where, "labels", y)
    if isinstance(y, Tensor):
        y = y.detach().cpu().numpy()
    if isinstance(y, str) or not hasattr(y, "__len__"):
        raise Mistake(
            f"{where}: cannot read labels of type {type(y).__name__}; pass one class per example"
        )
    if not isinstance(y, (list, tuple)):
        y = np.asarray(y)
        if y.ndim != 1:
            raise Mistake(f"{where}: labels have shape {y.shape}; pass one class per example")
        if y.dtype.kind in "iub":
            distinct, which = np.unique(y, return_inverse=True)
            return distinct.tolist(), which.astype(np.int64, copy=False)
        y = y.tolist()
    number: dict[Hashable, int] = {}
    try:
        codes = [number.setdefault(v.item() if hasattr(v, "item") else v, len(number)) for v in y]
    except (TypeError, ValueError, RuntimeError):
        raise Mistake(
            f"{where}: a label is neither a number nor a name; pass one class per example"
        ) from None
    for label, code in number.items():
        if _is_missing(label):
            raise Mistake(
                f"{where}: example {codes.index(code)} has no label ({label}); add its class or"
                " remove the example"
            )
        check_label(where, label)
    return list(number), np.array(codes, np.int64)


def check_label(where: str, label: Hashable) -> None:
    """Refuse a label that could be learned and then not be saved."""
    if not is_label(label):
        huge = isinstance(label, int)
        shown = "of more than 64 bits" if huge else f"{label!r:.60} ({type(label).__name__})"
        raise Mistake(f"{where}: a label {shown} cannot be saved; use numbers or names")


def _is_missing(label: Hashable) -> bool:
    """Whether a label is None, NaN, or a missing value of pandas."""
    return label is None or type(label).__name__ in ("NAType", "NaTType") or label != label


def _frame(where: str, frame: Any) -> Tensor:
    """A DataFrame as float32; a Mistake names a column that does not hold numbers."""
    try:
        return _tensor(where, frame.to_numpy(dtype=np.float32, na_value=np.nan))
    except (TypeError, ValueError):
        for name in frame.columns:
            try:
                frame[name].to_numpy(dtype=np.float32, na_value=np.nan)
            except (TypeError, ValueError):
                raise Mistake(
                    f"{where}: column {name!r} holds text or other values that are not numbers;"
                    " drop it or encode it as numbers"
                ) from None
        raise


def _listed(where: str, rows: Sequence[Any]) -> Tensor:
    """A list of numbers, arrays, tensors or images, one per example; numbers become float32."""
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
        raise Mistake(f"{where}: inputs differ in shape") from None
    if array.dtype.kind not in "iubf":
        raise Mistake(NOT_NUMBERS.format(where))
    return torch.from_numpy(array.astype(np.float32))


def read_input(where: str, value: Any) -> Tensor:
    """One input as a tensor; a PIL image becomes uint8 with channels first."""
    if isinstance(value, Tensor):
        return value
    image = hasattr(value, "getbands")
    try:
        tensor = torch.from_numpy(_native(np.array(value)))  # copied: its memory may be reused
    except (TypeError, ValueError):
        raise Mistake(
            f"{where}: cannot read an input of type {type(value).__name__}; pass numbers or an"
            " image"
        ) from None
    if image:
        tensor = tensor[None] if tensor.ndim == 2 else tensor.permute(2, 0, 1)
    return tensor


def _tensor(where: str, array: NDArray[Any]) -> Tensor:
    """An array as a tensor that shares its memory."""
    with warnings.catch_warnings():
        # A read-only array is fine: nothing here writes to inputs.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        try:
            return torch.as_tensor(_native(array))
        except TypeError:
            raise Mistake(NOT_NUMBERS.format(where)) from None


def _native(array: NDArray[Any]) -> NDArray[Any]:
    """The array as torch takes it: with the machine's order of bytes, and no negative strides."""
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return array.copy() if any(stride < 0 for stride in array.strides) else array


def read_dataset(where: str, dataset: Any) -> tuple[Tensor, list[Any]]:
    """The inputs and labels of a torch Dataset; a Mistake names an item that cannot be used."""
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
    """The items of a data set by number if it has a length, otherwise in iteration order."""
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
                f"{where}: its label holds several values; pass one class per item"
            ) from None
    if not isinstance(value, (int, float, str)):
        raise Mistake(f"{where}: its label is a {type(value).__name__}, not a number or a name")
    return value
