"""Rows of tables: the runs of one method, beside the published values and other rows."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NotRequired, TypedDict

import mdmt.metrics as metrics
from mdmt.metrics import A_FREE, A_T, Metric
from mdmt.published import own_paper, published, table
from mdmt.published.settings import ONE_STREAM, UNRECORDED, behind_table_1
from mdmt.runs.config import RunConfig
from mdmt.runs.paper import ABLATION
from mdmt.runs.record import RunRecord, TaskInfo
from mdmt.system.files import JsonObject

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
MOST = 0.5  # of the features: if more of them are dead at the end of a run, a line says so
NEAR = 0.15  # of the way from chance to 1; below it almost nothing was learned


class Spread(TypedDict):
    """Mean and standard deviation of a number, over several runs or as published."""

    mean: float
    std: float | None
    runs: NotRequired[list[float]]
    interval: NotRequired[tuple[float, float] | None]  # of a difference: of its mean, 95 %
    source: NotRequired[str]


MetricSpreads = dict[str, Spread | None]  # by metric; None if it is undefined


class Failure(TypedDict):
    """A run that failed, and the reason."""

    label: str
    seed: int
    reason: str


def failure_text(run: Failure) -> str:
    """A failed run in one line."""
    return f"failed: {run['label']}, seed {run['seed']}: {run['reason']}"


@dataclass(frozen=True)
class Differences:
    """The metrics of a row minus those of another row, paired by seed."""

    against: str
    seeds: list[int]  # the seeds that both rows have
    metrics: MetricSpreads

    def to_json(self) -> JsonObject:
        return {"against": self.against, "seeds": self.seeds, **self.metrics}


@dataclass(frozen=True)
class Row:
    """The runs of one method or variant, which differ only in their seeds."""

    benchmark: str
    method: str
    label: str
    reading: str | None
    seeds: list[int]
    reduced: JsonObject | None  # what makes them smaller than the protocol
    metrics: MetricSpreads
    published: JsonObject | None
    runs: list[str]  # their folders
    seconds: Spread  # of learning
    memory_bytes: int  # of stored examples and of the method's other buffers
    chance: float | None = None  # the accuracy of a random guess among the classes of a task
    free_chance: float | None = None  # likewise among those of all tasks, if there are more
    heads: str = "per-task"
    dead: Spread | None = None  # the share of features that are dead at the end
    setup: tuple[str, ...] = ()  # how a user's own data were learned, in words
    stream: str = "own"
    settings: JsonObject | None = None  # the point that `mdmt tune` tried
    against: str | None = None  # the label of the row that all rows are compared with
    differences: Differences | None = None

    @property
    def is_near_chance(self) -> bool:
        """Whether the accuracy is close to that of a random guess."""
        cell = self.metrics[A_T.name]
        return cell is not None and is_near(cell["mean"], self.chance)

    @property
    def is_near_free_chance(self) -> bool:
        """Whether the accuracy without the task is close to that of a random guess."""
        cell = self.metrics[A_FREE.name]
        return cell is not None and is_near(cell["mean"], self.free_chance)

    @property
    def is_mostly_dead(self) -> bool:
        """Whether most features are the same for every example at the end of any run."""
        return self.dead is not None and max(self.dead["runs"]) > MOST

    @property
    def published_stream(self) -> int | None:
        """The seed of the one stream behind the published values, if these runs had others."""
        if self.published is None or self.stream == "published":
            return None
        return ONE_STREAM.get(self.benchmark)

    @property
    def accuracy(self) -> float:
        """The mean A_T; minus infinity if it is unknown."""
        cell = self.metrics[A_T.name]
        return -math.inf if cell is None else cell["mean"]

    def to_json(self, *, cost: bool = True) -> JsonObject:
        """The output of `--json`; that of a single method has no cost."""
        content: JsonObject = {} if self.settings is None else {"settings": self.settings}
        content |= {name: getattr(self, name) for name in RESULT}
        if cost:
            content |= {"seconds": self.seconds, "memory_bytes": self.memory_bytes}
        if self.against is not None:
            content["differences"] = (
                None if self.differences is None else self.differences.to_json()
            )
        return content


def row_of(
    configs: Sequence[RunConfig], records: Sequence[RunRecord], folders: Sequence[str]
) -> Row:
    """The row of runs that differ only in their seeds."""
    first = configs[0]
    theirs = published_for(first)
    # Older records call the settings of the method's own paper a reduction.
    its_own = (theirs or {}).get("settings", {})
    less = records[0].reduced or {}
    reduced = {key: value for key, value in less.items() if its_own.get(key) != value} or None
    return Row(
        benchmark=first.benchmark,
        method=first.method,
        label=first.label,
        reading=first.arguments.get("reading"),
        seeds=[config.seed for config in configs],
        reduced=reduced,
        metrics={
            metric.name: mean_std([metric.of(record) for record in records])
            for metric in metrics.measured(records)
        },
        published=None if reduced else theirs,
        runs=list(folders),
        seconds=_mean_std([record.seconds for record in records]),
        memory_bytes=max(record.stored_bytes for record in records),
        chance=_chance(records[0].tasks),
        free_chance=_free_chance(records[0].tasks, first.heads),
        heads=first.heads,
        dead=mean_std([(record.dead_features or [None])[-1] for record in records]),
        setup=_setup(first, records[0]),
        stream=first.stream,
    )


def _chance(tasks: list[TaskInfo]) -> float | None:
    classes = [len(task["classes"]) for task in tasks]
    return statistics.fmean(1 / number for number in classes) if all(classes) else None


def _free_chance(tasks: list[TaskInfo], heads: str) -> float | None:
    if heads == "shared":
        every = len({str(name) for task in tasks for name in task["classes"]})
    else:
        every = sum(len(task["classes"]) for task in tasks)
    most = max(len(task["classes"]) for task in tasks)
    return 1 / every if every > most > 0 else None


def is_near(accuracy: float, chance: float | None) -> bool:
    """Whether an accuracy is close to chance; never, if chance is unknown."""
    return chance is not None and accuracy < chance + NEAR * (1 - chance)


def _setup(config: RunConfig, record: RunRecord) -> tuple[str, ...]:
    if not config.is_own_data:
        return ()
    return tuple(config.setup if record.memory_bytes else config.setup[:-1])


def mean_std(values: Sequence[float | None]) -> Spread | None:
    """Mean and population standard deviation over runs; None if a value is undefined.

    >>> mean_std([0.25, 0.75])
    {'mean': 0.5, 'std': 0.25, 'runs': [0.25, 0.75]}
    """
    numbers = [value for value in values if value is not None]
    return _mean_std(numbers) if numbers and len(numbers) == len(values) else None


def _mean_std(numbers: list[float]) -> Spread:
    return {"mean": statistics.fmean(numbers), "std": statistics.pstdev(numbers), "runs": numbers}


def metrics_in(rows: Sequence[Row]) -> list[Metric]:
    """The metrics of a table: those along the steps only if any of its rows has them."""
    known = set().union(*(row.metrics for row in rows))
    return [*metrics.METRICS, *(metric for metric in metrics.ANYTIME if metric.name in known)]


def values_by_seed(row: Row, name: str) -> dict[int, float] | None:
    """The values of a metric by seed; None if it is undefined."""
    cell = row.metrics.get(name)
    return None if cell is None else dict(zip(row.seeds, cell["runs"], strict=True))


def reference(rows: Sequence[Row]) -> Row:
    """The row to compare the others with by default: that of MDMT-R, or the most accurate."""
    ours = [row for row in rows if row.method == "mdmt-r"]
    return ours[0] if ours else max(rows, key=lambda row: row.accuracy)


def published_for(config: RunConfig) -> JsonObject | None:
    """The row of Table 1 for a config that has its settings, that of the method's paper, or None.

    It may have a stream of its own where the published runs had only one: see `published_stream`.
    A row of the method's own paper names it under `paper`.
    """
    if (config.benchmark, config.method) in UNRECORDED:
        return None
    row = published(config.benchmark, config.method)
    if row is not None and _has_published_settings(config, {}):
        return row
    own = own_paper(config.benchmark, config.method)
    return own if own and _has_published_settings(config, own["settings"]) else None


def with_table_2(
    rows: Sequence[Row | None],
    configs: Sequence[Sequence[RunConfig]],
    numbers: Sequence[int] | None = None,
) -> list[Row | None]:
    """Replace the published values of the rows by those of Table 2.

    `numbers` are the rows of Table 2 that the rows stand for; by default all of them, in order.
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


def _has_published_settings(config: RunConfig, parts: JsonObject) -> bool:
    """Whether a config has the published settings, except for these arguments of the method."""
    reading = config.arguments.get("reading")
    usual = behind_table_1(config.benchmark, config.method, reading)
    usual["arguments"] = {**usual["arguments"], **parts}
    return all(getattr(config, key) == value for key, value in usual.items())
