"""Atomic writing of files, JSON, and locks between processes."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from mdmt.errors import Mistake
from mdmt.words import printable

JsonObject = dict[str, Any]  # keys and values as a file holds them, not checked yet


@contextmanager
def new_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for writing that replaces `path` only when the block ends without an error.

    The bytes go to a temporary file, which is flushed to the disk and then renamed, so a reader
    sees the old file or the whole new one.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):  # such as /dev/null
        raise Mistake(f"{printable(str(path))} is no ordinary file: it would be replaced")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder, new and removed ones, are on the disk.

    Until then a loss of power may bring a removed file back, or take a new one away, in any order.
    """
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def make_folder(path: Path) -> None:
    """Make a folder, with those above it, that a loss of power does not take away."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)


def remove_leftovers(path: Path) -> None:
    """Delete the temporary files that killed processes left while they wrote `path`."""
    for leftover in path.parent.glob(f".{path.name}.*.tmp"):
        leftover.unlink(missing_ok=True)


def remove_file(path: Path) -> None:
    """Remove a file or a link if there is one; a folder of this name stays."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)


def write_file(path: Path, data: bytes) -> None:
    """Write a file atomically; an OSError says what to do."""
    write_files({path: data})


def write_files(contents: dict[Path, bytes]) -> None:
    """Write several files, whole on the disk before the first one is replaced, in this order."""
    path = next(iter(contents))
    try:
        with ExitStack() as stack:
            # Entered in reverse, since a stack ends with the file that it began with.
            for path in reversed(contents):
                file = stack.enter_context(new_file(path))
                file.write(contents[path])
                file.flush()
                os.fsync(file.fileno())
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = "free some disk space" if full else "make the folder writable"
        reason = f"{error.strerror}; the previous file is intact; {advice} and try again"
        raise OSError(error.errno, reason, str(path)) from None


def write_json(path: Path, content: Any) -> None:
    """Write JSON atomically."""
    write_file(path, json_bytes(content))


def json_bytes(content: Any) -> bytes:
    """JSON as the bytes of a file."""
    return (json.dumps(content, indent=1) + "\n").encode()


def read_json(path: Path) -> JsonObject:
    """Read a JSON object; raise a Mistake that names the file if it holds anything else."""
    try:
        content = json.loads(path.read_text())
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise Mistake(f"{path.name} is damaged: it is not a JSON object")
    return content


@contextmanager
def lock(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Lock a file or folder for this process; create the file if it does not exist.

    If another process has locked it, wait for its end, or raise BlockingIOError without `wait`.
    """
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(handle)


def is_locked(path: Path) -> bool:
    """Whether a process has locked the file."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(handle)
    return False
