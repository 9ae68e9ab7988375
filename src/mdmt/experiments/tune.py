"""Choosing settings on held-out tasks: the points to try, and their ranking."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any, Literal

from mdmt.errors import Mistake
from mdmt.experiments.resolve import resolve, with_seeds
from mdmt.experiments.sweep import run_all
from mdmt.metrics import A_T, Metric
from mdmt.runs.config import RunConfig
from mdmt.runs.request import RunRequest
from mdmt.runs.rows import Row

FINALISTS = 3  # points that are tried on every seed
Point = dict[str, Any]  # values by setting
Grids = dict[str, tuple[Any, ...]]  # the values to try, by setting


def parse_grids(texts: list[str], usual: Grids, fixed: set[str]) -> Grids:
    """The values to try of each setting: key=a,b,c lists them, a key alone means its usual ones.

    Without any text these are the usual values of all settings except the fixed ones. A setting
    that is named twice has the values of both.

    >>> parse_grids(["lr=0.1,0.3", "scale", "lr=1"], {"scale": (20, 24)}, set())
    {'lr': ('0.1', '0.3', '1'), 'scale': (20, 24)}
    """
    grids: Grids = {}
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


def points_of(grids: Grids, count: int | None, seed: int) -> list[Point]:
    """All points of the grids in order, or `count` of them, drawn with the seed.

    The draw is even: each value of a setting is in about as many points as any other.

    >>> points_of({"lr": (0.1, 0.3), "scale": (20,)}, None, 1)
    [{'lr': 0.1, 'scale': 20}, {'lr': 0.3, 'scale': 20}]
    """
    points = [dict(zip(grids, values, strict=True)) for values in product(*grids.values())]
    if count is None or count >= len(points):
        return points
    # A draw that anybody may repeat.
    left = random.Random(seed).sample(range(len(points)), len(points))  # noqa: S311
    used: Counter[tuple[str, Any]] = Counter()
    drawn = []
    for _ in range(count):
        rarest = min(
            left, key=lambda i: sum(used[key] * len(grids[key[0]]) for key in points[i].items())
        )
        left.remove(rarest)
        used.update(points[rarest].items())
        drawn.append(rarest)
    return [points[i] for i in sorted(drawn)]


def configs_of(request: RunRequest, points: list[Point], usual: RunConfig) -> list[list[RunConfig]]:
    """The configurations of each point on the held-out tasks, one per seed of the request.

    `usual` is the request's own configuration: all points learn its data.
    """
    configs = []
    for point in points:
        first = resolve(request.with_settings(point), cross_validation=True, like=usual)
        configs.append(with_seeds(first, request.all_seeds))
    return configs


def ranked(rows: list[Row | None], points: list[Point], seeds: int, by: Metric = A_T) -> list[Row]:
    """The rows of the finished points: most accurate first, those that lack a seed last."""
    finished = [
        replace(row, settings=point)
        for point, row in zip(points, rows, strict=True)
        if row is not None
    ]
    return sorted(finished, key=lambda row: (len(row.seeds) < seeds, -_mean(row, by)))


def _mean(row: Row, metric: Metric) -> float:
    cell = row.metrics[metric.name]
    return -math.inf if cell is None else cell["mean"]


@dataclass(frozen=True)
class Choice:
    """The settings chosen for a method, and everything that led to them."""

    fixed: Point
    space: Grids
    chosen: Point
    tried: list[dict[str, Any]]  # each with its settings, its accuracy and the finished seeds

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def choose(
    request: RunRequest,
    fixed: Point,
    space: Grids,
    *,
    trials: int,
    out: str,
    workers: int | Literal["auto"] = "auto",
    by: Metric = A_T,
    finalists: int = FINALISTS,
) -> Choice:
    """Try `trials` points of a space on the held-out tasks; finished runs in `out` are read.

    All points have the `fixed` settings and are tried on the first seed, the best `finalists` of
    them on the other seeds too. The best of these in the mean is chosen. `by` is the metric.
    """
    points = points_of(space, trials, request.seed)
    if len(points) != trials:
        raise Mistake(
            f"{request.method}: its space has {len(points)} points, fewer than {trials} trials"
        )
    request = request.with_settings(fixed)
    usual = resolve(request, cross_validation=True)
    configs = configs_of(request, points, usual)
    rows, failures = run_all([runs[:1] for runs in configs], out, workers)
    leading = [points.index(row.settings or {}) for row in ranked(rows, points, 1, by)[:finalists]]
    finals, more = run_all([configs[i] for i in leading], out, workers)
    for place, row in zip(leading, finals, strict=True):
        rows[place] = row
    best_first = ranked(rows, points, request.seeds, by)
    if not best_first or len(best_first[0].seeds) < request.seeds:
        raise Mistake(
            f"{request.method} on {request.benchmark}: no point finished on every seed:"
            f" {(more or failures)[0]['reason']}"
        )
    failed = [point for row, point in zip(rows, points, strict=True) if row is None]
    tried = [_trial(row.settings or {}, row, by) for row in best_first]
    tried += [_trial(point, None, by) for point in failed]
    return Choice(fixed, space, best_first[0].settings or {}, tried)


def _trial(settings: Point, row: Row | None, by: Metric) -> dict[str, Any]:
    if row is None:
        return {"settings": settings, by.name: None, "seeds": []}
    return {"settings": settings, by.name: row.metrics[by.name], "seeds": row.seeds}
