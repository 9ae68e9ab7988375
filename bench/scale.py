"""Many runs: two local workers against one, and the overhead of a Ray cluster on this machine.

Times are those of the wall clock, so other work on the machine shows. The contestants take turns,
and the fastest time of each counts.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from mdmt.experiments.resolve import resolve
from mdmt.experiments.sweep import sweep
from mdmt.experiments.workers import Processes, Workers
from mdmt.runs.config import RunConfig
from mdmt.runs.request import RunRequest

Row = dict[str, Any]
RUNS, ROUNDS = 6, 3
ONE, TWO, RAY = "1 worker", "2 workers", "2 nodes of Ray, a core each"


def configs() -> list[RunConfig]:
    """The runs, of a second or two each."""
    first = resolve(RunRequest("permuted-digits", "er", tasks=2))
    return [replace(first, seed=seed) for seed in range(RUNS)]


def seconds_for(make_workers: Callable[[str], Workers]) -> float:
    """Seconds from the start of the first run to the end of the last."""
    with tempfile.TemporaryDirectory() as out:
        workers = make_workers(out)
        begin = time.perf_counter()
        for outcome in sweep(configs(), out, workers):
            if outcome.record is None:
                raise RuntimeError(outcome.reason)
        return time.perf_counter() - begin


def rows() -> Iterator[Row]:
    kinds: dict[str, Callable[[str], Workers]] = {
        ONE: lambda out: Processes(out, 1),
        TWO: lambda out: Processes(out, 2),
    }
    with nodes() as address:
        if address is not None:
            from mdmt.experiments.cluster import Cluster

            kinds[RAY] = lambda out: Cluster(address, out)
        # Starts processes and loads torch.
        seconds = {name: [seconds_for(make)] for name, make in kinds.items()}
        for _ in range(ROUNDS):
            for name, make in kinds.items():
                seconds[name].append(seconds_for(make))
    for name, taken in seconds.items():
        fastest = min(taken)
        row = {
            "row": f"er on permuted-digits, 2 tasks; {name}",
            "runs a minute": 60 * RUNS / fastest,
            "over 1 worker": min(seconds[ONE]) / fastest,
        }
        if name == RAY:
            row["more seconds a run than 2 workers"] = (fastest - min(seconds[TWO])) / RUNS
        yield row


@contextmanager
def nodes() -> Iterator[str | None]:
    """The address of a cluster on this machine; None without Ray."""
    try:
        from ray.cluster_utils import Cluster as Nodes
    except ImportError:
        yield None
        return
    started = Nodes(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    try:
        started.add_node(num_cpus=1)
        yield started.address
    finally:
        started.shutdown()
