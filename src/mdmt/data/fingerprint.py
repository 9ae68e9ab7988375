"""Fingerprints of image files, from their names, sizes and times; no image is read."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from mdmt.data.readers import ImageList
from mdmt.data.sources import find_data_set, locate, substitute_note
from mdmt.errors import Mistake


def fingerprint(root: Path, paths: Iterable[Path]) -> str:
    """Hash the names below `root`, the sizes and the times of some files."""
    digest = hashlib.sha256()
    for path in paths:
        about = _stat(path)
        line = f"{os.path.relpath(path, root)}\0{about.st_size}\0{about.st_mtime_ns}\n"
        digest.update(os.fsencode(line))
    return digest.hexdigest()


def unpublished_fingerprint(
    name: str,
    data: str | Path | None,
    read: Callable[[Path], ImageList],
    published: tuple[int, int],
) -> str | None:
    """The fingerprint of a data set that differs from the published one, else None.

    None also for a data set that is still packed. It counts as published if it has the published
    numbers of training and test images, is not marked as a substitute, and has about the published
    size: resized copies are other images.
    """
    location = locate(name, data)
    if location.archive is not None:
        return None
    images = read(location.folder)
    size = sum(_stat(path).st_size for path in images.paths)
    has_published_size = size > find_data_set(name).files[0].size / 2
    complete = (len(images.train), len(images.test)) == published
    if complete and has_published_size and substitute_note(location) is None:
        return None
    return fingerprint(location.folder, images.paths)


def _stat(path: Path) -> os.stat_result:
    try:
        return os.stat(path)
    except OSError:
        raise Mistake(f"{path} is missing") from None
