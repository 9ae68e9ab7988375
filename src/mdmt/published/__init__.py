"""The paper as data: Tables 1 and 2, the cost table, the matrices of its appendix, its settings.

`own_papers.json` has values that other papers published for their own methods on the same streams.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

Content = dict[str, Any]  # of a JSON object


def published(benchmark: str, method: str) -> Content | None:
    """A row of Table 1, or None: each metric's mean and std (A_T as a fraction), and its source.

    A cell that Table 1 leaves blank and the public notebooks have carries `"source": "notebook"`. A
    `note` says why a row is not comparable, in the metrics that `note_on` lists or in all of them.

    >>> published("split-cifar", "mdmt-r")["A_T"]
    {'mean': 0.692, 'std': 0.016}
    >>> published("permuted-digits", "mdmt-r") is None
    True
    """
    row: Content | None = table("table1")["rows"].get(benchmark, {}).get(method)
    return row


def own_paper(benchmark: str, method: str) -> Content | None:
    """What a method's own paper published on a benchmark, or None.

    `paper` names it, `settings` are the arguments of the method with which it measured. A paper
    without a value on these very tasks has settings alone.

    >>> own_paper("split-cifar", "er")["A_T"]
    {'mean': 0.685, 'std': 0.0065}
    """
    row: Content | None = table("own_papers").get(benchmark, {}).get(method)
    return row


@cache
def table(name: str) -> Content:
    """One of the files, such as `table1` or `cost`; every caller gets the same object."""
    content: Content = json.loads((files("mdmt.published") / f"{name}.json").read_text())
    return content
