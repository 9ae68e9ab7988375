"""Many runs with their progress on stderr, the failures, and the runs that were only read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mdmt.cli.options import RunOptions
from mdmt.cli.progress import LiveTable, tell
from mdmt.errors import Stopped
from mdmt.system.processes import resuming_command
from mdmt.words import count, moment

if TYPE_CHECKING:
    from mdmt.experiments.workers import Outcome
    from mdmt.runs.config import RunConfig
    from mdmt.runs.rows import Failure, Row


def run_all_with_progress(
    configs: list[list[RunConfig]],
    options: RunOptions,
    on_outcome: Callable[[Outcome], None] | None = None,
    *,
    in_memory: bool = False,
) -> tuple[list[Row | None], list[Failure]]:
    """Do the runs of each variant, showing their progress; returns a row per variant and failures.

    Without `on_outcome`, which is called after every run, a line reports the runs that were only
    read. Runs of a stream in memory are done in this process.
    """
    from mdmt.experiments import sweep
    from mdmt.experiments.workers import ThisProcess
    from mdmt.learning.checkpoints import parse_every

    every, fresh = options.checkpoint_every, options.fresh

    if every is not None:
        parse_every(every)  # refused once, here, instead of by every worker
    read: list[RunConfig] = []

    def after_run(outcome: Outcome, row: Row | None) -> None:
        table.outcome(outcome, row)
        if on_outcome is not None:
            on_outcome(outcome)
        elif outcome.read:
            read.append(outcome.config)

    with _stop_explained(options), _table(configs, options) as table:
        here = ThisProcess(options.out, table.event, fresh=fresh, every=every)
        workers = here if in_memory else options.find_workers()
        how: Any = {"every": every, "fresh": fresh, "on_event": table.event}
        result = sweep.run_all(configs, options.out, workers, **how, on_outcome=after_run)
    tell_read(read, sum(map(len, configs)), options)
    return result


def _table(configs: list[list[RunConfig]], options: RunOptions) -> LiveTable:
    labels = [seeds[0].label for seeds in configs]
    return LiveTable(labels, len(configs[0]), options.silent)


@contextmanager
def _stop_explained(options: RunOptions) -> Iterator[None]:
    """Turn Ctrl-C into a line that says how to continue."""
    try:
        yield
    except KeyboardInterrupt:
        again = resuming_command(options.fresh)
        raise Stopped(f"interrupted; {again} goes on from there") from None


def tell_failures(failed: list[Failure]) -> None:
    """Print one line on stderr for each failed run."""
    from mdmt.runs.rows import failure_text

    for run in failed:
        tell(failure_text(run))


def tell_read(read: list[RunConfig], total: int, options: RunOptions) -> None:
    """Print how many of the runs were read instead of computed, and when they finished."""
    from mdmt.runs.config import folder_of
    from mdmt.runs.folder import RunFolder

    if not read:
        return
    times = sorted(RunFolder(folder_of(config, options.out)).finished_at for config in read)
    first, last = moment(times[0]), moment(times[-1])
    span = first if first == last else f"{first} to {last}"
    verb = "was" if len(read) == 1 else "were"
    tell(
        f"{len(read)} of {count('run', total)} {verb} read from {options.out}, finished {span};"
        f" {options.fresh_words} computes anew"
    )
