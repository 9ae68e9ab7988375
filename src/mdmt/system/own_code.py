"""The user's own methods, streams and networks: `module:name` or `path/file.py:name`.

Nothing here loads torch.
"""

from __future__ import annotations

import hashlib
import importlib
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from mdmt.errors import Mistake, first_line, summarise

OWN_IMAGES = "folder"  # the benchmark made of the images in a folder
_sources: WeakKeyDictionary[ModuleType, str | None] = WeakKeyDictionary()  # when it was loaded
IN_MEMORY = "in-memory"  # stands for the module of a stream in memory; no module has this name


def is_own(name: str) -> bool:
    """Whether a name stands for the user's own code."""
    return ":" in name


def is_own_data(benchmark: str) -> bool:
    """Whether a benchmark is the user's own images or stream, of which nothing is published."""
    return benchmark == OWN_IMAGES or is_own(benchmark)


def is_in_memory(benchmark: str) -> bool:
    """Whether a benchmark is a stream in the memory of a program, which no other can load."""
    return benchmark.startswith(f"{IN_MEMORY}:")


def canonical(name: str) -> str:
    """The name as module:name; the folder of a file is added to the import path.

    >>> canonical("package.module:Net"), canonical("mdmt-r")
    ('package.module:Net', 'mdmt-r')
    """
    path, _, attribute = name.rpartition(":")
    if not path.endswith(".py"):
        return name
    file = Path(path).resolve()
    if not file.is_file():
        raise Mistake(f"{path} does not exist: {name!r} asks for {attribute!r} in it")
    if not file.stem.isidentifier():
        raise Mistake(f"{path} cannot be imported: rename it, using letters, digits and _ only")
    loaded = sys.modules.get(file.stem)
    if loaded is not None and Path(getattr(loaded, "__file__", None) or "").resolve() != file:
        raise Mistake(f"{path}: another module is named {file.stem!r} too; rename the file")
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))  # worker processes inherit the import path
    return f"{file.stem}:{attribute}"


def load(what: str, name: str) -> Any:
    """Import the object that `module:name` or `path/file.py:name` stands for.

    A module whose file was edited since is loaded again, as a notebook expects. Whatever it does
    when it is imported, also `sys.exit`, ends in a Mistake.
    """
    module, _, attribute = canonical(name).partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")  # finds modules in the current folder
    try:
        found = importlib.import_module(module)
        now = source_sha256(module)
        if _sources.setdefault(found, now) != now:
            _sources[found] = now
            importlib.reload(found)
        return getattr(found, attribute)
    except (Exception, SystemExit) as error:
        raise refusal(what, name, "loaded", error) from error


def refusal(what: str, name: str, verb: str, error: BaseException) -> Mistake:
    """The Mistake that says why own code cannot be used; MDMT_TRACEBACK=1 shows where it failed."""
    plain = isinstance(error, (ImportError, AttributeError, SyntaxError))
    reason = first_line(error) if plain else summarise(error)
    return Mistake(f"{what} {name!r} cannot be {verb}: {reason}")


def version(what: str, name: str) -> str | None:
    """The hash of the file of an object that `load` finds; it changes when the file is edited."""
    load(what, name)
    return source_sha256(canonical(name).partition(":")[0])


def file_of(name: str) -> Path | None:
    """The file that `load` would import, or None if it is not found. Nothing is imported."""
    module = name.rpartition(":")[0]
    if module.endswith(".py"):
        return Path(module).resolve()
    places: list[str] | None = sys.path if "" in sys.path else ["", *sys.path]
    parts = module.split(".")
    for depth in range(1, len(parts) + 1):
        spec = None if places is None else PathFinder.find_spec(".".join(parts[:depth]), places)
        if spec is None:
            return None
        places = spec.submodule_search_locations
        origin = spec.origin
    return None if origin is None else Path(origin)


def source_sha256(module: str) -> str | None:
    """The hash of the file of a loaded module, or None if it has no file."""
    path = getattr(sys.modules[module], "__file__", None)
    return None if path is None else hashlib.sha256(Path(path).read_bytes()).hexdigest()
