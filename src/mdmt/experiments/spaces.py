"""The values that `mdmt tune` tries for a method's settings unless told otherwise, with their source.

The spaces of MDMT-R's margins and scale are `published` (the paper's appendix). The paper did not search learning rates and
strengths, and took over those of A-GEM; these spaces are `ours`: steps of about 3 and of 10 around the presets.
"""

from __future__ import annotations

from typing import Any

from mdmt.experiments.presets import Cell

LR = Cell((0.001, 0.003, 0.01, 0.03, 0.1, 0.3), "ours")
STRENGTH = Cell((0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0), "ours")

SPACES: dict[str, dict[str, Cell]] = {
    **{name: {"lr": LR} for name in ("joint", "van", "a-gem", "er", "mega")},
    **{name: {"lr": LR, "strength": STRENGTH} for name in ("ewc", "mas", "rwalk", "pi")},
    "gem": {"lr": LR, "margin": Cell((0.0, 0.25, 0.5, 1.0), "ours")},
    "mer": {"lr": LR, "beta": Cell((0.03, 0.1, 0.3, 1.0), "ours"), "gamma": Cell((0.1, 0.3, 1.0), "ours")},
    "mdmt-r": {
        "task_margin": Cell((0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5), "published"),
        "class_margin": Cell(tuple(n / 100 for n in range(1, 11)), "published"),
        "scale": Cell(tuple(float(s) for s in range(12, 65, 4)), "published"),
    },
}


def space(method: str, heads: str) -> dict[str, tuple[Any, ...]]:
    """What is tried by default; a method of one's own: its learning rate. One shared head has no task margin to try.

    >>> {key: len(values) for key, values in space("mdmt-r", "shared").items()}
    {'class_margin': 10, 'scale': 14}
    """
    cells = SPACES.get(method, {"lr": LR})
    return {key: cell.value for key, cell in cells.items() if (key, heads) != ("task_margin", "shared")}
