"""`mdmt tune`: choose settings on held-out tasks."""

from __future__ import annotations

import sys
from dataclasses import replace
from json import dumps
from typing import TYPE_CHECKING, Annotated

import typer

from mdmt.cli.many_runs import run_all_with_progress, tell_failures
from mdmt.cli.options import RunOptions
from mdmt.runs.request import RunRequest
from mdmt.words import count

if TYPE_CHECKING:
    from mdmt.runs.rows import Failure, Row

GridOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=A,B,C",
        help="Values to try; a key alone tries its usual ones. May be repeated.",
    ),
]
Points = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Try only N points of the grid, drawn at random."),
]


def tune(options: RunOptions, grid: GridOption = None, points: Points = None) -> None:
    """Choose settings on held-out tasks. No test image that results are measured on is used."""
    from mdmt.experiments.presets import space
    from mdmt.experiments.resolve import resolve
    from mdmt.experiments.tune import configs_of, parse_grids, points_of, ranked
    from mdmt.runs.request import parse_variant

    usual = resolve(options, cross_validation=True)
    fixed = {*parse_variant(options.method)[1], *options.settings}
    grids = parse_grids(grid or [], space(usual.method, usual.heads), fixed)
    tried = points_of(grids, points, options.seed)
    configs = configs_of(options, tried, usual)
    tasks = usual.tasks or 0
    if not options.silent:
        size = f"{count('point', len(tried))} x {count('seed', options.seeds)}"
        held_out = count("held-out task", tasks)
        print(f"{size} on {held_out}; --grid and --points make it less", file=sys.stderr)
    rows, failed = run_all_with_progress(configs, options)
    best_first = ranked(rows, tried, options.seeds)
    if options.json:
        _print_json(best_first, failed, options)
    else:
        tell_failures(failed)
        if best_first:
            _print(best_first, options, tasks)
    if not best_first:
        raise typer.Exit(2)


def _print_json(best_first: list[Row], failed: list[Failure], options: RunOptions) -> None:
    content = {
        "benchmark": options.benchmark,
        "method": options.method,
        "best": best_first[0].settings if best_first else None,
        "rows": [row.to_json() for row in best_first],
        "failed": failed,
    }
    print(dumps(content))


def _print(rows: list[Row], options: RunOptions, tasks: int) -> None:
    import shlex

    from rich.text import Text

    from mdmt.metrics import A_T, F_T
    from mdmt.report.tables import captions
    from mdmt.report.text import Grid, format_metric, rich_table, screen

    console = screen()
    best = rows[0].settings or {}
    lines = [
        [
            *(str((row.settings or {})[key]) for key in best),
            *(format_metric(metric, row.metrics[metric.name]) for metric in (A_T, F_T)),
            f"{row.seconds['mean']:.1f}",
        ]
        for row in rows
    ]
    title = f"{options.method} on the held-out tasks of {captions(rows)[0]}"
    console.print(Text(title, style="bold"))
    columns = [*best, f"A_{tasks} (%)", f"F_{tasks}", "seconds"]
    console.print(rich_table(Grid(columns, lines), console.width))
    console.print(Text("to run the benchmark itself with the best settings:"))
    # The number of tasks and the seeds are those of the search.
    usual = RunRequest()
    request = replace(options, tasks=usual.tasks, seed=usual.seed, seeds=usual.seeds)
    command = shlex.join(request.with_settings(best).argv())
    console.print(Text(command), soft_wrap=True)
