"""The cache of decoded images: its files, whether they are intact, and how they are removed.

A list of images has two files: `<key>.u8`, the pixels of all of them, and `<key>.json`, which has a
checksum of each image that is decoded already. The pixels are written first. Those of an image that
nobody has read yet are a hole in the file, which takes no space on the disk. The key is a hash of
the image size and of the image files. Nothing here loads torch.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import IO
from zlib import crc32

from mdmt.data.sources import cache_folder
from mdmt.errors import Mistake
from mdmt.system.files import lock, remove_leftovers, write_json

FORMAT = 2
# The files of a cache, with those that a killed process left unfinished.
OWN_FILE = re.compile(r"\.?([0-9a-f]{32})\.(u8|json|lock)(\.\d+\.tmp)?")


@dataclass
class Description:
    """The content of `<key>.json`."""

    folder: str  # where the image files lie
    size: int
    checksums: list[int | None]  # CRC-32 of the pixels of each image; None: not decoded yet
    enlarged: list[int] = field(default_factory=list)  # images that were smaller than `size`
    broken: dict[int, str] = field(default_factory=dict)  # why an image cannot be read
    format: int = FORMAT

    @classmethod
    def read(cls, path: Path) -> Description:
        """Read a description; a damaged one, or one of another version, is a ValueError."""
        try:
            content = json.loads(path.read_text())
            content["broken"] = {int(row): str(why) for row, why in content["broken"].items()}
            content["enlarged"] = [int(row) for row in content["enlarged"]]
            made = cls(**content)
            whole = all(one is None or isinstance(one, int) for one in made.checksums)
        except (AttributeError, KeyError, TypeError, OverflowError, RecursionError):
            raise ValueError(f"{path} is damaged") from None
        if not whole or made.format != FORMAT:
            raise ValueError(f"{path} is damaged")
        return made


class PixelFile:
    """The decoded pixels of a list of images."""

    def __init__(self, path: Path, images: int, size: int, folder: str) -> None:
        self.path = path
        self.images = images
        self.size = size
        self.folder = folder
        self.each = 3 * size * size  # bytes of an image
        self.read()

    @property
    def total(self) -> int:
        """The bytes of all images."""
        return self.images * self.each

    @property
    def description(self) -> Path:
        return self.path.with_suffix(".json")

    def read(self) -> None:
        """Read which images are decoded already."""
        self.about = Description(self.folder, self.size, [None] * self.images)
        self.is_damaged = False  # whether the description is, so that it says nothing of the pixels
        if not (self.description.exists() and self.path.exists()):
            return
        try:
            about = Description.read(self.description)
        except ValueError:
            self.is_damaged = True
            return
        self.is_damaged = len(about.checksums) != self.images
        if not self.is_damaged:
            self.about = about

    def missing(self, rows: Sequence[int]) -> list[int]:
        """Those of some images that are not decoded yet."""
        return [row for row in rows if self.about.checksums[row] is None]

    def damaged(self, rows: Sequence[int]) -> list[int]:
        """Those of some images whose pixels are no longer the ones that were written."""
        if self.is_damaged:
            return list(rows)
        decoded = [row for row in rows if self.about.checksums[row] is not None]
        if not decoded:
            return []
        wrong: list[int] = []
        pixels = bytearray(self.each)
        with open(self.path, "rb", buffering=0) as file:
            for row in decoded:
                file.seek(row * self.each)
                read = file.readinto(pixels)
                if read != self.each or crc32(pixels) != self.about.checksums[row]:
                    wrong.append(row)
        return wrong

    @contextmanager
    def writing(self) -> Iterator[IO[bytes]]:
        """Open the pixels for writing; the description is written when the block ends.

        After an error the description stays as it was, and pixels without one are removed.
        """
        try:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            with os.fdopen(handle, "r+b") as file:
                os.ftruncate(handle, self.total)
                yield file
                file.flush()
                os.fsync(handle)
            remove_leftovers(self.description)
            write_json(self.description, asdict(self.about))
        except BaseException:
            if not self.description.exists():
                self.path.unlink(missing_ok=True)
            raise

    def write(self, file: IO[bytes], row: int, pixels: bytes) -> None:
        """Write the pixels of one image."""
        file.seek(row * self.each)
        file.write(pixels)
        self.about.checksums[row] = crc32(pixels)

    def mark_used(self) -> None:
        """Set the time of the description to now, if the folder is writable."""
        with suppress(OSError):
            os.utime(self.description)


# All that the cache holds.


@dataclass(frozen=True)
class Entry:
    """What the cache holds of one list of images."""

    name: str
    files: tuple[Path, ...]
    about: Description | None  # None if it is unfinished, damaged or of another version
    bytes: int  # that it takes on the disk
    used: datetime

    @property
    def decoded(self) -> int:
        """How many of the images are decoded."""
        return sum(one is not None for one in self.about.checksums) if self.about else 0


def images_folder() -> Path:
    """The folder of decoded images."""
    return cache_folder() / "images"


def entries(folder: Path) -> list[Entry]:
    """What lies in the cache, the last used first; files that mdmt did not write are left out."""
    files: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        match = OWN_FILE.fullmatch(path.name)
        if match and path.is_file() and not path.is_symlink():
            files.setdefault(match[1], []).append(path)
    found = [_entry(folder, name, tuple(paths)) for name, paths in files.items()]
    return sorted(found, key=lambda entry: entry.used, reverse=True)


def _entry(folder: Path, name: str, files: tuple[Path, ...]) -> Entry:
    try:
        about = Description.read(folder / f"{name}.json")
    except (OSError, ValueError):
        about = None
    stats = [path.stat() for path in files]
    size = sum(stat.st_blocks * 512 for stat in stats)
    return Entry(name, files, about, size, datetime.fromtimestamp(max(s.st_mtime for s in stats)))


def remove(entry: Entry) -> None:
    """Remove the files of an entry, unless a process is writing them.

    A process that reads them keeps them until it ends.
    """
    lock_file = entry.files[0].with_name(f"{entry.name}.lock")
    try:
        with lock(lock_file):
            for path in sorted({*entry.files, lock_file}, key=lambda path: path.suffix != ".json"):
                path.unlink(missing_ok=True)
    except BlockingIOError:
        raise Mistake(
            f"{entry.name} is in use: a process is decoding images into it; wait for its end"
        ) from None
