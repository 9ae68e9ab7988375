"""What tells one set of images from another: names, sizes and times of its files. No image is read."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from mdmt.data.sources import Location, find, substitute_note
from mdmt.errors import Mistake


def fingerprint(root: Path, paths: Iterable[Path]) -> str:
    """A hash of the names below `root`, sizes and times of these files; where `root` lies does not matter."""
    digest = hashlib.sha256()
    for path in paths:
        about = _stat(path)
        line = f"{os.path.relpath(path, root)}\0{about.st_size}\0{about.st_mtime_ns}\n"
        digest.update(os.fsencode(line))
    return digest.hexdigest()


def unpublished_fingerprint(name: str, location: Location, paths: list[Path], complete: bool) -> str | None:
    """The fingerprint of what lies where a published data set is expected; None where it is that data set.

    It is when it is complete, is not called a substitute, and has about the published size: copies that
    were made smaller are other images.
    """
    size = sum(_stat(path).st_size for path in paths)
    has_published_size = size > find(name).files[0].size / 2
    if complete and has_published_size and substitute_note(location) is None:
        return None
    return fingerprint(location.folder, paths)


def _stat(path: Path) -> os.stat_result:
    try:
        return os.stat(path)
    except OSError:
        raise Mistake(f"{path} is missing") from None
