"""Which method a living model should use: accuracy without the task, at equal memory and time.

    python bench/living_methods.py DATA [--only digits cifar] [--methods er ...] [--seeds 3]

Each method learns the same deliveries through `LivingModel`: the digits in five deliveries of two
classes, and the first ten tasks of Split CIFAR (50 classes) in ten. All classes share one head, all
methods have the same budget of bytes and draw as many old examples a step. Accuracy and calibration
error are those on the test images, and no task is given. Results are added to results/living.json;
a finished run is not repeated.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
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

RESULTS = Path(__file__).parents[1] / "results" / "living.json"
METHODS = ("er", "er-ace", "der++", "mdmt-r")
Labelled = tuple[torch.Tensor, NDArray[Any]]
STUDIES: dict[str, dict[str, Any]] = {
    "digits": {"memory": "250kB", "epochs": 5},
    "cifar": {"memory": "2.5MB", "epochs": 1},
}


def deliveries(study: str, seed: int, data: Path) -> Iterator[tuple[Labelled, Labelled]]:
    """Training and test examples of each delivery."""
    if study == "digits":
        stream = benchmarks.make("split-digits", seed=seed)
    else:
        stream = benchmarks.make("split-cifar", seed=seed, tasks=10, data=str(data))
    for task in stream:
        names = np.array(task.classes)
        pairs = []
        for part in (task.train, task.test):
            assert part is not None
            pairs.append((part.inputs[:], names[part.labels.numpy()]))
        yield pairs[0], pairs[1]


def learn(study: str, method: str, seed: int, data: Path) -> dict[str, Any]:
    """Teach all deliveries to a new model and test it after each."""
    settings = {**STUDIES[study], "method": method, "seed": seed}
    tests: list[Labelled] = []
    along, seconds, stored = [], 0.0, 0
    with tempfile.TemporaryDirectory() as folder:
        model = mdmt.LivingModel(folder)
        for number, (train, test) in enumerate(deliveries(study, seed, data)):
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
        "settings": {**defaults.settings_for(method), **STUDIES[study]},
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("--only", nargs="+", choices=list(STUDIES), default=list(STUDIES))
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    runs = json.loads(options.out.read_text()) if options.out.is_file() else []
    done = {(run["study"], run["method"], run["seed"]) for run in runs}
    for study in options.only:
        for seed in range(1234, 1234 + options.seeds):
            for method in options.methods:
                if (study, method, seed) in done:
                    continue
                runs.append(learn(study, method, seed, options.data))
                write_json(options.out, runs)
                print({key: runs[-1][key] for key in runs[-1] if key != "along"}, flush=True)


if __name__ == "__main__":
    main()
