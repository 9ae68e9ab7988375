"""Errors that a user can cause or meet, and any error summarised in one line."""

from __future__ import annotations


class Mistake(ValueError):
    """A mistake that the user can correct; the message says what is wrong and what to do."""


class Stopped(Exception):
    """A run was asked to stop and has written a checkpoint."""


class RankLost(ConnectionError):
    """Another process of the same run has ended or does not answer."""


class Unreachable(Mistake):
    """The server could not be reached."""


# Reported in one line; any other error is a bug of mdmt and keeps its traceback.
EXPECTED = (Mistake, FloatingPointError, OSError)


OUT_OF_MEMORY = "out of memory; use a smaller memory or network"
# How torch, and the system when it loads torch, say that there is no memory left.
NO_MEMORY = ("can't allocate memory", "Cannot allocate memory", "failed to map segment")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that no memory is left; torch raises a plain RuntimeError for it."""
    if isinstance(error, (RuntimeError, ImportError)):
        return any(words in str(error) for words in NO_MEMORY)
    return isinstance(error, MemoryError)


def first_line(error: BaseException) -> str:
    """The first line of a foreign error's message, or its type if it has none.

    >>> first_line(RuntimeError("no memory\\nat line 7")), first_line(KeyboardInterrupt())
    ('no memory', 'KeyboardInterrupt')
    """
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def summarise(error: BaseException) -> str:
    """Summarise an error; unexpected errors are cut to one line and keep their type name.

    Messages of our own are one line; a line break in them belongs to a name, and is kept.

    >>> summarise(Mistake("lr=-1: must be more than 0")), summarise(KeyError("x"))
    ('lr=-1: must be more than 0', "KeyError: 'x'")
    >>> summarise(OSError(28, "No space left on device", "runs/record.json"))
    'runs/record.json: No space left on device'
    """
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    if is_out_of_memory(error):
        return OUT_OF_MEMORY
    name = type(error).__name__
    if isinstance(error, EXPECTED):
        return str(error).strip() or name
    line = first_line(error)
    return line if line == name else f"{name}: {line}"
