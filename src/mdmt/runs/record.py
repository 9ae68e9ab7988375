"""The record of a run: what was measured, to JSON. Loading it does not load torch."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import platform
import subprocess
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from mdmt.metrics import BETA, metrics_of

Rows = list[list[float | None]]  # one row per task learned so far; None: not evaluated
LogRow = list[float]  # of the step log: task, step, loss, gradient, seconds


@dataclass
class Record:
    """Accuracies, curves and drift, a row per learned task, with the cost of learning them.

    `accuracy` has the task given, `accuracy_task_free` lets all seen heads compete. `curve` holds
    Z_0..Z_10 of each task, a point every ten examples. `drift[i][j]` is 1 - cos between the
    features of task j after task i and right after task j, on a fixed sample. `seconds` is the time
    spent learning, evaluation aside. `memory_bytes` counts the examples kept, `buffer_bytes` what
    else the method remembers, such as the importance of each weight.
    """

    accuracy: Rows = field(default_factory=list)
    accuracy_task_free: Rows = field(default_factory=list)
    curve: Rows = field(default_factory=list)
    drift: Rows = field(default_factory=list)
    tasks: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    steps: int = 0
    memory_bytes: int = 0
    buffer_bytes: int = 0
    weights_sha256: str = ""

    @property
    def metrics(self) -> dict[str, float | None]:
        """Those of METRICS, by name."""
        return metrics_of(self._matrices())

    def to_json(self) -> dict[str, Any]:
        """All of it as record.json holds it."""
        return {
            **dataclasses.asdict(self),
            **self._matrices(),
            "metrics": self.metrics,
            "versions": versions(),
        }

    def _matrices(self) -> dict[str, Rows]:
        """Each filled up with None."""
        size = len(self.tasks)
        matrices = {
            name: square(getattr(self, name), size)
            for name in ("accuracy", "accuracy_task_free", "drift")
        }
        return {**matrices, "curve": padded(self.curve, BETA + 1)}


def padded(rows: Rows, width: int) -> Rows:
    """Rows filled up with None."""
    return [(row + [None] * width)[:width] for row in rows]


def square(rows: Rows, size: int) -> Rows:
    """A size x size matrix of rows."""
    return padded((rows + [[]] * size)[:size], size)


def versions() -> dict[str, str]:
    """Versions of everything that may change a number."""
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
    """The commit of the package, with "-dirty" where its files differ from it; None where it is not
    in a repository.
    """
    git = ["git", "-C", str(package)]
    # an environment inside another project is not
    tracked = [*git, "ls-files", "--error-unmatch", "__init__.py"]
    described = [*git, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        for command in (tracked, described):
            done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
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
