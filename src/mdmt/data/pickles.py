"""Reading a foreign pickle (CIFAR-100 is given out as one) without running anything it asks for.

The names a pickle may use are few, and none of them reaches numpy's own rebuilding: stand-ins collect what an array is made
of, and the array is made here, from checked parts.
"""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdmt.errors import Mistake

_NUMBERS = frozenset(("b1", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"))
_PLAIN = (str, bytes, bytearray, int, float, type(None))


class _Kind:
    """Stands in for numpy.dtype: only the codes of plain numbers."""

    def __init__(self, code: str | bytes, *_: object) -> None:
        self.code, self.order = _text(code).lstrip("|<>="), "<"
        if self.code not in _NUMBERS:
            raise pickle.UnpicklingError(f"an array of {self.code!r}")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = ">" if _text(state[1]) == ">" else "<"

    def array(self, data: Any, shape: tuple[int, ...], fortran: bool) -> NDArray[Any]:
        kind = np.dtype(self.order + self.code)
        if not isinstance(data, (bytes, bytearray)) or len(data) != kind.itemsize * math.prod(shape):
            raise pickle.UnpicklingError("an array whose shape and bytes do not fit")
        return np.frombuffer(data, kind).reshape(shape, order="F" if fortran else "C").copy("K")


class _Array:
    """Stands in for an array while it is rebuilt: made empty, then given its state."""

    value: NDArray[Any] | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, fortran, data = state
        self.value = kind.array(data, shape, bool(fortran))


def _reconstruct(*_: object) -> _Array:
    return _Array()


def _from_buffer(data: Any, kind: _Kind, shape: tuple[int, ...], order: str | bytes) -> _Array:
    made = _Array()
    made.value = kind.array(data, shape, _text(order) == "F")
    return made


_ADMITTED: dict[tuple[str, str], Any] = {
    ("numpy", "dtype"): _Kind,
    ("numpy", "ndarray"): _Array,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _reconstruct for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _from_buffer for core in ("core", "_core")},
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ADMITTED:
            raise pickle.UnpicklingError(f"{module}.{name}")
        return _ADMITTED[module, name]


def read_pickle(path: str | Path) -> Any:
    """What a pickle holds, if that is numpy arrays, dict, list, tuple, str, bytes and numbers; else a ValueError.

    Strings of Python 2 are given as bytes. Nothing the file asks for is run.
    """
    if not Path(path).exists():
        raise Mistake(f"{path} is missing")
    with open(path, "rb") as file:
        try:
            return _plain(_Unpickler(file, encoding="bytes").load(), {})
        except Exception as error:  # a damaged pickle can raise anything
            why = str(error) or type(error).__name__
            raise Mistake(f"{path} is damaged or unsafe: only arrays and plain values are read ({why})") from None


def _plain(value: Any, known: dict[int, Any]) -> Any:
    """The value with its arrays in place of their stand-ins; anything not plain is refused."""
    if isinstance(value, _PLAIN):
        return value
    if id(value) in known:  # met before: shared, or inside itself
        return known[id(value)]
    if isinstance(value, _Array) and value.value is not None:
        return known.setdefault(id(value), value.value)
    if type(value) is dict:
        made: dict[Any, Any] = known.setdefault(id(value), {})
        made.update((_plain(k, known), _plain(v, known)) for k, v in value.items())
        return made
    if type(value) is list:
        items: list[Any] = known.setdefault(id(value), [])
        items.extend(_plain(v, known) for v in value)
        return items
    if type(value) is tuple:
        return known.setdefault(id(value), tuple(_plain(v, known) for v in value))
    raise pickle.UnpicklingError(f"a {type(value).__name__}")


def _text(value: str | bytes) -> str:
    return value.decode("ascii") if isinstance(value, bytes) else value
