"""Files that are written whole or not at all, JSON, and locks. Nothing here loads torch."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from mdmt.errors import Mistake


def write_file(path: Path, data: bytes) -> None:
    """Write a file whole or not at all: a temporary file, flushed to the disk, renamed into
    place.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = "free some space" if full else "make it writable"
        whole = f"{error.strerror}; what was saved before is whole: {advice}, and ask again"
        raise OSError(error.errno, whole, str(path)) from None
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_json(path: Path, content: Any) -> None:
    """Write JSON whole or not at all."""
    write_file(path, (json.dumps(content, indent=1) + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object; anything else is a Mistake that names the file."""
    try:
        content = json.loads(path.read_text())
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise Mistake(f"{path.name} is damaged: it is no JSON object")
    return content


@contextmanager
def lock(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold a file or folder alone among processes; a file is made where there is none.

    Where another process holds it, wait for that one, or raise BlockingIOError.
    """
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(handle)


def is_locked(path: Path) -> bool:
    """Whether a process holds it."""
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
