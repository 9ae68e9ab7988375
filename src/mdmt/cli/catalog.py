"""`mdmt list`: methods, benchmarks and presets."""

from __future__ import annotations

from json import dumps
from typing import Any

import typer

from mdmt.cli.options import Json

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
    from mdmt.experiments.presets import COLUMNS, best_cells, cells
    from mdmt.methods import METHODS

    rows = {
        name: {benchmark: _preset_cells(cells(benchmark, name), method) for benchmark in COLUMNS}
        for name, method in METHODS.items()
    }
    rows["mdmt-r[preset=best]"] = {
        benchmark: _as_json(best_cells(benchmark)) for benchmark in COLUMNS
    }
    if json:
        print(dumps(rows))
        return
    from mdmt.report.text import Grid, rich_table, screen

    lines = [
        [f"{name} {key}", *(_preset_text(presets[benchmark].get(key)) for benchmark in COLUMNS)]
        for name, presets in rows.items()
        for key in dict.fromkeys(key for benchmark in COLUMNS for key in presets[benchmark])
    ]
    console = screen()
    console.print(rich_table(Grid(["setting", *COLUMNS], lines), console.width))
    console.print("p published, s script (the programs behind the published numbers), o ours")
    console.print("--preset best: mdmt-r with the settings of mdmt-r[preset=best]", markup=False)


def _preset_text(cell: dict[str, Any] | None) -> str:
    return "-" if cell is None else f"{cell['value']} {cell['source'][0]}"


def _preset_cells(cells: dict[str, Any], method: Any) -> dict[str, Any]:
    """The cells that matter to a method."""
    settings = {"batch", "epochs", "lr", "augment", *method().arguments}
    settings |= {"memory", "policy"} if method.uses_memory else set()
    return _as_json({key: cell for key, cell in cells.items() if key in settings})


def _as_json(cells: dict[str, Any]) -> dict[str, Any]:
    return {key: cell._asdict() for key, cell in cells.items()}


def _first_line(thing: object) -> str:
    return (thing.__doc__ or "").strip().splitlines()[0]


def _print_rows(rows: dict[str, dict[str, Any]], as_json: bool) -> None:
    """A table with a row per name, or one JSON object."""
    if as_json:
        print(dumps(rows))
        return
    from rich.table import Table

    from mdmt.report.text import screen

    table = Table("name", *next(iter(rows.values())), box=None, header_style="bold")
    for name, cells in rows.items():
        table.add_row(name, *(_cell(c) for c in cells.values()))
    screen().print(table)


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k}={v}" for k, v in value.items())
    return "-" if value is None else str(value)
