"""Files of numbers: .npy, .npz and .csv, from anybody.

What a header claims is compared with the size of the file, and with the memory of the machine,
before anything is allocated. A Mistake names a file that cannot be read.
"""

from __future__ import annotations

import csv
import errno
import math
import os
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from mdmt.errors import Mistake
from mdmt.words import bytes_text, printable

RATIO = 1032  # deflate packs no tighter
PIECE = 2**20  # bytes that are read at a time
HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn what a foreign file can raise into a Mistake."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of headers by old versions of numpy
            yield
    except Mistake:
        raise
    except Exception as error:
        # A fault of the disk is none of the file. A place before its beginning is EINVAL.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        reason = (str(error).splitlines() or [""])[0] or type(error).__name__
        raise Mistake(f"{printable(str(path))} cannot be read: {printable(reason)}") from None


def read_npy(path: Path) -> NDArray[Any]:
    """The array in an .npy file, mapped into memory, so that its size is that of the file."""
    with _readable(path):
        array: NDArray[Any] = np.lib.format.open_memmap(path, mode="r")
        if min(array.shape, default=0) < 0:
            raise ValueError(f"its shape is {array.shape}")
        return array


def read_npz(path: Path) -> dict[str, Npz]:
    """The arrays of an .npz file by name; each is read when it is asked for."""
    with _readable(path), zipfile.ZipFile(path) as archive:
        return {info.filename.removesuffix(".npy"): Npz(path, info) for info in archive.infolist()}


class Npz:
    """One array of an .npz file."""

    def __init__(self, path: Path, info: zipfile.ZipInfo) -> None:
        self.path = path
        self.info = info

    def read(self) -> NDArray[Any]:
        """The array; refuse one that is larger than its file or the machine can justify."""
        with (
            _readable(self.path),
            zipfile.ZipFile(self.path) as archive,
            archive.open(self.info) as file,
        ):
            version = np.lib.format.read_magic(file)
            if version not in HEADERS:
                raise Mistake(f"{printable(str(self.path))} holds a table, not an array")
            shape, fortran, kind = HEADERS[version](file)
            if min(shape, default=0) < 0:
                raise ValueError(f"its shape is {shape}")
            size = math.prod(shape) * kind.itemsize
            self._check(kind, size, file.tell())
            data = _read_exactly(file, size)
        array = np.frombuffer(data, kind) if size else np.empty(0, kind)
        return array.reshape(shape, order="F" if fortran else "C")

    def _check(self, kind: np.dtype[Any], size: int, begin: int) -> None:
        info, shown = self.info, printable(str(self.path))
        if kind.hasobject:
            raise Mistake(f"{shown} holds Python objects, not numbers or texts")
        packed = min(info.compress_size, self.path.stat().st_size)
        most = RATIO * packed + PIECE if info.compress_type == zipfile.ZIP_DEFLATED else packed
        if begin + size > min(info.file_size, most):
            raise Mistake(f"{shown} is damaged: its header promises more than it holds")
        if size > machine_memory():
            raise Mistake(
                f"{shown} does not fit: it needs {bytes_text(size)}, this machine has"
                f" {bytes_text(machine_memory())}"
            )


def _read_exactly(file: IO[bytes], size: int) -> bytearray:
    data = bytearray()
    while len(data) < size:
        piece = file.read(min(PIECE, size - len(data)))
        if not piece:
            raise EOFError("it ends too early")
        data += piece
    return data


def machine_memory() -> int:
    """The bytes of memory that this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def read_csv(path: Path) -> tuple[list[str], list[list[str]]]:
    """The header of a table, and its rows."""
    with _readable(path), path.open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.reader(file))
    return (rows[0], rows[1:]) if rows else ([], [])
