"""Many runs: finished ones are read, the others are given to workers. A failure stops no other."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Literal

from mdmt.experiments.resolve import check_data_present
from mdmt.experiments.run import finished_record
from mdmt.experiments.workers import Event, Outcome, Processes, Workers
from mdmt.runs.config import RunConfig, folder_of
from mdmt.runs.folder import RunFolder
from mdmt.runs.record import RunRecord
from mdmt.runs.rows import Failure, Row, row_of
from mdmt.system.processes import interruptible


def sweep(
    configs: Iterable[RunConfig],
    out: str | Path,
    workers: Workers | int | Literal["auto"] = "auto",
    on_event: Callable[[Event], None] | None = None,
    *,
    fresh: bool = False,
    every: int | str | None = None,
) -> Generator[Outcome, None, None]:
    """Do all runs and yield each outcome as it comes; finished runs are read first, unless `fresh`.

    `workers` is a number of processes of this machine, or workers of another kind. `every` is the
    number of steps or the time between checkpoints. If the loop ends early (Ctrl-C, `break`), the
    workers are stopped.
    """
    same_run: dict[Path, list[RunConfig]] = {}  # two variants may name the same run
    for config in configs:
        same_run.setdefault(folder_of(config, out), []).append(config)
    queue: list[RunConfig] = []
    for folder, alike in same_run.items():
        record = None if fresh else finished_record(RunFolder(folder), alike[0])
        if record is None:
            queue.append(alike[0])
        else:
            yield from (Outcome(config, record, read=True) for config in alike)
    for config in queue:
        check_data_present(config)  # here, since it would fail in every worker
    if isinstance(workers, (int, str)):
        if not queue:
            return
        device, threads = queue[0].device, queue[0].threads
        workers = Processes(out, workers, threads=threads, device=device, fresh=fresh, every=every)
    with interruptible():
        try:
            for outcome in _outcomes(queue, workers, on_event or (lambda event: None)):
                alike = same_run[folder_of(outcome.config, out)]
                yield from (replace(outcome, config=config) for config in alike)
        finally:
            workers.stop()


def _outcomes(
    queue: list[RunConfig], workers: Workers, report: Callable[[Event], None]
) -> Iterator[Outcome]:
    """Keep the workers busy until the queue is empty and all runs are over."""
    running = 0
    while queue or running:
        if queue and running < workers.slots:
            config = queue.pop(0)
            workers.start(config)
            running += 1
            report(Event(config, "started", "start"))
            continue
        message = workers.next()
        if isinstance(message, Event):
            report(message)
        else:
            running -= 1
            yield message


def run_all(
    configs: Sequence[Sequence[RunConfig]],
    out: str,
    workers: Workers | int | Literal["auto"] = "auto",
    *,
    every: int | str | None = None,
    fresh: bool = False,
    on_event: Callable[[Event], None] | None = None,
    on_outcome: Callable[[Outcome, Row | None], None] | None = None,
) -> tuple[list[Row | None], list[Failure]]:
    """Do the runs of each variant, one per seed, and summarise each variant as a row.

    Returns a row per variant, over the seeds that finished (None if none did), and the failures.
    `on_outcome` is called after every run with its outcome and the row of its variant so far.
    """
    results = _Results(out)
    # One seed of each variant comes first, so that every row soon has a number.
    queue = [config for variants in zip(*configs, strict=True) for config in variants]
    with closing(sweep(queue, out, workers, on_event, fresh=fresh, every=every)) as outcomes:
        for outcome in outcomes:
            results.add(outcome)
            if on_outcome is not None:
                variant = next(seeds for seeds in configs if outcome.config in seeds)
                on_outcome(outcome, results.row(variant))
    failures = [failure for seeds in configs for failure in results.failures(seeds)]
    return [results.row(seeds) for seeds in configs], failures


class _Results:
    """The records of finished runs and the reasons of failed ones, by label and seed."""

    def __init__(self, out: str) -> None:
        self.out = out
        self.records: dict[tuple[str, int], RunRecord] = {}
        self.reasons: dict[tuple[str, int], str] = {}

    def add(self, outcome: Outcome) -> None:
        key = _key(outcome.config)
        if outcome.record is None:
            self.reasons[key] = outcome.reason
        else:
            self.records[key] = outcome.record

    def row(self, seeds: Sequence[RunConfig]) -> Row | None:
        """The row of a variant over its finished runs, or None."""
        finished = [config for config in seeds if _key(config) in self.records]
        if not finished:
            return None
        folders = [str(folder_of(config, self.out)) for config in finished]
        return row_of(finished, [self.records[_key(config)] for config in finished], folders)

    def failures(self, seeds: Sequence[RunConfig]) -> list[Failure]:
        return [
            {"label": config.label, "seed": config.seed, "reason": self.reasons[_key(config)]}
            for config in seeds
            if _key(config) in self.reasons
        ]


def _key(config: RunConfig) -> tuple[str, int]:
    return config.label, config.seed
