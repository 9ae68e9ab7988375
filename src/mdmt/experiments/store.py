"""Run folders: where they lie, what is in them, and what state they are in.

A folder OUT/benchmark/method/<hash of the config>/<seed> holds `config.json` (all that is needed to run it again),
`record.json` (what was measured), `steps.csv` (loss and gradient of each kept step), `snapshots.safetensors`, while it is not
finished `checkpoint/`, after a failure `failed.json` (why), and `tensorboard/` when that was asked for. Nothing here loads
torch unless tensors are read.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from mdmt import files, steps
from mdmt.errors import Mistake
from mdmt.experiments.config import RunConfig
from mdmt.files import read_json
from mdmt.metrics import metrics_of

RECORD, CONFIG, STEPS, SNAPSHOTS, LOCK = "record.json", "config.json", "steps.csv", "snapshots.safetensors", ".lock"
CHECKPOINT, EVENTS, FAILED = "checkpoint", "tensorboard", "failed.json"
DAMAGE = (ValueError, KeyError, TypeError, AttributeError, OSError)  # what reading a broken file may raise


def read_record(folder: Path) -> dict[str, Any] | None:
    """The record of a finished run, or None; its metrics are those of today, whatever it was written with."""
    try:
        record = read_json(folder / RECORD)
        record["metrics"] = metrics_of(record)
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return record if record.get("finished") else None


def read_config(folder: Path) -> RunConfig:
    """The config of a run; a Mistake says what is wrong with it."""
    try:
        return RunConfig.from_json(read_json(folder / CONFIG))
    except FileNotFoundError:
        raise Mistake(f"{folder / CONFIG} is missing") from None


def read_progress(folder: Path) -> dict[str, Any]:
    """What the last checkpoint says besides its tensors: tasks, position, record so far."""
    errors = []
    for name in ("state.json", "previous.json"):
        try:
            state: dict[str, Any] = read_json(folder / CHECKPOINT / name)["state"]
            return state
        except DAMAGE as error:
            errors.append(error)
    raise errors[0]


def record_so_far(folder: Path) -> dict[str, Any] | None:
    """The record of a run, finished or as its last checkpoint has it; None where there is neither."""
    if (done := read_record(folder)) is not None or not (folder / CHECKPOINT).exists():
        return done
    from mdmt.record import Record

    record = {**Record(**read_progress(folder)["record"]).to_json(), "finished": False}
    del record["versions"]  # those of this process
    return record


def read_steps(folder: Path) -> list[steps.Row]:
    """The kept steps of a run, finished or not; none where it has no log."""
    if (folder / STEPS).exists():
        try:
            return steps.from_csv((folder / STEPS).read_text())
        except ValueError as error:
            raise Mistake(f"{folder / STEPS} is damaged: {error}") from None
    if not (folder / CHECKPOINT).exists():
        return []
    from mdmt.state import read_state

    parts = read_state(folder / CHECKPOINT)[0]
    return parts["steps"]["rows"].tolist() if "steps" in parts else []


def clear(folder: Path) -> None:
    """Forget what a run left."""
    for name in (CHECKPOINT, EVENTS):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in (RECORD, CONFIG, STEPS, SNAPSHOTS, FAILED):
        (folder / name).unlink(missing_ok=True)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """The folder is this process's alone; another one that wants it is refused."""
    with ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(files.lock(folder / LOCK))
        except BlockingIOError:
            raise Mistake(f"{folder} is in use by another process: wait for it, or use another --out") from None
        except OSError as error:
            raise Mistake(f"{folder} cannot be written ({error.strerror}): choose another folder with --out") from None
        yield
