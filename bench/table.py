"""All twelve methods on all the digits: permuted-digits, 5 tasks, 3 seeds, two processes. About ten minutes."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from statistics import fmean, pstdev

from mdmt.experiments.config import resolve
from mdmt.experiments.run import run
from mdmt.methods import METHODS

SEEDS = (1234, 1235, 1236)


def one(method: str, seed: int):
    record = run(resolve("permuted-digits", method, seed=seed, tasks=5), "runs/bench")
    return record["metrics"], record["seconds"]


def main() -> None:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        asked = {name: [pool.submit(one, name, seed) for seed in SEEDS] for name in METHODS}
        print(f"{'method':8} {'A_T (%)':>14} {'F_T':>14} {'LCA_10':>14} {'LTR':>14} {'seconds':>8}")
        for name, futures in asked.items():
            metrics, seconds = zip(*(f.result() for f in futures), strict=True)
            cells = []
            for key, factor, digits in (("A_T", 100, 2), ("F_T", 1, 3), ("LCA_10", 1, 3), ("LTR", 1, 3)):
                values = [m[key] for m in metrics]
                mean = None if None in values else f"{fmean(values) * factor:.{digits}f}"
                cells.append("-" if mean is None else f"{mean} ± {pstdev(values) * factor:.{digits}f}")
            print(f"{name:8} " + " ".join(f"{c:>14}" for c in cells) + f" {fmean(seconds):8.1f}", flush=True)


if __name__ == "__main__":
    main()
