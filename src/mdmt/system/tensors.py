"""Safetensors files of unknown origin: bounded before they are parsed, and read as numpy arrays.

A file begins with the length of its header, then comes the header as JSON, with an entry for each
tensor. The library checks that entries fit the file; here the header and the number of its entries
are limited first. `learning/checkpoints.py` reads the same files as torch's tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from mdmt.errors import Mistake, is_out_of_memory
from mdmt.words import printable

if TYPE_CHECKING:
    from numpy.typing import NDArray

LENGTH = 8  # bytes of the header's length
MAX_HEADER = 2**24  # bytes
MAX_TENSORS = 100_000

T = TypeVar("T")


def read_arrays(data: bytes) -> dict[str, NDArray[Any]]:
    """The arrays of a safetensors file; raise a Mistake if it is damaged."""
    from safetensors.numpy import load

    return decode(data, load)


def decode(data: bytes, load: Callable[[bytes], dict[str, T]]) -> dict[str, T]:
    """Apply `load`, one of the library's functions; raise a Mistake if the file is damaged."""
    from safetensors import SafetensorError

    check_header(data)
    try:
        return load(data)
    # The library knows types that numpy or torch lack, and shapes that they cannot have.
    except (
        SafetensorError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        RuntimeError,
    ) as error:
        if is_out_of_memory(error):  # the file may be whole
            raise
        reason = (str(error).splitlines() or [""])[0]
        raise Mistake(printable(f"no tensors ({reason or type(error).__name__})")) from None
    except BaseException as error:
        # The library is written in Rust, and panics if Python gives it no memory for an object.
        if type(error).__name__ == "PanicException" and "pointer is null" in str(error):
            raise MemoryError from None
        raise


def check_header(data: bytes) -> None:
    """Refuse a header that is longer than the file, or has more than any of ours would."""
    length = int.from_bytes(data[:LENGTH], "little")
    if len(data) < LENGTH or length > len(data) - LENGTH:
        raise Mistake("no tensors (the file is shorter than its header)")
    entries = data.count(b"{", LENGTH, LENGTH + length) if length <= MAX_HEADER else 0
    if length > MAX_HEADER or entries > MAX_TENSORS:
        raise Mistake(
            f"no tensors (its header has more than {MAX_HEADER:,} bytes or {MAX_TENSORS:,} entries)"
        )
