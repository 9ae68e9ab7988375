"""The file operations of the code under test, below one folder: made to fail, or recorded.

They are taken where the code calls them: `open`, the file that it gives, and functions of `os`,
which pathlib and shutil call too.
"""

import builtins
import errno
import io
import os
from contextlib import contextmanager, suppress
from unittest.mock import patch

KINDS = ("open", "write", "fsync", "rename", "close", "unlink", "mkdir")
ERRORS = ("ENOSPC", "EIO", "EACCES", "EINTR")
REAL = {
    name: getattr(os, name)
    for name in ("open", "close", "fsync", "replace", "unlink", "remove", "rmdir", "mkdir")
}
real_open = builtins.open


class Fault:
    """The n-th operation of a kind fails: once, or from there on. `met` counts the operations."""

    def __init__(self, kind, number, code, lasting=False):
        self.kind = kind
        self.number = number
        self.code = getattr(errno, code)
        self.lasting = lasting
        self.met = 0

    @property
    def struck(self):
        return self.met >= self.number

    def before(self, kind, path):
        if kind == self.kind:
            self.met += 1
            if self.met == self.number or (self.struck and self.lasting):
                raise OSError(self.code, os.strerror(self.code), path)

    def after(self, *operation):
        pass


class File:
    """A file that is written; all operations on it are told."""

    def __init__(self, file, path, watcher):
        self.file = file
        self.path = path
        self.watcher = watcher

    def write(self, data):
        try:
            self.watcher.before("write", self.path)
        except OSError:
            self.file.write(bytes(data)[: len(data) // 2])  # a disk that fills up takes a part
            raise
        self.watcher.after("write", self.path, bytes(data))
        return self.file.write(data)

    def close(self):
        if not self.file.closed:
            self.file.close()  # the system frees the file even if it reports an error
            self.watcher.before("close", self.path)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __getattr__(self, name):
        return getattr(self.file, name)


class Counter:
    """How often each kind of operation comes."""

    def __init__(self):
        self.met = dict.fromkeys(KINDS, 0)

    def before(self, kind, path):
        self.met[kind] += 1

    def after(self, *operation):
        pass


def faults_in(work, folder):
    """Every fault of a piece of work that changes `folder`: a kind, its number, error, lasting."""
    with watched(folder, Counter()) as counter:
        work()
    places = [(kind, n + 1) for kind, met in counter.met.items() for n in range(met)]
    assert {kind for kind, _ in places} >= {"open", "write", "fsync", "rename", "close", "unlink"}
    return [(*place, code, lasting) for place in places for code in ERRORS for lasting in (0, 1)]


def turns(faults, every=1):
    """A fault for every operation, or every second or third: errors and durations take turns."""
    size = 8 * every
    return [fault for i, fault in enumerate(faults) if i % size == 3 * (i // size) % 8]


@contextmanager
def watched(root, watcher):
    """Tell `watcher` before and after every operation below `root`; `before` may raise."""
    root = os.path.realpath(root)
    paths = {}  # by the number of an open file

    def inside(path, folder=None):
        """The whole path of a file below the root, else None."""
        if isinstance(path, int):
            return None
        whole = os.path.join(paths.get(folder, "") if folder is not None else "", os.fspath(path))
        whole = os.path.abspath(whole)
        return whole if whole == root or whole.startswith(root + os.sep) else None

    def new_open(path, mode="r", *more, **named):
        place = inside(path)
        if place is None:
            return real_open(path, mode, *more, **named)
        watcher.before("open", place)
        file = real_open(path, mode, *more, **named)
        if mode.startswith("r") and "+" not in mode:
            return file
        paths[file.fileno()] = place
        watcher.after("create", place)
        return File(file, place, watcher)

    def os_open(path, flags, mode=0o777, *, dir_fd=None):
        place = inside(path, dir_fd)
        if place is None:
            return REAL["open"](path, flags, mode, dir_fd=dir_fd)
        watcher.before("open", place)
        is_new = flags & os.O_CREAT and not os.path.exists(place)
        number = REAL["open"](path, flags, mode, dir_fd=dir_fd)
        paths[number] = place
        if is_new:
            watcher.after("create", place)
        return number

    def os_close(number):
        place = paths.pop(number, None)
        REAL["close"](number)
        if place is not None:
            watcher.before("close", place)

    def fsync(number):
        place = paths.get(number)
        if place is None:
            REAL["fsync"](number)
            return
        watcher.before("fsync", place)
        watcher.after("fsync", place)  # and not to the real disk, which would only take time

    def replace(source, target):
        places = inside(source), inside(target)
        if None in places:
            REAL["replace"](source, target)
            return
        watcher.before("rename", places[1])
        REAL["replace"](source, target)
        watcher.after("rename", *places)

    def changing(name, kind):
        def call(path, *more, dir_fd=None):
            place = inside(path, dir_fd)
            if place is not None:
                watcher.before(kind, place)
            REAL[name](path, *more, dir_fd=dir_fd)
            if place is not None:
                watcher.after(name, place)

        return call

    doubles = {"open": os_open, "close": os_close, "fsync": fsync, "replace": replace}
    doubles |= {"unlink": changing("unlink", "unlink"), "remove": changing("unlink", "unlink")}
    doubles |= {"rmdir": changing("rmdir", "unlink"), "mkdir": changing("mkdir", "mkdir")}
    opens = patch.object(builtins, "open", new_open), patch.object(io, "open", new_open)
    with patch.multiple(os, **doubles), opens[0], opens[1]:
        yield watcher


class Recorder:
    """The operations that change something or write it to the disk."""

    def __init__(self):
        self.operations = []

    def before(self, kind, path):
        pass

    def after(self, *operation):
        self.operations.append(operation)


def files_of(folder):
    """The content of all files, by path."""
    found = {}
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError), real_open(os.path.join(place, name), "rb") as file:
                found[os.path.relpath(os.path.join(place, name), folder)] = file.read()
    return found
