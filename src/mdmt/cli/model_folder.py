"""A model folder on the command line: opening it, its inputs, and how its answers are printed."""

from __future__ import annotations

import sys
from collections.abc import Hashable
from json import dumps
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mdmt.errors import Mistake
from mdmt.system.own_code import is_own
from mdmt.words import printable

if TYPE_CHECKING:
    from mdmt.living.model_folder import LivingModel
    from mdmt.report.text import Grid

SEED = 1234
ModelFolder = Annotated[str, typer.Argument(metavar="MODEL", help="Folder of the model.")]
Label = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Column of a .csv file that holds the class.")
]
Network = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Your own network, if the model has one: module:name."),
]


def weights_file(weights: str | None, own: str | None) -> str | None:
    """The file of first weights; `imagenet` is downloaded."""
    if weights is None:
        return None
    if own is not None:
        raise Mistake(f"--weights is for our networks: load them in {own}")
    if weights != "imagenet":
        return weights
    from mdmt.data.fetch import fetch_weights

    return str(fetch_weights(None))


def open_model(folder: str, backbone: str | None = None, seed: int | None = None) -> LivingModel:
    """The model in a folder; `backbone` is the user's own network."""
    from mdmt.living.model_folder import LivingModel

    if backbone is None:
        return LivingModel(folder)
    if not is_own(backbone):
        raise Mistake(f"--backbone {backbone}: the model knows its network; give only one of yours")
    from mdmt.experiments.networks import own_network, own_spec
    from mdmt.runs.request import parse_variant

    spec = own_spec(*parse_variant(backbone), weights=None)
    number = SEED if seed is None else seed
    return LivingModel(
        folder, backbone=lambda: own_network(spec["name"], spec["arguments"], number)
    )


def input_of(model: LivingModel) -> tuple[tuple[int, ...], str, list[str] | None]:
    """The shape and the type of one input, and the names of a table's columns."""
    shape, kind = model.versions_.read(lambda saved: saved.rest["input"])
    return tuple(shape), kind, model.columns


def agreed(question: str, yes: bool) -> bool:
    """Ask on a terminal, unless --yes was given."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise Mistake("nothing was removed: there is no terminal to ask on; --yes removes")
    if typer.confirm(f"{question}?", err=True):
        return True
    print("nothing was removed")
    return False


def print_grid(grid: Grid) -> None:
    from mdmt.report.text import rich_table, screen

    console = screen()
    console.print(rich_table(grid, console.width))


def place_of(task: str | None, label: Hashable) -> str:
    return text_of(label) if task is None else f"{text_of(task)} / {text_of(label)}"


def text_of(label: Hashable) -> str:
    return printable(str(label))


def percent(share: float) -> str:
    return f"{100 * share:.1f}"


def date_text(text: str) -> str:
    return text[:16].replace("T", " ")


def print_json(content: Any) -> None:
    print(dumps(content))
