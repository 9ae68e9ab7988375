"""A person's own code: methods, streams and networks by `module:name` or `path/file.py:name`.
Nothing here loads torch.
"""

from __future__ import annotations

import hashlib
import importlib
import sys
from pathlib import Path
from typing import Any

from mdmt.errors import Mistake


def is_own(name: str) -> bool:
    """Whether a name leads to somebody's own code."""
    return ":" in name


def canonical(name: str) -> str:
    """The name as module:name, with the folder of a file among those that are searched.

    >>> canonical("package.module:Net"), canonical("mdmt-r")
    ('package.module:Net', 'mdmt-r')
    """
    path, _, attribute = name.rpartition(":")
    if not path.endswith(".py"):
        return name
    file = Path(path).resolve()
    if not file.is_file():
        raise Mistake(f"{path} is missing: {name!r} asks for {attribute!r} in it")
    if not file.stem.isidentifier():
        raise Mistake(
            f"{path}: its name cannot be that of a module; rename it to letters, digits and _"
        )
    loaded = sys.modules.get(file.stem)
    if loaded is not None and Path(getattr(loaded, "__file__", None) or "").resolve() != file:
        raise Mistake(f"{path}: another module is called {file.stem!r}; rename the file")
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))  # worker processes take over the path
    return f"{file.stem}:{attribute}"


def load(what: str, name: str) -> Any:
    """What `module:name` or `path/file.py:name` leads to."""
    module, _, attribute = canonical(name).partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")  # a module in the current folder
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, SyntaxError, ValueError) as error:
        raise Mistake(f"{what} {name!r} cannot be loaded: {error}") from None


def source_sha256(module: str) -> str | None:
    """The hash of a loaded module: edited, it is something else. None where there is no file."""
    path = getattr(sys.modules[module], "__file__", None)
    return None if path is None else hashlib.sha256(Path(path).read_bytes()).hexdigest()
