"""Runs as rows: what they measured, the published values, the differences to another row."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NotRequired, TypedDict

import mdmt.metrics as metrics
from mdmt.metrics import A_T
from mdmt.published import published, table
from mdmt.published.settings import UNRECORDED, behind_table_1
from mdmt.runs.config import RunConfig
from mdmt.runs.paper import ABLATION

RESULT = (
    "benchmark",
    "method",
    "label",
    "reading",
    "seeds",
    "reduced",
    "metrics",
    "published",
    "runs",
)
NEAR = 0.15  # the share of the way from chance to 1 that is hardly anything
LEVEL = 0.95  # the confidence of an interval


class Spread(TypedDict):
    """A number over several runs, or as it was published."""

    mean: float
    std: float | None
    runs: NotRequired[list[float]]
    source: NotRequired[str]


Cells = dict[str, Spread | None]  # by metric; None where it is not defined


class Failure(TypedDict):
    """A run that failed, and why."""

    label: str
    seed: int
    reason: str


@dataclass(frozen=True)
class Differences:
    """Each metric of a row less that of another, paired by seed."""

    against: str
    seeds: list[int]  # those that both have
    metrics: Cells

    def to_json(self) -> dict[str, Any]:
        return {"against": self.against, "seeds": self.seeds, **self.metrics}


@dataclass(frozen=True)
class Row:
    """The runs of one method or variant, which differ in the seed alone."""

    benchmark: str
    method: str
    label: str
    reading: str | None
    seeds: list[int]
    reduced: dict[str, Any] | None  # what makes them less than the protocol
    metrics: Cells
    published: dict[str, Any] | None
    runs: list[str]  # their folders
    seconds: Spread  # of learning
    memory_bytes: int  # of examples and of whatever else the method remembers
    chance: float | None = None  # the accuracy of guessing among the classes of a task
    setup: tuple[str, ...] = ()  # of one's own data, how they were learned, in words
    settings: dict[str, Any] | None = None  # the point that `mdmt tune` tried
    against: str | None = None  # the row that all were asked to be compared with
    differences: Differences | None = None

    @property
    def is_near_chance(self) -> bool:
        """Whether hardly more was learned than guessing knows."""
        return self.chance is not None and 0 <= self.accuracy < self.chance + NEAR * (
            1 - self.chance
        )

    @property
    def accuracy(self) -> float:
        """The mean A_T; the lowest there is where it is not known."""
        cell = self.metrics[A_T.name]
        return -math.inf if cell is None else cell["mean"]

    def to_json(self, *, cost: bool = True) -> dict[str, Any]:
        """What `--json` prints; of a single method it prints no cost."""
        content: dict[str, Any] = {} if self.settings is None else {"settings": self.settings}
        content |= {name: getattr(self, name) for name in RESULT}
        if cost:
            content |= {"seconds": self.seconds, "memory_bytes": self.memory_bytes}
        if self.against is not None:
            content["differences"] = (
                None if self.differences is None else self.differences.to_json()
            )
        return content


def row_of(
    configs: Sequence[RunConfig], records: Sequence[dict[str, Any]], folders: Sequence[str]
) -> Row:
    """The row of runs that differ in the seed alone."""
    first, reduced = configs[0], records[0].get("reduced")
    return Row(
        benchmark=first.benchmark,
        method=first.method,
        label=first.label,
        reading=first.arguments.get("reading"),
        seeds=[config.seed for config in configs],
        reduced=reduced,
        metrics={m.name: mean_std([m.of(record) for record in records]) for m in metrics.METRICS},
        published=None if reduced else published_for(first),
        runs=list(folders),
        seconds=_mean_std([record["seconds"] for record in records]),
        memory_bytes=max(stored_bytes(record) for record in records),
        chance=_chance(records[0]["tasks"]),
        setup=_setup(first, records[0]),
    )


def _chance(tasks: list[dict[str, Any]]) -> float | None:
    classes = [len(task["classes"]) for task in tasks]
    return statistics.fmean(1 / number for number in classes) if all(classes) else None


def _setup(config: RunConfig, record: dict[str, Any]) -> tuple[str, ...]:
    if not config.is_own_data:
        return ()
    return tuple(config.setup if record["memory_bytes"] else config.setup[:-1])


def stored_bytes(record: dict[str, Any]) -> int:
    """What a method has to keep: examples, and buffers such as EWC's, which runs of 0.1.0 did not
    count.
    """
    return int(record["memory_bytes"] + record.get("buffer_bytes", 0))


def mean_std(values: Sequence[float | None]) -> Spread | None:
    """Mean and population standard deviation over runs; None where the number is not defined.

    >>> mean_std([0.25, 0.75])
    {'mean': 0.5, 'std': 0.25, 'runs': [0.25, 0.75]}
    """
    numbers = [value for value in values if value is not None]
    return _mean_std(numbers) if numbers and len(numbers) == len(values) else None


def _mean_std(numbers: list[float]) -> Spread:
    return {"mean": statistics.fmean(numbers), "std": statistics.pstdev(numbers), "runs": numbers}


def differences(row: Row, other: Row) -> Differences:
    """A row less another, over the seeds that both have."""
    both = [seed for seed in row.seeds if seed in other.seeds]
    cells: Cells = {}
    for name in row.metrics:
        ours, theirs = values_by_seed(row, name), values_by_seed(other, name)
        if ours is None or theirs is None:
            cells[name] = None
        else:
            cells[name] = mean_std([ours[seed] - theirs[seed] for seed in both])
    return Differences(other.label, both, cells)


def values_by_seed(row: Row, name: str) -> dict[int, float] | None:
    """A metric of each run of a row; None where it is not defined."""
    cell = row.metrics.get(name)
    return None if cell is None else dict(zip(row.seeds, cell["runs"], strict=True))


def with_differences(rows: list[Row], label: str) -> list[Row]:
    """The rows with their differences to the one of this label, which itself has none."""
    other = next((row for row in rows if row.label == label), None)
    return [
        replace(
            row,
            against=label,
            differences=None if other is None or row is other else differences(row, other),
        )
        for row in rows
    ]


def reference(rows: Sequence[Row]) -> Row:
    """The row to compare the others with when none is named: MDMT-R's, else the most accurate."""
    ours = [row for row in rows if row.method == "mdmt-r"]
    return ours[0] if ours else max(rows, key=lambda row: row.accuracy)


def interval(values: list[float]) -> tuple[float, float] | None:
    """Where the mean lies with 95 % confidence (Student's t); None with fewer than two values.

    >>> [round(end, 4) for end in interval([1.0, 2.0, 3.0])]
    [-0.4841, 4.4841]
    >>> interval([1.0]) is None
    True
    """
    from scipy.special import stdtrit

    if len(values) < 2:
        return None
    quantile = float(stdtrit(len(values) - 1, (1 + LEVEL) / 2))
    half = quantile * statistics.stdev(values) / math.sqrt(len(values))
    mean = statistics.fmean(values)
    return mean - half, mean + half


def published_for(config: RunConfig) -> dict[str, Any] | None:
    """The row of Table 1 for a config that has the settings behind it, else None."""
    row = published(config.benchmark, config.method)
    if row is None or (config.benchmark, config.method) in UNRECORDED:
        return None
    return row if _has_published_settings(config, {}) else None


def with_table_2(
    rows: Sequence[Row | None],
    configs: Sequence[Sequence[RunConfig]],
    numbers: Sequence[int] | None = None,
) -> list[Row | None]:
    """The rows of the variants of Table 2, or of some by number, with its values, where Table 1's
    stood.
    """
    content = table("table2")
    numbers = range(len(ABLATION)) if numbers is None else numbers
    ablation: list[Row | None] = []
    for row, (config, *_), number in zip(rows, configs, numbers, strict=True):
        values = content["rows"][number]
        parts = ABLATION[number]
        if row is None:
            ablation.append(None)
            continue
        same_benchmark = config.benchmark == content["benchmark"] and not row.reduced
        fits = same_benchmark and _has_published_settings(config, parts)
        ablation.append(replace(row, published=values if fits else None))
    return ablation


def _has_published_settings(config: RunConfig, parts: dict[str, Any]) -> bool:
    """Whether a config is that of the published runs but for these settings of the method."""
    reading = config.arguments.get("reading")
    usual = behind_table_1(config.benchmark, config.method, reading)
    usual["arguments"] = {**usual["arguments"], **parts}
    return all(getattr(config, key) == value for key, value in usual.items())
