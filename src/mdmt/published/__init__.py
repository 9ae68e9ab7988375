"""The paper as data: Tables 1 and 2, the cost table, the matrices of its appendix, its settings."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any


def published(benchmark: str, method: str) -> dict[str, Any] | None:
    """A row of Table 1, or None: each metric as mean and std (A_T as a fraction), and its source.

    A cell that Table 1 leaves blank and the public notebooks have carries `"source": "notebook"`. A
    row with a `note` is not what it seems to be: in the metrics that `note_on` lists, or in all of
    them.

    >>> published("split-cifar", "mdmt-r")["A_T"]
    {'mean': 0.692, 'std': 0.016}
    >>> published("permuted-digits", "mdmt-r") is None
    True
    """
    row: dict[str, Any] | None = table("table1")["rows"].get(benchmark, {}).get(method)
    return row


def settings(benchmark: str, method: str, reading: str | None = None) -> dict[str, Any]:
    """The settings behind a row of Table 1, in one of the two readings of the paper.

    EWC, MAS and RWalk have none in reading `paper`: the strengths of their penalties were chosen
    for the programs' form of them, which is on another scale.

    >>> settings("split-cifar", "mdmt-r", "paper")["arguments"]["distance"]
    'mse'
    """
    content = table("settings")
    values = {**content["benchmarks"][benchmark], **content["rows"][benchmark][method]}
    if reading == "paper":
        values["arguments"] = {**values["arguments"], **content["paper"].get(method, {})}
    return values


@cache
def table(name: str) -> dict[str, Any]:
    """One of `table1`, `table2`, `cost`, `matrices` and `settings`; not to be changed."""
    content: dict[str, Any] = json.loads((files("mdmt.published") / f"{name}.json").read_text())
    return content
