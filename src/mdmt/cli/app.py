"""The command line. What a command needs is imported inside it, so that `mdmt --help` answers at once."""

from __future__ import annotations

import typer

from mdmt.cli import catalog, data, doctor, report, reproduce, runs
from mdmt.cli.compare import ablate, compare
from mdmt.cli.cost import UNUSED, cost
from mdmt.cli.options import command
from mdmt.cli.process import exit_code
from mdmt.cli.run import run
from mdmt.cli.tune import tune

app = typer.Typer(
    help="Lifelong learning: one network learns task after task without forgetting the earlier ones.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

command(app)(run)
command(app, seeds=5)(compare)
command(app, seeds=5, benchmark="split-cifar")(ablate)
command(app, without=UNUSED)(cost)
command(app, without=["reading"])(tune)
app.command()(runs.rerun)
app.command()(report.report)
app.command()(report.watch)
app.command()(doctor.doctor)

app.add_typer(reproduce.app, name="reproduce")
app.add_typer(runs.app, name="runs")
app.add_typer(data.app, name="data")
app.add_typer(catalog.app, name="list")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; a person's mistake is one line on stderr and exit code 2."""
    return exit_code(lambda: app(args=arguments, prog_name="mdmt", standalone_mode=False))
