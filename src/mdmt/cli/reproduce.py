"""`mdmt reproduce`: the tables and figures of the paper, by their names there."""

from __future__ import annotations

import typer

from mdmt.cli.compare import ablate, compare
from mdmt.cli.cost import UNUSED, cost
from mdmt.cli.options import command
from mdmt.cli.report import figure_command
from mdmt.runs.paper import FIGURES, PAPER_BENCHMARKS

app = typer.Typer(
    help="Reproduce the tables and figures of the paper, by name.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
command(
    app,
    "table1",
    benchmark=PAPER_BENCHMARKS["table1"],
    seeds=5,
    methods="paper",
    without=["method", "preset"],
)(compare)
command(app, "table2", benchmark=PAPER_BENCHMARKS["table2"], seeds=5, without=["method", "preset"])(
    ablate
)
command(
    app, "cost", benchmark=PAPER_BENCHMARKS["cost"], methods="paper", without=[*UNUSED, "preset"]
)(cost)
for name, figure in FIGURES.items():
    command(
        app,
        name,
        benchmark=figure.benchmark,
        seeds=figure.seeds,
        methods=figure.methods,
        without=["method", "json", "preset"],
    )(figure_command(name))
