"""The versions of a model folder: numbered manifests over parts that they share.

`version-N.json` is the manifest of version N, and names its parts, which are files named after
their content: a version that changes little shares most files with the one before. `current.json`
names the version in use. A version is complete before `current.json` names it, so a reader sees the
old version or the new one. Nothing is deleted except by `remove`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from mdmt.errors import Mistake
from mdmt.system.files import JsonObject, lock, read_json, write_json
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
        number = read_json(self.path / CURRENT).get("version")
        if not isinstance(number, int) or number < 1:
            raise Mistake(f"{self.name}/{CURRENT} is damaged: it names no version")
        return number

    def open(self, number: int) -> SavedState:
        """A version's manifest; a Mistake says if it is missing, and which versions there are."""
        if number not in self.numbers():
            known = ", ".join(map(str, self.numbers())) or "none"
            raise Mistake(f"{self.name} has no version {number}; versions: {known}")
        return self.store.open(manifest(number))

    def read(self, use: Callable[[SavedState], T], number: int | None = None) -> T:
        """Apply `use` to a version, by default the current one.

        A reader takes no lock. If a writer removes the version while it is read, the version that
        is current then is read instead.
        """
        for _ in range(RETRIES):
            wanted = self.current if number is None else number
            try:
                return use(self.open(wanted))
            except (Mistake, FileNotFoundError):
                if number is not None or self.current == wanted:
                    raise
        raise Mistake(f"{self.name} changes too fast to be read: try again")

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Be the only writer of the folder inside the block."""
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            with lock(self.path / LOCK):
                self._finish()
                yield
        except BlockingIOError:
            raise Mistake(
                f"{self.name} is being changed by another process: wait for its end"
            ) from None

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
        self.store.write_as(manifest(number), parts, {**rest, "version": number})
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
        gone = [n for n in removing or [] if isinstance(n, int)]
        if isinstance(adding, int) and self._last_number() < adding:
            gone = [adding]  # the new version was not complete
        for number in gone:
            if not (self.exists and number == self.current):
                (self.path / manifest(number)).unlink(missing_ok=True)
        if gone:
            self.store.remove_unnamed([manifest(number) for number in self.numbers()])
        (self.path / CHANGE).unlink()

    def _last_number(self) -> int:
        """The highest number that was ever used: numbers are not used again."""
        if not self.exists:
            return 0
        last = read_json(self.path / CURRENT).get("last")
        return last if isinstance(last, int) else 0


def manifest(number: int) -> str:
    """The name of a version's manifest."""
    return f"version-{number}.json"
