"""Apply each bug of this folder to a copy of the package and show that the tests turn red on it.

A mutant is a file `name.mutant`: a line of prose that says which bug it is, `file:` the module,
`tests:` a pytest expression that selects the tests that should notice, then the text to find and
the text to put in its place, each after a line of dashes. The plain copy must pass all of them
first. A mutant `protection-name` removes a protection of docs/reliability.md; its `tests:` is one
test, `FILE::TEST`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


@dataclass
class Mutant:
    name: str
    bug: str
    module: str
    tests: str
    old: str
    new: str


def read(path: Path) -> Mutant:
    head, old, new = path.read_text().split("\n----\n")
    bug, module, tests = head.splitlines()
    return Mutant(
        path.stem,
        bug,
        module.removeprefix("file: "),
        tests.removeprefix("tests: "),
        old.strip("\n"),
        new.strip("\n"),
    )


FILES = (
    "methods/test_battery.py",
    "methods/test_methods.py",
    "methods/test_answering.py",
    "core/test_memory.py",
    "core/test_losses.py",
    "core/test_metrics.py",
    "core/test_learner.py",
    "core/test_ranks.py",
    "inputs/test_devices.py",
)


def passes(source: Path, tests: str) -> bool:
    """Run the selected tests, or those that are named, against a copy of the package."""
    selected = tests.split() if "::" in tests else ["-k", tests, *(f"tests/{f}" for f in FILES)]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, *selected],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode not in (
        0,
        1,
    ):  # no test selected, or pytest itself failed: that shows nothing
        raise SystemExit(
            f"pytest could not run {tests!r}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    return done.returncode == 0


def main() -> int:
    chosen = [
        read(path)
        for path in sorted(HERE.glob("*.mutant"))
        if not sys.argv[1:] or path.stem in sys.argv[1:]
    ]
    survivors = []
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        expressions = sorted({f"({m.tests})" for m in chosen if "::" not in m.tests})
        named = sorted({m.tests for m in chosen if "::" in m.tests})
        everything = [" or ".join(expressions), " ".join(named)]
        if not all(passes(source, tests) for tests in everything if tests):
            raise SystemExit("the tests fail without any mutant: mend that first")
        for mutant in chosen:
            path = source / "mdmt" / mutant.module
            text = path.read_text()
            if text.count(mutant.old) != 1:
                raise SystemExit(
                    f"{mutant.name}: its text stands {text.count(mutant.old)} times in"
                    f" {mutant.module}, not once"
                )
            path.write_text(text.replace(mutant.old, mutant.new))
            survived = passes(source, mutant.tests)
            path.write_text(text)
            survivors += [mutant.name] * survived
            print(
                f"{'SURVIVED' if survived else 'killed  '}  {mutant.name}: {mutant.bug}", flush=True
            )
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} mutants killed")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
