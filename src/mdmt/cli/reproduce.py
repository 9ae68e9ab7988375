"""`mdmt reproduce`: what the paper shows, by the paper's names."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperGroup

from mdmt.cli import compare, cost, report
from mdmt.errors import Mistake
from mdmt.experiments.paper import BENCHMARKS, FIGURES

PAPER: dict[str, Callable[..., None]] = {
    "table1": compare.compare,
    "table2": compare.ablate,
    "cost": cost.cost,
}


class _Names(TyperGroup):
    """A group that answers an unknown name with those it has."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command by its name."""
        if cmd_name not in self.commands:
            raise Mistake(f"the paper's {cmd_name!r} is not one of {', '.join(self.commands)}")
        return super().get_command(ctx, cmd_name)


def _on(benchmark: str, command: Callable[..., None]) -> Callable[..., None]:
    """The same command with another default benchmark."""

    @functools.wraps(command)
    def same(**options: Any) -> None:
        command(**options)

    found = inspect.signature(command, eval_str=True)
    default = found.parameters["benchmark"].replace(default=benchmark)
    same.__signature__ = found.replace(  # type: ignore[attr-defined]
        parameters=[default, *(p for p in found.parameters.values() if p.name != "benchmark")]
    )
    return same


app = typer.Typer(
    help="The tables and figures of the paper, by name. The help of each says on which benchmark, unless another is named.",
    cls=_Names,
    no_args_is_help=True,
    rich_markup_mode=None,
)
for name, command in PAPER.items():
    app.command(name)(_on(BENCHMARKS[name], command))
for name in FIGURES:
    app.command(name)(report.figure(name))
