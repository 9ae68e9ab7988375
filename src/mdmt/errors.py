"""What may go wrong through no fault of ours, and any error in one line."""

from __future__ import annotations

import signal


class Mistake(ValueError):
    """Something that the person who asked can mend; its text says what is wrong and what to do."""


class Stopped(Exception):
    """A run was asked to stop, and left a checkpoint."""


class RankLost(ConnectionError):
    """Another process of the same run has ended, or does not answer."""


class Unreachable(Mistake):
    """The server could not be reached."""


# Told in one line; anything else is a bug of ours, with its traceback.
EXPECTED = (
    Mistake,
    FloatingPointError,
    OSError,
)


def go_on(fresh: bool) -> str:
    """What a person is to type after an interruption; --fresh would start over once more."""
    return "the same command without --fresh" if fresh else "the same command"


def ending(code: int) -> str:
    """How a process ended, by its exit code; a negative one is that of a signal.

    >>> ending(3), ending(-11), ending(-9)
    ('ended with exit code 3', 'was ended by SIGSEGV', 'was ended by SIGKILL (out of memory?)')
    """
    if code >= 0:
        return f"ended with exit code {code}"
    names = {number.value: number.name for number in signal.Signals}
    hint = " (out of memory?)" if code == -signal.SIGKILL else ""
    return f"was ended by {names.get(-code, f'signal {-code}')}{hint}"


def summarise(error: BaseException) -> str:
    """An error as one line; unexpected errors keep their type name.

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
