"""What went wrong, in one line for a person."""

from __future__ import annotations

FORESEEN = (ValueError, FloatingPointError, OSError)


def one_line(error: BaseException) -> str:
    """An error as one line; what nobody foresaw goes with its name.

    >>> one_line(ValueError("lr=-1: must be more than 0")), one_line(KeyError("x")), one_line(MemoryError())
    ('lr=-1: must be more than 0', "KeyError: 'x'", 'MemoryError')
    >>> one_line(OSError(28, "No space left on device", "runs/record.json"))
    'runs/record.json: No space left on device'
    """
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    line = (str(error).strip().splitlines() or [""])[0]
    name = type(error).__name__
    return line if isinstance(error, FORESEEN) and line else f"{name}: {line}" if line else name
