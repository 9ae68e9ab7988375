"""What a model is and keeps, for people and programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

import torch

from mdmt.errors import Mistake
from mdmt.inputs.saved import saved_tensor
from mdmt.learning.checkpoints import decoded
from mdmt.living.lessons import LEARNING, NOTES, network_name
from mdmt.living.saved import HELD_BACK, MEMORY, describe
from mdmt.living.versions import Versions
from mdmt.system.files import JsonObject, read_json
from mdmt.system.state import SavedState

EXAMPLES = {"kept": MEMORY, "held_back": HELD_BACK}  # the parts that hold examples


def about(versions: Versions) -> JsonObject:
    """The current version with its classes, deliveries and bytes; and all versions in short."""
    return {
        "folder": versions.name,
        **versions.read(_current),
        "versions": [_version(versions, number) for number in versions.numbers()],
        "interrupted": _interrupted(versions),
    }


def _current(saved: SavedState) -> JsonObject:
    rest, living = saved.rest, saved.rest["living"]
    measured = ("accuracy", "calibration", "uncalibrated", "temperature", "threshold")
    shape, kind = rest["input"]
    return {
        "version": rest["version"],
        "method": rest["method"]["name"],
        "network": network_name(saved),
        "heads": rest["learner"]["heads"],
        "input": {
            "shape": shape,
            "type": kind.removeprefix("torch."),
            "columns": living.get("columns"),
        },
        "memory": {
            "budget": living["budget"],
            "bytes": _bytes(saved),
            "holdout": living["holdout"],
        },
        **{name: living[name] for name in measured},
        "classes": _classes(saved),
        "deliveries": [
            {
                "name": entry["task"],
                "date": entry["date"],
                "sha256": entry["sha256"],
                "classes": [{"label": c, "examples": n} for c, n in entry["classes"]],
            }
            for entry in living["deliveries"]
        ],
    }


def _bytes(saved: SavedState) -> int:
    """The size of the files that hold examples."""
    return sum(len(saved.part(part)) for part in EXAMPLES.values() if part in saved.files)


def _classes(saved: SavedState) -> list[JsonObject]:
    """Each class, with the number of its examples in the memory and held back."""
    counts: dict[str, Counter[int]] = {}
    for name, part in EXAMPLES.items():
        counts[name] = Counter()
        if part in saved.files:
            tensors = saved.read(part, decoded)
            labels = saved_tensor(tensors, "labels", (None,), torch.int64, whose=f"{part}.")
            counts[name].update(labels.tolist())
    is_shared = saved.rest["learner"]["heads"] == "shared"
    found: dict[int, JsonObject] = {}
    for task in saved.rest["tasks"]:
        for label, row in zip(task["classes"], task["rows"], strict=True):
            place: dict[str, Hashable] = {} if is_shared else {"task": task["name"]}
            numbers = {name: counts[name][row] for name in EXAMPLES}
            found.setdefault(row, {**place, "label": label, **numbers})
    return list(found.values())


def _version(versions: Versions, number: int) -> JsonObject:
    """A version in short; of a damaged one, what is wrong with it."""
    try:
        return {"version": number, **describe(versions.open(number)), "damage": None}
    except Mistake as error:
        return {"version": number, "damage": str(error)}


def _interrupted(versions: Versions) -> str | None:
    """The name of a delivery that was interrupted, or is being learned now."""
    notes = versions.path / LEARNING / NOTES
    return str(read_json(notes).get("name")) if notes.is_file() else None
