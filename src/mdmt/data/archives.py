"""Unpacking a tar or zip archive that is not trusted: files and folders only, inside their folder, within a size."""

from __future__ import annotations

import os
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from mdmt.errors import Mistake

MOST_MEMBERS = 200_000
# NotImplementedError is zipfile's word for a compression it does not know.
_DAMAGED = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError)


def unpack(archive: Path, to: Path, room: int) -> None:
    """Unpack into a new folder, whole or not at all: a ValueError says which member was refused, and `to` is gone."""
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    try:
        with readable(archive):
            for path, content in members(archive):
                _write(archive, to / path, content, room)
                room -= (to / path).stat().st_size if content is not None else 0
    except BaseException:
        shutil.rmtree(to, ignore_errors=True)
        raise


def _write(archive: Path, target: Path, content: IO[bytes] | None, room: int) -> None:
    try:
        (target if content is None else target.parent).mkdir(parents=True, exist_ok=True)
        if content is None:
            return
        with open(target, "xb") as file:  # x: a second member of the same name does not overwrite the first
            while block := content.read(1 << 20):
                room -= len(block)
                if room < 0:
                    raise Mistake(f"{archive} is refused: it unpacks to more than this data set has")
                file.write(block)
    except (FileExistsError, NotADirectoryError, IsADirectoryError):
        raise Mistake(f"{archive} is refused: two of its members are called {target.name!r}") from None


def members(archive: Path) -> Iterator[tuple[PurePosixPath, IO[bytes] | None]]:
    """The members with their content, folders with None; one that must not be unpacked is a ValueError."""
    for number, (name, kind, content) in enumerate((_zip if zipfile.is_zipfile(archive) else _tar)(archive)):
        if number >= MOST_MEMBERS:
            raise Mistake(f"{archive} is refused: more than {MOST_MEMBERS} members")
        if kind:
            raise Mistake(f"{archive} is refused: its member {name!r} is {kind}")
        yield _inside(name, archive), content


@contextmanager
def readable(archive: Path) -> Iterator[None]:
    """Says in one line that an archive is damaged, wherever in reading it that shows."""
    try:
        yield
    except _DAMAGED as error:
        why = str(error).split("\n")[0].rstrip(":") or "it ends too early"
        raise Mistake(f"{archive} is damaged: {why}") from None
    except OSError as error:
        if error.errno is not None:  # a fault of the disk, not of the archive
            raise
        raise Mistake(f"{archive} is damaged: {error}") from None


def _inside(name: str, archive: Path) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name or "\0" in name:
        raise Mistake(f"{archive} is refused: its member {name!r} would be written outside its folder")
    return path


def _tar(archive: Path) -> Iterator[tuple[str, str, IO[bytes] | None]]:
    with tarfile.open(archive) as file:
        for member in file:
            if member.isdir():
                yield member.name, "", None
            elif member.isfile():
                yield member.name, "", file.extractfile(member)
            else:
                yield member.name, "a link" if member.issym() or member.islnk() else "a device", None


def _zip(archive: Path) -> Iterator[tuple[str, str, IO[bytes] | None]]:
    with zipfile.ZipFile(archive) as file:
        for member in file.infolist():
            kind = (member.external_attr >> 16) & 0o170000  # of the file, where it was packed on Unix; else 0
            if kind == 0o120000:
                yield member.orig_filename, "a link", None
            elif kind not in (0, 0o040000, 0o100000):
                yield member.orig_filename, "a device", None
            elif member.flag_bits & 1:
                yield member.orig_filename, "encrypted", None
            elif member.is_dir():
                yield member.orig_filename, "", None
            else:
                with file.open(member) as content:
                    yield member.orig_filename, "", content


def rename_into(unpacked: Path, target: Path) -> None:
    """Put an unpacked folder in its place, which must be free."""
    if target.exists():
        raise Mistake(f"{target} is in the way and not complete: move it away and try again")
    os.rename(unpacked, target)
