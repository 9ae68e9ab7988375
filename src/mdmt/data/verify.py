"""Checking a data set that is there: whether its structure is right and, separately, whether its bytes are the published ones."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from mdmt.data import structure
from mdmt.data.archives import members, readable
from mdmt.data.fetch import checksum, unpacked, wrong
from mdmt.data.sources import DataSet, data_folder, find, substitute
from mdmt.errors import Mistake

Bytes = Literal["published", "differ", "not compared"]


@dataclass(frozen=True)
class Report:
    """What was found: the figures of the structure, whether the bytes are the published ones, and how that is known."""

    name: str
    folder: Path
    structure: dict[str, Any]
    bytes: Bytes
    why: str

    @property
    def line(self) -> str:
        """The verdict in a line."""
        found = {"published": "are the published ones", "differ": "differ", "not compared": "not compared"}[self.bytes]
        return f"{self.name}: structure right, bytes {found} ({self.why})"


def verify(name: str, folder: str | Path | None = None) -> Report:
    """Check a data set; a wrong structure, or a data set that is not there, is a ValueError that says what is wrong."""
    source, folder = find(name), data_folder(folder)
    parts = unpacked(name, folder)
    place = next(iter(parts.values())).parent
    note = substitute(name, folder)
    try:
        figures = structure.check(source, parts)
    except ValueError as error:
        if note is None:
            raise Mistake(f"{name}: wrong structure in {place}: {error}") from None
        raise Mistake(f"{name}: substitute images in {place}: {note} ({error})") from None
    if note is not None:
        return Report(name, place, figures, "differ", f"substitute images: {note}")
    return Report(name, place, figures, *_bytes(source, parts, folder))


def _bytes(source: DataSet, parts: dict[str, Path], folder: Path) -> tuple[Bytes, str]:
    """Whether the bytes are the published ones, and how that is known."""
    if source.part_md5:
        return _by_checksum(source, parts)
    if (folder / source.files[0].name).is_file():
        return _by_archive(source, next(iter(parts.values())).parent, folder / source.files[0].name)
    if size := _one_size(parts[source.parts[0]] if parts[source.parts[0]].is_dir() else None):
        return "differ", f"the images are a copy resized to {size}"
    return "not compared", f"{source.files[0].name} is not beside it to compare with"


def _by_checksum(source: DataSet, parts: dict[str, Path]) -> tuple[Bytes, str]:
    for part, path in parts.items():
        packed = path.suffix == ".gz"
        found = checksum(path, "md5", gzip.open if packed else open)
        if found != source.part_md5[part]:
            return "differ", f"{part} has md5 {found} instead of {source.part_md5[part]}"
    published = {file.name: file for file in source.files}
    anew = [p.name for p in parts.values() if p.suffix == ".gz" and wrong(p, published[p.name]) is not None]
    return "published", "by the md5 of each file" + (" once unpacked; the .gz files were packed anew" if anew else "")


def _by_archive(source: DataSet, place: Path, archive: Path) -> tuple[Bytes, str]:
    file = source.files[0]
    if file.md5 is None and file.sha256 is None:
        return "not compared", f"{file.name}: {file.checksum}"
    if (problem := wrong(archive, file)) is not None:
        return "differ", f"{file.name}: {problem}"
    with readable(archive):
        for path, content in members(archive):
            if content is not None and path.parts[:1] == (source.folders[0],):
                mine = place.joinpath(*path.parts[1:])
                if not mine.is_file() or mine.read_bytes() != content.read():
                    return "differ", f"{path} is not as in {file.name}"
    return "published", f"each file is as in {file.name}, which has the {file.checksum}"


def _one_size(images: Path | None) -> str | None:
    """The size all images have, where they have one: photographs as published do not."""
    from PIL import Image

    sizes = set()
    for path in islice(images.glob("*/*.jpg"), 50) if images is not None else ():
        try:
            with Image.open(path) as image:
                sizes.add(image.size)
        except OSError:
            return None
    return "{}x{} pixels".format(*sizes.pop()) if len(sizes) == 1 else None
