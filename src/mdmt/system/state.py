"""The one way state is saved: tensors as safetensors, the rest as JSON, written whole or not at
all.

A folder holds one file per part, named by its content, and `state.json`, which names them and is
renamed into place last: until then the folder is what it was before. With `keep`, the state before
the last stays beside it as `previous.json`, and is read when the last is damaged.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from safetensors.torch import load, save
from torch import Tensor

from mdmt.errors import Mistake
from mdmt.system.files import write_file, write_json

FORMAT = 1
MANIFEST, PREVIOUS = "state.json", "previous.json"
Parts = dict[str, dict[str, Tensor]]


def _crash_point(name: str) -> None:
    """A named moment of writing: tests die here."""


def write_state(
    folder: str | Path, parts: Parts, rest: dict[str, Any], *, keep: bool = False
) -> None:
    """Save the parts and the rest; what the folder held before is replaced, or becomes the
    previous, at the very end.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for part, tensors in parts.items():
        data = save(
            {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
        )
        digest = hashlib.sha256(data).hexdigest()
        files[part] = {"file": f"{part}-{digest[:16]}.safetensors", "sha256": digest}
        path = folder / files[part]["file"]
        if not path.exists() or path.stat().st_size != len(data):
            write_file(path, data)
        _crash_point(f"{part} written")
    body = {"format": FORMAT, "files": files, "state": rest}
    used = {entry["file"] for entry in files.values()}
    if keep and (folder / MANIFEST).exists():
        last = (folder / MANIFEST).read_bytes()
        write_file(folder / PREVIOUS, last)
        used |= _files(last)
        _crash_point("previous kept")
    write_json(folder / MANIFEST, {**body, "sha256": _digest(body)})
    _crash_point("state written")
    for old in folder.iterdir():
        if old.suffix in (".safetensors", ".tmp") and old.name not in used:
            old.unlink()
            _crash_point("old removed")


def _files(manifest: bytes) -> set[str]:
    """The files a manifest names; a damaged one names none."""
    try:
        return {entry["file"] for entry in json.loads(manifest)["files"].values()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return set()


def read_state(
    folder: str | Path, warn: Callable[[str], None] | None = None, optional: Collection[str] = ()
) -> tuple[Parts, dict[str, Any]]:
    """Read what `write_state` wrote; a missing or damaged file is a Mistake that names it.

    Where the last state is damaged and the one before was kept, fall back to it and report that
    through `warn`. Where both are, but only in `optional` parts, go on without these.
    """
    folder = Path(folder)
    names = [name for name in (MANIFEST, PREVIOUS) if (folder / name).exists()] or [MANIFEST]
    attempts = [(name, lost) for lost in ((), optional) for name in names]
    damage: list[Mistake] = []
    for name, may_lack in attempts:
        try:
            parts, rest = _read(folder, name, may_lack)
        except Mistake as error:
            damage.append(error)
            continue
        if damage and warn is not None:
            remedy = "without it" if name == MANIFEST else "from the checkpoint before it"
            warn(f"{damage[0]}; going on {remedy}")
        return parts, rest
    raise damage[0]


def _read(folder: Path, name: str, may_lack: Collection[str]) -> tuple[Parts, dict[str, Any]]:
    manifest = folder / name
    try:
        body = json.loads(manifest.read_text())
    except FileNotFoundError:
        raise Mistake(f"{folder}: no saved state here ({name} is missing)") from None
    except ValueError:
        raise Mistake(f"{manifest} is damaged: not JSON") from None
    if not isinstance(body, dict) or body.pop("sha256", None) != _digest(body):
        raise Mistake(f"{manifest} is damaged: its checksum is wrong")
    if body["format"] > FORMAT:
        raise Mistake(
            f"{manifest} was written by a newer mdmt (format {body['format']}): update mdmt"
        )
    parts: Parts = {}
    for part, entry in body["files"].items():
        path = folder / Path(entry["file"]).name
        data = path.read_bytes() if path.exists() else b""
        if hashlib.sha256(data).hexdigest() == entry["sha256"]:
            parts[part] = load(data)
        elif part not in may_lack:
            raise Mistake(
                f"{path} is {'damaged: its checksum is wrong' if data else 'missing or empty'}"
            )
    return parts, body["state"]


def _digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
