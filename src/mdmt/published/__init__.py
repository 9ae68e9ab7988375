"""The paper's numbers, as data: Tables 1 and 2, the cost table, and the accuracy matrices of its appendix."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any


def published(benchmark: str, method: str) -> dict[str, Any] | None:
    """A row of Table 1, or None: each metric as mean and std (A_T as a fraction), and where the row comes from.

    A cell that Table 1 leaves blank and the public notebooks have carries `"source": "notebook"`.

    >>> published("split-cifar", "mdmt-r")["A_T"]
    {'mean': 0.692, 'std': 0.016}
    >>> published("permuted-digits", "mdmt-r") is None
    True
    """
    found: dict[str, Any] | None = table("table1")["rows"].get(benchmark, {}).get(method)
    return found


@cache
def table(name: str) -> dict[str, Any]:
    """One of `table1`, `table2`, `cost` and `matrices`, as it lies in the package; not to be changed."""
    content: dict[str, Any] = json.loads((files("mdmt.published") / f"{name}.json").read_text())
    return content
