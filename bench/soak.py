"""A long life: does anything grow that should not?

    python bench/soak.py [--quick]

A learner learns 1,000 tasks of 1,000 steps, with a checkpoint after each, and a model folder takes
200 deliveries and is pruned now and then. Along the way it looks at the memory of the process, its
open files, the processor time of a step, of the end of a task and of a delivery, and at the bytes
on disk. `GROWTH` says what may grow, and with which content; anything else must be flat. It writes
results/soak.json and the tables of docs/performance.md; with --quick, a small version of the same,
it writes nothing.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import mdmt
from mdmt.tasks import Permutation

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "results" / "soak.json"
PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- make soak -->", "<!-- end of make soak -->"
INTRODUCTION = """`make soak`: MDMT-R learns 1,000 tasks of 1,000 steps on a small network, with a
checkpoint after each, and a model folder takes 200 deliveries. A checkpoint holds two states, each
with the log of all steps and T x T accuracies, and grows with these; so does the end of a task. A
delivery reads the list of those before it: a fifth of a millisecond more for each."""
FEATURES = 16
CLASSES = 4
STORED = 200  # examples
TESTED = 10  # every tenth task has test examples, whose accuracies are measured to the end
KEPT = 3  # versions after a prune
LOGGED = 48  # bytes of a logged step: six numbers
CELL = 22  # bytes of an accuracy in JSON, most of which are null here
NOISE = 1.5  # times that a median may take on a machine that others use too
Point = dict[str, float]


@dataclass(frozen=True)
class Size:
    """How long the two lives are, and how often they are looked at."""

    tasks: int = 1000
    steps: int = 1000  # of a task
    deliveries: int = 200
    points: int = 10


QUICK = Size(tasks=12, steps=20, deliveries=8, points=4)


def process() -> Point:
    """The memory of this process and how many files it has open."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    memory = pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    return {"memory, MB": memory, "open files": len(os.listdir("/proc/self/fd"))}


def megabytes(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def examples(count: int, seed: int) -> tuple[Any, Any]:
    """Pixels around a centre of each class."""
    draw = np.random.default_rng(seed)
    centres = np.random.default_rng(1).uniform(40, 216, (CLASSES, FEATURES))
    labels = np.arange(count) % CLASSES
    pixels = centres[labels] + draw.normal(0, 20, (count, FEATURES))
    return pixels.clip(0, 255).astype(np.uint8), labels


# A learner that learns task after task.


def stream_of(size: Size) -> mdmt.Stream:
    """The same examples in as many orders of their pixels as there are tasks."""
    x, y = examples(10 * size.steps, 0)
    generator = torch.Generator().manual_seed(1)
    tasks = []
    for number in range(size.tasks):
        view = Permutation(torch.randperm(FEATURES, generator=generator))
        test = (x[:20], y[:20]) if number % TESTED == 0 else None
        tasks.append(mdmt.Task(f"order {number}", x, y, test=test, view=view))
    return mdmt.Stream("soak", tasks, heads="shared")


class Observer:
    """Takes the time of tasks and of their ends, and looks at the learner now and then."""

    def __init__(self, size: Size, folder: Path) -> None:
        self.size = size
        self.folder = folder
        self.points: list[Point] = []
        self.steps: list[float] = []  # seconds of a step, for each task since the last point
        self.ends: list[float] = []  # seconds of the end of a task: evaluation and checkpoint
        self.time = time.process_time()

    def __call__(self, learner: mdmt.Learner) -> None:
        """Called after every step."""
        if learner.step_in_task not in (1, self.size.steps):
            return
        now = time.process_time()
        if learner.step_in_task > 1:
            self.steps.append((now - self.time) / (self.size.steps - 1))
        elif len(learner.tasks) > 1:
            self.ends.append(now - self.time)
            done = len(learner.tasks) - 1
            if done % (self.size.tasks // self.size.points) == 0:
                self.look(learner, done)
        self.time = time.process_time()

    def look(self, learner: mdmt.Learner, tasks: int) -> None:
        log = LOGGED * len(learner.recorder.step_log) / 1e6
        record = learner.record
        cells = sum(map(len, (*record.accuracy, *record.accuracy_task_free, *record.drift)))
        self.points.append(
            {
                "tasks": tasks,
                "steps": tasks * self.size.steps,
                **process(),
                "ms a step": 1e3 * statistics.median(self.steps),
                "ms the end of a task": 1e3 * statistics.median(self.ends or [0.0]),
                "checkpoint, MB": megabytes(self.folder),
                "step log, MB": log,
                "record, MB": CELL * cells / 1e6,
            }
        )
        self.steps.clear()
        self.ends.clear()


def tasks(size: Size, folder: Path) -> list[Point]:
    learner = mdmt.Learner(
        mdmt.backbones.mlp(FEATURES, FEATURES),
        mdmt.MDMTR(reference_batch=10),
        memory=mdmt.memory.Reservoir(STORED),
        lr=0.01,
    )
    observer = Observer(size, folder)
    learner.run(stream_of(size), on_step=observer, checkpoint=folder)
    observer.look(learner, size.tasks)
    return observer.points


# A model folder that takes delivery after delivery.


def deliveries(size: Size, folder: Path) -> Iterator[Point]:
    """More examples of the same classes, a budget that is soon full, and a prune at each look."""
    model = mdmt.LivingModel(folder)
    times = []
    for number in range(1, size.deliveries + 1):
        begin = time.process_time()
        x, y = examples(200, number)
        model.learn((x, y), f"delivery {number}", memory="100kB", epochs=1)
        model.predict(x[:10])
        times.append(time.process_time() - begin)
        if number % (size.deliveries // size.points) == 0:
            model.prune(KEPT)
            manifest = folder / f"version-{model.version}.json"
            yield {
                "deliveries": number,
                **process(),
                "ms a delivery": 1e3 * statistics.median(times),
                "folder, MB": megabytes(folder),
                "manifest, MB": manifest.stat().st_size / 1e6,
            }
            times.clear()


# What may grow: by how much for each unit of its content, and how much more for everything else.
# A checkpoint has two states, a folder `KEPT` versions. In memory a cell of the record is a float
# in a list, and the last checkpoint is there twice as text while it is written.
GROWTH: dict[str, dict[str, tuple[dict[str, float], float]]] = {
    "tasks": {
        "memory, MB": ({"step log, MB": 3, "record, MB": 4}, 20),
        "open files": ({}, 0),
        "checkpoint, MB": ({"step log, MB": 2, "record, MB": 2}, 2),
    },
    "deliveries": {
        "memory, MB": ({"manifest, MB": 10}, 20),
        "open files": ({}, 0),
        "folder, MB": ({"manifest, MB": KEPT}, 0.2),
        "manifest, MB": ({"deliveries": 0.0006}, 0.01),
    },
}
# Times that must not grow: medians of the last third against those of the first. A delivery reads
# the list of those before it, so it may take longer by so much for each.
FLAT = {"ms a step": 0.0, "ms a delivery": 0.3}


def wrong(kind: str, points: list[Point]) -> list[str]:
    """What grew by more than it may. All is warm, and every budget full, from the second on."""
    first, last = points[1], points[-1]
    found = []
    for name, (content, slack) in GROWTH[kind].items():
        most = slack + sum(factor * (last[part] - first[part]) for part, factor in content.items())
        if last[name] - first[name] > most:
            found.append(f"{name}: from {first[name]:.4g} to {last[name]:.4g}, {most:.3g} allowed")
    return found


def slower(points: list[Point]) -> list[str]:
    """What takes longer at the end than at the beginning."""
    third = max(1, len(points) // 3)
    found = []
    for name, each in FLAT.items():
        if name in points[0]:
            times = [point[name] for point in points[1:]]
            before, after = statistics.median(times[:third]), statistics.median(times[-third:])
            more = each * (points[-1].get("deliveries", 0) - points[1].get("deliveries", 0))
            if after > NOISE * before + more:
                found.append(f"{name}: {before:.3g} at first, {after:.3g} at the end")
    return found


def soak(size: Size) -> dict[str, list[Point]]:
    with tempfile.TemporaryDirectory() as place:
        return {
            "tasks": tasks(size, Path(place, "learner")),
            "deliveries": list(deliveries(size, Path(place, "model"))),
        }


def table(points: list[Point]) -> str:
    head = list(points[0])
    lines = [f"| {' | '.join(head)} |", f"|{'---:|' * len(head)}"]
    lines += [f"| {' | '.join(_text(value) for value in point.values())} |" for point in points]
    return "\n".join(lines)


def _text(value: float) -> str:
    return (
        f"{value:,}"
        if isinstance(value, int)
        else f"{value:,.3g}"
        if value < 100
        else f"{value:,.0f}"
    )


def write(found: dict[str, list[Point]]) -> None:
    """The points as JSON and as tables on the page."""
    rounded = {
        kind: [
            {
                name: value if isinstance(value, int) else float(f"{value:.4g}")
                for name, value in point.items()
            }
            for point in points
        ]
        for kind, points in found.items()
    }
    RESULT.write_text(json.dumps(rounded, indent=1) + "\n")
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    tables = "\n\n".join(map(table, rounded.values()))
    PAGE.write_text(
        f"{before.rstrip()}\n\n{BEGIN}\n\n{INTRODUCTION}\n\n{tables}\n\n{END}\n{after.lstrip()}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="seconds instead of most of an hour")
    quick = parser.parse_args().quick
    found = soak(QUICK if quick else Size())
    problems = [one for kind, points in found.items() for one in wrong(kind, points)]
    if not quick:
        problems += [one for points in found.values() for one in slower(points)]
        write(found)
    for points in found.values():
        print(table(points), end="\n\n")
    for problem in problems:
        print(problem)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
