"""`mdmt run`: one method on one stream, a run for each seed."""

from __future__ import annotations

from dataclasses import dataclass
from json import dumps
from typing import TYPE_CHECKING, Annotated

import typer

import mdmt.ranks as ranks
from mdmt.cli.many_runs import run_all_with_progress
from mdmt.cli.options import RunOptions
from mdmt.cli.process import in_child
from mdmt.cli.progress import RunBar, tell
from mdmt.errors import Mistake, RankLost
from mdmt.system.processes import resuming_command
from mdmt.words import count, moment

if TYPE_CHECKING:
    from pathlib import Path

    from mdmt.experiments.workers import Outcome
    from mdmt.runs.config import RunConfig
    from mdmt.runs.rows import Row

Log = Annotated[
    str | None,
    typer.Option(metavar="tensorboard", help="Also write event files into the run folder."),
]


def run(options: RunOptions, log: Log = None) -> None:
    """Learn a stream of tasks. Prints A_T, F_T, LCA_10, LTR and A_free."""
    advice = f"; {resuming_command(options.fresh)} goes on from the last checkpoint"
    in_child(lambda: _run_on_ranks(options, log, advice), advice)


def _run_on_ranks(options: RunOptions, log: str | None, advice: str) -> None:
    """Do the runs together with the other processes that torchrun started, if any."""
    try:
        with ranks.group():
            _run(options, log)
    except RankLost as lost:
        raise RankLost(f"rank {ranks.launched()[0]}: {lost}{advice}") from None


def _run(options: RunOptions, log: str | None) -> None:
    from mdmt.experiments import tensorboard
    from mdmt.experiments.resolve import resolve, with_seeds
    from mdmt.runs.config import folder_of

    first = ranks.first(lambda: resolve(options))
    configs = with_seeds(first, options.all_seeds)
    if log not in (None, "tensorboard"):
        raise Mistake(
            f"--log {log}: must be tensorboard; steps.csv and record.json are always written"
        )
    if log:
        tensorboard.writer()  # refuses a missing package before the run
    _ = options.worker_count  # refuses a wrong --workers before the run
    if ranks.size() > 1 and (options.cluster is not None or options.workers != "auto"):
        raise Mistake(
            "several ranks do the runs of all seeds one after another: leave --workers and"
            " --cluster out"
        )
    if ranks.size() > 1 or (options.seeds == 1 and options.cluster is None):
        result = _learn_here(configs, options, log is not None)
    else:
        result = _learn_in_workers(configs, options)
        for config in configs if log else ():
            _write_events(folder_of(config, options.out))
    if ranks.rank() > 0:
        return
    if options.json:
        for folder in result.read:
            tell(_origin(folder))
        print(dumps(result.row.to_json(cost=False)))
    else:
        _print_table(result)


@dataclass(frozen=True)
class Result:
    """The row of the runs, their number of tasks, and the folders of runs that were only read."""

    row: Row
    tasks: int
    read: list[str]


def _learn_here(configs: list[RunConfig], options: RunOptions, log: bool) -> Result:
    """Do the runs in this process; with `log`, event files are written while it learns."""
    import mdmt.runs.rows as comparison
    from mdmt.experiments.run import run as run_one
    from mdmt.runs.config import folder_of

    records = []
    read: list[str] = []
    for config in configs:
        with RunBar(
            f"{config.label}, seed {config.seed}", options.silent or ranks.rank() > 0
        ) as progress:
            record = run_one(
                config,
                options.out,
                fresh=options.fresh,
                every=options.checkpoint_every,
                events=log,
                on_step=progress.step,
                on_image=progress.image,
                on_read=lambda folder: read.append(str(folder.path)),
                warn=tell,
            )
        records.append(record)
    row = comparison.row_of(
        configs, records, [str(folder_of(config, options.out)) for config in configs]
    )
    return Result(row, len(records[0].tasks), read)


def _learn_in_workers(configs: list[RunConfig], options: RunOptions) -> Result:
    """Do a run for each seed in worker processes; a failure is a Mistake."""
    from mdmt.runs.config import folder_of

    tasks = 0
    read: list[str] = []

    def keep(outcome: Outcome) -> None:
        nonlocal tasks
        if outcome.record is not None:
            tasks = len(outcome.record.tasks)
        if outcome.read:
            read.append(str(folder_of(outcome.config, options.out)))

    (row,), failed = run_all_with_progress([configs], options, keep)
    if failed:
        raise Mistake(f"seed {failed[0]['seed']}: {failed[0]['reason']}")
    assert row is not None
    return Result(row, tasks, read)


def _write_events(folder: Path) -> None:
    from mdmt.experiments import tensorboard
    from mdmt.runs.folder import RunFolder

    finished = RunFolder(folder)
    tensorboard.write_events(folder, finished.record.accuracy, finished.steps)


def _origin(folder: str) -> str:
    """A line that says from where a result was read, and when it was finished."""
    from mdmt.runs.folder import RunFolder

    return f"read from {folder}, finished {moment(RunFolder(folder).finished_at)}"


def _print_table(result: Result) -> None:
    from mdmt.report.tables import metrics_table, reduction, setup_line, warnings
    from mdmt.report.text import screen

    row = result.row
    first = row.seeds[0]
    seeds = (
        f"seed {first}" if len(row.seeds) == 1 else f"{count('seed', len(row.seeds))} from {first}"
    )
    console = screen()

    def line(text: str, style: str | None = None) -> None:
        console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)

    line(f"{row.label} on {row.benchmark}, {count('task', result.tasks)}, {seeds}", "bold")
    if row.setup:
        line(setup_line([row]))
    if row.reduced:
        line(reduction(row.reduced, own_data=bool(row.setup)))
    console.print(metrics_table(row.metrics))
    for warning in warnings([row]):
        line(warning)
    for folder in row.runs:
        line(_origin(folder) if folder in result.read else folder, "dim")
