"""What may go wrong through no fault of ours, and any error in one line."""

from __future__ import annotations


class Mistake(ValueError):
    """Something that the person who asked can mend; its text says what is wrong and what to do."""


class Stopped(Exception):
    """A run was asked to stop, and left a checkpoint."""


class Unreachable(Mistake):
    """The server could not be reached."""


EXPECTED = (
    Mistake,
    FloatingPointError,
    OSError,
)  # told in one line; anything else is a bug of ours, with its traceback


def summarise(error: BaseException) -> str:
    """An error as one line; unexpected errors keep their type name.

    >>> summarise(Mistake("lr=-1: must be more than 0")), summarise(KeyError("x")), summarise(MemoryError())
    ('lr=-1: must be more than 0', "KeyError: 'x'", 'MemoryError')
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
