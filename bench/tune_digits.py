"""Choose the settings of the digits with the same effort for every method.

    python bench/tune_digits.py --out runs/tune

Every method gets the same number of trials: points drawn from its space, each learned on the
held-out tasks, on seeds that no run is measured on. Finished runs in --out are read, so an
interrupted command can be run again. It writes two files: the presets of the digits, and a record
with the spaces, every trial and the choices.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import Any

from mdmt import benchmarks
from mdmt.experiments.presets import DIGITS, SPACES
from mdmt.experiments.tune import choose
from mdmt.methods import METHODS
from mdmt.runs.request import RunRequest
from mdmt.system.files import write_file, write_json

RECORD = Path(__file__).parents[1] / "results" / "tuned-digits.json"
BENCHMARKS = ("permuted-digits", "split-digits")
TRIALS = 12
SEEDS = range(2001, 2003)  # runs are measured from 1234 on
FINE_LR = (0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5)
# Half of each held-out task: a convolutional network takes its time.
SUBSETS = {"split-digits": 350}
COARSE_LR = (0.01, 0.03, 0.1, 0.3)
# A decade on either side of strengths with which earlier runs stayed finite: in the wide space of
# `mdmt tune` most trials of MAS and PI diverged, which would not be an equal chance.
STRENGTHS = {
    "ewc": (0.3, 1.0, 3.0, 10.0, 30.0),
    "mas": (0.01, 0.03, 0.1, 0.3, 1.0),
    "rwalk": (0.1, 0.3, 1.0, 3.0, 10.0),
    "pi": (0.0001, 0.0003, 0.001, 0.003, 0.01),
}
# ER as its paper defines it: as many old examples as new ones. No published row has to be met.
FIXED: dict[str, dict[str, Any]] = {"er": {"reading": "paper"}}


def space_of(method: str, heads: str) -> dict[str, tuple[Any, ...]]:
    """A fine grid of learning rates, or a coarse one if the method has more to choose."""
    others = {
        key: STRENGTHS[method] if key == "strength" else cell.value
        for key, cell in SPACES[method].items()
        if key != "lr" and (key, heads) != ("task_margin", "shared")
    }
    return {"lr": COARSE_LR, **others} if others else {"lr": FINE_LR}


def presets_text(chosen: dict[str, dict[str, Any]]) -> str:
    """The chosen settings as JSON, one method a line."""
    parts = []
    for benchmark, entries in chosen.items():
        lines = [
            f"  {json.dumps(method)}: {json.dumps({**entry['fixed'], **entry['chosen']})}"
            for method, entry in entries.items()
        ]
        parts.append(f" {json.dumps(benchmark)}: {{\n" + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", default="runs/tune", help="folder of the runs")
    parser.add_argument("--record", type=Path, default=RECORD, help="file for all trials")
    parser.add_argument("--presets", type=Path, default=DIGITS, help="file for the choices")
    parser.add_argument("--benchmarks", nargs="+", default=list(BENCHMARKS), choices=BENCHMARKS)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--subset", type=int, help="examples of a task, for a quick try")
    parser.add_argument("--workers", type=int, help="processes; one per core unless given")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> None:
    options = parse(arguments)
    seeds = range(SEEDS.start, SEEDS.start + options.seeds)
    chosen: dict[str, dict[str, Any]] = {}
    for benchmark in options.benchmarks:
        heads = benchmarks.find(benchmark).heads[0]
        for method in options.methods:
            print(f"{benchmark}, {method}: {options.trials} trials", file=sys.stderr, flush=True)
            request = RunRequest(
                benchmark,
                method,
                seed=seeds.start,
                seeds=len(seeds),
                subset=options.subset or SUBSETS.get(benchmark),
            )
            choice = choose(
                request,
                FIXED.get(method, {}),
                space_of(method, heads),
                trials=options.trials,
                out=options.out,
                workers=options.workers or "auto",
            )
            chosen.setdefault(benchmark, {})[method] = choice.to_json()
            print(f"  {choice.chosen}", file=sys.stderr, flush=True)
    content = {
        "command": shlex.join(["python", "bench/tune_digits.py", *arguments]),
        "trials": options.trials,
        "seeds": list(seeds),
        "subsets": {name: options.subset or SUBSETS.get(name) for name in options.benchmarks},
        "benchmarks": chosen,
    }
    write_json(options.record, content)
    write_file(options.presets, presets_text(chosen).encode())
    print(options.record)


if __name__ == "__main__":
    main(sys.argv[1:])
