"""`mdmt compare` and `mdmt ablate`: many runs, one table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from mdmt.cli import options
from mdmt.cli.progress import tell
from mdmt.errors import Mistake, Stopped, go_on

if TYPE_CHECKING:
    from mdmt.experiments.comparison import Failure, Row
    from mdmt.experiments.config import RunConfig


def compare(
    benchmark: options.Benchmark = "permuted-digits",
    methods: options.Methods = "all",
    seeds: options.Seeds = 5,
    seed: options.Seed = 1234,
    tasks: options.Tasks = None,
    set_: options.Set = None,
    reading: options.Reading = None,
    data: options.Data = None,
    image_size: options.ImageSize = None,
    subset: options.Subset = None,
    weights: options.Weights = None,
    out: options.Out = "runs",
    workers: options.Workers = "auto",
    threads: options.Threads = 1,
    against: options.Against = None,
    format_: options.Format = "table",
    checkpoint_every: options.CheckpointEvery = None,
    fresh: options.Fresh = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Compare methods (Table 1). Every metric, mean and std over seeds, the published value beside it."""
    from mdmt.experiments.resolve import parse_settings, split_methods

    options = {
        "tasks": tasks, "threads": threads, "data": data, "image_size": image_size, "subset": subset, "weights": weights
    }  # fmt: skip
    _compare(
        benchmark, split_methods(methods), range(seed, seed + seeds), parse_settings(set_, reading), options, out, workers,
        against, format_, checkpoint_every, fresh, json, quiet,
    )  # fmt: skip


def ablate(
    benchmark: options.Benchmark = "split-cifar",
    seeds: options.Seeds = 5,
    seed: options.Seed = 1234,
    tasks: options.Tasks = None,
    set_: options.Set = None,
    reading: options.Reading = None,
    data: options.Data = None,
    image_size: options.ImageSize = None,
    subset: options.Subset = None,
    weights: options.Weights = None,
    out: options.Out = "runs",
    workers: options.Workers = "auto",
    threads: options.Threads = 1,
    against: options.Against = None,
    format_: options.Format = "table",
    checkpoint_every: options.CheckpointEvery = None,
    fresh: options.Fresh = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """The worth of MDMT-R's parts (Table 2). Softmax, margins, distillation."""
    from mdmt.experiments.paper import VARIANTS
    from mdmt.experiments.resolve import parse_settings

    options = {
        "tasks": tasks, "threads": threads, "data": data, "image_size": image_size, "subset": subset, "weights": weights
    }  # fmt: skip
    _compare(
        benchmark, list(VARIANTS), range(seed, seed + seeds), parse_settings(set_, reading), options, out, workers,
        against, format_, checkpoint_every, fresh, json, quiet, ablation=True,
    )  # fmt: skip


def _compare(
    benchmark: str,
    variants: list[str],
    seeds: range,
    settings: dict[str, str],
    options: dict[str, Any],
    out: str,
    workers: str,
    against: str | None,
    format_: str,
    every: str | None,
    fresh: bool,
    json: bool,
    quiet: bool,
    ablation: bool = False,
) -> None:
    """Check all that was asked, do the runs, print the rows."""
    from mdmt.experiments.comparison import with_differences, with_table_2
    from mdmt.experiments.resolve import configs_for, find_row
    from mdmt.report.text import check_format

    check_format(format_)
    configs = configs_for(benchmark, variants, seeds, settings, **options)
    chosen = None if against is None else find_row(against, variants, configs)
    configs = list({of_seed[0].label: of_seed for of_seed in configs}.values())  # asked twice: one row
    rows, failed = run_all(configs, out, parse_workers(workers), every, fresh, quiet or json)
    if ablation:
        rows = with_table_2(rows, configs)
    finished = [row for row in rows if row is not None]
    if chosen is not None:
        finished = with_differences(finished, chosen)
    _print(finished, failed, format_, json)
    if finished and chosen not in (None, *(row.label for row in finished)):
        tell(f"no differences: {chosen}, which --against names, has no finished run")
    if not finished:
        raise typer.Exit(2)


def parse_workers(text: str) -> Any:
    """The number of worker processes, or auto."""
    if text == "auto":
        return text
    if not text.isdecimal() or int(text) < 1:
        raise Mistake(f"--workers {text}: must be auto or a whole number from 1")
    return int(text)


def run_all(
    configs: list[list[RunConfig]], out: str, workers: Any, every: str | None, fresh: bool, quiet: bool
) -> tuple[list[Row | None], list[Failure]]:
    """Do the runs of each variant while stderr says how far they are: a row for each variant, and what failed."""
    import mdmt.experiments.comparison as comparison
    from mdmt.checkpoints import parse_every
    from mdmt.cli.live import Live

    if every is not None:
        parse_every(every)  # refused here, not by every worker
    try:
        with Live([seeds[0].label for seeds in configs], len(configs[0]), quiet) as live:
            return comparison.run_all(
                configs, out, workers, every=every, fresh=fresh, on_event=live.event, on_outcome=live.outcome
            )
    except KeyboardInterrupt:
        raise Stopped(f"interrupted; {go_on(fresh)} goes on from there") from None


def _print(rows: list[Row], failed: list[Failure], format_: str, as_json: bool) -> None:
    import json
    import sys

    from mdmt.report.tables import blocks, csv_lines
    from mdmt.report.text import show

    if as_json:
        print(json.dumps({"rows": [row.to_json() for row in rows], "failed": failed}))
        return
    if rows:
        show(blocks(rows), csv_lines(rows), format_)
    for run in failed:
        print(f"mdmt: failed: {run['label']}, seed {run['seed']}: {run['reason']}", file=sys.stderr)
