"""Unpacking tar and zip archives that are not trusted.

Only files and folders are unpacked, inside the target folder and up to a given size.
"""

from __future__ import annotations

import errno
import lzma
import os
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from mdmt.errors import Mistake

MAX_MEMBERS = 200_000
MAX_NAME = 255  # bytes of a file name on Linux
MAX_DEPTH = 50  # folders inside folders
# zipfile raises NotImplementedError for a compression it does not know, and UnicodeDecodeError for
# a name that is not UTF-8; tarfile OverflowError for a length of hundreds of digits.
_DAMAGE = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError),
    *(EOFError, NotImplementedError, UnicodeDecodeError, OverflowError),
)


@dataclass(frozen=True)
class Member:
    """A file or folder of an archive; `problem` says why it is refused."""

    name: str
    content: IO[bytes] | None = None  # None for a folder
    problem: str = ""

    @property
    def path(self) -> PurePosixPath:
        """The name as a relative path."""
        return PurePosixPath(self.name)


def unpack(archive: Path, target: Path, max_bytes: int) -> None:
    """Unpack into a new folder; a Mistake names a refused member and leaves no folder."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    try:
        with report_damage(archive):
            for member in members(archive):
                max_bytes -= _write(archive, target / member.path, member.content, max_bytes)
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise


def _write(archive: Path, target: Path, content: IO[bytes] | None, max_bytes: int) -> int:
    """Write a file or folder and return its size in bytes."""
    size = 0
    try:
        if content is None:
            target.mkdir(parents=True, exist_ok=True)
            return size
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(target, "xb") as file:  # x: never overwrite an earlier member of the same name
            while block := content.read(1 << 20):
                size += len(block)
                if size > max_bytes:
                    raise Mistake(
                        f"{archive} is refused: it unpacks to more than the published data set"
                    )
                file.write(block)
    except (FileExistsError, NotADirectoryError, IsADirectoryError):
        raise Mistake(
            f"{archive} is refused: two of its members are called {target.name!r}"
        ) from None
    return size


def members(archive: Path) -> Iterator[Member]:
    """Yield the members; a Mistake names the first one that must not be unpacked."""
    listing = _zip_members(archive) if zipfile.is_zipfile(archive) else _tar_members(archive)
    for number, member in enumerate(listing):
        if number >= MAX_MEMBERS:
            raise Mistake(f"{archive} is refused: it has more than {MAX_MEMBERS} members")
        shown = repr(member.name if len(member.name) < 100 else f"{member.name[:97]}...")
        if member.problem:
            raise Mistake(f"{archive} is refused: its member {shown} is {member.problem}")
        if _is_outside(member):
            raise Mistake(
                f"{archive} is refused: its member {shown} would be written outside its folder"
            )
        parts = member.path.parts
        if len(parts) > MAX_DEPTH or any(len(os.fsencode(part)) > MAX_NAME for part in parts):
            raise Mistake(f"{archive} is refused: the name of its member {shown} is too long")
        if not parts and member.content is not None:
            raise Mistake(f"{archive} is refused: a member has no name")
        yield member


@contextmanager
def report_damage(archive: Path) -> Iterator[None]:
    """Turn the errors that a damaged archive raises into a Mistake."""
    try:
        yield
    except _DAMAGE as error:
        reason = str(error).split("\n")[0].rstrip(":") or "it ends too early"
        raise Mistake(f"{archive} is damaged: {reason}") from None
    except OSError as error:
        # Otherwise a fault of the disk. A place before the beginning of the file is EINVAL.
        if error.errno not in (None, errno.EINVAL):
            raise
        raise Mistake(f"{archive} is damaged: {error}") from None


def _is_outside(member: Member) -> bool:
    has_odd_character = any(character in member.name for character in ("\\", ":", "\0"))
    return member.path.is_absolute() or ".." in member.path.parts or has_odd_character


def _tar_members(archive: Path) -> Iterator[Member]:
    with tarfile.open(archive) as file:
        for info in file:
            if info.isdir():
                yield Member(info.name)
            elif info.isfile():
                yield Member(info.name, file.extractfile(info))
            elif info.issym() or info.islnk():
                yield Member(info.name, problem="a link")
            else:
                yield Member(info.name, problem="a device")


def _zip_members(archive: Path) -> Iterator[Member]:
    with zipfile.ZipFile(archive) as file:
        for info in file.infolist():
            name = info.orig_filename
            kind = (info.external_attr >> 16) & 0o170000  # the file type, if packed on Unix; else 0
            if kind == 0o120000:
                yield Member(name, problem="a link")
            elif kind not in (0, 0o040000, 0o100000):
                yield Member(name, problem="a device")
            elif info.flag_bits & 1:
                yield Member(name, problem="encrypted")
            elif name.endswith("/"):
                yield Member(name)
            else:
                with file.open(info) as content:
                    yield Member(name, content)


def rename_into(unpacked: Path, target: Path) -> None:
    """Move an unpacked folder to its place, which must be free."""
    if target.exists():
        raise Mistake(f"{target} is in the way and not complete: move it away and try again")
    os.rename(unpacked, target)
