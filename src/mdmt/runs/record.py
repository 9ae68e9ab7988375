"""The record of a run: accuracies, curves and drift, with the cost of learning.

`Record` is what a learner measures as it goes; `RunRecord` is what a run folder holds. Whatever is
read from a folder may be damaged or written by somebody else, so `from_json` checks all of it.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import platform
import subprocess
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypedDict, cast

import mdmt.runs.anytime as points
import mdmt.runs.gate as gate
from mdmt.errors import Mistake
from mdmt.metrics import BETA, metrics_of
from mdmt.system.files import JsonObject
from mdmt.system.packages import optional

if TYPE_CHECKING:
    from pandas import DataFrame

    from mdmt.runs.picture import Picture

Matrix = list[list[float | None]]  # one row per learned task; None: not evaluated
MATRICES = ("accuracy", "accuracy_task_free", "drift")
NUMBERS = ("dead_features", "feature_rank")  # one of each task's end; later than mdmt 0.1.0
MAX_TASKS = 10_000


class TaskInfo(TypedDict):
    """What a record says about a task."""

    name: str
    classes: list[Any]
    train: int | None  # numbers of examples
    test: int | None


@dataclass
class Record:
    """Accuracies, curves and drift, a row per learned task, with the cost of learning them.

    `accuracy` has the task given, `accuracy_task_free` lets all seen heads compete. `curve` holds
    Z_0..Z_10 of each task, a point every ten examples. `drift[i][j]` is 1 - cos between the
    features of task j after task i and right after task j, on a fixed sample. `seconds` is the time
    spent learning, without evaluation. `memory_bytes` counts the stored examples, `buffer_bytes`
    everything else that the method stores, such as the importance of each weight. `dead_features`
    and `feature_rank` have a number for each task's end: the share of features that are the same
    for every example of the samples of all tasks so far, and the effective rank of the features.
    """

    accuracy: Matrix = field(default_factory=list)
    accuracy_task_free: Matrix = field(default_factory=list)
    curve: Matrix = field(default_factory=list)
    drift: Matrix = field(default_factory=list)
    tasks: list[TaskInfo] = field(default_factory=list)
    seconds: float = 0.0
    steps: int = 0
    memory_bytes: int = 0
    buffer_bytes: int = 0
    weights_sha256: str = ""
    dead_features: list[float | None] = field(default_factory=list)
    feature_rank: list[float | None] = field(default_factory=list)
    anytime: points.Anytime | None = None  # with `evaluate_every`

    @property
    def metrics(self) -> dict[str, float | None]:
        """The value of each of METRICS, by name."""
        return metrics_of(self.padded())

    @property
    def anytime_accuracy(self) -> Matrix | None:
        """The accuracies of each point along the steps."""
        return None if self.anytime is None else self.anytime["accuracy"]

    @property
    def stored_bytes(self) -> int:
        """The size of everything that the method stores."""
        return self.memory_bytes + self.buffer_bytes

    def padded(self, tasks: int | None = None) -> Self:
        """Fill the matrices up with None, for a number of tasks; by default those in the record."""
        size = len(self.tasks) if tasks is None else tasks
        return dataclasses.replace(
            self,
            accuracy=_square(self.accuracy, size),
            accuracy_task_free=_square(self.accuracy_task_free, size),
            drift=_square(self.drift, size),
            curve=_padded(self.curve, BETA + 1),
            dead_features=_filled_up(self.dead_features, size),
            feature_rank=_filled_up(self.feature_rank, size),
        )

    def to_pandas(self) -> DataFrame:
        """A frame of pandas with a line for each task that was tested after a task.

        Its columns are `after` and `task` (names of tasks), `accuracy`, `accuracy_task_free` and
        `drift`; `frame.pivot(index="after", columns="task", values="accuracy")` is the matrix.
        """
        pandas = optional("pandas", "to_pandas")
        whole = self.padded()
        names = [task["name"] for task in whole.tasks]
        lines = [
            {"after": after, "task": task, **{key: getattr(whole, key)[i][j] for key in MATRICES}}
            for i, after in enumerate(names)
            for j, task in enumerate(names)
            if whole.accuracy[i][j] is not None
        ]
        frame: DataFrame = pandas.DataFrame(lines, columns=["after", "task", *MATRICES])
        return frame.astype(dict.fromkeys(MATRICES, float))

    def plot(self) -> Picture:
        """A figure of matplotlib: the accuracy on each task after each task."""
        optional("matplotlib", "plot")
        import numpy

        from mdmt.runs.picture import accuracy_picture

        whole = self.padded()
        names = [task["name"] for task in whole.tasks]
        values = 100 * numpy.array(whole.accuracy, dtype=float).reshape(len(names), -1)
        metrics = {name: value for name, value in self.metrics.items() if value is not None}
        title = ", ".join(f"{name} {value:.3f}" for name, value in metrics.items())
        return accuracy_picture(values, names, title)

    @classmethod
    def from_state(cls, content: JsonObject) -> Self:
        """Check the record of a saved learner, whose rows are as long as what was measured.

        Keys of later versions are ignored.
        """
        given = gate.array("tasks", gate.value_of(content, "tasks"))
        tasks = [_learned_task(task) for task in given]
        rows = {name: _rows(name, gate.value_of(content, name)) for name in (*MATRICES, "curve")}
        if len(rows["curve"]) != len(tasks) or any(len(m) > len(tasks) for m in rows.values()):
            raise Mistake("it does not have one row for each task")
        limits = dict.fromkeys(rows, (0.0, 1.0)) | {"drift": (-1e6, 1e6)}
        measured: JsonObject = {name: _cells(name, rows[name], *limits[name]) for name in rows}
        for name in NUMBERS:
            measured[name] = _numbers(name, content, len(measured["accuracy"]))
        measured["anytime"] = points.checked(content.get("anytime"), len(tasks))
        return cls(**measured, **_costs(content), tasks=tasks)

    def to_json(self) -> JsonObject:
        """The measurements and metrics, as record.json holds them, with the versions in use."""
        content = _without_null(dataclasses.asdict(self.padded()))
        return {**content, "metrics": self.metrics, "versions": versions()}


@dataclass
class RunRecord(Record):
    """The record of a run folder: finished, or what was measured until the last checkpoint."""

    versions: dict[str, str] = field(default_factory=dict)
    reduced: JsonObject | None = None  # what makes the run smaller than the protocol
    ranks: int = 1  # processes that shared the run
    finished: bool = True
    other: JsonObject = field(default_factory=dict)  # keys of later versions

    @classmethod
    def of(cls, record: Record, reduced: JsonObject | None, ranks: int) -> RunRecord:
        """The record of a run that has just finished."""
        whole = record.padded()
        measured = {one.name: getattr(whole, one.name) for one in dataclasses.fields(Record)}
        return cls(**measured, versions=versions(), reduced=reduced, ranks=ranks)

    def to_json(self) -> JsonObject:
        """The content of record.json."""
        measured = {one.name: getattr(self, one.name) for one in dataclasses.fields(Record)}
        content = {**_without_null(measured), "metrics": self.metrics}
        if self.finished:
            content |= {"versions": self.versions, "reduced": self.reduced, "ranks": self.ranks}
        return {**content, "finished": self.finished, **self.other}

    @classmethod
    def from_json(cls, content: JsonObject) -> RunRecord:
        """Check the record of a finished run; raise a Mistake that says what is wrong.

        Stored metrics are ignored: they are computed from the matrices, so that old records have
        the metrics of this version too.
        """
        if content.get("finished") is not True:
            raise Mistake("it does not say that the run finished")
        return cls(
            **_measurements(content),
            versions=_versions(content.get("versions") or {}),
            reduced=_reduced(content.get("reduced")),
            ranks=gate.whole(1, 10**6)("ranks", content.get("ranks", 1)),
            other=_other(content),
        )

    @classmethod
    def from_checkpoint(cls, content: JsonObject) -> RunRecord:
        """Check the record in a checkpoint, whose matrices lack what is not measured yet.

        With one shared head, tasks to come are evaluated too; these accuracies are left out.
        """
        size = len(gate.array("tasks", gate.value_of(content, "tasks")))
        matrices = {}
        for name in MATRICES:
            matrices[name] = [row[:size] for row in _filled(name, content, size, size)]
        numbers = {name: gate.array(name, content.get(name, [])) for name in NUMBERS}
        numbers = {name: _filled_up(values, size) for name, values in numbers.items()}
        measured = _measurements({**content, **matrices, **numbers})
        return cls(**measured, finished=False, other=_other(content))


def _measurements(content: JsonObject) -> JsonObject:
    """The checked fields of a `Record`."""
    tasks = [_task(task) for task in gate.array("tasks", gate.value_of(content, "tasks"))]
    size = len(tasks)
    if not 1 <= size <= MAX_TASKS:
        raise Mistake("it has no tasks" if not size else f"it has more than {MAX_TASKS} tasks")
    curve = _filled("curve", content, size, BETA + 1)

    def matrix(name: str, low: float, high: float) -> Matrix:
        return _matrix(name, gate.value_of(content, name), size, size, low, high)

    return {
        "accuracy": matrix("accuracy", 0.0, 1.0),
        "accuracy_task_free": matrix("accuracy_task_free", 0.0, 1.0),
        "curve": _matrix("curve", curve, size, BETA + 1, 0.0, 1.0),
        "drift": matrix("drift", -1e6, 1e6),
        "tasks": tasks,
        **{name: _numbers(name, content, size) for name in NUMBERS},
        "anytime": points.checked(content.get("anytime"), size),
        **_costs(content),
    }


def _numbers(name: str, content: JsonObject, size: int) -> list[float | None]:
    """The checked numbers of each task's end; None where an earlier version did not have them."""
    values = gate.array(name, content.get(name, [None] * size))
    if len(values) != size:
        raise Mistake(f"{name} does not have {size} numbers")
    most = 1.0 if name == "dead_features" else 1e9
    return _cells(name, [values], 0.0, most)[0]


def _without_null(measured: JsonObject) -> JsonObject:
    """Without the key of what was not measured along the steps."""
    off = measured["anytime"] is None
    return {name: value for name, value in measured.items() if not (off and name == "anytime")}


def _costs(content: JsonObject) -> JsonObject:
    """The checked fields that are single numbers and texts."""
    return {
        "seconds": gate.number(1e12)("seconds", gate.value_of(content, "seconds")),
        "steps": gate.whole(0, 10**12)("steps", gate.value_of(content, "steps")),
        "memory_bytes": gate.whole(0, 10**15)(
            "memory_bytes", gate.value_of(content, "memory_bytes")
        ),
        # runs of mdmt 0.1.0 did not count buffers
        "buffer_bytes": gate.whole(0, 10**15)("buffer_bytes", content.get("buffer_bytes", 0)),
        "weights_sha256": gate.text("weights_sha256", content.get("weights_sha256", "")),
    }


def _other(content: JsonObject) -> JsonObject:
    """The keys that this version does not know."""
    known = {one.name for one in dataclasses.fields(RunRecord)} | {"metrics"}
    return {key: gate.strict(value) for key, value in content.items() if key not in known}


def _task(value: Any) -> TaskInfo:
    if not isinstance(value, dict):
        raise gate.refusal("tasks", value, "a list of objects")
    classes = gate.array("classes", value.get("classes", []))
    size = gate.or_null(gate.whole(0, 10**12))
    checked = {
        **gate.strict(value),
        "name": gate.text("name", value.get("name")),
        "classes": [gate.scalar("classes", one) for one in classes],
        "train": size("train", value.get("train")),
        "test": size("test", value.get("test")),
    }
    return cast(TaskInfo, checked)


def _learned_task(value: Any) -> TaskInfo:
    """A task of a saved learner, with name and classes as they are: the learner knows both."""
    if not isinstance(value, dict):
        raise gate.refusal("tasks", value, "a list of objects")
    size = gate.or_null(gate.whole(0, 10**12))
    return {
        "name": gate.value_of(value, "name"),
        "classes": gate.array("classes", gate.value_of(value, "classes")),
        "train": size("train", gate.value_of(value, "train")),
        "test": size("test", gate.value_of(value, "test")),
    }


def _versions(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise gate.refusal("versions", value, "an object of texts")
    text = gate.text
    return {text("versions", name): text(f"versions.{name}", one) for name, one in value.items()}


def _reduced(value: Any) -> JsonObject | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise gate.refusal("reduced", value, "an object or null")
    return {
        gate.text("reduced", name): gate.scalar("reduced", part) for name, part in value.items()
    }


def _rows(key: str, value: Any) -> list[list[Any]]:
    rows = gate.array(key, value)
    if not all(isinstance(row, list) for row in rows):
        raise gate.refusal(key, value, "a list of lists")
    return rows


def _filled(key: str, content: JsonObject, height: int, width: int) -> list[list[Any]]:
    """The rows of an incomplete matrix, filled up with None."""
    rows = _rows(key, gate.value_of(content, key))
    rows = rows + [[]] * max(0, height - len(rows))
    return [row + [None] * (width - len(row)) for row in rows]


def _matrix(key: str, value: Any, height: int, width: int, low: float, high: float) -> Matrix:
    """Check a matrix of numbers from low to high; NaN becomes None."""
    rows = _rows(key, value)
    if len(rows) != height or any(len(row) != width for row in rows):
        raise Mistake(f"{key} is not {height} x {width}")
    return _cells(key, rows, low, high)


def _cells(key: str, rows: list[list[Any]], low: float, high: float) -> Matrix:
    if not {type(cell) for row in rows for cell in row} <= {int, float, type(None)}:
        raise Mistake(f"{key} has other things than numbers")
    for row in rows:
        if any(not low <= cell <= high for cell in row if cell is not None and cell == cell):
            raise Mistake(f"{key} has numbers outside of {low:g} to {high:g}")
    return [[None if cell is None or cell != cell else cell for cell in row] for row in rows]


def _padded(rows: Matrix, width: int) -> Matrix:
    return [(row + [None] * width)[:width] for row in rows]


def _filled_up(values: list[Any], size: int) -> list[Any]:
    return (values + [None] * size)[:size]


def _square(rows: Matrix, size: int) -> Matrix:
    return _padded((rows + [[]] * size)[:size], size)


def versions() -> dict[str, str]:
    """The versions of everything that may change a result."""
    import numpy
    import torch

    found = commit()
    return {
        "mdmt": importlib.metadata.version("mdmt"),
        **({} if found is None else {"commit": found}),
        "torch": str(torch.__version__),
        "numpy": numpy.__version__,
        "python": platform.python_version(),
        "cpu": f"{processor()}, {torch.backends.cpu.get_cpu_capability()}",
    }


@cache
def commit(package: Path = Path(__file__).parents[1]) -> str | None:
    """The commit of the package, with "-dirty" if files were changed; None outside a repository."""
    git = ["git", "-C", str(package)]
    # a package installed inside the repository of another project is not tracked there
    tracked = [*git, "ls-files", "--error-unmatch", "__init__.py"]
    described = [*git, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        for command in (tracked, described):  # whose words are our own
            done = subprocess.run(  # noqa: S603
                command, capture_output=True, text=True, check=True, timeout=10
            )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def processor() -> str:
    """The name of the processor. Results may round differently on other CPUs."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
