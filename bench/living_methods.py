"""Which method a living model should use: accuracy without the task, at equal memory and time.

    python bench/living_methods.py DATA --tune       # choose the settings of each method
    python bench/living_methods.py DATA              # measure the methods with them
    python bench/living_methods.py --table           # write docs/living-model.md's tables of them

Each method learns the same deliveries through `LivingModel`: the digits in five deliveries of two
classes, and the first ten tasks of Split CIFAR (50 classes) in ten. All classes share one head, all
methods have the same budget of bytes and draw as many old examples a step. Accuracy and calibration
error are those on the test images, and no task is given. Results are added to results/living.json;
a finished run is not repeated.

`--tune` tries thirteen settings of each method on data that no result is measured on: the three
held-out tasks of Split CIFAR (15 other classes), and digits that are left out of the tests, on
another seed and with 100 images a class. Six of them fill the memory at a delivery's end, six at
its beginning; DER++, whose stored logits come from learning, has six more of its own. The best of
these is tried once more with an averaged network. All trials are in results/living-tuned.json. Each
method is measured with the trial that has the best mean of both accuracies.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import mdmt
import mdmt.benchmarks as benchmarks
import mdmt.living.calibration as calibration
import mdmt.living.defaults as defaults
from mdmt.system.files import write_json

RESULTS = Path(__file__).parents[1] / "results"
PAGE = RESULTS.parent / "docs" / "living-model.md"
BEGIN, END = "<!-- living methods -->", "<!-- end of living methods -->"
MEASURED = RESULTS / "living.json"
TUNED = RESULTS / "living-tuned.json"
METHODS = ("er", "er-ace", "der++", "mdmt-r")
Labelled = tuple[torch.Tensor, NDArray[Any]]
STUDIES: dict[str, dict[str, Any]] = {
    "digits": {"memory": "250kB", "epochs": 5},
    "cifar": {"memory": "2.5MB", "epochs": 1},
}
BENCHMARKS: dict[str, tuple[str, dict[str, Any]]] = {
    "digits": ("split-digits", {}),
    "cifar": ("split-cifar", {"tasks": 10}),
}
HELD_OUT: dict[str, dict[str, Any]] = {
    "digits": {"cross_validation": True, "subset": 200},
    "cifar": {"cross_validation": True, "tasks": 3},
}
TUNING_SEED = 2001
# Twelve trials for each: the learning rate alone, or with the setting that matters most, and when
# the memory is filled.
Trial = dict[str, Any]
RATES: list[Trial] = [{"lr": lr} for lr in (0.02, 0.05, 0.1, 0.2, 0.3, 0.5)]
SCALES: list[Trial] = [{"lr": lr, "scale": s} for lr in (0.03, 0.1, 0.2) for s in (16.0, 32.0)]
DARK: list[Trial] = [{"lr": lr, "alpha": a} for lr in (0.03, 0.1, 0.2) for a in (0.03, 0.3)]
FIRST = {"memory": "BalancedFirst"}
TRIALS: dict[str, list[Trial]] = {
    "er": RATES + [{**trial, **FIRST} for trial in RATES],
    "er-ace": RATES + [{**trial, **FIRST} for trial in RATES],
    "der++": DARK + [{**trial, "beta": beta} for trial in DARK[2:5] for beta in (0.5, 2.0)],
    "mdmt-r": SCALES + [{**trial, **FIRST} for trial in SCALES],
}
AVERAGE = {"average": 0.98}


def deliveries(
    study: str, seed: int, data: Path, held_out: bool
) -> Iterator[tuple[Labelled, Labelled]]:
    """Training and test examples of each delivery."""
    name, arguments = BENCHMARKS[study]
    if held_out:
        arguments = HELD_OUT[study]
    if study == "cifar":
        arguments = {**arguments, "data": str(data)}
    for task in benchmarks.make(name, seed=seed, **arguments):
        names = np.array(task.classes)
        pairs = []
        for part in (task.train, task.test):
            assert part is not None
            pairs.append((part.inputs[:], names[part.labels.numpy()]))
        yield pairs[0], pairs[1]


def learn(
    study: str, method: str, seed: int, data: Path, trial: Trial, held_out: bool = False
) -> dict[str, Any]:
    """Teach all deliveries to a new model with the settings of a trial; test it after each."""
    own = {**defaults.SETTINGS, **defaults.settings_for(method), **trial}
    defaults.MEMORIES[method] = getattr(mdmt.memory, own.pop("memory", "Balanced"))
    defaults.ARGUMENTS[method] = {key: own[key] for key in own if key not in defaults.SETTINGS}
    settings = {"lr": own["lr"], **STUDIES[study], "method": method, "seed": seed}
    tests: list[Labelled] = []
    along, seconds, stored = [], 0.0, 0
    with tempfile.TemporaryDirectory() as folder:
        model = mdmt.LivingModel(folder)
        for number, (train, test) in enumerate(deliveries(study, seed, data, held_out)):
            start = time.process_time()
            given = settings if number == 0 else {"epochs": settings["epochs"]}
            lesson = model.learn(train, name=f"delivery {number + 1}", **given)
            seconds += time.process_time() - start
            stored = max(stored, lesson.stored_bytes)
            tests.append(test)
            inputs = torch.cat([images for images, _ in tests])
            labels = np.concatenate([classes for _, classes in tests])
            shares = model.predict_proba(inputs)
            column = {label: place for place, label in enumerate(model.classes)}
            right = np.array([column[label] for label in labels.tolist()])
            along.append(float((shares.argmax(1) == right).mean()))
        error = calibration.calibration_error(shares, right)
    return {
        "study": study,
        "method": method,
        "seed": seed,
        "accuracy": along[-1],
        "along": along,
        "calibration": error,
        "seconds": round(seconds, 1),
        "bytes": stored,
        "settings": {**own, **STUDIES[study]},
        "trial": trial,
    }


def read_runs(place: Path) -> list[dict[str, Any]]:
    """The runs that are finished."""
    return json.loads(place.read_text()) if place.is_file() else []


def add_run(runs: list[dict[str, Any]], place: Path, run: dict[str, Any]) -> None:
    """Add a finished run to the file."""
    runs.append(run)
    write_json(place, runs)
    print({key: run[key] for key in run if key not in ("along", "settings")}, flush=True)


def tune(methods: list[str], studies: list[str], data: Path) -> None:
    """Try the settings of each method, and print the best."""
    for method in methods:
        for trial in TRIALS[method]:
            try_out(method, trial, studies, data)
        try_out(method, averaged(method), studies, data)
    for method in methods:
        print(f"{method}: {best_trial(method)}")


def try_out(method: str, trial: Trial, studies: list[str], data: Path) -> None:
    for study in studies:
        if not any(found(run, study, method, trial) for run in read_runs(TUNED)):
            run = learn(study, method, TUNING_SEED, data, trial, held_out=True)
            add_run(read_runs(TUNED), TUNED, run)


def averaged(method: str) -> Trial:
    """The best of the other trials, with an averaged network."""
    return {**best_of(method, TRIALS[method]), **AVERAGE}


def best_trial(method: str) -> Trial:
    """The settings with the best mean accuracy over the studies that were tried."""
    return best_of(method, [*TRIALS[method], averaged(method)])


def best_of(method: str, trials: list[Trial]) -> Trial:
    runs = read_runs(TUNED)
    means = [
        np.mean([run["accuracy"] for run in runs if found(run, None, method, trial)])
        for trial in trials
    ]
    return trials[int(np.argmax(means))]


def found(run: dict[str, Any], study: str | None, method: str, trial: Trial) -> bool:
    """Whether this is the run of a trial, in one study or in any."""
    same_study = study is None or run["study"] == study
    return same_study and run["method"] == method and run["trial"] == trial


TITLES = {
    "digits": "Digits, ten classes in five deliveries, five passes over each, 250 kB",
    "cifar": "CIFAR-100, fifty classes in ten deliveries, one pass over each, 2.5 MB",
}


def tables(runs: list[dict[str, Any]]) -> str:
    """What was measured, a table for each study, the most accurate method first."""
    parts = []
    for study, title in TITLES.items():
        rows = []
        for method in METHODS:
            mine = [run for run in runs if (run["study"], run["method"]) == (study, method)]
            if mine:
                rows.append((mean(mine, "accuracy"), method, mine))
        lines = [
            "| method | settings | accuracy (%) | calibration error (%) | seconds | kB | seeds |",
            "|---|---|---:|---:|---:|---:|---:|",
        ]
        lines += [row(method, mine) for _, method, mine in sorted(rows, reverse=True)]
        parts.append(f"**{title}**\n\n" + "\n".join(lines))
    return "\n\n".join(parts)


def row(method: str, runs: list[dict[str, Any]]) -> str:
    """A method's line: mean and standard deviation over seeds."""
    spread = np.std([run["accuracy"] for run in runs])
    settings = ", ".join(f"{key} {value}" for key, value in runs[0]["trial"].items())
    cells = [
        f"`{method}`",
        settings.replace("BalancedFirst", "filled first"),
        f"{100 * mean(runs, 'accuracy'):.1f} ± {100 * spread:.1f}",
        f"{100 * mean(runs, 'calibration'):.1f}",
        f"{mean(runs, 'seconds'):.0f}",
        f"{max(run['bytes'] for run in runs) / 1000:.0f}",
        str(len(runs)),
    ]
    return f"| {' | '.join(cells)} |"


def mean(runs: list[dict[str, Any]], name: str) -> float:
    return float(np.mean([run[name] for run in runs]))


def write_tables(page: Path = PAGE) -> None:
    before, _, rest = page.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    page.write_text(f"{before}{BEGIN}\n\n{tables(read_runs(MEASURED))}\n\n{END}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("data", type=Path, metavar="DATA", nargs="?", default=Path("data"))
    parser.add_argument("--only", nargs="+", choices=list(STUDIES), default=list(STUDIES))
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tune", action="store_true", help="choose settings on held-out data")
    parser.add_argument("--table", action="store_true", help="write the tables; learn nothing")
    options = parser.parse_args()
    if options.table:
        write_tables()
        return
    torch.set_num_threads(1)
    if options.tune:
        tune(options.methods, options.only, options.data)
        return
    seeds = range(1234, 1234 + options.seeds)
    for study, seed, method in product(options.only, seeds, options.methods):
        done = [(run["study"], run["method"], run["seed"]) for run in read_runs(MEASURED)]
        if (study, method, seed) not in done:
            run = learn(study, method, seed, options.data, best_trial(method))
            add_run(read_runs(MEASURED), MEASURED, run)


if __name__ == "__main__":
    main()
