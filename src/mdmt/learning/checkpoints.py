"""When a learner is written, and its parts to and from a folder.

A learner gives its parts by name; each part gives its state, tensors and JSON, and takes it back.
Which file a tensor goes to is decided here: what changes with every step is in `model`, what
changes rarely (memory, snapshots, step log) is by itself.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

import mdmt.ranks as ranks
from mdmt.errors import Mistake
from mdmt.system.state import Parts, read_state, write_state

SECONDS, SHARE = 60.0, 50  # a checkpoint every minute, and never more than a fiftieth of the time
PREFIXED = ("model", "method", "optimiser")  # parts whose tensors share a file, each under its name
LOGS = ("snapshots", "steps")  # files that figures and logs need, and learning does not
State = tuple[dict[str, Tensor], Any]


class Part(Protocol):
    """Whoever has state, gives it."""

    def state(self) -> State:
        """Everything it knows, as tensors and as JSON."""

    def load_state(self, tensors: dict[str, Tensor], rest: Any, /) -> None:
        """Take over what `state` gave."""


class Saveable(Protocol):
    """What is asked of a learner."""

    last_checkpoint: str

    def state(self) -> State:
        """What is its own: settings, position, random state."""

    def parts(self) -> Mapping[str, Part]:
        """The parts by name: model, heads, method, optimiser, memory, recorder."""

    @property
    def place(self) -> str:
        """The task and step it has reached, in words."""

    def check_weights(self) -> None:
        """Raise where a weight is not finite."""


def save(learner: Saveable, folder: str | Path, *, keep: bool = False) -> None:
    """Write the whole state of a learner; with `keep`, the state before it stays as well. Of
    several ranks the first does it.
    """
    if ranks.rank() > 0:
        return
    states = {name: part.state() for name, part in learner.parts().items()}
    write_state(folder, *_pack({"learner": learner.state(), **states}), keep=keep)


def read(folder: str | Path, warn: Callable[[str], None] | None = None) -> dict[str, State]:
    """The state of each part, as `save` wrote it. Damage to what learning does not need is reported
    through `warn`.
    """
    return _unpack(*read_state(folder, warn, optional=LOGS))


def _pack(states: dict[str, State]) -> tuple[Parts, dict[str, Any]]:
    """States as files of tensors and one JSON object: format 1 of saved folders."""
    (own, about), (measured, record) = states["learner"], states["recorder"]
    files: Parts = {"model": dict(own), "memory": states["memory"][0], "snapshots": {}, "steps": {}}
    for part in PREFIXED:
        files["model"] |= {f"{part}.{name}": value for name, value in states[part][0].items()}
    for name, value in measured.items():
        kind, _, rest = name.partition(".")
        if kind in LOGS:
            files[kind][rest] = value
        else:
            files["model"][name] = value
    described = {part: states[part][1] for part in ("method", "memory")}
    rest_of_it = {
        **about,
        **described,
        **states["model"][1],
        "tasks": states["heads"][1],
        "record": record,
    }
    return {name: tensors for name, tensors in files.items() if tensors}, rest_of_it


def _unpack(files: Parts, rest: dict[str, Any]) -> dict[str, State]:
    tensors: dict[str, dict[str, Tensor]] = {
        part: {} for part in (*PREFIXED, "learner", "recorder")
    }
    for name, value in files["model"].items():
        part, _, key = name.partition(".")
        if part in PREFIXED:
            tensors[part][key] = value
        elif part == "right_after":
            tensors["recorder"][name] = value
        else:
            tensors["learner"][name] = value
    for kind in LOGS:
        tensors["recorder"] |= {
            f"{kind}.{name}": value for name, value in files.get(kind, {}).items()
        }
    # Mdmt 0.1.0 laid out every kernel so, and did not say it.
    about = {
        "channels_last": True,
        **rest,
    }
    return {
        "learner": (tensors["learner"], about),
        "model": (tensors["model"], about),
        "method": (tensors["method"], rest["method"]),
        "optimiser": (tensors["optimiser"], {}),
        "memory": (files.get("memory", {}), rest["memory"]),
        "heads": ({}, rest["tasks"]),
        "recorder": (tensors["recorder"], rest["record"]),
    }


class Checkpoints:
    """Writes a learner's state into a folder: every so many steps, or by the clock, and when a task
    is over.

    The state before the last is kept. `every` is a number of steps, or a time such as "30s";
    without it a checkpoint comes every max(60 s, 50 x what the last one took).
    """

    def __init__(self, folder: str | Path, every: int | str | None = None) -> None:
        self.folder = Path(folder)
        self.steps, self.seconds = (None, None) if every is None else parse_every(every)
        self.cost = 0.0
        self.last = time.monotonic()

    def after_step(self, learner: Saveable, steps: int) -> None:
        """Write when it is time; so many steps were made in all."""
        if self.steps is not None:
            due = steps % self.steps == 0
        else:
            wait = max(SECONDS, SHARE * self.cost) if self.seconds is None else self.seconds
            due = time.monotonic() - self.last >= wait
        if due:
            self.write(learner)

    def write(self, learner: Saveable) -> None:
        """Write now; weights that are not finite are never written."""
        start = time.monotonic()
        learner.check_weights()
        save(learner, self.folder, keep=True)
        self.last = time.monotonic()
        self.cost = self.last - start
        learner.last_checkpoint = f"that of {learner.place}, in {self.folder}"


def parse_every(every: int | str) -> tuple[int | None, float | None]:
    """Steps, or seconds, between two checkpoints.

    >>> parse_every(200), parse_every("200"), parse_every("1.5s"), parse_every("5m")
    ((200, None), (200, None), (None, 1.5), (None, 300.0))
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h|)", str(every))
    number, unit = (float(match[1]), match[2]) if match else (0.0, "")
    if number <= 0 or (not unit and number % 1):
        raise Mistake(
            f"checkpoint-every {every}: must be a number of steps, or a time such as 30s, 5m or 1h"
        )
    return (None, number * {"s": 1, "m": 60, "h": 3600}[unit]) if unit else (int(number), None)
