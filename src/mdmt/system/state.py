"""The folder format of saved state: binary parts and a JSON manifest that names them.

A part is a file named after its content (`model-<16 hex digits>.safetensors`). The manifest
`state.json` holds the names and checksums of the parts and the rest of the state as JSON. It is
renamed into place last, so a folder shows either the old state or the new one, never a mixture.
With `keep`, the replaced manifest stays as `previous.json`, to be read if the last is damaged. The
two share no file: a part that has not changed has a second copy (`memory_copy-<...>.safetensors`).
Later states use the two copies in turn, so the second one is written once.

One process writes at a time: it locks the folder. Readers do not wait for it. If a state is
replaced while it is read, it is read again with the folder locked.

Parts are bytes here: who saves encodes them and who reads decodes them, so this module needs
neither torch nor numpy.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from mdmt.errors import Mistake
from mdmt.system.files import (
    JsonObject,
    lock,
    make_folder,
    remove_file,
    sync_folder,
    write_file,
)
from mdmt.words import printable

STATE_FORMAT = 1
MANIFEST = "state.json"
PREVIOUS = "previous.json"
COPY = "_copy"  # follows the name of a part in the file name of its second copy
PART = r"\w+-([0-9a-f]{16})\.safetensors"
TEMPORARY = rf"\.({PART}|{re.escape(MANIFEST)}|{re.escape(PREVIOUS)})\.\d+\.tmp"
CHUNK = 1 << 16  # bytes that are compared at a time

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
    sha256: str  # of the manifest

    def part(self, name: str) -> bytes:
        """Read a part; raise a Mistake if its file is missing or damaged."""
        if name not in self.files:
            raise Mistake(f"{self.name} is damaged: it names no file with the {name}")
        file = self.files[name]["file"]
        data = _read_file(self.folder.path / file)
        if not data:
            raise Mistake(f"{self.folder.name}/{file} is missing or empty")
        if hashlib.sha256(data).hexdigest() != self.files[name]["sha256"]:
            raise Mistake(f"{self.folder.name}/{file} is damaged: its checksum is wrong")
        return data

    def read(self, name: str, decode: Callable[[bytes], T]) -> T:
        """Read and decode a part; a Mistake names the file that cannot be decoded."""
        data = self.part(name)
        try:
            return decode(data)
        except Mistake as error:
            file = self.files[name]["file"]
            raise Mistake(f"{self.folder.name}/{file} is damaged: {error}") from None

    def decode(self, decode: Callable[[bytes], T], optional: Collection[str]) -> dict[str, T]:
        """Read and decode all parts, leaving out `optional` ones that are missing or damaged."""
        parts = {}
        for name in self.files:
            try:
                parts[name] = self.read(name, decode)
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

        With `keep`, the current state becomes the previous one, unless its manifest is damaged. If
        writing fails or the process is killed, the folder still holds the state it held before. If
        another process is writing, this one waits.
        """
        make_folder(self.path)
        with self._locked():
            kept = self._whole_manifest() if keep else None
            others = _named_by(self.path / kept) if kept else set()
            replaced = self._replaced()
            files = {}
            for part, data in parts:
                files[part] = self._write_part(part, data, others)
                _crash_point(f"{part} written")
            if kept == MANIFEST:
                write_file(self.path / PREVIOUS, (self.path / MANIFEST).read_bytes())
                _crash_point("previous kept")
            self._write_manifest(MANIFEST, files, rest)
            _crash_point("state written")
            if not keep and _named_by(self.path / PREVIOUS):
                (self.path / PREVIOUS).unlink()
            self._remove_unused(replaced, others | {entry["file"] for entry in files.values()})

    def write_as(self, name: str, parts: Iterable[tuple[str, bytes]], rest: JsonObject) -> None:
        """Save a state under a manifest of this name, beside the others; nothing is removed."""
        make_folder(self.path)
        files = {}
        for part, data in parts:
            files[part] = self._write_part(part, data, set())
            _crash_point(f"{part} written")
        self._write_manifest(name, files, rest)
        _crash_point(f"{name} written")

    def remove_unnamed(self, manifests: Iterable[str]) -> None:
        """Remove the parts that none of these manifests names, and what killed writers left.

        Once this returns, no loss of power brings them back.
        """
        used: set[str] = set()
        for name in manifests:
            used |= _named_by(self.path / name)
        for path in sorted(self.path.iterdir()):
            leftover = re.fullmatch(rf"\.({PART}|[\w-]+\.json)\.\d+\.tmp", path.name)
            if path.name not in used and (leftover or _is_part(path)):
                remove_file(path)
                _crash_point("old removed")
        sync_folder(self.path)

    def open(self, name: str = MANIFEST) -> SavedState:
        """Read a manifest; raise a Mistake that names it if it is missing or damaged."""
        shown = f"{self.name}/{name}"
        body, digest = self._body(name)
        number = body.get("format")
        if isinstance(number, int) and number > STATE_FORMAT:
            raise Mistake(f"{shown} was written by a newer mdmt (format {number}): update mdmt")
        files = _files_of(body)
        if number != STATE_FORMAT or files is None or not isinstance(body.get("state"), dict):
            raise Mistake(f"{shown} is damaged: it does not describe a saved state")
        return SavedState(self, shown, files, body["state"], digest)

    def last_good(self, use: Callable[[SavedState], T]) -> tuple[T, Mistake | None]:
        """Apply `use` to the current state, or to the previous one if the current is damaged.

        Returns the result and the damage to the current state; raises that Mistake if both states
        are damaged.
        """
        try:
            return use(self.open()), None
        except Mistake:
            pass  # it is damaged, or another process replaced it meanwhile
        damage: list[Mistake] = []
        with self._locked():
            for name in self.manifests or [MANIFEST]:
                try:
                    return use(self.open(name)), damage[0] if damage else None
                except Mistake as error:
                    damage.append(error)
        raise damage[0]

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
        lost: Mistake | None = None
        try:
            state, damage = self.last_good(lambda saved: (saved.decode(decode, ()), saved.rest))
        except Mistake as error:
            lost = error
            state, damage = self.last_good(
                lambda saved: (saved.decode(decode, optional), saved.rest)
            )
        if warn is not None and (damage or lost):
            remedy = "from the checkpoint before it" if damage else "without it"
            warn(f"{damage or lost}; going on {remedy}")
        return state

    def remove(self) -> None:
        """Remove all files that were written here, and the folder if it is empty then.

        Files of others stay, and so does everything behind a link to another folder.
        """
        if self.path.is_symlink() or not self.path.is_dir():
            return
        with self._locked():
            named = self._replaced()
            remove_file(self.path / MANIFEST)
            remove_file(self.path / PREVIOUS)
            sync_folder(self.path)  # a manifest that comes back must find its parts
            self._remove_unused(named, set())
        with suppress(OSError):  # not empty
            self.path.rmdir()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other writers out of the folder; the lock of a killed process is gone."""
        with ExitStack() as stack:
            if self.path.is_dir():
                with suppress(OSError):  # a file system that cannot lock folders
                    stack.enter_context(lock(self.path, wait=True))
            yield

    def _body(self, name: str) -> tuple[JsonObject, str]:
        """The content of a manifest whose checksum is right, and the checksum."""
        if not (self.path / name).is_file():
            raise Mistake(f"{self.name}: no saved state here ({name} is missing)")
        try:
            body = json.loads(_read_file(self.path / name))
        except (ValueError, RecursionError):
            raise Mistake(f"{self.name}/{name} is damaged: not JSON") from None
        signed = body.pop("sha256", None) if isinstance(body, dict) else None
        if signed is None or signed != _digest(body):
            raise Mistake(f"{self.name}/{name} is damaged: its checksum is wrong")
        return body, signed

    def _whole_manifest(self) -> str | None:
        """The name of the first manifest whose checksum is right."""
        for name in self.manifests:
            with suppress(Mistake):
                self._body(name)
                return name
        return None

    def _replaced(self) -> set[str]:
        """The files of the folder's states; of one that cannot be read, parts are found later."""
        named: set[str] = set()
        for name in (MANIFEST, PREVIOUS):
            with suppress(OSError):
                named |= _named_by(self.path / name)
        return named

    def _write_part(self, part: str, data: bytes, others: set[str]) -> dict[str, str]:
        """Write a part, unless it is there, to a file that is not one of `others`."""
        digest = hashlib.sha256(data).hexdigest()
        first, second = (f"{part}{copy}-{digest[:16]}.safetensors" for copy in ("", COPY))
        file = second if first in others else first
        if not _holds(self.path / file, data):
            write_file(self.path / file, data)
        return {"file": file, "sha256": digest}

    def _write_manifest(
        self, name: str, files: dict[str, dict[str, str]], rest: JsonObject
    ) -> None:
        body = {"format": STATE_FORMAT, "files": files, "state": rest}
        # In one line: with line breaks, Python's own encoder takes ten times as long.
        content = json.dumps({**body, "sha256": _digest(body)})
        write_file(self.path / name, f"{content}\n".encode())

    def _remove_unused(self, replaced: set[str], used: set[str]) -> None:
        """Remove the files of replaced states, and what killed writers left behind.

        A killed writer leaves parts that no manifest names, and temporary files. They are
        recognised by their names, and a part also by its content, whose hash is in its name. All
        other files belong to somebody else and stay, as do the parts of versions in this folder.
        """
        manifests = {*self.path.glob("*.json")} - {self.path / MANIFEST, self.path / PREVIOUS}
        used = used.union(*map(_named_by, manifests))
        for path in sorted(self.path.iterdir()):
            if path.name in used:  # first, since the check of the content reads the file
                continue
            if path.name in replaced or re.fullmatch(TEMPORARY, path.name) or _is_part(path):
                remove_file(path)
                _crash_point("old removed")


def _read_file(path: Path) -> bytes:
    """The bytes of a file; none if it is missing, or is a pipe, which would block forever."""
    if not path.is_file():
        return b""
    try:
        return path.read_bytes()
    except FileNotFoundError:  # removed meanwhile
        return b""
    except OSError as error:
        raise Mistake(f"{printable(str(path))} cannot be read: {error.strerror}") from None


def _holds(path: Path, data: bytes) -> bool:
    """Whether a file has exactly this content."""
    if not path.is_file() or path.stat().st_size != len(data):
        return False
    with open(path, "rb") as file:
        starts = range(0, len(data), CHUNK)
        return all(file.read(CHUNK) == data[start : start + CHUNK] for start in starts)


def _named_by(manifest: Path) -> set[str]:
    """The files that a manifest names; none if it is missing or damaged.

    One that cannot be read now may be whole: that is an error, or its files would be removed.
    """
    try:
        files = _files_of(json.loads(manifest.read_bytes()))
    except (FileNotFoundError, IsADirectoryError, ValueError, RecursionError):
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
