"""What tells one set of images from another: names, sizes and times of its files. No image is
read.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from mdmt.data.readers import ImageList
from mdmt.data.sources import find, locate, substitute_note
from mdmt.errors import Mistake


def fingerprint(root: Path, paths: Iterable[Path]) -> str:
    """A hash of the names below `root`, sizes and times of these files; where `root` lies does not
    matter.
    """
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
    """The fingerprint of what lies where a published data set is expected; None where it is that
    data set, or is packed.

    It is when it has the published numbers of images to train and to test on, is not called a
    substitute, and has about the published size: copies that were made smaller are other images.
    """
    location = locate(name, data)
    if location.archive is not None:
        return None
    images = read(location.folder)
    size = sum(_stat(path).st_size for path in images.paths)
    has_published_size = size > find(name).files[0].size / 2
    complete = (len(images.train), len(images.test)) == published
    if complete and has_published_size and substitute_note(location) is None:
        return None
    return fingerprint(location.folder, images.paths)


def _stat(path: Path) -> os.stat_result:
    try:
        return os.stat(path)
    except OSError:
        raise Mistake(f"{path} is missing") from None
