"""Checks for JSON of unknown origin: types, ranges, names that are not paths, printable text.

A check takes a key, for the message, and a value; it returns the value or raises a Mistake.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from mdmt.errors import Mistake
from mdmt.system.files import JsonObject
from mdmt.words import printable

Check = Callable[[str, Any], Any]
Settings = dict[str, Any]  # of a method, a memory or a network, by name

MAX_TEXT = 4096  # characters of a text; also the longest path of Linux
MOST = 1000  # entries of a list or an object
HUGE = 1e100


def refusal(key: str, value: Any, allowed: str) -> Mistake:
    """The Mistake to raise; it names the key, the value and the allowed values."""
    shown = printable(repr(value)[:60])
    if len(shown) > 40:
        shown = shown[:37] + "..."
    return Mistake(f"{key} is {shown}: it must be {allowed}")


def value_of(content: JsonObject, key: str, whose: str = "") -> Any:
    """The value of a required key; `whose` begins its name in the message."""
    if key not in content:
        raise Mistake(f"{whose}{key} is missing")
    return content[key]


def text(key: str, value: Any) -> str:
    """A text; control characters are made visible."""
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise refusal(key, value, "a text")
    return printable(value)


def path(key: str, value: Any) -> str:
    """A text without control characters."""
    if text(key, value) != value:
        raise refusal(key, value, "a text without control characters")
    return str(value)


def file_name(key: str, value: Any) -> str:
    """The name of a file, which cannot lead to another folder."""
    if path(key, value) in ("", ".", "..") or len(value) > 200 or set(value) & set("/\\"):
        raise refusal(key, value, "a name, not a path")
    return str(value)


def matching(pattern: str, allowed: str) -> Check:
    """A check for short texts of a given form."""

    def check(key: str, value: Any) -> str:
        if not re.fullmatch(pattern, path(key, value)):
            raise refusal(key, value, allowed)
        return file_name(key, value)

    return check


name = matching(r"[^\W\d]\w*", "a name")
sha256 = matching("[0-9a-f]{64}", "the SHA-256 of a file")


def whole(least: int, most: int) -> Check:
    """A check for whole numbers in a range."""

    def check(key: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise refusal(key, value, f"a whole number from {least} to {most}")
        return value

    return check


def number(most: float = HUGE) -> Check:
    """A check for numbers from 0 to `most`; integers stay integers."""

    def check(key: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise refusal(key, value, "a number")
        if not 0 <= value <= most or (isinstance(value, int) and value > 2**53):  # refuses NaN too
            raise refusal(key, value, f"a number from 0 to {most:g}")
        return value

    return check


def flag(key: str, value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise refusal(key, value, "true or false")
    return value


def array(key: str, value: Any) -> list[Any]:
    """A list of anything."""
    if not isinstance(value, list):
        raise refusal(key, value, "a list")
    return value


def or_null(check: Check) -> Check:
    """A check that lets null pass too."""
    return lambda key, value: None if value is None else check(key, value)


def scalar(key: str, value: Any) -> Any:
    """A number, a text, true, false or null."""
    if isinstance(value, str):
        return text(key, value)
    if value is None or isinstance(value, bool):
        return value
    if not isinstance(value, int | float):
        raise refusal(key, value, "a number, a text, true, false or null")
    number()(key, abs(value))
    return value


def settings(key: str, value: Any) -> Settings:
    """Settings by name; each is a scalar, or lists and objects of scalars."""
    if not isinstance(value, dict) or len(value) > MOST:
        raise refusal(key, value, "an object of settings")
    return {name(key, part): _setting(f"{key}.{part}", value[part], depth=3) for part in value}


def _setting(key: str, value: Any, depth: int) -> Any:
    if depth and isinstance(value, list) and len(value) <= MOST:
        return [_setting(key, part, depth - 1) for part in value]
    if depth and isinstance(value, dict) and len(value) <= MOST:
        return {text(key, part): _setting(key, value[part], depth - 1) for part in value}
    return scalar(key, value)


def strict(value: Any) -> Any:
    """A value that is passed on as it is, with null for NaN and infinity: JSON has neither.

    >>> strict({"a": [1, float("inf")]})
    {'a': [1, None]}
    """
    if isinstance(value, dict):
        return {key: strict(part) for key, part in value.items()}
    if isinstance(value, list):
        return [strict(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
