"""Reading a foreign pickle (CIFAR-100 is published as one) without running any code it names.

Only a few names are allowed, and even those do not reach numpy's own unpickling: stand-ins collect
the description of an array, which is checked before the array is made. The unpickler is the one in
Python: the one in C makes a table as long as the largest number in the file, and buffers as long as
the file claims.
"""

from __future__ import annotations

import io
import math
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mdmt.errors import Mistake
from mdmt.words import printable

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
        return np.frombuffer(data, kind).reshape(shape, order="F" if fortran else "C")


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


def _load_bytearray(unpickler: Any) -> None:
    """BYTEARRAY8, which numpy writes, with no more bytes than the file has."""
    (length,) = struct.unpack("<Q", unpickler.read(8))
    unpickler.append(bytearray(unpickler.read(length)))


def _load_build(unpickler: Any) -> None:
    """BUILD for stand-ins only: the names of functions are shared by all pickles."""
    if not isinstance(unpickler.stack[-2], _Kind | _Array):
        raise pickle.UnpicklingError("a state for something that has none")
    pickle._Unpickler.load_build(unpickler)  # type: ignore[attr-defined]


# Opcodes for persistent and registered objects, old instances and buffers outside of the file.
_REFUSED = {
    *(pickle.PERSID, pickle.BINPERSID, pickle.EXT1, pickle.EXT2, pickle.EXT4),
    *(pickle.INST, pickle.OBJ, pickle.NEXT_BUFFER, pickle.READONLY_BUFFER),
}


class _Unpickler(pickle._Unpickler):
    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        code: load
        for code, load in pickle._Unpickler.dispatch.items()
        if bytes([code]) not in _REFUSED
    } | {pickle.BYTEARRAY8[0]: _load_bytearray, pickle.BUILD[0]: _load_build}

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
    data = Path(path).read_bytes()
    try:
        return _Plain(len(data)).of(_Unpickler(io.BytesIO(data), encoding="bytes").load())
    except Exception as error:  # a damaged pickle can raise anything
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise Mistake(
            f"{path} is damaged or unsafe: only arrays and plain values are read"
            f" ({printable(reason)})"
        ) from None


class _Plain:
    """Replaces stand-ins by their arrays, and refuses anything that is not plain.

    All arrays together have at most as many bytes as the file, however often it names the same.
    """

    def __init__(self, most: int) -> None:
        self.left = most
        self.memo: dict[int, Any] = {}

    def of(self, value: Any) -> Any:
        if isinstance(value, _PLAIN):
            return value
        memo = self.memo
        if id(value) in memo:  # shared, or contained in itself
            return memo[id(value)]
        if isinstance(value, _Array) and value.value is not None:
            return memo.setdefault(id(value), self._copy(value.value))
        if type(value) is dict:
            entries: dict[Any, Any] = memo.setdefault(id(value), {})
            entries.update((self.of(k), self.of(v)) for k, v in value.items())
            return entries
        if type(value) is list:
            items: list[Any] = memo.setdefault(id(value), [])
            items.extend(map(self.of, value))
            return items
        if type(value) is tuple:
            return memo.setdefault(id(value), tuple(map(self.of, value)))
        raise pickle.UnpicklingError(f"a {type(value).__name__}")

    def _copy(self, array: NDArray[Any]) -> NDArray[Any]:
        self.left -= array.nbytes
        if self.left < 0:
            raise pickle.UnpicklingError("arrays that are larger than the file")
        return array.copy("K")


def _text(value: str | bytes) -> str:
    return value.decode("ascii") if isinstance(value, bytes) else value
