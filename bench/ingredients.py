"""Which ingredients pay, for each rehearsal method alike, on the held-out tasks of Split CIFAR.

    python bench/ingredients.py --data DIR --out runs/ingredients [--methods er mdmt-r] [--seeds 3]

Every method begins with the same base, ten old examples for ten new ones, and tries the same
ingredients, one at a time and a few together; only what other methods do not have is its own. The
tasks are the three held-out ones, on seeds that no run is measured on. Each finished trial is added
to results/ingredients.json, and a trial that is there is not repeated; of an interrupted one the
finished runs in --out are read. It prints the gain of each ingredient over the base, paired by
seed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from mdmt.experiments.resolve import resolve, with_seeds
from mdmt.experiments.sweep import run_all
from mdmt.metrics import A_FREE, A_T
from mdmt.runs.config import RunConfig
from mdmt.runs.record import versions
from mdmt.runs.request import RunRequest
from mdmt.runs.rows import Row
from mdmt.system.files import write_json

RECORD = Path(__file__).parents[1] / "results" / "ingredients.json"
SEEDS = range(2001, 2004)
Settings = dict[str, Any]
Trial = dict[str, Any]  # an entry of the record
BASE: Settings = {"reference_batch": 10}
INGREDIENTS: dict[str, Settings] = {
    "base": {},
    "average": {"average": 0.98},
    "average, three times the rate": {"average": 0.98, "lr": 0.1},
    "three times the rate": {"lr": 0.1},
    "statistics of the memory": {"statistics": "memory"},
    "crops": {"augment": "crop-flip"},
    "mirror image": {"mirror": True},
    "reservoir of classes": {"policy": "ClassReservoir"},
    "64 old examples": {"reference_batch": 64},
    "3 steps an example": {"repeats": 3},
    "3 steps an example, crops": {"repeats": 3, "augment": "crop-flip"},
    "review": {"review": 1},
    "shortening steps": {"last_step": 0.0},
    "warm-up": {"warm_up": 25},
    "AdamW": {"optimiser": "AdamW", "lr": 0.001},
    "nearest class mean": {"answer": "ncm"},
}
SMOOTHING: dict[str, Settings] = {"label smoothing": {"smoothing": 0.1}}
OWN: dict[str, dict[str, Settings]] = {
    "er": SMOOTHING,
    "er-ace": SMOOTHING,
    "mdmt-r": {
        "distillation of directions": {"distance": "cosine"},
        "no distillation": {"distance": "none"},
        "the average teaches": {"teacher": "average", "average": 0.98, "distance": "cosine"},
        "linear head": {"head": "linear"},
        "asymmetric competitors": {"competitors": "asymmetric"},
    },
    "der++": {**SMOOTHING, "a tenth of the logits": {"alpha": 0.03}},
}
METHODS = ("er", "er-ace", "der++", "mdmt-r")


def configs_of(
    method: str, settings: Settings, seeds: int, precision: str, data: str | None
) -> list[RunConfig]:
    """The runs of a trial."""
    request = RunRequest("split-cifar", method, data=data, precision=precision)
    first = resolve(request.with_settings(settings), cross_validation=True)
    return with_seeds(first, list(SEEDS)[:seeds])


def entry(
    method: str, ingredient: str, settings: Settings, precision: str, row: Row, failed: list[int]
) -> Trial:
    return {
        "method": method,
        "ingredient": ingredient,
        "settings": settings,
        "precision": precision,
        "seeds": row.seeds,
        "failed": failed,
        **{metric.name: row.metrics[metric.name] for metric in (A_T, A_FREE)},
        "seconds": row.seconds,
        "versions": versions(),
    }


def is_done(
    trials: list[Trial], method: str, settings: Settings, seeds: int, precision: str
) -> bool:
    wanted = (method, settings, precision, list(SEEDS)[:seeds])
    keys = ("method", "settings", "precision")
    return wanted in [
        (*(trial[key] for key in keys), sorted(trial["seeds"] + trial["failed"]))
        for trial in trials
    ]


def gain(trial: Trial, base: Trial, name: str) -> float:
    """The mean difference over the seeds that both have."""
    ours, theirs = (
        dict(zip(one["seeds"], one[name]["runs"], strict=True)) for one in (trial, base)
    )
    return statistics.fmean(ours[seed] - theirs[seed] for seed in ours if seed in theirs)


def show(trials: list[Trial], found: list[Trial]) -> None:
    bases = {trial["method"]: trial for trial in found if trial["ingredient"] == "base"}
    for trial in trials:
        base = bases[trial["method"]]
        cells = [
            f"{name} {100 * trial[name]['mean']:.2f} ({100 * gain(trial, base, name):+.2f})"
            for name in (A_T.name, A_FREE.name)
        ]
        seconds = f"{trial['seconds']['mean']:.0f} s"
        name = f"{trial['method']:8s} {trial['ingredient']:30s}"
        print(name, *cells, seconds, sep="  ", flush=True)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", help="folder of the data sets")
    parser.add_argument("--out", default="runs/ingredients", help="folder of the runs")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--only", nargs="+", help="these ingredients, besides the base")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), choices=range(1, len(SEEDS) + 1))
    parser.add_argument("--precision", default="bf16", help="bf16 takes half the time of fp32")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--record", type=Path, default=RECORD, help="file to write")
    options = parser.parse_args(arguments)
    found = json.loads(options.record.read_text()) if options.record.is_file() else []
    for method in options.methods:
        for ingredient, own in {**INGREDIENTS, **OWN.get(method, {})}.items():
            if options.only and ingredient not in ("base", *options.only):
                continue
            settings = {**BASE, **own}
            if is_done(found, method, settings, options.seeds, options.precision):
                continue
            configs = configs_of(method, settings, options.seeds, options.precision, options.data)
            (row,), failed = run_all([configs], options.out, options.workers)
            for run in failed:
                print(f"{run['label']}, seed {run['seed']}: {run['reason']}")
            if row is not None:
                broken = [run["seed"] for run in failed]
                found.append(entry(method, ingredient, settings, options.precision, row, broken))
                write_json(options.record, found)
                show(found[-1:], found)
    print()
    show(found, found)


if __name__ == "__main__":
    main(sys.argv[1:])
