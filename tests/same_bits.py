"""Show that a change of the code changes no result, bit for bit.

    python tests/same_bits.py BASE        # every cell, this tree against the commit BASE
    python tests/same_bits.py --short     # a third of them, against tests/fixtures/same_bits.json
    python tests/same_bits.py --record    # write that file, from this tree

A cell is a method x a network x a way of learning: a stream of three tasks in one go (plain), the
same stream interrupted and resumed from a checkpoint (resumed), or two tasks and then more data of
the first (more). Weights, record and step log are compared. The configuration hash of each method
on the embedded benchmarks is compared too: it is the name of a run's folder, so a changed one loses
finished runs.

Weights have the same bits on one kind of processor only. `--short` compares bits where the file was
recorded on the same kind, and everywhere else the length of the weights in double precision. Some
cells multiply a rounding by millions, such as those of L1 distillation with its ties. How much is
measured here, by inputs that are a few roundings longer or shorter, and a cell may differ by
SAFETY times that.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import importlib.util
import io
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
RECORDED = ROOT / "tests" / "fixtures" / "same_bits.json"
NETWORKS = ("mlp-shared", "mlp-per-task", "resnet")
WAYS = ("plain", "resumed", "more")
BENCHMARKS = ("permuted-digits", "split-digits")
TOLERANCE = 1e-9  # of the length of the weights, in double precision
ROUNDINGS = (-6, -2, 2, 4)  # by which the inputs of a cell that differs are stretched
SAFETY = 10
STRETCHED = "stretched:"  # before the names of cells, in what a process is asked to measure
SETTINGS = {
    "ewc": {"window": 3, "strength": 5.0},
    "mas": {"strength": 1e-4},
    "rwalk": {"window": 3},
    "pi": {"strength": 0.01},
    "mer": {"replay": 2, "beta": 0.5, "gamma": 0.5},
}


class Interrupted(Exception):
    """Ends the learning in the middle of a task."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("base", nargs="?", help="the commit to compare with")
    parser.add_argument("--short", action="store_true", help="compare with the recorded hashes")
    parser.add_argument("--record", action="store_true", help="record the hashes of this tree")
    parser.add_argument("--measure", metavar="CELLS", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measure(given.measure)))
        return 0
    if given.record:
        return record()
    if given.short:
        return compare_with_recorded()
    if given.base is None:
        parser.error("name the commit to compare with, or --short")
    return compare_with_commit(given.base)


def compare_with_commit(base: str) -> int:
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(
            ["git", "archive", base, "src"], cwd=ROOT, capture_output=True, check=True
        ).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
        before = measured_by(Path(folder) / "src", "all")
    after = measured_by(ROOT / "src", "all")
    return report(before, after, base)


def compare_with_recorded() -> int:
    recorded = json.loads(RECORDED.read_text())
    now = measured_by(ROOT / "src", "short")
    if now["processor"] == recorded["processor"]:
        return report(recorded, now, f"mdmt {recorded['version']}")
    print(f"recorded on {recorded['processor']}: lengths of weights are compared, not bits")
    gaps = {
        name: abs(cell["length"] - recorded["cells"][name]["length"])
        for name, cell in now["cells"].items()
    }
    far = [name for name, cell in now["cells"].items() if gaps[name] > TOLERANCE * cell["length"]]
    if far:
        reach = measured_by(ROOT / "src", f"{STRETCHED}{','.join(far)}")
        for name in far:
            print(f"{name}: {gaps[name]:.1e} apart; a few roundings move it by {reach[name]:.1e}")
        far = [name for name in far if gaps[name] > SAFETY * reach[name]]
    for name in far:
        print(
            f"DIFFERS  {name}: {now['cells'][name]['length']}, recorded"
            f" {recorded['cells'][name]['length']}"
        )
    hashes = differing(recorded["configs"], now["configs"])
    for name in hashes:
        print(f"DIFFERS  configuration hash of {name}")
    print(
        f"{len(now['cells']) - len(far)} cells and {len(now['configs']) - len(hashes)}"
        " configuration hashes agree"
    )
    return 1 if far or hashes else 0


def record() -> int:
    now = measured_by(ROOT / "src", "short")
    RECORDED.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n")
    print(
        f"{len(now['cells'])} cells and {len(now['configs'])} configuration hashes recorded in"
        f" {RECORDED}"
    )
    return 0


def measured_by(source: Path, cells: str) -> dict:
    """What the package in `source` learns, in a process of its own."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(source),
        "OMP_NUM_THREADS": "1",
        "MDMT_EXPECTED": str(source),
    }
    command = [sys.executable, __file__, "--measure", cells]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def report(before: dict, after: dict, base: str) -> int:
    cells = differing(before["cells"], after["cells"])
    configs = differing(before["configs"], after["configs"])
    for name in cells:
        parts = differing(before["cells"].get(name, {}), after["cells"].get(name, {}))
        print(f"DIFFERS  {name}: {', '.join(parts)}")
    for name in configs:
        print(f"DIFFERS  configuration hash of {name}")
    total = len(before["cells"]), len(before["configs"])
    print(f"{total[0] - len(cells)} of {total[0]} cells have the same bits as {base}")
    print(f"{total[1] - len(configs)} of {total[1]} configuration hashes are the same")
    return 1 if cells or configs else 0


def differing(before: dict, after: dict) -> list[str]:
    return sorted(
        name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
    )


# In the process that measures: only names that every version has.


def measure(cells: str) -> dict:
    import torch

    import mdmt
    from mdmt.methods import METHODS

    assert Path(mdmt.__file__).is_relative_to(os.environ["MDMT_EXPECTED"]), mdmt.__file__
    torch.set_num_threads(1)
    if cells.startswith(STRETCHED):
        torch.set_default_dtype(torch.float64)
        names = cells.removeprefix(STRETCHED).split(",")
        return {name: moved_by_rounding(*name.split()) for name in names}
    chosen = [
        (method, network, way)
        for m, method in enumerate(METHODS)
        for n, network in enumerate(NETWORKS)
        for w, way in enumerate(WAYS)
        if cells == "all" or (m + n + w) % 3 == 0
    ]
    if cells == "short":
        torch.set_default_dtype(torch.float64)
    learned = {" ".join(cell): learn(*cell) for cell in chosen}
    torch.set_default_dtype(torch.float32)
    return {
        "version": mdmt.__version__,
        "processor": (
            f"{platform.machine()}, {processor()}, {torch.backends.cpu.get_cpu_capability()}"
        ),
        "cells": learned,
        "configs": configuration_hashes(list(METHODS)),
    }


def processor() -> str:
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        return names[0] if names else ""
    return platform.processor()


def moved_by_rounding(method: str, network: str, way: str) -> float:
    """How far the length of the weights moves if the inputs are stretched by a few roundings."""
    length = learn(method, network, way)["length"]
    stretched = [
        learn(method, network, way, (1 + number * sys.float_info.epsilon) / 255)["length"]
        for number in ROUNDINGS
    ]
    return max(abs(other - length) for other in stretched)


def learn(method: str, network: str, way: str, scale: float | None = None) -> dict:
    """`scale` is that of pixels, by default 1 / 255."""
    import mdmt

    tasks = [some_task(number, network) for number in range(3)]
    heads = "shared" if network == "mlp-shared" else "per-task"
    learner = new_learner(method, network, heads, scale)
    if way == "plain":
        learner.run(mdmt.Stream("stream", tasks, heads=heads))
    elif way == "resumed":
        learner = resumed(learner, mdmt.Stream("stream", tasks, heads=heads))
    else:
        for task in tasks[:2]:
            learner.learn(task)
        learner.learn(some_task(0, network, again=True), more=True)
    return fingerprints(learner)


def new_learner(method: str, network: str, heads: str, scale: float | None):
    import mdmt
    from mdmt.methods import METHODS

    kind = METHODS[method]
    settings = dict(SETTINGS.get(method, {}))
    if "reference_batch" in kind().arguments:
        settings["reference_batch"] = 12
    images = network == "resnet"
    return mdmt.Learner(
        mdmt.backbones.reduced_resnet18(1, 3) if images else mdmt.backbones.mlp(36, 16),
        kind(**settings),
        memory=mdmt.memory.Reservoir(40) if kind.policy == "Reservoir" else mdmt.memory.Ring(3),
        lr=0.02,
        heads=heads,
        seed=5,
        batch=1 if method == "mer" else 10,
        scale=scale,
    )


def some_task(number: int, network: str, again: bool = False):
    """A task of four classes; without images, those of all tasks have the same names."""
    import numpy as np

    import mdmt

    random = np.random.RandomState(10 * number + again)
    shape = (1, 8, 8) if network == "resnet" else (36,)
    centres = np.random.RandomState(100 + number).randint(0, 256, (4, *shape))
    labels = np.arange(62) % 4
    noise = random.randint(-60, 60, (62, *shape))
    x = np.clip(centres[labels] + noise, 0, 255).astype(np.uint8)
    test = (x[42:], labels[42:])
    return mdmt.Task(f"task {number}", x[:42], labels[:42], test=test)


def resumed(learner, stream):
    """Interrupt the learning in the second task and go on from the last checkpoint."""
    import mdmt

    last = learner.steps_of(stream[0]) + 3

    def stop(learner) -> None:
        if learner.record.steps == last:
            raise Interrupted

    with tempfile.TemporaryDirectory() as folder:
        every = mdmt_checkpoints()(folder, 1)
        with contextlib.suppress(Interrupted):
            learner.run(stream, on_step=stop, checkpoint=every)
        fresh = mdmt.Learner.load(folder)
        fresh.run(stream)
    return fresh


def mdmt_checkpoints():
    """The class wherever it lies: at the top until 0.1.0, in the room `learning` since."""
    room = "learning." if importlib.util.find_spec("mdmt.learning") else ""
    return importlib.import_module(f"mdmt.{room}checkpoints").Checkpoints


def fingerprints(learner) -> dict:
    record = learner.record
    measured = [
        record.accuracy,
        record.accuracy_task_free,
        record.curve,
        record.drift,
        record.tasks,
    ]
    measured += [record.steps, record.memory_bytes, record.buffer_bytes]
    seconds = 4  # the one column of the step log that differs between two equal runs
    rows = [list(map(float, row)) for row in learner.recorder.step_log]
    log = [[*row[:seconds], *row[seconds + 1 :]] for row in rows]
    return {
        "weights": record.weights_sha256,
        "model": learner.model.sha256(),
        "record": digest(json.dumps(measured)),
        "steps": digest(repr(log)),
        "length": float(learner.model.flat.detach().norm()),
    }


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def configuration_hashes(methods: list[str]) -> dict[str, str]:
    """The folder of a short run of each method, which its configuration names."""
    from mdmt.cli.app import main

    found = {}
    with tempfile.TemporaryDirectory() as out:
        for benchmark in BENCHMARKS:
            for method in methods:
                command = [
                    "run",
                    benchmark,
                    "--method",
                    method,
                    "--tasks",
                    "1",
                    "--subset",
                    "10",
                    "--out",
                    out,
                ]
                with (
                    contextlib.redirect_stdout(io.StringIO()) as text,
                    contextlib.redirect_stderr(io.StringIO()),
                ):
                    assert main([*command, "--json"]) == 0
                (folder,) = json.loads(text.getvalue())["runs"]
                found[f"{method} on {benchmark}"] = str(Path(folder).relative_to(out))
    return found


if __name__ == "__main__":
    sys.exit(main())
