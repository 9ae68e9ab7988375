"""Choosing settings on held-out tasks: which points to try, and how they rank."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any, Literal

from mdmt.errors import Mistake
from mdmt.experiments.resolve import resolve
from mdmt.experiments.sweep import run_all
from mdmt.experiments.workers import Event
from mdmt.runs.config import RunConfig
from mdmt.runs.rows import Row

Point = dict[str, Any]


def parse_grids(
    texts: list[str], usual: dict[str, tuple[Any, ...]], fixed: set[str]
) -> dict[str, tuple[Any, ...]]:
    """The values to try of each setting: key=a,b,c lists them, a key alone stands for its usual
    ones.

    Without any text these are the usual values of all settings but the fixed ones. A setting that
    is named twice has the values of both.

    >>> parse_grids(["lr=0.1,0.3", "scale", "lr=1"], {"scale": (20, 24)}, set())
    {'lr': ('0.1', '0.3', '1'), 'scale': (20, 24)}
    """
    grids: dict[str, tuple[Any, ...]] = {}
    for text in texts:
        key, equals, values = (part.strip() for part in text.partition("="))
        listed = tuple(value.strip() for value in values.split(",") if value.strip())
        added = listed if equals else usual.get(key, ())
        if not added:
            alone = f", or one of {', '.join(usual)} alone" if usual else ""
            raise Mistake(f"--grid {text}: write it as key=a,b,c{alone}")
        if key in fixed:
            raise Mistake(f"--grid {text}: {key} is set to one value already")
        grids[key] = tuple(dict.fromkeys((*grids.get(key, ()), *added)))
    return grids or {key: values for key, values in usual.items() if key not in fixed}


def points_of(grids: dict[str, tuple[Any, ...]], count: int | None, seed: int) -> list[Point]:
    """All points of the grids, or `count` of them drawn by the seed, in the order of the product.

    >>> points_of({"lr": (0.1, 0.3), "scale": (20,)}, None, 1)
    [{'lr': 0.1, 'scale': 20}, {'lr': 0.3, 'scale': 20}]
    """
    points = [dict(zip(grids, values, strict=True)) for values in product(*grids.values())]
    if count is None or count >= len(points):
        return points
    return [points[i] for i in sorted(random.Random(seed).sample(range(len(points)), count))]


def configs_of(
    benchmark: str,
    method: str,
    points: list[Point],
    seeds: range,
    settings: dict[str, str],
    **options: Any,
) -> list[list[RunConfig]]:
    """For each point the config of each seed, on the held-out tasks."""
    configs = []
    for point in points:
        first = resolve(
            benchmark, method, settings={**settings, **point}, cross_validation=True, **options
        )
        configs.append([replace(first, seed=seed) for seed in seeds])
    return configs


def ranked(rows: list[Row | None], points: list[Point], seeds: int) -> list[Row]:
    """The rows of the points that finished, the most accurate first, those that lack a seed
    last.
    """
    finished = [
        replace(row, settings=point)
        for point, row in zip(points, rows, strict=True)
        if row is not None
    ]
    return sorted(finished, key=lambda row: (len(row.seeds) < seeds, -row.accuracy))


def choose(
    benchmark: str,
    method: str,
    fixed: Point,
    space: dict[str, tuple[Any, ...]],
    *,
    trials: int,
    seeds: range,
    out: str,
    workers: int | Literal["auto"] = "auto",
    on_event: Callable[[Event], None] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Try so many points of a space on the held-out tasks, and say all that led to the choice.

    `fixed` settings go with every point. Finished runs in `out` are read.
    """
    points = points_of(space, trials, seeds.start)
    if len(points) != trials:
        raise Mistake(f"{method}: its space has {len(points)} points, fewer than {trials} trials")
    configs = configs_of(benchmark, method, points, seeds, fixed, **options)
    rows, failures = run_all(configs, out, workers, on_event=on_event)
    best_first = ranked(rows, points, len(seeds))
    if not best_first or len(best_first[0].seeds) < len(seeds):
        raise Mistake(
            f"{method} on {benchmark}: no point finished on every seed: {failures[0]['reason']}"
        )
    tried = [
        {"settings": row.settings, "A_T": row.metrics["A_T"], "seeds": row.seeds}
        for row in best_first
    ]
    diverged = [point for row, point in zip(rows, points, strict=True) if row is None]
    return {
        "fixed": fixed,
        "space": {key: list(values) for key, values in space.items()},
        "chosen": best_first[0].settings,
        "tried": tried + [{"settings": point, "A_T": None, "seeds": []} for point in diverged],
    }
