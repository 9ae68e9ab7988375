"""The versions of a model folder: numbered manifests over parts that they share.

`version-N.json` is the manifest of version N, and names its parts, which are files named after
their content: a version that changes little shares most files with the one before. `current.json`
names the version in use. A version is complete before `current.json` names it, so a reader sees the
old version or the new one. Nothing is deleted except by `remove`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from mdmt.errors import Mistake
from mdmt.learning.gate import LARGEST
from mdmt.living.gate import check_version
from mdmt.system.files import (
    JsonObject,
    lock,
    make_folder,
    read_json,
    remove_leftovers,
    sync_folder,
    write_json,
)
from mdmt.system.state import SavedState, StateFolder
from mdmt.words import printable

CURRENT = "current.json"
LOCK = ".lock"
CHANGE = "change.json"  # what is being added and removed, to be ended after a crash
MANIFEST = re.compile(r"version-([1-9]\d*)\.json")
RETRIES = 20

T = TypeVar("T")


class Versions:
    """The numbered versions in a folder, and which of them is current."""

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder)
        self.name = printable(str(folder))
        self.store = StateFolder(self.path, self.name)
        self._checked: set[tuple[int, str]] = set()  # versions and checksums of their manifests

    def numbers(self) -> list[int]:
        """The numbers of all versions, in order."""
        if not self.path.is_dir():
            return []
        found = [MANIFEST.fullmatch(entry.name) for entry in self.path.iterdir()]
        return sorted(int(match[1]) for match in found if match)

    @property
    def exists(self) -> bool:
        """Whether the folder has a current version."""
        return (self.path / CURRENT).is_file()

    @property
    def current(self) -> int:
        """The number of the version in use."""
        if not self.exists:
            raise Mistake(f"{self.name} is not a model: it has no {CURRENT}; make one: mdmt learn")
        number = _number(read_json(self.path / CURRENT).get("version"))
        if number is None:
            raise Mistake(f"{self.name}/{CURRENT} is damaged: it names no version")
        return number

    def open(self, number: int) -> SavedState:
        """A version's manifest; a Mistake says if it is missing, and which versions there are."""
        if number not in self.numbers():
            known = _listed(self.numbers()) or "none"
            raise Mistake(f"{self.name} has no version {number}; versions: {known}")
        saved = self.store.open(manifest(number))
        if (number, saved.sha256) not in self._checked:
            check_version(saved, number)
            self._checked.add((number, saved.sha256))
        return saved

    def read(self, use: Callable[[SavedState], T], number: int | None = None) -> T:
        """Apply `use` to a version, by default the current one.

        A reader takes no lock. If a writer removes the version while it is read, the version that
        is current then is read instead.
        """
        for _ in range(RETRIES):
            wanted = self.current if number is None else number
            try:
                return use(self.open(wanted))
            except (Mistake, FileNotFoundError) as error:
                if number is not None or self.current == wanted:
                    raise Mistake(f"{error}{self._advice(wanted)}") from None
        raise Mistake(f"{self.name} changes too fast to be read: try again")

    def damage(self, number: int) -> str | None:
        """What is wrong with the files of a version; None if they are whole."""
        try:
            saved = self.open(number)
            for part in saved.files:
                saved.part(part)
        except Mistake as error:
            return str(error)
        return None

    def _advice(self, number: int) -> str:
        """Which versions still load if this one is damaged, for the end of a message."""
        numbers = self.numbers()
        if number not in numbers or self.damage(number) is None:
            return ""
        whole = [n for n in numbers if n != number and self.damage(n) is None]
        if not whole:
            return "; no other version is whole"
        which = f"version {whole[0]} is" if len(whole) == 1 else f"versions {_listed(whole)} are"
        return f"; {which} whole: mdmt rollback {self.name} --to {whole[-1]}"

    @contextmanager
    def writing(self, *, new: bool = False) -> Iterator[None]:
        """Be the only writer of the folder inside the block; with `new` it may be made there."""
        if not new:
            _ = self.current  # a Mistake if the folder is not a model
        make_folder(self.path)
        try:
            with lock(self.path / LOCK):
                if not (self.path / LOCK).exists():  # its last writer failed and removed it
                    raise BlockingIOError
                for name in (CURRENT, CHANGE):
                    remove_leftovers(self.path / name)
                self._finish()
                try:
                    yield
                except BaseException:
                    self._remove_if_empty()
                    raise
        except BlockingIOError:
            raise Mistake(
                f"{self.name} is being changed by another process: wait for its end"
            ) from None

    def _remove_if_empty(self) -> None:
        """Remove a folder that was made for a version that did not come about."""
        if [path.name for path in self.path.iterdir()] == [LOCK]:
            (self.path / LOCK).unlink()
            with suppress(OSError):
                self.path.rmdir()

    def add(
        self,
        parts: Iterable[tuple[str, bytes]],
        rest: JsonObject,
        *,
        use: bool = True,
        instead_of: Collection[int] = (),
    ) -> int:
        """Write a new version and return its number; with `use` it becomes the current one.

        The versions `instead_of` are removed, with all parts that no other version needs. A crash
        leaves either nothing of it or all of it to the next writer.
        """
        number = max([*self.numbers(), self._last_number()], default=0) + 1
        write_json(self.path / CHANGE, {"adding": number, "removing": sorted(instead_of)})
        try:
            self.store.write_as(manifest(number), parts, {**rest, "version": number})
        except OSError:  # a full disk: what was written of it makes room again
            self._finish()
            raise
        self._write_current(number if use else self.current, number)
        self._finish()
        return number

    def use(self, number: int) -> None:
        """Make a version the current one."""
        self.open(number)
        self._write_current(number, self._last_number())

    def remove(self, numbers: Collection[int]) -> None:
        """Remove versions and all parts that no other version needs."""
        write_json(self.path / CHANGE, {"adding": None, "removing": sorted(numbers)})
        self._finish()

    def _write_current(self, number: int, last: int) -> None:
        write_json(self.path / CURRENT, {"version": number, "last": last})

    def _finish(self) -> None:
        """End a change: what a crash left is completed, or undone if it was not complete."""
        if not (self.path / CHANGE).is_file():
            return
        change = read_json(self.path / CHANGE)
        adding, removing = change.get("adding"), change.get("removing")
        listed = removing if isinstance(removing, list) else []
        gone = [number for number in map(_number, listed) if number is not None]
        added = _number(adding)
        if added is not None and self._last_number() < added:
            gone = [added]  # the new version was not complete
        for number in gone:
            if not (self.exists and number == self.current):
                (self.path / manifest(number)).unlink(missing_ok=True)
        if gone:
            sync_folder(self.path)  # a version that comes back must find its parts
            self.store.remove_unnamed([manifest(number) for number in self.numbers()])
        (self.path / CHANGE).unlink()

    def _last_number(self) -> int:
        """The highest number that was ever used: numbers are not used again."""
        if not self.exists:
            return 0
        return _number(read_json(self.path / CURRENT).get("last")) or 0


def _number(value: object) -> int | None:
    """The number of a version, if it is one."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 1 <= value <= LARGEST else None  # type: ignore[operator,return-value]


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def manifest(number: int) -> str:
    """The name of a version's manifest."""
    return f"version-{number}.json"
