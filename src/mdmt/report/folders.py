"""One run folder: a finished run, or the reason why there is none."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdmt.errors import Mistake
from mdmt.experiments.config import RunConfig
from mdmt.experiments.gate import printable
from mdmt.experiments.measurements import Snapshots
from mdmt.experiments.store import CONFIG, RunFolder, State
from mdmt.metrics import BETA
from mdmt.words import count

Array = NDArray[np.float64]


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
        try:
            return RunFolder(self.folder).snapshots
        except (Mistake, OSError):
            return {}


@dataclass(frozen=True)
class Absent:
    """A run folder that has nothing to show yet, or never will."""

    folder: Path
    name: str
    reason: str
    running: bool = False


def read_run(folder: RunFolder) -> Run | Absent:
    """One run folder."""
    state = folder.state
    if state.kind == "finished":
        return Run(folder.path, folder.config, folder.record)
    try:
        config = folder.config
    except (Mistake, OSError):
        name = printable(folder.path.name)
        return Absent(folder.path, name, _reason(folder, state, None), state.kind == "running")
    return Absent(folder.path, config.name, _reason(folder, state, config.tasks), state.kind == "running")


def _reason(folder: RunFolder, state: State, tasks: int | None) -> str:
    """Why a run has no result to show."""
    if state.kind in ("damaged", "foreign") or not (folder.has(CONFIG) or state.kind == "failed"):
        return state.reason
    words = {
        "running": "running now",
        "stopped": "stopped or killed before its end",
        "failed": f"failed: {state.reason}",
    }
    reason = words[state.kind]
    if state.at is not None:
        learned = state.at.task - state.at.of_task
        total = "? tasks" if tasks is None else count("task", tasks)
        return f"{reason}; {learned} of {total} learned at its last checkpoint"
    return reason if state.kind == "running" or not folder.has(CONFIG) else f"{reason}; it left no checkpoint"
