"""All that determines a run, as a type: its fields, its hash, and JSON in and out.

`RunConfig.from_json` is the gate for configs that others wrote: it refuses whatever could lead out of
a folder, hang or crash a reader, or reach a terminal as anything but text. Nothing here loads torch.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import unicodedata
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from mdmt.errors import Mistake

NEUTRAL: dict[str, Any] = {  # values at which a key does not count in the hash
    "threads": 1, "device": "cpu", "image_size": None, "subset": None, "weights": None,
    "cross_validation": False, "source": None,
}  # fmt: skip
# The seed is a folder of its own, and a path decides nothing.
NOT_HASHED = ("seed", "label", "data", "weights_file")
ABSENT = {**NEUTRAL, "data": None, "weights_file": None}  # what a key is where a file lacks it


@dataclass(frozen=True)
class RunConfig:
    """One benchmark, one method, one seed, and every setting that matters to the result."""

    benchmark: str
    tasks: int | None
    heads: str
    method: str  # a name, or module:Class
    arguments: dict[str, Any]
    memory: dict[str, Any]
    backbone: dict[str, Any]
    lr: float
    batch: int
    epochs: int
    optimiser: str
    image_size: int | None
    subset: int | None
    weights: str | None  # the hash of the file
    weights_file: str | None
    data: str | None
    cross_validation: bool
    source: str | None  # the hash of the module of a method that is not ours
    seed: int
    threads: int
    device: str
    label: str

    @property
    def hash(self) -> str:
        """A hash of all that determines the result, but for the seed."""
        kept = {
            key: value
            for key, value in self.to_json().items()
            if key not in NOT_HASHED and not (key in NEUTRAL and value == NEUTRAL[key])
        }
        return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def name(self) -> str:
        """The run in words: its label, benchmark and seed."""
        return f"{self.label} on {self.benchmark}, seed {self.seed}"

    def to_json(self) -> dict[str, Any]:
        """As config.json holds it."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> RunConfig:
        """A config from a file that anybody may have written; a Mistake names what is wrong.

        Keys of later versions are passed over; those that earlier versions lack are neutral.
        """
        values = {**ABSENT, **content}
        for field in fields(cls):
            if field.name not in values:
                raise Mistake(f"{field.name} is missing")
            values[field.name] = CHECKS[field.name](field.name, values[field.name])
        return cls(**{field.name: values[field.name] for field in fields(cls)})


def folder_of(config: RunConfig, out: str | Path) -> Path:
    """The run's folder."""
    method = config.method.replace(":", ".")
    return Path(out, config.benchmark, method, config.hash, str(config.seed))


def printable(text: str) -> str:
    """Text without what a terminal would obey: control characters are shown by their code.

    >>> printable("a" + chr(27) + "[2J")
    'a\\\\x1b[2J'
    """
    return "".join(ascii(letter)[1:-1] if unicodedata.category(letter) in CONTROL else letter for letter in text)


# Control, direction marks and other invisible signs, halves of pairs, line and paragraph ends.
CONTROL = ("Cc", "Cf", "Cs", "Zl", "Zp")
LONGEST = 1000  # of a text
METHOD = r"[A-Za-z0-9][\w.-]*|[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*"

Check = Callable[[str, Any], Any]  # from a key and its value to the value, or a Mistake


def _refuse(key: str, value: Any, allowed: str) -> Mistake:
    text = printable(repr(value))
    return Mistake(f"{key} is {text if len(text) <= 40 else text[:37] + '...'}: it must be {allowed}")


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str) or len(value) > LONGEST:
        raise _refuse(key, value, "a text")
    return printable(value)


def _path(key: str, value: Any) -> str:
    if _text(key, value) != value:
        raise _refuse(key, value, "a path without control characters")
    return str(value)


def _file_name(key: str, value: Any) -> str:
    if _path(key, value) in ("", ".", "..") or len(value) > 100 or set(value) & set("/\\"):
        raise _refuse(key, value, "a name, not a path")
    return str(value)


def _matching(pattern: str, allowed: str) -> Check:
    def check(key: str, value: Any) -> str:
        if not re.fullmatch(pattern, _path(key, value)):
            raise _refuse(key, value, allowed)
        return _file_name(key, value)

    return check


def _whole(least: int, most: int) -> Check:
    def check(key: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise _refuse(key, value, f"a whole number from {least} to {most}")
        return value

    return check


def _rate(key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _refuse(key, value, "a number")
    if not 0 <= value <= 1e300:  # nor NaN
        raise _refuse(key, value, "a finite number from 0")
    return value  # as it is: an integer is hashed as one


def _flag(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _refuse(key, value, "true or false")
    return value


def _or_null(check: Check) -> Check:
    return lambda key, value: None if value is None else check(key, value)


def _settings(key: str, value: Any) -> dict[str, Any]:
    """Names with numbers, texts, true, false, null or lists of them."""
    if not isinstance(value, dict):
        raise _refuse(key, value, "an object of settings")
    return {_name(key, name): _setting(f"{key}.{name}", part) for name, part in value.items()}


def _setting(key: str, value: Any) -> Any:
    if isinstance(value, list) and len(value) <= LONGEST:
        return [_scalar(key, part) for part in value]
    return _scalar(key, value)


def _scalar(key: str, value: Any) -> Any:
    if isinstance(value, str):
        return _text(key, value)
    if isinstance(value, int) and abs(value) > 2**63:
        raise _refuse(key, value, "a smaller number")
    if isinstance(value, float) and not math.isfinite(value):
        raise _refuse(key, value, "a finite number")
    if value is not None and not isinstance(value, bool | int | float):
        raise _refuse(key, value, "a number, a text, true, false, null, or a list of them")
    return value


def _memory(key: str, value: Any) -> dict[str, Any]:
    found = _settings(key, value)
    counts = {name: count for name, count in found.items() if name != "policy"}
    if "policy" not in found or not counts:
        raise _refuse(key, value, "a policy with its size")
    _name(f"{key}.policy", found["policy"])
    for name, count in counts.items():
        _whole(0, 10**9)(f"{key}.{name}", count)
    return found


def _backbone(key: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or set(value) != {"name", "arguments"}:
        raise _refuse(key, value, "the name and the arguments of a network")
    arguments = _settings(f"{key}.arguments", value["arguments"])
    for name, number in arguments.items():
        _whole(1, 10**6)(f"{key}.{name}", number)
    return {"name": _name(f"{key}.name", value["name"]), "arguments": arguments}


_name = _matching(r"[^\W\d]\w*", "a name")
_sha256 = _matching("[0-9a-f]{64}", "the SHA-256 of a file")

CHECKS: dict[str, Check] = {
    "benchmark": _file_name,
    "tasks": _or_null(_whole(1, 10_000)),
    "heads": _matching("shared|per-task", "shared or per-task"),
    "method": _matching(METHOD, "the name of a method, or module:Class"),
    "arguments": _settings,
    "memory": _memory,
    "backbone": _backbone,
    "lr": _rate,
    "batch": _whole(1, 10**9),
    "epochs": _whole(1, 10**9),
    "optimiser": _name,
    "image_size": _or_null(_whole(1, 10_000)),
    "subset": _or_null(_whole(1, 10**9)),
    "weights": _or_null(_sha256),
    "weights_file": _or_null(_path),
    "data": _or_null(_path),
    "cross_validation": _flag,
    "source": _or_null(_sha256),
    "seed": _whole(0, 2**63 - 1),
    "threads": _whole(1, 1024),
    "device": _matching(r"cpu|mps|cuda(:\d{1,3})?", "cpu, cuda or mps"),
    "label": _text,
}
