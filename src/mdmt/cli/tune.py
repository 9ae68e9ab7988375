"""`mdmt tune`: settings chosen on held-out tasks."""

from __future__ import annotations

import sys
from json import dumps
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mdmt.cli import options
from mdmt.words import count

if TYPE_CHECKING:
    from mdmt.experiments.comparison import Failure, Row

Grid = Annotated[
    list[str] | None,
    typer.Option(help="A setting and its values, key=a,b,c, or a key alone for its usual ones; may be repeated."),
]
Points = Annotated[int | None, typer.Option(min=1, help="Try only so many points of the grid, drawn at random.")]


def tune(
    benchmark: options.Benchmark = "permuted-digits",
    method: options.Method = "mdmt-r",
    grid: Grid = None,
    points: Points = None,
    seeds: options.Seeds = 1,
    seed: options.Seed = 1234,
    tasks: options.Tasks = None,
    set_: options.Set = None,
    data: options.Data = None,
    image_size: options.ImageSize = None,
    subset: options.Subset = None,
    weights: options.Weights = None,
    out: options.Out = "runs",
    workers: options.Workers = "auto",
    threads: options.Threads = 1,
    checkpoint_every: options.CheckpointEvery = None,
    fresh: options.Fresh = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Choose settings on held-out tasks. Those that runs are measured on are never touched."""
    from mdmt.cli.compare import parse_workers, run_all
    from mdmt.experiments.resolve import parse_setting, parse_variant, resolve
    from mdmt.experiments.spaces import space
    from mdmt.experiments.tune import configs_of, parse_grids, points_of, ranked

    settings = dict(parse_setting(text) for text in set_ or [])
    options: dict[str, Any] = {
        "tasks": tasks, "threads": threads, "data": data, "image_size": image_size, "subset": subset, "weights": weights
    }  # fmt: skip
    usual = resolve(benchmark, method, settings=settings, cross_validation=True, **options)
    fixed = {*parse_variant(method)[1], *settings}
    grids = parse_grids(grid or [], space(usual.method, usual.heads), fixed)
    tried = points_of(grids, points, seed)
    configs = configs_of(benchmark, method, tried, range(seed, seed + seeds), settings, **options)
    if not (quiet or json):
        told = f"{count('point', len(tried))} x {count('seed', seeds)}"
        print(
            f"{told} on {count('held-out task', usual.tasks or 0)}; --grid and --points make it less", file=sys.stderr
        )
    rows, failed = run_all(configs, out, parse_workers(workers), checkpoint_every, fresh, quiet or json)
    best_first = ranked(rows, tried, seeds)
    if json:
        best = best_first[0].settings if best_first else None
        print(
            dumps(
                {
                    "benchmark": benchmark,
                    "method": method,
                    "best": best,
                    "rows": [row.to_json() for row in best_first],
                    "failed": failed,
                }
            )
        )
    else:
        _print(best_first, failed, benchmark, method, set_ or [], options)
    if not best_first:
        raise typer.Exit(2)


def _print(
    rows: list[Row], failed: list[Failure], benchmark: str, method: str, set_: list[str], options: dict[str, Any]
) -> None:
    from shlex import quote

    from rich.text import Text

    from mdmt.metrics import A_T, F_T
    from mdmt.report.tables import captions
    from mdmt.report.text import Grid, format_metric, rich_table, screen

    console = screen()
    for run in failed:
        print(f"mdmt: failed: {run['label']}, seed {run['seed']}: {run['reason']}", file=sys.stderr)
    if not rows:
        return
    best = rows[0].settings or {}
    keys = list(best)
    lines = [
        [
            *(str((row.settings or {})[key]) for key in keys),
            *(format_metric(metric, row.metrics[metric.name]) for metric in (A_T, F_T)),
            f"{row.seconds['mean']:.1f}",
        ]
        for row in rows
    ]
    tasks = (rows[0].reduced or {})["tasks"]
    console.print(Text(f"{method} on the held-out tasks of {captions(rows)[0]}", style="bold"))
    columns = [*keys, f"A_{tasks} (%)", f"F_{tasks}", "seconds"]
    console.print(rich_table(Grid(columns, lines), console.width))
    chosen = [*set_, *(f"{key}={value}" for key, value in best.items())]
    console.print(Text("the best, on the tasks that runs are measured on:"))
    flags = " ".join(f"--set {quote(text)}" for text in chosen)
    for key, value in options.items():  # all but the number of tasks, which is that of the held-out ones
        if key != "tasks" and value is not None and (key, value) != ("threads", 1):
            flags += f" --{key.replace('_', '-')} {quote(str(value))}"
    console.print(Text(f"mdmt run {benchmark} --method {quote(method)} {flags}"), soft_wrap=True)
