"""`make bench`: time as ratios within one run, for results.json and docs/performance.md.

    python bench/speed.py [--only PART ...]

Parts: steps, resnet, evaluation, checkpoint, startup, growth, scale, ranks, and those of
`living.py`: answers, start, serving. Contestants take turns (`timing.py`); one thread. A step of
ours is `Learner.step` with the reading of its mini-batch, in the middle of a task with a full
memory.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import bare
import growth
import living
import mdmt
import scale
import two_ranks
from ours import Running, examples
from table import write
from timing import Peer, block_of, milliseconds, race, ratio

HERE = Path(__file__).parent
PEERS = HERE / ".peers/bin/python"
AVALANCHE = ("van", "ewc", "a-gem", "gem", "er")
Row = dict[str, Any]


def method(name: str, drawn: int, **more: Any) -> mdmt.Method:
    kind = mdmt.methods.METHODS[name]
    return (
        kind(reference_batch=drawn, **more)
        if "reference_batch" in kind().arguments
        else kind(**more)
    )


def step_row(name: str, drawn: int, peer: Peer | None) -> Row:
    """A method on the MLP, 10 new examples and so many old ones; GEM has so many of each of two
    past tasks.
    """
    stored = 2 * drawn if name == "gem" else 520
    rehearses = mdmt.methods.METHODS[name]().uses_memory
    samples = {"van": [10], "ewc": [10], "gem": [drawn, drawn, 10], "a-gem": [drawn, 10]}.get(
        name, [drawn + 10]
    )
    loop = bare.Loop(bare.mlp(), drawn=drawn, past=2, stored=stored)
    contestants = {
        "ours": block_of(Running(method(name, drawn), stored=stored)),
        "bare": block_of(getattr(loop, name.replace("-", "_"))),
        "floor": block_of(bare.mlp_products(*samples)),
    }
    if peer is not None and name in AVALANCHE:
        for data in ("floats", "pixels"):
            contestants[f"avalanche {data}"] = lambda data=data: peer.ask(
                what="step", method=name, drawn=drawn, data=data
            )
    times = race(contestants)
    what = f"{name}, 10 + {drawn}" if rehearses else f"{name}, 10"
    return compared(what, times)


def compared(what: str, times: dict[str, list[float]]) -> Row:
    row: Row = {"row": what, "ms": milliseconds(times["ours"])}
    for other in times:
        if other.startswith("avalanche"):
            row[f"{other} over ours"] = ratio(times[other], times["ours"])
        elif other != "ours":
            row[f"over {other}"] = ratio(times["ours"], times[other])
    return row


def steps() -> Iterator[Row]:
    """Every method on the MLP."""
    peer = Peer(PEERS, HERE / "avalanche_peer.py") if PEERS.exists() else None
    yield step_row("van", 10, peer)
    yield step_row("ewc", 10, peer)
    for drawn in (10, 256):
        for name in ("a-gem", "gem", "er", "mdmt-r"):
            yield step_row(name, drawn, peer)
    if peer is not None:
        peer.close()


def resnet() -> Iterator[Row]:
    """The reduced ResNet-18 on 32 x 32 images, 10 + 64."""
    shape = (3, 32, 32)
    for name in ("van", "er", "mdmt-r"):
        samples = {"van": [10], "er": [74]}.get(name, [64, 10])
        loops = {
            kind: bare.Loop(
                bare.BareResNet(), shape, features=160, drawn=64, channels_last=kind == "bare"
            )
            for kind in ("bare", "bare contiguous")
        }
        ours = Running(
            method(name, 64), backbone=mdmt.backbones.reduced_resnet18(), shape=shape, length=2000
        )
        times = race(
            {
                "ours": block_of(ours),
                **{
                    kind: block_of(getattr(loop, name.replace("-", "_")))
                    for kind, loop in loops.items()
                },
                "floor": block_of(bare.convolutions(*samples)),
            },
            seconds=12,
        )
        yield compared(f"{name}, 10 + 64" if name != "van" else "van, 10", times)


def evaluation() -> Iterator[Row]:
    """The accuracy on 5,000 test examples, against the products of the forward pass alone: the
    share of the floor's rate.
    """
    inputs, labels = examples(5000, (784,), 10, 9)
    running = Running(mdmt.MDMTR())
    learner = running.learner
    tested = mdmt.Task("task 2", inputs[:10], labels[:10], test=(inputs, labels), classes=range(10))
    times = race(
        {
            "ours": block_of(lambda: learner.evaluate(tested)),
            "floor": block_of(bare.mlp_products(5000, backward=False)),
        }
    )
    share = ratio(times["floor"], times["ours"])
    yield {
        "row": "evaluate 5,000 digits",
        "ms": milliseconds(times["ours"]),
        "of the floor's rate": share,
    }


def checkpoint() -> Iterator[Row]:
    """A checkpoint in the middle of a run, and the share of a run that checkpoints take."""
    running = Running(mdmt.MDMTR())
    for _ in range(20):
        running()
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(9):
            begin = time.perf_counter()
            running.learner.save(folder)
            seconds.append(time.perf_counter() - begin)
            running()
    cost = statistics.median(seconds)
    yield {
        "row": "checkpoint, MDMT-R on the MLP",
        "ms": cost * 1e3,
        "share of a run": cost / max(60, 50 * cost),
    }


def startup() -> Iterator[Row]:
    """Import in fresh processes, in turns; the fastest of each, for the disk's cache."""
    commands = {
        "mdmt": [sys.executable, "-c", "import mdmt"],
        "torch": [sys.executable, "-c", "import torch"],
    }
    if PEERS.exists():
        commands["avalanche"] = [str(PEERS), str(HERE / "avalanche_peer.py")]
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(4):
        for name, command in commands.items():
            begin = time.perf_counter()
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True)
            times[name].append(time.perf_counter() - begin)
    fastest = {name: min(values) for name, values in times.items()}
    row = {
        "row": "import mdmt",
        "ms": fastest["mdmt"] * 1e3,
        "over torch alone": fastest["mdmt"] / fastest["torch"],
    }
    if "avalanche" in fastest:
        row["avalanche over ours"] = fastest["avalanche"] / fastest["mdmt"]
    yield row


PARTS = {
    "steps": steps,
    "resnet": resnet,
    "evaluation": evaluation,
    "checkpoint": checkpoint,
    "startup": startup,
    "growth": growth.rows,
    "scale": scale.rows,
    "ranks": two_ranks.rows,
    **living.PARTS,
}


def main(default: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only",
        nargs="+",
        choices=PARTS,
        default=default,
        help="measure these parts; the others stay as they were",
    )
    parser.add_argument("--results", type=Path, default=HERE / "results.json")
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    results = (
        json.loads(wanted.results.read_text()) if wanted.only and wanted.results.exists() else {}
    )
    for name, part in PARTS.items():
        if wanted.only is None or name in wanted.only:
            begin = time.perf_counter()
            results[name] = []
            for row in part():
                results[name].append(row)
                print(
                    "  ".join(
                        f"{k} {v:.3g}" if isinstance(v, float) else f"{v}" for k, v in row.items()
                    ),
                    flush=True,
                )
            print(f"({name}: {time.perf_counter() - begin:.0f} s)", flush=True)
    results["machine"] = {
        "processor": mdmt_processor(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    wanted.results.write_text(json.dumps(results, indent=1) + "\n")
    write(results, HERE.parent / "docs/performance.md")


def mdmt_processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )


if __name__ == "__main__":
    main()
