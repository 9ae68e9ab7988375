"""The report of 60 runs (12 methods, 5 seeds, 17 tasks): time with and without cached t-SNE, size.

The runs are made of random numbers, with features of 256 numbers for 100 examples, as real runs
have.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from mdmt.methods import METHODS
from support.run_folders import leave


def main() -> None:
    with tempfile.TemporaryDirectory() as out:
        for method in METHODS:
            for seed in range(1234, 1239):
                leave(f"{out}/runs", method, seed, tasks=17, features=256, sample=100)
        command = [
            sys.executable,
            "-m",
            "mdmt",
            "report",
            f"{out}/runs",
            "--out",
            f"{out}/report.html",
        ]
        for what in ("t-SNE computed", "t-SNE cached"):
            start = time.perf_counter()
            subprocess.run(
                command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            size = Path(out, "report.html").stat().st_size / 1e6
            print(
                f"60 runs, {what}: {time.perf_counter() - start:5.1f} s, {size:.1f} MB", flush=True
            )


if __name__ == "__main__":
    main()
