"""Reading a foreign pickle (CIFAR-100 is published as one) without running any code it names.

Only a few names are allowed, and even those do not reach numpy's own unpickling: stand-ins collect
the description of an array, which is checked before the array is made.
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
        self.code = _text(code).lstrip("|<>=")
        self.order = "<"
        if self.code not in _NUMBERS:
            raise pickle.UnpicklingError(f"an array of {self.code!r}")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = ">" if _text(state[1]) == ">" else "<"

    def array(self, data: Any, shape: tuple[int, ...], fortran: bool) -> NDArray[Any]:
        kind = np.dtype(self.order + self.code)
        size = kind.itemsize * math.prod(shape)
        if not isinstance(data, (bytes, bytearray)) or len(data) != size:
            raise pickle.UnpicklingError("an array whose shape does not fit its bytes")
        return np.frombuffer(data, kind).reshape(shape, order="F" if fortran else "C").copy("K")


class _Array:
    """Stands in for an array: created empty, then given its state."""

    value: NDArray[Any] | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, fortran, data = state
        self.value = kind.array(data, shape, bool(fortran))


def _reconstruct(*_: object) -> _Array:
    return _Array()


def _from_buffer(data: Any, kind: _Kind, shape: tuple[int, ...], order: str | bytes) -> _Array:
    array = _Array()
    array.value = kind.array(data, shape, _text(order) == "F")
    return array


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "dtype"): _Kind,
    ("numpy", "ndarray"): _Array,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _reconstruct for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _from_buffer for core in ("core", "_core")},
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name}")
        return _ALLOWED[module, name]


def read_pickle(path: str | Path) -> Any:
    """Read a pickle of numpy arrays, dict, list, tuple, str, bytes and numbers; refuse any other.

    Strings of Python 2 become bytes. No code that the file names is run.
    """
    if not Path(path).exists():
        raise Mistake(f"{path} is missing")
    with open(path, "rb") as file:
        try:
            return _plain(_Unpickler(file, encoding="bytes").load(), {})
        except Exception as error:  # a damaged pickle can raise anything
            reason = str(error) or type(error).__name__
            raise Mistake(
                f"{path} is damaged or unsafe: only arrays and plain values are read ({reason})"
            ) from None


def _plain(value: Any, memo: dict[int, Any]) -> Any:
    """Replace stand-ins by their arrays; refuse anything that is not plain."""
    if isinstance(value, _PLAIN):
        return value
    if id(value) in memo:  # shared, or contained in itself
        return memo[id(value)]
    if isinstance(value, _Array) and value.value is not None:
        return memo.setdefault(id(value), value.value)
    if type(value) is dict:
        entries: dict[Any, Any] = memo.setdefault(id(value), {})
        entries.update((_plain(k, memo), _plain(v, memo)) for k, v in value.items())
        return entries
    if type(value) is list:
        items: list[Any] = memo.setdefault(id(value), [])
        items.extend(_plain(item, memo) for item in value)
        return items
    if type(value) is tuple:
        return memo.setdefault(id(value), tuple(_plain(item, memo) for item in value))
    raise pickle.UnpicklingError(f"a {type(value).__name__}")


def _text(value: str | bytes) -> str:
    return value.decode("ascii") if isinstance(value, bytes) else value
