"""The settings of a run unless it gives others, and the values that `mdmt tune` tries.

Those of the published benchmarks are in `published/settings`, with their sources. Every other
benchmark takes its settings from one of those, except the ones named here, which are ours.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

from mdmt.errors import Mistake
from mdmt.published.settings import CIFAR, MNIST, PUBLISHED, Cell, SettingValues, published_cells

# The changes of `--preset best`, for MDMT-R only: more accurate than the published settings with
# the same memory, network and heads, in one epoch. Chosen on held-out tasks (`python
# bench/ablation.py`); the learning rate on six permutations that no run is measured on, since
# three tasks forget little. A long average needs long steps: with short or shrinking ones the
# network overfits the few stored examples and forgets more.
BEST: dict[str, SettingValues] = {
    MNIST: {"average": 0.999, "lr": 0.6},
    "permuted-digits": {"average": 0.98},
}
HAS_BEST = "mdmt-r"
USUAL = "published"
PRESET_NAMES = (USUAL, "best")


def best_settings(benchmark: str, method: str) -> SettingValues:
    """The settings in which the preset `best` differs from the preset `published`."""
    if method != HAS_BEST:
        raise Mistake(f"preset best is for {HAS_BEST}; {method} has only the preset published")
    if benchmark not in BEST:
        known = ", ".join(BEST)
        raise Mistake(f"preset best is for {known}; {benchmark} has only the preset published")
    return BEST[benchmark]


def best_cells(benchmark: str) -> dict[str, Cell]:
    """The same settings with their source; none for a benchmark without the preset `best`."""
    return {key: Cell(value, "ours") for key, value in BEST.get(benchmark, {}).items()}


class Like(NamedTuple):
    """The settings of another benchmark, with changes for all methods and for single ones."""

    benchmark: str
    common: SettingValues
    own: dict[str, SettingValues]


# MER's settings are small, since the published ones take days; they were not tuned. EWC's rate and
# strength on permuted-digits were chosen on seeds 2001 to 2004. PI's strength stayed finite in an
# earlier trial. The choices in presets_digits.json replace those made here.
LIKE = {
    "permuted-digits": Like(
        MNIST,
        {},
        {
            "joint": {"lr": 0.1},
            "ewc": {"lr": 0.1, "strength": 3.0},
            "gem": {"lr": 0.1},
            "pi": {"strength": 0.001},
            "mer": {"beta": 0.3, "replay": 5, "batches": 1},
        },
    ),
    "split-digits": Like(
        CIFAR,
        {"reference_batch": 64},
        {
            "van": {"lr": 0.03},
            "ewc": {"window": 10},
            "rwalk": {"window": 10},
            "pi": {"lr": 0.03, "strength": 0.001},
            "mer": {"beta": 0.3, "replay": 5},
        },
    ),
    # A few hundred photos need many epochs, each a little different. The reference batch follows
    # from the size of the memory: see `resolve`.
    "folder": Like(
        CIFAR,
        {"epochs": 20, "augment": "crop-flip"},
        {"van": {"lr": 0.03}, "pi": {"lr": 0.03, "strength": 0.001}},
    ),
}
COLUMNS = (*PUBLISHED, *LIKE)  # of `mdmt list presets`


# Written by `python bench/tune_digits.py`, which gives each method 12 trials, or 24 if it has more
# than two settings; the trials themselves are in results/tuned-*-digits.json.
DIGITS = Path(__file__).parent / "presets_digits.json"


@cache
def digits_presets() -> dict[str, dict[str, SettingValues]]:
    """The settings chosen for the digits, by benchmark and method."""
    content: dict[str, dict[str, SettingValues]] = json.loads(DIGITS.read_text())
    return content


def preset_cells(benchmark: str, method: str) -> dict[str, Cell]:
    """The settings of a method on a benchmark, each with its source.

    A benchmark without presets has those of Split CIFAR.

    >>> preset_cells("split-cub", "mdmt-r")["task_margin"]
    Cell(value=0.4, source='published')
    >>> preset_cells("split-digits", "mdmt-r")["epochs"]
    Cell(value=1, source='ours')
    """
    if benchmark in PUBLISHED:
        return published_cells(benchmark, method)
    like = LIKE.get(benchmark, Like(CIFAR, {}, {}))
    values = {key: cell.value for key, cell in published_cells(like.benchmark, method).items()}
    values |= {**like.common, **like.own.get(method, {})}
    values |= digits_presets().get(benchmark, {}).get(method, {})
    return {key: Cell(value, "ours") for key, value in values.items()}


def preset(benchmark: str, method: str, name: str = USUAL) -> SettingValues:
    """The values of a preset.

    >>> preset("permuted-mnist", "van")["lr"]
    0.03
    """
    if name not in PRESET_NAMES:
        raise Mistake(f"preset={name}: must be {' or '.join(PRESET_NAMES)}")
    values = {key: cell.value for key, cell in preset_cells(benchmark, method).items()}
    return values | best_settings(benchmark, method) if name == "best" else values


# The values that `mdmt tune` tries. The paper's appendix has the spaces of MDMT-R's margins and
# scale. The paper did not search learning rates and strengths but took over those of A-GEM; their
# spaces have steps of about 3 and of 10 around the presets.
LR_SPACE = Cell((0.001, 0.003, 0.01, 0.03, 0.1, 0.3), "ours")
STRENGTH_SPACE = Cell((0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0), "ours")
SPACES: dict[str, dict[str, Cell]] = {
    **{method: {"lr": LR_SPACE} for method in ("joint", "van", "a-gem", "er", "mega", "er-ace")},
    **{
        method: {"lr": LR_SPACE, "strength": STRENGTH_SPACE}
        for method in ("ewc", "mas", "rwalk", "pi")
    },
    "gem": {"lr": LR_SPACE, "margin": Cell((0.0, 0.25, 0.5, 1.0), "ours")},
    "mer": {
        "lr": LR_SPACE,
        # With beta = 1 it would be plain replay.
        "beta": Cell((0.03, 0.1, 0.3, 0.6), "ours"),
        "gamma": Cell((0.1, 0.3, 1.0), "ours"),
    },
    "der++": {
        "lr": LR_SPACE,
        "alpha": Cell((0.1, 0.3, 1.0), "ours"),
        "beta": Cell((0.3, 1.0, 3.0), "ours"),
    },
    "mdmt-r": {
        "task_margin": Cell((0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5), "published"),
        "class_margin": Cell(tuple(n / 100 for n in range(1, 11)), "published"),
        "scale": Cell(tuple(float(s) for s in range(12, 65, 4)), "published"),
    },
}


def space(method: str, heads: str) -> dict[str, tuple[float, ...]]:
    """The values to try for each setting of a method.

    A method without a space of its own gets one for its learning rate. A task margin is left out
    with one shared head, which has none.

    >>> {key: len(values) for key, values in space("mdmt-r", "shared").items()}
    {'class_margin': 10, 'scale': 14}
    """
    spaces = SPACES.get(method, {"lr": LR_SPACE})
    return {
        key: cell.value for key, cell in spaces.items() if (key, heads) != ("task_margin", "shared")
    }
