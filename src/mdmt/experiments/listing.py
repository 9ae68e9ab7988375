"""Which runs there are, by name and in what state; removing them."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from mdmt.errors import Mistake, summarise
from mdmt.experiments.failure import reason_of
from mdmt.experiments.store import (
    CHECKPOINT,
    CONFIG,
    DAMAGE,
    LOCK,
    RECORD,
    clear,
    held,
    read_progress,
)
from mdmt.files import read_json
from mdmt.metrics import A_T


def find_runs(out: str | Path) -> list[Path]:
    """Every folder under a folder that holds a run, or part of one; hidden folders are passed over."""
    found = []
    for place, folders, files in os.walk(out):
        if {RECORD, CONFIG, LOCK} & set(files) or CHECKPOINT in folders:
            found.append(Path(place))
            folders.clear()
        folders[:] = [name for name in folders if not name.startswith(".")]
    return sorted(found)


def find_run(name: str, out: str | Path) -> Path:
    """The one run that a path, or a part of the path of a run under OUT, names."""
    found = find_runs(name) if Path(name).is_dir() else [run for run in find_runs(out) if name in str(run)]
    if not found:
        raise Mistake(
            f"no run {name!r} in {out}: give its folder or a part of it, such as its hash; see mdmt runs list"
        )
    if len(found) > 1:
        some = ", ".join(map(str, found[:3])) + (", ..." if len(found) > 3 else "")
        raise Mistake(f"{name!r} names {len(found)} runs: {some}; give more of the path")
    return found[0]


def describe(folder: Path) -> dict[str, Any]:
    """A run as a listing shows it. What cannot be read does not raise: it is the reason of state `damaged` or `foreign`."""
    about: dict[str, Any] = {
        **dict.fromkeys(("benchmark", "label", "seed", "A_T", "seconds")),
        "held_out": False, "state": "", "at": None, "reason": "", "bytes": size_of(folder), "path": str(folder),
    }  # fmt: skip
    try:
        config = read_json(folder / CONFIG) if (folder / CONFIG).exists() else {}
        if config and not {"benchmark", "method"} <= set(config):
            return about | {"state": "foreign", "reason": f"{CONFIG} is not that of a run"}
        about |= {key: config.get(key) for key in ("benchmark", "label", "seed")}
        about["held_out"] = bool(config.get("cross_validation", False))
        about |= _state(folder)
        if about["state"] == "finished" and not config:
            raise Mistake(f"{CONFIG} is missing")
        return about
    except DAMAGE as error:
        return about | {"state": "damaged", "reason": summarise(error)}


def _state(folder: Path) -> dict[str, Any]:
    if (folder / RECORD).exists():
        record = read_json(folder / RECORD)
        if not record.get("finished"):
            raise Mistake(f"{RECORD} is not that of a finished run")
        return {"state": "finished", "A_T": A_T.of(record), "seconds": _number(record["seconds"])}
    reason = reason_of(folder)
    told = {"state": "unfinished"} if reason is None else {"state": "failed", "reason": reason}
    if (folder / CHECKPOINT).exists():
        state = read_progress(folder)
        where = {"task": len(state["tasks"]), "step": int(state["done"]), "of_task": state["open"] is not None}
        return {**told, "at": where, "seconds": _number(state["record"]["seconds"])}
    return {"reason": "no checkpoint yet", **told}


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def size_of(folder: Path) -> int:
    """Bytes of all files under a folder."""
    total = 0
    for place, _, files in os.walk(folder):
        for name in files:
            with suppress(OSError):  # gone meanwhile
                total += os.lstat(os.path.join(place, name)).st_size
    return total


def remove(folder: Path) -> None:
    """Remove a run that no process holds, and the folders above it that are empty then; other files stay."""
    if describe(folder)["state"] == "foreign":
        raise Mistake(f"{folder} is not a run of mdmt: {CONFIG} is not that of a run")
    with held(folder):
        clear(folder)
        (folder / LOCK).unlink(missing_ok=True)
    above = list(folder.parents)[:3] if re.fullmatch("[0-9a-f]{12}", folder.parent.name) else []
    with suppress(OSError):  # not empty
        for empty in (folder, *above):
            empty.rmdir()
