"""One run folder: a finished run, or the reason why there is none.

Whatever lies in a folder may be unfinished, damaged or not ours; nothing of it is trusted before it is checked.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdmt.errors import Mistake, summarise
from mdmt.experiments.config import RunConfig
from mdmt.experiments.failure import reason_of
from mdmt.experiments.store import CONFIG, DAMAGE, LOCK, RECORD, SNAPSHOTS, read_config, read_progress
from mdmt.files import is_locked, read_json
from mdmt.metrics import BETA, metrics_of
from mdmt.words import count

Array = NDArray[np.float64]
Snapshots = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Run:
    """A finished run."""

    folder: Path
    config: RunConfig
    record: dict[str, Any]

    @cached_property
    def accuracy(self) -> Array:
        """T x T, NaN where nothing was evaluated."""
        return np.array(self.record["accuracy"], dtype=float)

    @cached_property
    def drift(self) -> Array:
        """T x T, NaN where nothing was measured."""
        return np.array(self.record["drift"], dtype=float)

    @cached_property
    def curve(self) -> Array:
        """Z_0..Z_10, a row per task."""
        return np.array(self.record["curve"], dtype=float).reshape(-1, BETA + 1)

    @cached_property
    def snapshots(self) -> Snapshots:
        """Features and head along learning; empty where they are missing or damaged."""
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        try:
            found = load_file(self.folder / SNAPSHOTS)
            check_snapshots(found)
        except (OSError, SafetensorError, ValueError, KeyError, IndexError):
            return {}
        return found


@dataclass(frozen=True)
class Absent:
    """A run folder that has nothing to show yet, or never will."""

    folder: Path
    name: str
    reason: str
    running: bool = False


def read_run(folder: Path) -> Run | Absent:
    """One run folder."""
    if not any((folder / name).exists() for name in (CONFIG, RECORD)):
        failed = reason_of(folder)
        return Absent(folder, folder.name, f"failed: {failed}" if failed else "nothing is written yet", held(folder))
    try:
        config = read_config(folder)
    except (OSError, ValueError) as error:
        return Absent(folder, folder.name, f"{CONFIG} cannot be read: {summarise(error)}")
    try:
        record = read_json(folder / RECORD)
        run = Run(folder, config, record)
        check_record(run)
        record["metrics"] = metrics_of(record)
    except FileNotFoundError:
        return _unfinished(folder, config)
    except DAMAGE as error:
        return Absent(folder, config.name, f"{RECORD} cannot be used: {summarise(error)}")
    return run


def check_record(run: Run) -> None:
    """Refuse what has other shapes than a finished record."""
    record = run.record
    if record["finished"] is not True:
        raise Mistake("it does not say that the run finished")
    size = len(record["tasks"])
    if size < 1 or not all(isinstance(task["name"], str) for task in record["tasks"]):
        raise Mistake("it has no tasks")
    for name in ("accuracy", "drift"):
        if getattr(run, name).shape != (size, size):
            raise Mistake(f"{name} is not {size} x {size}")
    numbers = [record["seconds"], record["memory_bytes"]]
    values = np.concatenate(
        [np.array(numbers, dtype=float), run.accuracy.ravel(), run.drift.ravel(), run.curve.ravel()]
    )
    if np.isinf(values).any() or np.isnan(values[: len(numbers)]).any():
        raise Mistake("it has numbers that are not finite")


def check_snapshots(found: Snapshots) -> None:
    """Refuse tensors that do not fit each other."""
    rows, width = found["head"].shape
    if found["head_of_class"].shape != (rows,):
        raise Mistake("head_of_class is not one number a row")
    for name, value in found.items():
        kind, *numbers = name.split(".")
        if kind == "features":
            labels = found[f"labels.{int(numbers[0])}"]
            fits = (
                value.shape == (len(labels), width - 1) and found[f"lengths.{'.'.join(numbers)}"].shape == labels.shape
            )
            fits &= labels.min() >= 0 and labels.max() < rows
        else:
            fits = kind != "head" or bool(value.shape[1] == width and np.isfinite(value).all())
        if not fits:
            raise Mistake(f"{name} does not fit the others")


def _unfinished(folder: Path, config: RunConfig) -> Absent:
    running = held(folder)
    failed = reason_of(folder)
    reason = "running now" if running else "stopped or killed before its end" if failed is None else f"failed: {failed}"
    try:
        done = len(read_progress(folder)["record"]["accuracy"])
        total = "? tasks" if config.tasks is None else count("task", config.tasks)
        reason += f"; {done} of {total} learned at its last checkpoint"
    except DAMAGE:
        reason += "" if running else "; it left no checkpoint"
    return Absent(folder, config.name, reason, running)


def held(folder: Path) -> bool:
    """Whether a process is at work there: it holds the lock."""
    return is_locked(folder / LOCK)
