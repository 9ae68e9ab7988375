"""`mdmt list`: methods, benchmarks and presets."""

from __future__ import annotations

from collections.abc import Mapping
from json import dumps
from typing import TYPE_CHECKING

import typer

from mdmt.cli.options import Json
from mdmt.published.settings import Cell

if TYPE_CHECKING:
    from mdmt.methods import Method

Cells = dict[str, Cell]  # by setting

app = typer.Typer(
    help="List methods, benchmarks and presets.", no_args_is_help=True, rich_markup_mode=None
)


@app.command("methods")
def list_methods(json: Json = False) -> None:
    """List the methods with their settings and defaults."""
    from mdmt.methods import METHODS

    rows = {
        name: {
            "kind": m.kind,
            "paper": m.source,
            "settings": m().arguments,
            "summary": _first_line(m),
        }
        for name, m in METHODS.items()
    }
    if not json:
        for row in rows.values():
            del row["summary"]  # a narrow terminal has no room for it
    _print_rows(rows, json)


@app.command("benchmarks")
def list_benchmarks(json: Json = False) -> None:
    """List the benchmarks."""
    from mdmt.benchmarks import BENCHMARKS

    rows = {
        b.name: {"summary": b.summary, "tasks": b.tasks, "heads": " or ".join(b.heads)}
        for b in BENCHMARKS.values()
    }
    _print_rows(rows, json)


@app.command("presets")
def list_presets(json: Json = False) -> None:
    """List the default hyper-parameters with their sources."""
    from mdmt.experiments.presets import COLUMNS, best_cells, preset_cells
    from mdmt.methods import METHODS

    presets = {
        name: {benchmark: _cells_of(method, preset_cells(benchmark, name)) for benchmark in COLUMNS}
        for name, method in METHODS.items()
    }
    presets["mdmt-r[preset=best]"] = {benchmark: best_cells(benchmark) for benchmark in COLUMNS}
    if json:
        print(dumps({name: _as_json(columns) for name, columns in presets.items()}))
        return
    from mdmt.report.text import Grid, rich_table, screen

    lines: list[list[str]] = []
    for name, columns in presets.items():
        lines += _preset_lines(name, columns)
    console = screen()
    console.print(rich_table(Grid(["setting", *COLUMNS], lines), console.width))
    console.print("p published, s script (the programs behind the published numbers), o ours")
    console.print("--preset best: mdmt-r with the settings of mdmt-r[preset=best]", markup=False)


def _preset_lines(name: str, columns: dict[str, Cells]) -> list[list[str]]:
    """A line for each setting of a method, with its value on each benchmark."""
    keys: list[str] = []
    for cells in columns.values():
        keys += [key for key in cells if key not in keys]
    return [
        [f"{name} {key}", *(_preset_text(cells.get(key)) for cells in columns.values())]
        for key in keys
    ]


def _preset_text(cell: Cell | None) -> str:
    return "-" if cell is None else f"{cell.value} {cell.source[0]}"


def _cells_of(method: type[Method], cells: Cells) -> Cells:
    """The cells of settings that the method has."""
    settings = {"batch", "epochs", "lr", "augment", *method().arguments}
    settings |= {"memory", "policy"} if method.uses_memory else set()
    return {key: cell for key, cell in cells.items() if key in settings}


def _as_json(columns: dict[str, Cells]) -> dict[str, object]:
    return {
        benchmark: {key: cell._asdict() for key, cell in cells.items()}
        for benchmark, cells in columns.items()
    }


def _first_line(thing: object) -> str:
    return (thing.__doc__ or "").strip().splitlines()[0]


def _print_rows(rows: Mapping[str, Mapping[str, object]], as_json: bool) -> None:
    """Print a table with a row per name, or one JSON object."""
    if as_json:
        print(dumps(rows))
        return
    from rich.table import Table

    from mdmt.report.text import screen

    table = Table("name", *next(iter(rows.values())), box=None, header_style="bold")
    for name, cells in rows.items():
        table.add_row(name, *(_cell(c) for c in cells.values()))
    screen().print(table)


def _cell(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k}={v}" for k, v in value.items())
    return "-" if value is None else str(value)
