"""Errors that a user can cause or meet, and any error summarised in one line."""

from __future__ import annotations

import importlib
from types import ModuleType


class Mistake(ValueError):
    """A mistake that the user can correct; the message says what is wrong and what to do."""


class Stopped(Exception):
    """A run was asked to stop and has written a checkpoint."""


class RankLost(ConnectionError):
    """Another process of the same run has ended or does not answer."""


class Unreachable(Mistake):
    """The server could not be reached."""


def optional(package: str, what: str, *, install: str = "") -> ModuleType:
    """Import a package that not everybody has; `what` needs it.

    `install` is what to install, if that has another name or is more than the package.

    >>> optional("no_such_package", "plot")
    Traceback (most recent call last):
    mdmt.errors.Mistake: plot needs the package no_such_package: pip install no_such_package
    """
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package.partition(".")[0]:
            raise  # a package that it needs itself
        message = f"{what} needs the package {package}: pip install {install or package}"
        raise Mistake(message) from None


# Reported in one line; any other error is a bug of mdmt and keeps its traceback.
EXPECTED = (Mistake, FloatingPointError, OSError)


def summarise(error: BaseException) -> str:
    """Summarise an error in one line; unexpected errors keep their type name.

    >>> summarise(Mistake("lr=-1: must be more than 0")), summarise(KeyError("x"))
    ('lr=-1: must be more than 0', "KeyError: 'x'")
    >>> summarise(OSError(28, "No space left on device", "runs/record.json"))
    'runs/record.json: No space left on device'
    """
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    line = (str(error).strip().splitlines() or [""])[0]
    name = type(error).__name__
    if not line:
        return name
    return line if isinstance(error, EXPECTED) else f"{name}: {line}"
