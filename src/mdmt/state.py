"""The one way state is saved: tensors as safetensors, the rest as JSON, written whole or not at all.

A folder holds one file per part, named by its content, and `state.json`, which names them and is renamed into place last:
until then the folder is what it was before. With `keep`, the state before the last stays beside it as `previous.json`, and is
read when the last is damaged.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from safetensors.torch import load, save
from torch import Tensor

FORMAT = 1
MANIFEST, PREVIOUS = "state.json", "previous.json"
Parts = dict[str, dict[str, Tensor]]


def reached(point: str) -> None:
    """A named moment of writing: tests die here."""


def write_state(folder: str | Path, parts: Parts, rest: dict[str, Any], *, keep: bool = False) -> None:
    """Save the parts and the rest; what the folder held before is replaced, or becomes the previous, at the very end."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for part, tensors in parts.items():
        data = save({name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()})
        digest = hashlib.sha256(data).hexdigest()
        files[part] = {"file": f"{part}-{digest[:16]}.safetensors", "sha256": digest}
        path = folder / files[part]["file"]
        if not path.exists() or path.stat().st_size != len(data):
            write_file(path, data)
        reached(f"{part} written")
    body = {"format": FORMAT, "files": files, "state": rest}
    used = {entry["file"] for entry in files.values()}
    if keep and (folder / MANIFEST).exists():
        last = (folder / MANIFEST).read_bytes()
        write_file(folder / PREVIOUS, last)
        used |= _files(last)
        reached("previous kept")
    write_json(folder / MANIFEST, {**body, "sha256": _digest(body)})
    reached("state written")
    for old in folder.iterdir():
        if old.suffix in (".safetensors", ".tmp") and old.name not in used:
            old.unlink()
            reached("old removed")


def _files(manifest: bytes) -> set[str]:
    """The files a manifest names; a damaged one names none."""
    try:
        return {entry["file"] for entry in json.loads(manifest)["files"].values()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return set()


def read_state(folder: str | Path, tell: Callable[[str], None] | None = None) -> tuple[Parts, dict[str, Any]]:
    """Read what `write_state` wrote; a missing or damaged file is a ValueError that names it.

    Where the last state is damaged and the one before was kept, that is read, and `tell` is told.
    """
    folder = Path(folder)
    try:
        return _read(folder, MANIFEST)
    except ValueError as damage:
        if not (folder / PREVIOUS).exists():
            raise
        found = _read(folder, PREVIOUS)
        if tell is not None:
            tell(f"{damage}; going on from the checkpoint before it")
        return found


def _read(folder: Path, name: str) -> tuple[Parts, dict[str, Any]]:
    manifest = folder / name
    try:
        body = json.loads(manifest.read_text())
    except FileNotFoundError:
        raise ValueError(f"{folder}: no saved state here ({name} is missing)") from None
    except ValueError:
        raise ValueError(f"{manifest} is damaged: not JSON") from None
    if not isinstance(body, dict) or body.pop("sha256", None) != _digest(body):
        raise ValueError(f"{manifest} is damaged: its checksum is wrong")
    if body["format"] > FORMAT:
        raise ValueError(f"{manifest} was written by a newer mdmt (format {body['format']}): update mdmt")
    parts: Parts = {}
    for part, entry in body["files"].items():
        path = folder / entry["file"]
        data = path.read_bytes() if path.exists() else b""
        if hashlib.sha256(data).hexdigest() != entry["sha256"]:
            raise ValueError(f"{path} is {'damaged: its checksum is wrong' if data else 'missing or empty'}")
        parts[part] = load(data)
    return parts, body["state"]


def write_json(path: Path, content: Any) -> None:
    """Write JSON whole or not at all."""
    write_file(path, (json.dumps(content, indent=1) + "\n").encode())


def write_file(path: Path, data: bytes) -> None:
    """Write a file whole or not at all: a temporary file, flushed to the disk, renamed into place."""
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
        todo = "free some space" if full else "make it writable"
        whole = f"{error.strerror}; what was saved before is whole: {todo}, and ask again"
        raise OSError(error.errno, whole, str(path)) from None
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
