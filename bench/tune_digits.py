"""Choose the settings of the digits for all methods with equal effort, and record how that was
done.

    python bench/tune_digits.py --out runs/tune

Every method gets the same number of trials: points drawn from its space, each learned on the
held-out tasks, on seeds that no run is measured on. Finished runs in --out are read, so a command
that was interrupted goes on where it was. The file that it writes is what the presets of the digits
are read from; it has the spaces, every trial, and the choice.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

from mdmt import benchmarks
from mdmt.experiments.presets import SPACES, TUNED
from mdmt.experiments.tune import choose
from mdmt.methods import METHODS
from mdmt.system.files import write_json

BENCHMARKS = ("permuted-digits", "split-digits")
TRIALS = 12
SEEDS = range(2001, 2003)  # runs are measured from 1234 on
FINE_LR = (0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5)
# Half of each held-out task: a convolutional network takes its time.
SUBSETS = {"split-digits": 350}
COARSE_LR = (0.01, 0.03, 0.1, 0.3)
# A decade to either side of where earlier runs stayed finite: in the wide space of `mdmt tune` most
# trials of MAS and PI
# came to numbers that were not, which is no equal chance.
STRENGTHS = {
    "ewc": (0.3, 1.0, 3.0, 10.0, 30.0),
    "mas": (0.01, 0.03, 0.1, 0.3, 1.0),
    "rwalk": (0.1, 0.3, 1.0, 3.0, 10.0),
    "pi": (0.0001, 0.0003, 0.001, 0.003, 0.01),
}
# The published definition of ER: as many old examples as new ones. There is no published row to
# model.
FIXED: dict[str, dict[str, Any]] = {"er": {"reading": "paper"}}


def space_of(method: str, heads: str) -> dict[str, tuple[Any, ...]]:
    """A fine grid of learning rates where a method has nothing else to choose, else a coarse one
    with the rest.
    """
    others = {
        key: STRENGTHS[method] if key == "strength" else cell.value
        for key, cell in SPACES[method].items()
        if key != "lr" and (key, heads) != ("task_margin", "shared")
    }
    return {"lr": COARSE_LR, **others} if others else {"lr": FINE_LR}


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", default="runs/tune", help="folder of the runs")
    parser.add_argument("--record", type=Path, default=TUNED, help="file to write")
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
            entry = choose(
                benchmark,
                method,
                FIXED.get(method, {}),
                space_of(method, heads),
                trials=options.trials,
                seeds=seeds,
                out=options.out,
                workers=options.workers or "auto",
                subset=options.subset or SUBSETS.get(benchmark),
            )
            chosen.setdefault(benchmark, {})[method] = entry
            print(f"  {entry['chosen']}", file=sys.stderr, flush=True)
    content = {
        "command": shlex.join(["python", "bench/tune_digits.py", *arguments]),
        "trials": options.trials,
        "seeds": list(seeds),
        "subsets": {name: options.subset or SUBSETS.get(name) for name in options.benchmarks},
        "benchmarks": chosen,
    }
    write_json(options.record, content)
    print(options.record)


if __name__ == "__main__":
    main(sys.argv[1:])
