"""What a run measured, as its files hold it: record, step log and snapshots, each checked when
read.

Nothing here loads torch.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import mdmt.runs.gate as gate
from mdmt.errors import Mistake
from mdmt.metrics import BETA, metrics_of
from mdmt.system.state import SavedState
from mdmt.words import printable

Matrix = list[list[float | None]]  # None: not evaluated
Step = list[float]  # in the order of COLUMNS
Snapshots = dict[str, NDArray[Any]]

COLUMNS = ("task", "step", "loss", "gradient", "seconds", "gradient_norm")
FIRST_COLUMNS = COLUMNS[:5]  # all that mdmt 0.1.0 logged at first
MATRICES = ("accuracy", "accuracy_task_free", "drift")
MOST = 10_000  # tasks


def check_record(content: dict[str, Any]) -> dict[str, Any]:
    """The record of a finished run; a Mistake says what is wrong.

    The metrics are computed from the accuracies, so that a record has all that this version knows.
    """
    if content.get("finished") is not True:
        raise Mistake("it does not say that the run finished")
    return _check(content) | {
        "versions": _texts("versions", content.get("versions") or {}),
        "reduced": _reduction(content.get("reduced")),
        "ranks": gate.whole(1, 10**6)("ranks", content.get("ranks", 1)),
        "finished": True,
    }


@dataclass(frozen=True)
class Position:
    """Where a run was at its last checkpoint: within a task (`of_task`), or at its end."""

    task: int
    step: int
    of_task: bool


def check_checkpoint(saved: SavedState) -> tuple[Position, dict[str, Any]]:
    """Where a checkpoint was written, and the record until then."""
    state = saved.rest
    if not isinstance(state.get("record"), dict):
        raise Mistake("it has no record")
    tasks = _list("tasks", gate.value_of(state, "tasks"))
    step = gate.whole(0, 10**12)("done", gate.value_of(state, "done"))
    within = gate.value_of(state, "open") is not None
    return Position(len(tasks), step, within), _progress(state["record"])


def _progress(content: dict[str, Any]) -> dict[str, Any]:
    """A record whose matrices lack what is not measured yet; accuracy on tasks to come, which one
    head has, is left out.
    """
    size = len(_list("tasks", gate.value_of(content, "tasks")))
    whole = {name: [row[:size] for row in _fill(name, content, size, size)] for name in MATRICES}
    return _check({**content, **whole}) | {"finished": False}


def _check(content: dict[str, Any]) -> dict[str, Any]:
    tasks = [_task(task) for task in _list("tasks", gate.value_of(content, "tasks"))]
    size = len(tasks)
    if not 1 <= size <= MOST:
        raise Mistake("it has no tasks" if not size else f"it has more than {MOST} tasks")
    accuracy, task_free = (
        _matrix(name, gate.value_of(content, name), size, size, within=(0.0, 1.0))
        for name in MATRICES[:2]
    )
    curve = _matrix(
        "curve", _fill("curve", content, size, BETA + 1), size, BETA + 1, within=(0.0, 1.0)
    )
    return {
        **content,
        "accuracy": accuracy,
        "accuracy_task_free": task_free,
        "drift": _matrix("drift", gate.value_of(content, "drift"), size, size, within=(-1e6, 1e6)),
        "curve": curve,
        "tasks": tasks,
        "metrics": metrics_of(
            {**content, "accuracy": accuracy, "accuracy_task_free": task_free, "curve": curve}
        ),
        "seconds": gate.number(1e12)("seconds", gate.value_of(content, "seconds")),
        "steps": gate.whole(0, 10**12)("steps", gate.value_of(content, "steps")),
        "memory_bytes": gate.whole(0, 10**15)(
            "memory_bytes", gate.value_of(content, "memory_bytes")
        ),
        "buffer_bytes": gate.whole(0, 10**15)("buffer_bytes", content.get("buffer_bytes", 0)),
        "weights_sha256": gate.text("weights_sha256", content.get("weights_sha256", "")),
    }


def _list(key: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise gate.refusal(key, value, "a list")
    return value


def _task(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise gate.refusal("tasks", value, "a list of objects")
    classes = [gate.scalar("classes", one) for one in _list("classes", value.get("classes", []))]
    counts = {
        key: gate.or_null(gate.whole(0, 10**12))(key, value.get(key)) for key in ("train", "test")
    }
    return {**value, "name": gate.text("name", value.get("name")), "classes": classes, **counts}


def _texts(key: str, value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise gate.refusal(key, value, "an object of texts")
    return {gate.text(key, name): gate.text(f"{key}.{name}", text) for name, text in value.items()}


def _reduction(value: Any) -> dict[str, Any] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise gate.refusal("reduced", value, "an object or null")
    return {
        gate.text("reduced", name): gate.scalar("reduced", part) for name, part in value.items()
    }


def _rows(key: str, value: Any) -> list[list[Any]]:
    rows = _list(key, value)
    if not all(isinstance(row, list) for row in rows):
        raise gate.refusal(key, value, "a list of lists")
    return rows


def _fill(key: str, content: dict[str, Any], height: int, width: int) -> list[list[Any]]:
    """The rows of a matrix that is not complete, with None where it ends."""
    rows = _rows(key, gate.value_of(content, key))
    rows = rows + [[]] * max(0, height - len(rows))
    return [row + [None] * (width - len(row)) for row in rows]


def _matrix(key: str, value: Any, height: int, width: int, within: tuple[float, float]) -> Matrix:
    """Numbers or null in rows of one length; NaN is null."""
    rows = _rows(key, value)
    if len(rows) != height or any(len(row) != width for row in rows):
        raise Mistake(f"{key} is not {height} x {width}")
    if not {type(cell) for row in rows for cell in row} <= {int, float, type(None)}:
        raise Mistake(f"{key} has other things than numbers")
    low, high = within
    for row in rows:
        if any(not low <= cell <= high for cell in row if cell is not None and cell == cell):
            raise Mistake(f"{key} has numbers outside of {low:g} to {high:g}")
    return [[None if cell is None or cell != cell else cell for cell in row] for row in rows]


def steps_as_csv(steps: Sequence[Step]) -> str:
    """The step log as a file that any program reads; numbers come back as they were, bit for bit.

    >>> print(steps_as_csv([[1.0, 1.0, 0.5, float("nan"), 0.25, 2.0]]), end="")
    task,step,loss,gradient,seconds,gradient_norm
    1,1,0.5,nan,0.25,2.0
    """
    has_norms = any(row[-1] == row[-1] for row in steps)
    # a log of an earlier version stays as it was
    columns = COLUMNS if has_norms or not steps else FIRST_COLUMNS
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([int(row[0]), int(row[1]), *row[2 : len(columns)]] for row in steps)
    return text.getvalue()


def steps_from_csv(text: str) -> list[Step]:
    """What `steps_as_csv` wrote; anything else is a Mistake.

    >>> steps_from_csv(steps_as_csv([[2, 7, 0.1, -3.5, 9.0, 4.0]]))
    [[2.0, 7.0, 0.1, -3.5, 9.0, 4.0]]
    """
    try:
        lines = list(csv.reader(io.StringIO(text)))
    except csv.Error as error:
        raise Mistake(str(error)) from None
    if not lines or tuple(lines[0]) not in (COLUMNS, FIRST_COLUMNS):
        raise Mistake(f"its columns are not {', '.join(COLUMNS)}")
    width = len(lines[0])
    if any(len(line) != width for line in lines):
        raise Mistake(f"a line has not {width} numbers")
    try:
        cells = [[float(cell) for cell in line] for line in lines[1:]]
    except ValueError as error:
        raise Mistake(printable(str(error))) from None
    return check_steps(np.array(cells, dtype=float).reshape(-1, width))


def check_steps(rows: NDArray[Any] | None) -> list[Step]:
    """A step log: numbers in COLUMNS, of which task and step are whole and from 1; a norm that was
    not logged is NaN.
    """
    widths = (len(COLUMNS), len(FIRST_COLUMNS))
    if rows is None or rows.dtype != np.float64 or rows.ndim != 2 or rows.shape[1] not in widths:
        raise Mistake(f"it has not {len(COLUMNS)} numbers a step")
    places = rows[:, :2]
    if not ((places >= 1) & (places <= 1e12) & (places == np.floor(places))).all():
        raise Mistake("task and step are not whole numbers from 1")
    missing = np.full((len(rows), len(COLUMNS) - rows.shape[1]), np.nan)
    return list(np.hstack([rows, missing]).tolist())


def check_snapshots(snapshots: Snapshots) -> Snapshots:
    """Refuse tensors that do not fit each other."""
    try:
        rows, width = snapshots["head"].shape
        if snapshots["head_of_class"].shape != (rows,):
            raise Mistake("head_of_class is not one number a row")
        for name in snapshots:
            if not _fits(name, snapshots, rows, width):
                raise Mistake(f"{printable(name)} does not fit the others")
    except Mistake:
        raise
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise Mistake(printable(f"its tensors are not those of a run ({error})")) from None
    return snapshots


def _fits(name: str, snapshots: Snapshots, rows: int, width: int) -> bool:
    kind, *numbers = name.split(".")
    value = snapshots[name]
    if kind == "features":
        labels = snapshots[f"labels.{int(numbers[0])}"]
        shapes = value.shape == (len(labels), width - 1)
        lengths = snapshots[f"lengths.{'.'.join(numbers)}"].shape == labels.shape
        return shapes and lengths and bool(labels.min() >= 0 and labels.max() < rows)
    return kind != "head" or bool(value.shape[1] == width and np.isfinite(value).all())
