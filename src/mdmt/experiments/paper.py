"""The ten rows of Table 2: what each part of MDMT-R is worth.

The vanilla softmax is that of ordinary linear heads, each sample scored by its own head alone. The other rows have the
cosine head, whose softmax crosses the domains, with margins (m_t, m_c); the last one is MDMT-R.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mdmt.experiments.comparison import Row, is_preset
from mdmt.experiments.config import RunConfig
from mdmt.published import table

MARGINS = ((0.0, 0.0), (0.1, 0.0), (0.0, 0.01), (0.1, 0.01), (0.4, 0.01), (0.4, 0.05), (0.4, 0.1))


def _cosine(task_margin: float, class_margin: float, distance: str) -> str:
    return f"mdmt-r[head=cosine,task_margin={task_margin},class_margin={class_margin},distance={distance}]"


VARIANTS = (
    "mdmt-r[head=linear,competitors=own,distance=none]",
    "mdmt-r[head=linear,competitors=own,distance=l1]",
    *(_cosine(*margins, "none") for margins in MARGINS),
    _cosine(0.1, 0.01, "l1"),
)


def with_table_2(rows: list[Row | None], configs: list[list[RunConfig]]) -> list[Row | None]:
    """The rows of the ten variants with the published values of Table 2 instead of those of Table 1."""
    return [
        row and replace(row, published=None if row.reduced else published_for(configs[number][0], number))
        for number, row in enumerate(rows)
    ]


def published_for(config: RunConfig, number: int) -> dict[str, Any] | None:
    """A row of Table 2, counted from 0; None on another benchmark, or with other settings than the preset's."""
    content = table("table2")
    row: dict[str, Any] = content["rows"][number]
    return row if config.benchmark == content["benchmark"] and is_preset(config, VARIANTS[number]) else None
