"""A run folder: its files, and the state of the run.

A folder OUT/benchmark/method/<hash of the config>/<seed> holds `config.json` (all that is needed to
run it again), `record.json` (the measurements), `steps.csv` (the step log) and
`snapshots.safetensors`; until the run is finished `checkpoint/`; after a failure `failed.json` (the
reason); and, if asked for, `tensorboard/` and `model/` (the learner, for `Learner.load`). While a
finished run is done again (--fresh), its files stay as they are, and `fresh/` holds config.json and
checkpoint/ of the repetition.

A folder may be unfinished, damaged or written by somebody else: everything is checked before it is
used, nothing that a folder names is imported, and only files that a run wrote are removed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeVar

import mdmt.runs.gate as gate
from mdmt.errors import Mistake, summarise
from mdmt.runs.config import RunConfig
from mdmt.runs.record import MAX_TASKS, RunRecord
from mdmt.runs.snapshots import Snapshots
from mdmt.runs.step_log import ROWS, StepLog
from mdmt.system.files import (
    JsonObject,
    is_locked,
    json_bytes,
    lock,
    make_folder,
    read_json,
    remove_file,
    remove_leftovers,
    sync_folder,
    write_files,
    write_json,
)
from mdmt.system.state import SavedState, StateFolder
from mdmt.system.tensors import read_arrays
from mdmt.words import printable

RECORD = "record.json"
CONFIG = "config.json"
STEPS = "steps.csv"
SNAPSHOTS = "snapshots.safetensors"
FAILED = "failed.json"
LOCK = ".lock"
CHECKPOINT = "checkpoint"
EVENTS = "tensorboard"
EVENT_FILE = "events.out.tfevents."  # and the number of the task, with five digits
EVENT_DRAFTS = ".events-"  # begins the name of a folder in which event files are made
MODEL = "model"
FRESH = "fresh"
FILES = (RECORD, STEPS, SNAPSHOTS, FAILED, CONFIG)
DRAFT = rf"\.({'|'.join(map(re.escape, FILES))})\.\d+\.tmp"  # left by a process that was killed
HASH = "[0-9a-f]{12}"  # of a configuration
LEVELS = 5  # of folders: one of several --out, the benchmark, the method, the hash, the seed

T = TypeVar("T")


@dataclass(frozen=True)
class Position:
    """The task and step of a checkpoint; `of_task` is False at the end of the task."""

    task: int
    step: int
    of_task: bool


@dataclass(frozen=True)
class _Progress:
    """The progress of a run at its last checkpoint; an old one does not say the last two."""

    position: Position
    record: RunRecord
    tasks: int | None  # of the whole run
    done: float | None  # the share of its training examples that were learned


@dataclass(frozen=True)
class RunState:
    """The state of a run folder: `running` if a process has locked it, `stopped` if none has."""

    kind: Literal["finished", "running", "stopped", "failed", "damaged", "foreign"]
    reason: str = ""
    at: Position | None = None


class RunFolder:
    """One run folder. Files are read on first use; a Mistake names a damaged one."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def __str__(self) -> str:
        return printable(str(self.path))

    @cached_property
    def config(self) -> RunConfig:
        """The configuration of the run."""
        content = self._read(CONFIG)
        with _damage(CONFIG):
            return RunConfig.from_json(content)

    @cached_property
    def record(self) -> RunRecord:
        """The record of a finished run."""
        content = self._read(RECORD)
        with _damage(RECORD):
            return RunRecord.from_json(content)

    @property
    def finished_record(self) -> RunRecord | None:
        """The record, or None if it is missing or damaged."""
        try:
            return self.record
        except (Mistake, OSError):
            return None

    @property
    def finished_at(self) -> datetime:
        """The time at which the record was written."""
        return datetime.fromtimestamp((self.path / RECORD).stat().st_mtime)

    def check_model(self, config: RunConfig) -> None:
        """Raise a Mistake if `config` asks for the model of a finished run that kept none."""
        if config.keep_model and not (self.path / MODEL).is_dir():
            remedy = "--keep-model --fresh repeats the run and keeps it"
            raise Mistake(f"{self} is finished and kept no model: {remedy}")

    @property
    def record_so_far(self) -> RunRecord | None:
        """The record, or that of the last checkpoint; None if there is neither."""
        if self.has(RECORD):
            return self.record
        return self._progress.record if self._progress else None

    @property
    def task_count(self) -> int | None:
        """The number of tasks of the run; None if neither config nor checkpoint says it."""
        return self.config.tasks or (self._progress.tasks if self._progress else None)

    @property
    def seconds_left(self) -> float | None:
        """The time that was left to learn at the last checkpoint, if that says enough."""
        if self._progress is None or not self._progress.done:
            return None
        done = self._progress.done
        return self._progress.record.seconds * (1 - done) / done

    @property
    def steps(self) -> StepLog:
        """The step log of a run, finished or not; empty if there is none."""
        if self.has(STEPS):
            with _damage(STEPS):
                return StepLog.from_csv((self.path / STEPS).read_text(errors="replace"))
        return self._from_checkpoint(_steps_of) or StepLog()

    @property
    def snapshots(self) -> Snapshots:
        """The snapshots of a finished run; empty if there are none."""
        if not self.has(SNAPSHOTS):
            return Snapshots()
        with _damage(SNAPSHOTS):
            return Snapshots.from_bytes((self.path / SNAPSHOTS).read_bytes())

    @property
    def failure(self) -> str | None:
        """Why the run failed, in one line; None if it did not fail or the reason is unreadable."""
        try:
            return gate.text("reason", self._read(FAILED).get("reason"))
        except (Mistake, OSError):
            return None

    @property
    def traceback(self) -> list[str]:
        """The traceback of a failed run, line by line; empty if none was written."""
        try:
            trace = self._read(FAILED).get("traceback")
        except (Mistake, OSError):
            return []
        return [printable(line) for line in trace.splitlines()] if isinstance(trace, str) else []

    @property
    def is_running(self) -> bool:
        """Whether a process works on the run: it has locked the folder."""
        return is_locked(self.path / LOCK)

    @property
    def bytes(self) -> int:
        """The size of all files in the folder."""
        total = 0
        for parent, _, names in os.walk(self.path):
            for name in names:
                with suppress(OSError):  # removed meanwhile
                    total += os.lstat(os.path.join(parent, name)).st_size
        return total

    @property
    def state(self) -> RunState:
        """The state of the run; it never raises, since damage is a state with a reason."""
        try:
            return self._state()
        except (Mistake, OSError) as error:
            return RunState("damaged", printable(summarise(error)))

    def _state(self) -> RunState:
        if self.has(CONFIG):
            if not {"benchmark", "method"} & set(self._read(CONFIG)):
                return RunState("foreign", f"{CONFIG} is not that of a run")
            _ = self.config  # raises a Mistake if it is damaged, as does the record
        if self.has(RECORD):
            _ = self.config
            _ = self.record
            return RunState("finished", self._repetition_text)
        if self.is_running:
            with suppress(Mistake):  # a checkpoint that is being written
                return RunState(
                    "running", "" if self.position else "no checkpoint yet", self.position
                )
            return RunState("running", "no checkpoint yet")
        if self.failure is not None:
            return RunState("failed", self.failure, self.position)
        if self.position is not None:
            return RunState("stopped", "", self.position)
        reason = "it left no checkpoint" if self.has(CONFIG) else "nothing is written yet"
        return RunState("stopped", reason)

    @property
    def _repetition_text(self) -> str:
        """What becomes of a finished run that is done again; empty if it is not."""
        if self.workplace() is self:
            return ""
        if self.is_running:
            return "it is being done again (--fresh)"
        resume = "the same command without --fresh goes on"
        return (
            f"--fresh was interrupted; {resume}; to keep this result, delete {FRESH}/ in its folder"
        )

    @property
    def position(self) -> Position | None:
        """The position of the last checkpoint; None if there is none."""
        return self._progress.position if self._progress else None

    @property
    def checkpoint(self) -> StateFolder:
        """The folder of the checkpoint, which may not exist."""
        return StateFolder(self.path / CHECKPOINT, CHECKPOINT)

    def has(self, name: str) -> bool:
        """Whether the folder has a file of this name."""
        return (self.path / name).is_file()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Create the folder if necessary and lock it; refuse if another process has locked it."""
        with ExitStack() as stack:
            try:
                make_folder(self.path)
                stack.enter_context(lock(self.path / LOCK))
            except BlockingIOError:
                remedy = "wait for it, or use another --out"
                raise Mistake(f"{self} is in use by another process: {remedy}") from None
            except OSError as error:
                raise Mistake(
                    f"{self} cannot be written ({error.strerror}): choose another folder with --out"
                ) from None
            yield

    def workplace(self, *, fresh: bool = False) -> RunFolder:
        """The folder in which the run learns: this one, or `fresh/` while a result stays here.

        With `fresh`, the run is about to start over; otherwise it goes on where it was.
        """
        repetition = RunFolder(self.path / FRESH)
        is_repeated = repetition.has(CONFIG) or (fresh and self.has(RECORD))
        return repetition if is_repeated else self

    def start_over(self, config: RunConfig) -> None:
        """Make the next `run` begin anew; a finished result stays until that run is finished."""
        place = self.workplace(fresh=True)
        place.clear()
        if place is not self:
            place.begin(config)

    def begin(self, config: RunConfig) -> None:
        """Write the configuration."""
        make_folder(self.path)
        write_json(self.path / CONFIG, config.to_json())

    def finish(
        self, config: RunConfig, record: RunRecord, steps: StepLog, snapshots: Snapshots
    ) -> None:
        """Write the measurements, the record last, and remove the checkpoint.

        If the process is killed before the end, the run goes on from its last checkpoint.
        """
        is_repetition = self.workplace() is not self
        contents = {SNAPSHOTS: snapshots.to_bytes(), STEPS: steps.to_csv().encode()}
        if is_repetition:
            contents[CONFIG] = json_bytes(config.to_json())
        contents[RECORD] = json_bytes(record.to_json())
        for name in contents:
            remove_leftovers(self.path / name)
        write_files({self.path / name: data for name, data in contents.items()})
        if is_repetition:
            self._remove_events()  # those of the result before this one
            if not config.keep_model:
                StateFolder(self.path / MODEL).remove()
        self._remove_repetition()
        self.drop_checkpoint()

    def drop_checkpoint(self) -> None:
        """Remove the checkpoint of a finished run; after a kill, it may still be there."""
        with suppress(OSError):  # the result is complete
            self.checkpoint.remove()

    def fail(
        self, reason: str, task: int | None, step: int | None, trace: str | None = None
    ) -> None:
        """Write why the run failed, after which step of which task, and the traceback if given."""
        about = {"reason": reason, "task": task, "step": step}
        if trace is not None:
            about["traceback"] = trace
        with suppress(OSError):  # a full disk must not hide the first error
            write_json(self.path / FAILED, about)

    def forget_failure(self) -> None:
        """Remove the trace of an earlier failure: the run is started again."""
        (self.path / FAILED).unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove everything that a run has written; files of others stay."""
        if not self.path.is_dir():
            return
        self._remove_first(RECORD)
        self.checkpoint.remove()
        StateFolder(self.path / MODEL).remove()
        self._remove_events()
        for path in sorted(self.path.iterdir()):
            if path.name in FILES or re.fullmatch(DRAFT, path.name):
                remove_file(path)
        self._remove_repetition()

    def _remove_first(self, name: str) -> None:
        """Remove a file that must not come back after a loss of power without the others."""
        if self.has(name):
            remove_file(self.path / name)
            sync_folder(self.path)

    def _remove_repetition(self) -> None:
        repetition = RunFolder(self.path / FRESH)
        if repetition.path.is_symlink():  # no run made it
            return
        repetition._remove_first(CONFIG)  # it makes `fresh/` the place to go on
        repetition.clear()
        with suppress(OSError):  # there is none, or it holds files of others
            repetition.path.rmdir()

    def _remove_events(self) -> None:
        for folder in (self.path / EVENTS, *self.path.glob(f"{EVENT_DRAFTS}*")):
            if folder.is_symlink() or not folder.is_dir():
                continue
            ending = r"\d{5}" if folder.name == EVENTS else ".*"
            for path in sorted(folder.iterdir()):
                if re.fullmatch(re.escape(EVENT_FILE) + ending, path.name):
                    remove_file(path)
            with suppress(OSError):  # not empty
                folder.rmdir()

    def remove(self) -> None:
        """Remove the run, and parent folders that are empty then; files of others stay.

        A folder that no run of mdmt wrote is refused.
        """
        self.check_removable()
        with self.lock():
            self.clear()
            (self.path / LOCK).unlink(missing_ok=True)
        self._remove_empty_folders()

    def check_removable(self) -> None:
        """Raise a Mistake unless a run of mdmt wrote this folder."""
        reason = self._not_a_run()
        if reason is not None:
            raise Mistake(f"{self} is not a run of mdmt: {reason}; nothing was removed")

    def _not_a_run(self) -> str | None:
        """Why this is not the folder of a run; None if it is one.

        A run folder has the hash and the seed of its configuration as the end of its path. Without
        a readable configuration it may hold nothing that a run does not write.
        """
        place = self.path.resolve()
        if not _is_in_place(place):
            return "its path does not end with the hash and the seed of a run"
        try:
            config = self.config
        except (Mistake, OSError):
            others = sorted(path.name for path in place.iterdir() if not _is_own_name(path.name))
            if not others:
                return None
            return f"{CONFIG} is missing or damaged, and {printable(others[0])} is not of a run"
        if (config.hash, str(config.seed)) != (place.parent.name, place.name):
            return f"{CONFIG} is that of another run"
        return None

    def remove_if_not_begun(self) -> None:
        """Remove the folder of a run that was refused before it began, unless it is in use."""
        written = {entry.name for entry in self.path.glob("*")} - {FAILED, LOCK}
        if not self.is_running and not written:
            (self.path / FAILED).unlink(missing_ok=True)
            (self.path / LOCK).unlink(missing_ok=True)
            self._remove_empty_folders()

    def _remove_empty_folders(self) -> None:
        above = list(self.path.parents)[:3] if _is_in_place(self.path) else []
        with suppress(OSError):  # not empty
            for folder in (self.path, *above):
                folder.rmdir()

    def _read(self, name: str) -> JsonObject:
        if not self.has(name):  # a pipe would block forever
            raise Mistake(f"{name} is missing")
        return read_json(self.path / name)

    @cached_property
    def _progress(self) -> _Progress | None:
        return self._from_checkpoint(_progress_of)

    def _from_checkpoint(self, use: Callable[[SavedState], T]) -> T | None:
        """Apply `use` to the last good checkpoint, or return None if there is no checkpoint."""
        return self.checkpoint.last_good(use)[0] if self.checkpoint.manifests else None


def _progress_of(saved: SavedState) -> _Progress:
    with _damage(saved.name):
        record = saved.rest.get("record")
        if not isinstance(record, dict):
            raise Mistake("it has no record")
        tasks = gate.array("tasks", gate.value_of(saved.rest, "tasks"))
        step = gate.whole(0, 10**12)("done", gate.value_of(saved.rest, "done"))
        is_open = gate.value_of(saved.rest, "open") is not None
        stream = saved.rest.get("stream", {})
        if not isinstance(stream, dict):
            raise gate.refusal("stream", stream, "an object")
        return _Progress(
            Position(len(tasks), step, is_open),
            RunRecord.from_checkpoint(record),
            gate.or_null(gate.whole(1, MAX_TASKS))("stream.tasks", stream.get("tasks")),
            gate.or_null(gate.number(1.0))("stream.done", stream.get("done")),
        )


def _steps_of(saved: SavedState) -> StepLog:
    """The step log of a checkpoint."""
    if "steps" not in saved.files:
        return StepLog()
    data = saved.part("steps")
    with _damage(saved.name):
        return StepLog.from_array(read_arrays(data).get(ROWS))


@contextmanager
def _damage(name: str) -> Iterator[None]:
    """Put the name of the file in front of the message about its damage."""
    try:
        yield
    except Mistake as error:
        raise Mistake(f"{name} is damaged: {error}") from None


def _is_in_place(path: Path) -> bool:
    """Whether a path ends as that of a run does: with a hash and a seed."""
    return bool(re.fullmatch(HASH, path.parent.name) and re.fullmatch("[0-9]+", path.name))


def _is_own_name(name: str) -> bool:
    """Whether a run writes files or folders of this name into its folder."""
    known = (*FILES, LOCK, CHECKPOINT, EVENTS, MODEL, FRESH)
    return name in known or name.startswith(EVENT_DRAFTS) or bool(re.fullmatch(DRAFT, name))


def find_runs(out: str | Path) -> list[RunFolder]:
    """All run folders in a folder of runs, or of such folders; hidden folders are skipped.

    They are searched for as many levels down as a run lies, so that a folder such as / takes no
    longer than that.
    """
    paths = []
    top = len(Path(out).parts)
    for parent, folders, names in os.walk(out):
        begun = _is_in_place(Path(parent)) and (LOCK in names or CHECKPOINT in folders)
        if begun or {RECORD, CONFIG} & set(names):
            paths.append(Path(parent))
            folders.clear()
        if len(Path(parent).parts) - top >= LEVELS:
            folders.clear()
        folders[:] = [name for name in folders if not name.startswith(".")]
    return [RunFolder(path) for path in sorted(paths)]


def find_run(name: str, out: str | Path) -> RunFolder:
    """Find the one run in this folder, or with these folders in its path under OUT."""
    runs = find_runs(name) if name and Path(name).is_dir() else []
    if not runs:
        wanted = Path(name).parts
        runs = [run for run in find_runs(out) if _contains(run.path.relative_to(out).parts, wanted)]
    if not runs:
        remedy = "give its folder, or whole parts of its path such as hash/seed; see mdmt runs list"
        raise Mistake(f"no run {name!r} in {out}: {remedy}")
    if len(runs) > 1:
        first = ", ".join(str(run) for run in runs[:3]) + (", ..." if len(runs) > 3 else "")
        raise Mistake(f"{name!r} names {len(runs)} runs: {first}; give more of the path")
    return runs[0]


def _contains(parts: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    """Whether the folders `wanted` occur in a path, one after another."""
    count = len(wanted)
    places = range(len(parts) - count + 1)
    return count > 0 and any(parts[i : i + count] == wanted for i in places)
