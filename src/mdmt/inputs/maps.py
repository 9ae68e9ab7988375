"""Memory-mapped files, whose pages are released before they fill the memory.

The system counts every page that was read as this process's memory until the page is released. A
released page stays in the system's cache as long as nobody else needs the space.
"""

from __future__ import annotations

import mmap
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

BUDGET = 64 * 2**20  # bytes to copy before pages are released

open_maps: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()
_gathered = 0  # bytes copied since pages were last released


def map_file(path: str | Path, size: int) -> Tensor:
    """The bytes of a file; writing to the tensor does not change the file."""
    with open(path, "rb") as file:
        pages = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY)
    open_maps.add(pages)
    return torch.frombuffer(pages, dtype=torch.uint8)


def adopt(array: Any) -> None:
    """Also release the pages of a `numpy.memmap`."""
    # Mode "c" is copy-on-write: releasing its pages would undo the owner's changes.
    if isinstance(array, np.memmap) and array.mode != "c":
        open_maps.add(array._mmap)  # type: ignore[attr-defined]


def after_gathering(size: int) -> None:
    """Count copied bytes, and release the pages of all maps when there are many."""
    global _gathered
    _gathered += size
    if _gathered < BUDGET or not hasattr(mmap, "MADV_DONTNEED"):
        return
    _gathered = 0
    for pages in list(open_maps):
        pages.madvise(mmap.MADV_DONTNEED)
