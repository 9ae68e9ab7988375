"""`mdmt compare` and `mdmt ablate`: many runs, one table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from mdmt.cli import options
from mdmt.cli.progress import tell
from mdmt.errors import Mistake, Stopped

if TYPE_CHECKING:
    from mdmt.experiments.comparison import Row
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
    from mdmt.experiments.resolve import configs_for, find_row
    from mdmt.report.text import check_format

    check_format(format_)
    configs = configs_for(benchmark, variants, seeds, settings, **options)
    chosen = None if against is None else find_row(against, variants, configs)
    configs = list({of_seed[0].label: of_seed for of_seed in configs}.values())  # asked twice: one row
    rows, failed = run_all(configs, out, parse_workers(workers), every, fresh, quiet or json)
    if ablation:
        _put_table_2_beside(rows, configs)
    _put_differences_beside(rows, chosen)
    finished = [row for row in rows if row is not None]
    _print(finished, failed, format_, json)
    if finished and chosen not in (None, *(row["label"] for row in finished)):
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
) -> tuple[list[Row | None], list[dict[str, Any]]]:
    """A row for each variant, of the seeds that finished (None where none did), and what failed."""
    from contextlib import closing

    from mdmt.checkpoints import parse_every
    from mdmt.cli.live import Live
    from mdmt.experiments.comparison import comparison
    from mdmt.experiments.config import folder_of
    from mdmt.experiments.run import go_on
    from mdmt.experiments.sweep import sweep

    if every is not None:
        parse_every(every)  # refused here, not by every worker
    records: dict[tuple[str, int], dict[str, Any]] = {}
    reasons: dict[tuple[str, int], str] = {}

    def row(of_seed: list[RunConfig]) -> Row | None:
        done = [c for c in of_seed if _key(c) in records]
        return (
            comparison(done, [records[_key(c)] for c in done], [str(folder_of(c, out)) for c in done]) if done else None
        )

    flat = [config for number in zip(*configs, strict=True) for config in number]  # a seed of each first
    try:
        with (
            Live([c[0].label for c in configs], len(configs[0]), quiet) as live,
            closing(sweep(flat, out, workers, live.event, fresh=fresh, every=every)) as outcomes,
        ):
            for outcome in outcomes:
                if outcome.record is None:
                    reasons[_key(outcome.config)] = outcome.reason
                else:
                    records[_key(outcome.config)] = outcome.record
                mine = next(of_seed for of_seed in configs if outcome.config in of_seed)
                live.outcome(outcome, row(mine))
    except KeyboardInterrupt:
        raise Stopped(f"interrupted; {go_on(fresh)} goes on from there") from None
    failed = [
        {"label": c.label, "seed": c.seed, "reason": reasons[_key(c)]}
        for of_seed in configs
        for c in of_seed
        if _key(c) in reasons
    ]
    return [row(of_seed) for of_seed in configs], failed


def _key(config: RunConfig) -> tuple[str, int]:
    return config.label, config.seed


def _put_differences_beside(rows: list[Row | None], chosen: str | None) -> None:
    from mdmt.experiments.comparison import differences

    if chosen is None:
        return
    finished = [row for row in rows if row is not None]
    other = next((row for row in finished if row["label"] == chosen), None)
    for row in finished:
        row["differences"] = None if other is None or row is other else differences(row, other)


def _put_table_2_beside(rows: list[Row | None], configs: list[list[RunConfig]]) -> None:
    from mdmt.experiments.paper import published_for

    for number, row in enumerate(rows):
        if row is not None:
            row["published"] = None if row["reduced"] else published_for(configs[number][0], number)


def _print(rows: list[Row], failed: list[dict[str, Any]], format_: str, as_json: bool) -> None:
    import json
    import sys

    from mdmt.report.tables import blocks, csv_lines
    from mdmt.report.text import show

    if as_json:
        print(json.dumps({"rows": rows, "failed": failed}))
        return
    if rows:
        show(blocks(rows), csv_lines(rows), format_)
    for run in failed:
        print(f"mdmt: failed: {run['label']}, seed {run['seed']}: {run['reason']}", file=sys.stderr)
