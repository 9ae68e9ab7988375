"""A run folder: what is in it, and what state it is in.

A folder OUT/benchmark/method/<hash of the config>/<seed> holds `config.json` (all that is needed to
run it again), `record.json` (what was measured), `steps.csv` (loss and gradient of each step in the
log), `snapshots.safetensors`, while it is not finished `checkpoint/`, after a failure `failed.json`
(why), and `tensorboard/` and `model/` (the learner, for `Learner.load`) when they were asked for.

Whatever lies there may be unfinished, damaged or not ours: nothing is trusted before it is checked,
and nothing that a folder names is imported. Nothing here loads torch.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

from mdmt.errors import Mistake, summarise
from mdmt.runs.config import RunConfig
from mdmt.runs.gate import text
from mdmt.runs.measurements import (
    Position,
    Snapshots,
    Step,
    check_checkpoint,
    check_record,
    check_snapshots,
    check_steps,
    steps_as_csv,
    steps_from_csv,
)
from mdmt.system.files import is_locked, lock, read_json, write_file, write_json
from mdmt.system.state import SavedState, StateFolder
from mdmt.words import printable

RECORD = "record.json"
CONFIG = "config.json"
STEPS = "steps.csv"
SNAPSHOTS = "snapshots.safetensors"
FAILED = "failed.json"
LOCK = ".lock"
CHECKPOINT = "checkpoint"
EVENTS = "tensorboard"
MODEL = "model"  # the learner when the run was over, where that was asked for

T = TypeVar("T")


@dataclass(frozen=True)
class State:
    """What a folder is: `running` where a process holds it, `stopped` where none does."""

    kind: Literal["finished", "running", "stopped", "failed", "damaged", "foreign"]
    reason: str = ""
    at: Position | None = None


class RunFolder:
    """One run folder. A file is read when it is first asked for; a Mistake names a damaged one."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def __str__(self) -> str:
        return printable(str(self.path))

    @cached_property
    def config(self) -> RunConfig:
        """What determines the run."""
        content = self._read(CONFIG)
        with _damage(CONFIG):
            return RunConfig.from_json(content)

    @cached_property
    def record(self) -> dict[str, Any]:
        """What a finished run measured, its metrics computed from the accuracies."""
        content = self._read(RECORD)
        with _damage(RECORD):
            return check_record(content)

    @property
    def finished_record(self) -> dict[str, Any] | None:
        """The record, or None where there is no good one."""
        try:
            return self.record
        except (Mistake, OSError):
            return None

    @property
    def finished_at(self) -> datetime:
        """When the record was written."""
        return datetime.fromtimestamp((self.path / RECORD).stat().st_mtime)

    def check_model(self, config: RunConfig) -> None:
        """Refuse to read a finished run for its model where it kept none."""
        if config.keep_model and not (self.path / MODEL).is_dir():
            raise Mistake(
                f"{self} is finished and kept no model: --keep-model --fresh computes it once more"
            )

    @property
    def record_so_far(self) -> dict[str, Any] | None:
        """The record, or what the last checkpoint has of it; None where there is neither."""
        if self.has(RECORD):
            return self.record
        return self._checkpoint[1] if self._checkpoint else None

    @property
    def steps(self) -> list[Step]:
        """The step log of a run, finished or not; empty where it has none."""
        if self.has(STEPS):
            with _damage(STEPS):
                return steps_from_csv((self.path / STEPS).read_text(errors="replace"))
        return self._from_checkpoint(_logged_steps) or []

    @property
    def snapshots(self) -> Snapshots:
        """Features and heads of a finished run; empty where it has none."""
        if not self.has(SNAPSHOTS):
            return {}
        with _damage(SNAPSHOTS):
            return check_snapshots(_tensors((self.path / SNAPSHOTS).read_bytes()))

    @property
    def failure(self) -> str | None:
        """Why the run failed, in one line; None where it did not, or that cannot be read."""
        try:
            return text("reason", self._read(FAILED).get("reason"))
        except (Mistake, OSError):
            return None

    @property
    def traceback(self) -> list[str]:
        """The lines of code on which a run failed; empty where they are not known."""
        try:
            trace = self._read(FAILED).get("traceback")
        except (Mistake, OSError):
            return []
        return [printable(line) for line in trace.splitlines()] if isinstance(trace, str) else []

    @property
    def is_running(self) -> bool:
        """Whether a process is at work here: it holds the lock."""
        return is_locked(self.path / LOCK)

    @property
    def bytes(self) -> int:
        """The size of all files in the folder."""
        total = 0
        for place, _, names in os.walk(self.path):
            for name in names:
                with suppress(OSError):  # removed meanwhile
                    total += os.lstat(os.path.join(place, name)).st_size
        return total

    @property
    def state(self) -> State:
        """What the folder is; whatever cannot be read is a reason, and never raises."""
        try:
            return self._state()
        except (Mistake, OSError) as error:
            return State("damaged", printable(summarise(error)))

    def _state(self) -> State:
        if self.has(CONFIG):
            if not {"benchmark", "method"} & set(self._read(CONFIG)):
                return State("foreign", f"{CONFIG} is not that of a run")
            _ = self.config  # raises where it is damaged, as does the record
        if self.has(RECORD):
            _ = self.config
            _ = self.record
            return State("finished")
        if self.is_running:
            with suppress(Mistake):  # a checkpoint that is being written
                return State("running", "" if self.position else "no checkpoint yet", self.position)
            return State("running", "no checkpoint yet")
        if self.failure is not None:
            return State("failed", self.failure, self.position)
        if self.position is not None:
            return State("stopped", "", self.position)
        return State(
            "stopped", "it left no checkpoint" if self.has(CONFIG) else "nothing is written yet"
        )

    @property
    def position(self) -> Position | None:
        """Where the last checkpoint is; None where there is none."""
        return self._checkpoint[0] if self._checkpoint else None

    @property
    def checkpoint(self) -> StateFolder:
        """The folder of the checkpoint, which may not exist."""
        return StateFolder(self.path / CHECKPOINT, CHECKPOINT)

    def has(self, name: str) -> bool:
        """Whether there is a file of this name."""
        return (self.path / name).is_file()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """The folder, made where there is none, is this process's alone; another one that wants it
        is refused.
        """
        with ExitStack() as stack:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                stack.enter_context(lock(self.path / LOCK))
            except BlockingIOError:
                raise Mistake(
                    f"{self} is in use by another process: wait for it, or use another --out"
                ) from None
            except OSError as error:
                raise Mistake(
                    f"{self} cannot be written ({error.strerror}): choose another folder with --out"
                ) from None
            yield

    def begin(self, config: RunConfig) -> None:
        """Write down what is run here."""
        write_json(self.path / CONFIG, config.to_json())

    def finish(self, record: dict[str, Any], steps: list[Step], snapshots: Snapshots) -> None:
        """Write what was measured, the record last; the checkpoint is not needed any more."""
        from safetensors.numpy import save

        write_file(self.path / SNAPSHOTS, save(snapshots))
        write_file(self.path / STEPS, steps_as_csv(steps).encode())
        write_json(self.path / RECORD, record)
        shutil.rmtree(self.path / CHECKPOINT, ignore_errors=True)

    def fail(
        self, reason: str, task: int | None, step: int | None, trace: str | None = None
    ) -> None:
        """Write down what ended the run, after which step of which task and, where it is known, on
        which lines.
        """
        about = {"reason": reason, "task": task, "step": step}
        if trace is not None:
            about["traceback"] = trace
        with suppress(OSError):  # a full disk must not hide the first error
            write_json(self.path / FAILED, about)

    def forget_failure(self) -> None:
        """The run is started again."""
        (self.path / FAILED).unlink(missing_ok=True)

    def clear(self) -> None:
        """Forget what a run left."""
        for name in (CHECKPOINT, EVENTS, MODEL):
            shutil.rmtree(self.path / name, ignore_errors=True)
        for name in (RECORD, CONFIG, STEPS, SNAPSHOTS, FAILED):
            (self.path / name).unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove a run that no process holds, and the folders above it that are empty then; other
        files stay.
        """
        if self.state.kind == "foreign":
            raise Mistake(f"{self} is not a run of mdmt: {self.state.reason}")
        with self.lock():
            self.clear()
            (self.path / LOCK).unlink(missing_ok=True)
        self._remove_empty_folders()

    def remove_if_not_begun(self) -> None:
        """Leave nothing of a run that was refused before it began; another process may hold the
        folder.
        """
        if not self.is_running and not {entry.name for entry in self.path.glob("*")} - {
            FAILED,
            LOCK,
        }:
            (self.path / FAILED).unlink(missing_ok=True)
            (self.path / LOCK).unlink(missing_ok=True)
            self._remove_empty_folders()

    def _remove_empty_folders(self) -> None:
        in_its_place = re.fullmatch("[0-9a-f]{12}", self.path.parent.name)
        above = list(self.path.parents)[:3] if in_its_place else []
        with suppress(OSError):  # not empty
            for folder in (self.path, *above):
                folder.rmdir()

    def _read(self, name: str) -> dict[str, Any]:
        if not self.has(name):  # nor a pipe, which would never end
            raise Mistake(f"{name} is missing")
        return read_json(self.path / name)

    @cached_property
    def _checkpoint(self) -> tuple[Position, dict[str, Any]] | None:
        return self._from_checkpoint(check_checkpoint)

    def _from_checkpoint(self, use: Callable[[SavedState], T]) -> T | None:
        """Apply `use` to the last good checkpoint, or return None if there is no checkpoint."""
        damage: Mistake | None = None
        for name in self.checkpoint.manifests:
            try:
                saved = self.checkpoint.open(name)
                with _damage(f"{CHECKPOINT}/{name}"):
                    return use(saved)
            except Mistake as error:
                damage = damage or error
        if damage is not None:
            raise damage
        return None


def _logged_steps(saved: SavedState) -> list[Step]:
    """The step log of a checkpoint."""
    if "steps" not in saved.files:
        return []
    return check_steps(_tensors(saved.part("steps")).get("rows"))


@contextmanager
def _damage(name: str) -> Iterator[None]:
    """Put the name of the file before what is wrong with it."""
    try:
        yield
    except Mistake as error:
        raise Mistake(f"{name} is damaged: {error}") from None


def _tensors(data: bytes) -> Snapshots:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        return load(data)
    except (SafetensorError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise Mistake(printable(f"no tensors ({error})")) from None


def find_runs(out: str | Path) -> list[RunFolder]:
    """Every folder under a folder that holds a run, or part of one; hidden folders are passed
    over.
    """
    paths = []
    for place, folders, names in os.walk(out):
        if {RECORD, CONFIG, LOCK} & set(names) or CHECKPOINT in folders:
            paths.append(Path(place))
            folders.clear()
        folders[:] = [name for name in folders if not name.startswith(".")]
    return [RunFolder(path) for path in sorted(paths)]


def find_run(name: str, out: str | Path) -> RunFolder:
    """The one run that a path, or a part of the path of a run under OUT, names."""
    runs = find_runs(name if Path(name).is_dir() else out)
    if not Path(name).is_dir():
        runs = [run for run in runs if name in str(run.path)]
    if not runs:
        raise Mistake(
            f"no run {name!r} in {out}: give its folder or a part of it, such as its hash; see mdmt"
            " runs list"
        )
    if len(runs) > 1:
        first = ", ".join(str(run) for run in runs[:3]) + (", ..." if len(runs) > 3 else "")
        raise Mistake(f"{name!r} names {len(runs)} runs: {first}; give more of the path")
    return runs[0]
