"""Files mapped into memory: read where they are needed, and given back before they fill it.

The system counts every page of a map that was read as this process's own until it is given back; it
is then still in the system's cache, as long as nobody else needs the room.
"""

from __future__ import annotations

import mmap
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

BUDGET = 64 * 2**20  # bytes that are gathered before pages are given back

open_maps: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()
_gathered = 0  # bytes since then


def map_file(path: str | Path, size: int) -> Tensor:
    """The bytes of a file; what is written to the tensor does not reach the file."""
    with open(path, "rb") as file:
        pages = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY)
    open_maps.add(pages)
    return torch.frombuffer(pages, dtype=torch.uint8)


def adopt(array: Any) -> None:
    """Give back the pages of a `numpy.memmap` too, unless its owner may have written to a copy of
    its own.
    """
    if isinstance(array, np.memmap) and array.mode != "c":
        open_maps.add(array._mmap)  # type: ignore[attr-defined]


def after_gathering(size: int) -> None:
    """So many bytes were copied, perhaps from maps: give their pages back when there are many."""
    global _gathered
    _gathered += size
    if _gathered < BUDGET or not hasattr(mmap, "MADV_DONTNEED"):
        return
    _gathered = 0
    for pages in list(open_maps):
        pages.madvise(mmap.MADV_DONTNEED)
