"""The folder format of saved state: binary parts and a JSON manifest that names them.

A part is a file named after its content (`model-<16 hex digits>.safetensors`). The manifest
`state.json` holds the names and checksums of the parts and the rest of the state as JSON. It is
renamed into place last, so a folder shows either the old state or the new one, never a mixture.
With `keep`, the replaced manifest stays as `previous.json`, to be read if the last is damaged.

Parts are bytes here: who saves encodes them and who reads decodes them, so this module needs
neither torch nor numpy.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from mdmt.errors import Mistake
from mdmt.system.files import JsonObject, write_file, write_json
from mdmt.words import printable

STATE_FORMAT = 1
MANIFEST = "state.json"
PREVIOUS = "previous.json"
PART = r"\w+-([0-9a-f]{16})\.safetensors"
TEMPORARY = rf"\.({PART}|{re.escape(MANIFEST)}|{re.escape(PREVIOUS)})\.\d+\.tmp"

T = TypeVar("T")


def _crash_point(name: str) -> None:
    """Mark a moment of writing at which the tests kill the process."""


@dataclass(frozen=True)
class SavedState:
    """One manifest of a folder: the state it describes, with parts that are read on demand."""

    folder: StateFolder
    name: str  # of the manifest, with its folder, for messages
    files: dict[str, dict[str, str]]  # by part: the name and the SHA-256 of its file
    rest: JsonObject

    def part(self, name: str) -> bytes:
        """Read a part; raise a Mistake if its file is missing or damaged."""
        file = self.files[name]["file"]
        path = self.folder.path / file
        data = path.read_bytes() if path.is_file() else b""
        if not data:
            raise Mistake(f"{self.folder.name}/{file} is missing or empty")
        if hashlib.sha256(data).hexdigest() != self.files[name]["sha256"]:
            raise Mistake(f"{self.folder.name}/{file} is damaged: its checksum is wrong")
        return data

    def decode(self, decode: Callable[[bytes], T], optional: Collection[str]) -> dict[str, T]:
        """Read and decode all parts, leaving out `optional` ones that are missing or damaged."""
        parts = {}
        for name in self.files:
            try:
                parts[name] = decode(self.part(name))
            except Mistake:
                if name not in optional:
                    raise
        return parts


class StateFolder:
    """A folder that holds a saved state, and possibly the state before it.

    Messages call the folder by its `name`, which is its path by default.
    """

    def __init__(self, folder: str | Path, name: str | None = None) -> None:
        self.path = Path(folder)
        self.name = name or printable(str(folder))

    @property
    def manifests(self) -> list[str]:
        """The names of the manifests in the folder, the current one first."""
        return [name for name in (MANIFEST, PREVIOUS) if (self.path / name).is_file()]

    def write(
        self, parts: Iterable[tuple[str, bytes]], rest: JsonObject, *, keep: bool = False
    ) -> None:
        """Save the parts and the rest of a state in place of the folder's current one.

        With `keep`, the current state becomes the previous one. If writing fails or the process is
        killed, the folder still holds the state it held before.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        replaced = _named_by(self.path / MANIFEST) | _named_by(self.path / PREVIOUS)
        files = {}
        for part, data in parts:
            files[part] = self._write_part(part, data)
            _crash_point(f"{part} written")
        used = {entry["file"] for entry in files.values()}
        if keep and (self.path / MANIFEST).exists():
            write_file(self.path / PREVIOUS, (self.path / MANIFEST).read_bytes())
            used |= _named_by(self.path / PREVIOUS)
            _crash_point("previous kept")
        body = {"format": STATE_FORMAT, "files": files, "state": rest}
        write_json(self.path / MANIFEST, {**body, "sha256": _digest(body)})
        _crash_point("state written")
        if not keep and _named_by(self.path / PREVIOUS):
            (self.path / PREVIOUS).unlink()
        self._remove_unused(replaced, used)

    def open(self, name: str = MANIFEST) -> SavedState:
        """Read a manifest; raise a Mistake that names it if it is missing or damaged."""
        shown = f"{self.name}/{name}"
        if not (self.path / name).is_file():  # a pipe would block forever
            raise Mistake(f"{self.name}: no saved state here ({name} is missing)")
        try:
            body = json.loads((self.path / name).read_bytes())
        except (ValueError, RecursionError):
            raise Mistake(f"{shown} is damaged: not JSON") from None
        if not isinstance(body, dict) or body.pop("sha256", None) != _digest(body):
            raise Mistake(f"{shown} is damaged: its checksum is wrong")
        number = body.get("format")
        if isinstance(number, int) and number > STATE_FORMAT:
            raise Mistake(f"{shown} was written by a newer mdmt (format {number}): update mdmt")
        files = _files_of(body)
        if number != STATE_FORMAT or files is None or not isinstance(body.get("state"), dict):
            raise Mistake(f"{shown} is damaged: it does not describe a saved state")
        return SavedState(self, shown, files, body["state"])

    def read(
        self,
        decode: Callable[[bytes], T],
        *,
        warn: Callable[[str], None] | None = None,
        optional: Collection[str] = (),
    ) -> tuple[dict[str, T], JsonObject]:
        """Read the parts and the rest of the last good state; raise a Mistake if there is none.

        If the current state is damaged, the previous one is read. If both are, but only in
        `optional` parts, these are left out. `warn` is called with a line about the damage.
        """
        names = self.manifests or [MANIFEST]
        damage: list[Mistake] = []
        for name, may_lack in [(name, lost) for lost in ((), optional) for name in names]:
            try:
                saved = self.open(name)
                parts = saved.decode(decode, may_lack)
            except Mistake as error:
                damage.append(error)
                continue
            if damage and warn is not None:
                remedy = "without it" if name == MANIFEST else "from the checkpoint before it"
                warn(f"{damage[0]}; going on {remedy}")
            return parts, saved.rest
        raise damage[0]

    def _write_part(self, part: str, data: bytes) -> dict[str, str]:
        digest = hashlib.sha256(data).hexdigest()
        path = self.path / f"{part}-{digest[:16]}.safetensors"
        if not path.exists() or path.stat().st_size != len(data):
            write_file(path, data)
        return {"file": path.name, "sha256": digest}

    def _remove_unused(self, replaced: set[str], used: set[str]) -> None:
        """Remove the files of replaced states, and what killed writers left behind.

        A killed writer leaves parts that no manifest names, and temporary files. They are
        recognised by their names, and a part also by its content, whose hash is in its name. All
        other files belong to somebody else and stay.
        """
        for path in sorted(self.path.iterdir()):
            if path.name in used:  # first, since the check of the content reads the file
                continue
            if path.name in replaced or re.fullmatch(TEMPORARY, path.name) or _is_part(path):
                path.unlink(missing_ok=True)
                _crash_point("old removed")


def _named_by(manifest: Path) -> set[str]:
    """The files that a manifest names; none if it is missing or unreadable."""
    try:
        files = _files_of(json.loads(manifest.read_bytes()))
    except (OSError, ValueError, RecursionError):
        return set()
    return {entry["file"] for entry in (files or {}).values()}


def _files_of(body: Any) -> dict[str, dict[str, str]] | None:
    """The parts that a manifest lists; None unless each has the name of a part and a checksum."""
    files = body.get("files") if isinstance(body, dict) else None
    if not isinstance(files, dict):
        return None
    for entry in files.values():
        if not isinstance(entry, dict) or not isinstance(entry.get("sha256"), str):
            return None
        if not re.fullmatch(PART, str(entry.get("file"))):  # nor a path to another folder
            return None
    return files


def _is_part(path: Path) -> bool:
    match = re.fullmatch(PART, path.name)
    if match is None or not path.is_file():
        return False
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16] == match[1]


def _digest(body: JsonObject) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
