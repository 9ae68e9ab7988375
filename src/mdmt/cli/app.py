"""The command line. Commands import what they need when called, so that `--help` is quick."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

import mdmt.ranks as ranks
from mdmt.cli import catalog, data, doctor, model, report, reproduce, runs
from mdmt.cli.compare import ablate, compare
from mdmt.cli.cost import UNUSED, cost
from mdmt.cli.export import export
from mdmt.cli.options import command
from mdmt.cli.process import Commands, exit_code
from mdmt.cli.run import run
from mdmt.cli.serve import serve
from mdmt.cli.tune import tune
from mdmt.errors import Mistake

app = typer.Typer(
    cls=Commands,
    help=(
        "Lifelong learning: one network learns task after task without forgetting the earlier ones."
    ),
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"mdmt {version('mdmt')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _begin(
    context: typer.Context,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())
    elif context.invoked_subcommand != "run" and ranks.was_launched():
        raise Mistake(
            f"several ranks do one run: {ranks.START}; start mdmt {context.invoked_subcommand}"
            " without torchrun"
        )


model.register(app)
command(app)(run)
command(app, seeds=5, without=["method"])(compare)
command(app, seeds=5, benchmark="split-cifar", without=["method", "preset"])(ablate)
command(app, without=UNUSED)(cost)
command(app, without=["reading"])(tune)
app.command()(runs.rerun)
app.command()(report.report)
app.command()(report.watch)
app.command()(doctor.doctor)
app.command()(serve)
app.command()(export)

app.add_typer(reproduce.app, name="reproduce")
app.add_typer(runs.app, name="runs")
app.add_typer(data.app, name="data")
app.add_typer(catalog.app, name="list")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; a mistake of the user is one line on stderr and exit code 2."""
    return exit_code(lambda: app(args=arguments, prog_name="mdmt", standalone_mode=False))
