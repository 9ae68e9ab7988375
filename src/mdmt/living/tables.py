"""Tables: .csv files with a header and frames, whose columns are found by their names."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdmt.errors import Mistake
from mdmt.inputs.files import read_csv
from mdmt.words import printable

SHOWN = 8  # names in a message


@dataclass(frozen=True)
class Table:
    """The numbers of a table without its column of classes, and the names of their columns."""

    columns: tuple[str, ...]
    numbers: NDArray[np.float32]
    labels: list[str] | None  # None: no column of classes was asked for


def read_table(path: Path, label: str | None = None, columns: Sequence[str] | None = None) -> Table:
    """Read a .csv file; its classes are in the column `label`.

    `columns` are those of a model: the file's own must have the same names, in any order.
    """
    shown = printable(str(path))
    first, rows = read_csv(path)
    if label is not None and label not in first:
        raise Mistake(f"{shown}: there is no column {label!r} (--label); columns: {listed(first)}")
    places(shown, first, None)
    names = [name for name in first if name != label]
    order = [first.index(names[place]) for place in places(shown, names, columns)]
    numbers = []
    for line, row in enumerate(rows, start=2):
        if len(row) != len(first):
            raise Mistake(f"{shown}, line {line}: {len(row)} columns, the header has {len(first)}")
        try:
            numbers.append([float(row[place]) for place in order])
        except ValueError:
            but = "" if label is None else f" but {label}"
            raise Mistake(f"{shown}, line {line}: every column{but} must be a number") from None
    labels = None if label is None else [row[first.index(label)] for row in rows]
    values = np.array(numbers, np.float32).reshape(len(rows), len(order))
    return Table(tuple(first[place] for place in order), values, labels)


def header(path: Path) -> list[str]:
    """The names of all columns of a .csv file."""
    return read_csv(path)[0]


def is_frame(x: Any) -> bool:
    """Whether x is a DataFrame, of whichever library."""
    return hasattr(x, "columns") and hasattr(x, "to_numpy")


def arranged(where: str, frame: Any, columns: Sequence[str] | None) -> Any:
    """A frame with the columns of a model, in its order."""
    names = list(frame.columns)
    return frame[[names[place] for place in places(where, names, columns)]]


def places(where: str, names: Iterable[Hashable], columns: Sequence[str] | None) -> list[int]:
    """Where the columns of a model are among these names; refuse other names, or one twice."""
    texts = [str(name) for name in names]
    place = {text: number for number, text in enumerate(texts)}
    if len(place) < len(texts):
        twice = next(text for number, text in enumerate(texts) if place[text] != number)
        raise Mistake(f"{where}: two columns are called {twice!r}: rename one")
    if columns is None:
        return list(range(len(texts)))
    wrong = [f"{name!r} is missing" for name in columns if name not in place]
    wrong += [f"{text!r} is not one of them" for text in texts if text not in columns]
    if wrong:
        raise Mistake(f"{where}: the model's columns are {listed(columns)}; {wrong[0]}")
    return [place[name] for name in columns]


def listed(names: Sequence[str]) -> str:
    """Some names, for a message."""
    more = ", ..." if len(names) > SHOWN else ""
    return printable(", ".join(names[:SHOWN])) + more if names else "none"
