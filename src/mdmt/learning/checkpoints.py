"""Save a learner in a folder and read it back, and write checkpoints while it learns.

A learner names its parts; each part gives its state as tensors and JSON, and takes it back. This
module decides which file a tensor goes to: what changes with every step goes to `model`; memory,
snapshots and step log, which change rarely, have files of their own. An empty memory, such as that
of a method that uses none, has no file. It is also the only place where tensors become the bytes of
a `StateFolder`, and back.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import safetensors.torch
from torch import Tensor

import mdmt.ranks as ranks
from mdmt.errors import Mistake
from mdmt.learning.gate import check_manifest, check_sizes
from mdmt.system.files import JsonObject
from mdmt.system.state import StateFolder
from mdmt.system.tensors import decode
from mdmt.words import printable

SECONDS = 60.0  # between two checkpoints, at least
WAIT_FACTOR = 50  # a checkpoint may take at most a fiftieth of the time
# Parts whose tensors share a file, each under its name; the memory only if it is empty.
PREFIXED = ("model", "method", "optimiser", "memory")
LOGS = ("snapshots", "steps")  # files that figures need and learning does not
Tensors = dict[str, Tensor]
PartState = tuple[Tensors, Any]


class Part(Protocol):
    """A part of a learner that has state to save."""

    def state(self) -> PartState:
        """The state of the part, as tensors and as JSON."""

    def load_state(self, tensors: Tensors, rest: Any, /) -> None:
        """Restore the state that `state` returned."""


class Saveable(Protocol):
    """The methods of a learner that saving needs."""

    last_checkpoint: str

    def state(self) -> PartState:
        """The learner's own state: settings, position, random state."""

    def parts(self) -> Mapping[str, Part]:
        """The parts by name: model, heads, method, optimiser, memory, recorder."""

    @property
    def position_text(self) -> str:
        """The current task and step, in words."""

    def check_weights(self) -> None:
        """Raise an error if a weight is not finite."""


def save(learner: Saveable, folder: str | Path, *, keep: bool = False) -> None:
    """Write the whole state of a learner; with `keep`, the previous state stays as well.

    Of several ranks only the first one writes.
    """
    if ranks.rank() > 0:
        return
    files, rest = pack(learner)
    StateFolder(folder).write(encoded(files), rest, keep=keep)


def read(folder: str | Path, warn: Callable[[str], None] | None = None) -> dict[str, PartState]:
    """Read the state of each part; damage to files that learning can do without goes to `warn`."""
    files, rest = StateFolder(folder).read(decoded, warn=warn, optional=LOGS)
    with naming(folder):
        return unpack(files, rest)


@contextmanager
def naming(folder: str | Path) -> Iterator[None]:
    """Put the name of the folder in front of a message about its content, unless it is there."""
    try:
        yield
    except Mistake as error:
        if str(error).startswith(str(folder)):
            raise
        raise Mistake(f"{printable(str(folder))} cannot be loaded: {error}") from None


def decoded(data: bytes) -> Tensors:
    """The tensors of a file; a Mistake says if it holds none."""
    return decode(data, safetensors.torch.load)


def encoded(files: Mapping[str, Tensors]) -> Iterator[tuple[str, bytes]]:
    """The bytes of each file, one at a time: all of them together may not fit into memory."""
    for name, tensors in files.items():
        # safetensors refuses tensors that share memory, hence the copies
        copies = {key: value.detach().cpu().contiguous().clone() for key, value in tensors.items()}
        yield name, safetensors.torch.save(copies)


def pack(learner: Saveable) -> tuple[dict[str, Tensors], JsonObject]:
    """Arrange a learner's state as files of tensors and one JSON object: format 1 of folders."""
    states = {name: part.state() for name, part in learner.parts().items()}
    own, settings = learner.state()
    measured, record = states["recorder"]
    files: dict[str, Tensors] = {"model": dict(own), "memory": {}, "snapshots": {}, "steps": {}}
    for part in PREFIXED:
        tensors = states[part][0]
        if part == "memory" and any(value.numel() for value in tensors.values()):
            files["memory"] = tensors
        else:
            files["model"] |= {f"{part}.{name}": value for name, value in tensors.items()}
    for name, value in measured.items():
        kind, _, key = name.partition(".")
        if kind in LOGS:
            files[kind][key] = value
        else:
            files["model"][name] = value
    rest = {
        **settings,
        "method": states["method"][1],
        "memory": states["memory"][1],
        **states["model"][1],
        "tasks": states["heads"][1],
        "record": record,
    }
    return {name: tensors for name, tensors in files.items() if tensors}, rest


def unpack(files: Mapping[str, Tensors], rest: JsonObject) -> dict[str, PartState]:
    """The state of each part; a Mistake names what is missing or is not that of a learner."""
    check_manifest(rest)
    if "model" not in files:
        raise Mistake("the weights are missing")
    check_sizes(rest, files["model"])
    tensors: dict[str, Tensors] = {part: {} for part in (*PREFIXED, "learner", "recorder")}
    for name, value in files["model"].items():
        part, _, key = name.partition(".")
        if part in PREFIXED:
            tensors[part][key] = value
        elif part == "right_after":
            tensors["recorder"][name] = value
        else:
            tensors["learner"][name] = value
    for kind in LOGS:
        logged = files.get(kind, {})
        tensors["recorder"] |= {f"{kind}.{name}": value for name, value in logged.items()}
    # mdmt 0.1.0 always used this layout and did not write it down
    about = {"channels_last": True, **rest}
    return {
        "learner": (tensors["learner"], about),
        "model": (tensors["model"], about),
        "method": (tensors["method"], rest["method"]),
        "optimiser": (tensors["optimiser"], {}),
        "memory": (files.get("memory", tensors["memory"]), rest["memory"]),
        "heads": ({}, rest["tasks"]),
        "recorder": (tensors["recorder"], rest["record"]),
    }


class Checkpoints:
    """Writes a learner's state to a folder at intervals, and after every task.

    The state before the last is kept. `every` is a number of steps, or a time such as "30s"; by
    default a checkpoint is written every 60 s, or less often if writing takes long.
    """

    def __init__(self, folder: str | Path, every: int | str | None = None) -> None:
        self.folder = Path(folder)
        self.steps: int | None = None
        self.seconds: float | None = None
        if every is not None:
            self.steps, self.seconds = parse_every(every)
        self.cost = 0.0  # seconds that the last checkpoint took
        self.last = time.monotonic()

    def after_step(self, learner: Saveable, steps: int) -> None:
        """Write a checkpoint if one is due after `steps` steps of the learner."""
        if self.steps is not None:
            due = steps % self.steps == 0
        else:
            wait = max(SECONDS, WAIT_FACTOR * self.cost) if self.seconds is None else self.seconds
            due = time.monotonic() - self.last >= wait
        if due:
            self.write(learner)

    def write(self, learner: Saveable) -> None:
        """Write a checkpoint now; weights that are not finite raise an error instead."""
        start = time.monotonic()
        learner.check_weights()
        save(learner, self.folder, keep=True)
        self.last = time.monotonic()
        self.cost = self.last - start
        learner.last_checkpoint = f"that of {learner.position_text}, in {self.folder}"


def parse_every(every: int | str) -> tuple[int | None, float | None]:
    """Convert the interval between checkpoints to steps, or to seconds.

    >>> parse_every(200), parse_every("200"), parse_every("1.5s"), parse_every("5m")
    ((200, None), (200, None), (None, 1.5), (None, 300.0))
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h|)", str(every))
    number = float(match[1]) if match else 0.0
    unit = match[2] if match else ""
    if number <= 0 or (not unit and number % 1):
        raise Mistake(
            f"checkpoint-every {every}: must be a number of steps, or a time such as 30s, 5m or 1h"
        )
    return (None, number * {"s": 1, "m": 60, "h": 3600}[unit]) if unit else (int(number), None)
