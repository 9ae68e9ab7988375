"""A model of a disk that loses power: which files it may hold afterwards.

What POSIX promises, and no more. The content of a file is on the disk once the file was flushed
(fsync); before that it may be missing, half there, or there. A change of a folder (a name that is
new, renamed or removed) is on the disk once that folder was flushed; before that each change may or
may not be there, whatever became of the others. A rename happens whole or not at all.
"""

import itertools
import os
import random
from dataclasses import dataclass, field

BOUND = 1 << 12  # states of one moment that are all built; beyond it, so many drawn at random


@dataclass
class Folder:
    """A folder: the names that are surely on the disk, and changes that may not be."""

    names: dict = field(default_factory=dict)
    changes: list = field(default_factory=list)  # (name that goes, name that comes, what it is)

    def live(self):
        return applied(self.names, self.changes)


@dataclass
class Content:
    """The bytes of a file: those that are surely on the disk, and those it holds."""

    safe: bytes = b""
    live: bytes = b""

    def possible(self):
        if self.live == self.safe:
            return [self.safe]
        half = self.live[: len(self.live) // 2]
        return list(dict.fromkeys((self.safe, half, self.live)))


def applied(names, changes):
    names = dict(names)
    for goes, comes, what in changes:
        names.pop(goes, None)
        if comes is not None:
            names[comes] = what
    return names


class Disk:
    """A folder on a disk, changed by one operation after the other."""

    def __init__(self, root, content):
        self.root = os.path.realpath(root)
        self.top = Folder()
        for name, data in content.items():
            folder = self.top
            *above, last = name.split(os.sep)
            for part in above:
                folder = folder.names.setdefault(part, Folder())
            folder.names[last] = Content(data, data)

    def at(self, path):
        """The folder or file at a path, as a process sees it."""
        place = self.top
        relative = os.path.relpath(path, self.root)
        for part in () if relative == "." else relative.split(os.sep):
            place = place.live()[part]
        return place

    def do(self, operation, path, *more):
        """One operation, as `disk.Recorder` notes it."""
        name = os.path.basename(path)
        if operation == "fsync":
            place = self.at(path)
            if isinstance(place, Folder):
                place.names, place.changes = place.live(), []
            else:
                place.safe = place.live
            return
        if operation == "write":
            self.at(path).live += more[0]
            return
        folder = self.at(os.path.dirname(path))
        if operation == "rename":
            target = os.path.basename(more[0])
            assert os.path.dirname(path) == os.path.dirname(more[0])
            folder.changes.append((name, target, self.at(path)))
        elif operation == "create":
            assert name not in folder.live(), "a file was written in place"
            folder.changes.append((None, name, Content()))
        elif operation == "mkdir":
            folder.changes.append((None, name, Folder()))
        else:
            assert operation in ("unlink", "rmdir", "remove")
            folder.changes.append((name, None, None))

    def unsure(self):
        """Every change and every file of which the disk may hold more than one thing."""
        found, waiting, seen = [], [self.top], set()
        while waiting:
            place = waiting.pop()
            if id(place) in seen:
                continue
            seen.add(id(place))
            if isinstance(place, Content):
                if len(place.possible()) > 1:
                    found.append((place, place.possible()))
                continue
            found += [((id(place), i), (False, True)) for i in range(len(place.changes))]
            waiting += [*place.names.values(), *(what for _, _, what in place.changes if what)]
        return found

    def states(self, draw):
        """What the disk may hold if the power fails now, or a sample of that: files by name."""
        unsure = self.unsure()
        keys = [key if isinstance(key, tuple) else id(key) for key, _ in unsure]
        options = [values for _, values in unsure]
        count = 1
        for values in options:
            count *= len(values)
        if count <= BOUND:
            choices = itertools.product(*options)
        else:
            # The ends too: nothing more reached the disk, and everything did.
            ends = [[values[0] for values in options], [values[-1] for values in options]]
            drawn = ([draw.choice(values) for values in options] for _ in range(BOUND))
            choices = itertools.chain(ends, drawn)
        for choice in choices:
            yield self._files(self.top, dict(zip(keys, choice, strict=True)), "")

    def _files(self, folder, choice, above):
        changes = [c for i, c in enumerate(folder.changes) if choice[id(folder), i]]
        found = {}
        for name, what in applied(folder.names, changes).items():
            path = above + name
            if isinstance(what, Folder):
                found[path + os.sep] = b""
                found |= self._files(what, choice, path + os.sep)
            else:
                found[path] = choice.get(id(what), what.live)
        return found


def states_after(root, content, operations, seed=0):
    """Every different state that a loss of power may leave, and whether the work was over then.

    It may come before the first operation, between any two, or right after the last one.
    """
    draw = random.Random(seed)
    disk = Disk(root, content)
    found = {}
    for number in range(len(operations) + 1):
        if number:
            disk.do(*operations[number - 1])
        for state in disk.states(draw):
            key = frozenset(state.items())
            found[key] = (state, number == len(operations))
    return list(found.values())
