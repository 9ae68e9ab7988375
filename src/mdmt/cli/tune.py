"""`mdmt tune`: choose settings on held-out tasks."""

from __future__ import annotations

import sys
from json import dumps
from typing import TYPE_CHECKING, Annotated

import typer

from mdmt.cli.many_runs import run_all, tell_failures
from mdmt.cli.options import Method, RunOptions
from mdmt.words import count

if TYPE_CHECKING:
    from mdmt.runs.rows import Row

Grids = Annotated[
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


def tune(
    options: RunOptions, method: Method = "mdmt-r", grid: Grids = None, points: Points = None
) -> None:
    """Choose settings on held-out tasks. No test image that results are measured on is used."""
    from mdmt.experiments.presets import space
    from mdmt.experiments.resolve import resolve
    from mdmt.experiments.tune import configs_of, parse_grids, points_of, ranked
    from mdmt.runs.request import parse_variant

    settings = options.settings
    usual = resolve(
        options.benchmark, method, settings=settings, cross_validation=True, **options.of_every_run
    )
    fixed = {*parse_variant(method)[1], *settings}
    grids = parse_grids(grid or [], space(usual.method, usual.heads), fixed)
    tried = points_of(grids, points, options.seed)
    configs = configs_of(
        options.benchmark, method, tried, options.all_seeds, settings, **options.of_every_run
    )
    if not options.silent:
        size = f"{count('point', len(tried))} x {count('seed', options.seeds)}"
        tasks = count("held-out task", usual.tasks or 0)
        print(f"{size} on {tasks}; --grid and --points make it less", file=sys.stderr)
    rows, failed = run_all(configs, options)
    best_first = ranked(rows, tried, options.seeds)
    if options.json:
        content = {
            "benchmark": options.benchmark,
            "method": method,
            "best": best_first[0].settings if best_first else None,
            "rows": [row.to_json() for row in best_first],
            "failed": failed,
        }
        print(dumps(content))
    else:
        tell_failures(failed)
        if best_first:
            _print(best_first, options, method, usual.tasks or 0)
    if not best_first:
        raise typer.Exit(2)


def _print(rows: list[Row], options: RunOptions, method: str, tasks: int) -> None:
    from shlex import quote

    from rich.text import Text

    from mdmt.metrics import A_T, F_T
    from mdmt.report.tables import captions
    from mdmt.report.text import Grid, format_metric, rich_table, screen

    console = screen()
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
    console.print(Text(f"{method} on the held-out tasks of {captions(rows)[0]}", style="bold"))
    columns = [*keys, f"A_{tasks} (%)", f"F_{tasks}", "seconds"]
    console.print(rich_table(Grid(columns, lines), console.width))
    chosen = [*(options.set or []), *(f"{key}={value}" for key, value in best.items())]
    console.print(Text("to run the benchmark itself with the best settings:"))
    flags = "" if options.preset is None else f"--preset {options.preset} "
    flags += " ".join(f"--set {quote(text)}" for text in chosen)
    for key, value in options.of_every_run.items():
        if key != "tasks" and value != getattr(RunOptions, key):  # tasks: of the held-out ones
            flags += f" --{key.replace('_', '-')} {quote(str(value))}"
    console.print(
        Text(f"mdmt run {options.benchmark} --method {quote(method)} {flags}"), soft_wrap=True
    )
