"""The gate of model folders: what a version's manifest holds besides the learner, checked."""

from __future__ import annotations

from typing import Any

import mdmt.runs.gate as gate
from mdmt.errors import Mistake
from mdmt.inputs.saved import as_label, is_label
from mdmt.learning.gate import LARGEST, check_manifest, mapping, name, real
from mdmt.system.files import JsonObject
from mdmt.system.state import SavedState

_share = gate.number(1.0)
_version = gate.whole(1, LARGEST)


def _positive(key: str, value: Any) -> float:
    if real(key, value) <= 0:
        raise gate.refusal(key, value, "a number above 0")
    return float(value)


def _difference(key: str, value: Any) -> float:
    if abs(real(key, value)) > 1:
        raise gate.refusal(key, value, "a number from -1 to 1")
    return float(value)


LIVING: dict[str, gate.Check] = {
    "scale": _positive,
    "temperature": _positive,
    "threshold": gate.or_null(_share),
    "cosine": gate.flag,
    "accuracy": gate.or_null(_share),
    "calibration": gate.or_null(_share),
    "uncalibrated": gate.or_null(_share),
    "forgot": gate.or_null(_difference),
    "parent": gate.or_null(_version),
    "created": gate.text,
    "change": name,
    "changes": gate.array,
    "budget": gate.whole(1, LARGEST),
    "holdout": _share,
    "deliveries": gate.array,
}


def check_version(saved: SavedState, number: int) -> SavedState:
    """A version whose manifest is that of a model; a Mistake names what is wrong with it."""
    try:
        check_manifest(saved.rest)
        if _version("version", gate.value_of(saved.rest, "version")) != number:
            raise Mistake(f"version is {saved.rest['version']}: it must be {number}")
        living = mapping("living", gate.value_of(saved.rest, "living"))
        for key, check in LIVING.items():
            check(f"living.{key}", gate.value_of(living, key, "living."))
        for entry in living["deliveries"]:
            _check_delivery(mapping("living.deliveries", entry))
    except Mistake as error:
        raise Mistake(f"{saved.name} is damaged: {error}") from None
    return saved


def _check_delivery(entry: JsonObject) -> None:
    whose = "living.deliveries."
    for key in ("name", "task", "sha256", "date"):
        name(f"{whose}{key}", gate.value_of(entry, key, whose))
    key = f"{whose}classes"
    for pair in gate.array(key, gate.value_of(entry, "classes", whose)):
        if len(gate.array(key, pair)) != 2 or not is_label(as_label(pair[0])):
            raise gate.refusal(key, pair, "a class and a number")
        gate.whole(0, LARGEST)(key, pair[1])
