"""A step of MDMT-R on the reduced ResNet-18, 10 + 64, by two ranks and by one process.

Both are timed by the wall clock, since ranks wait for each other: the machine should be idle and
have two cores. The work of a rank itself is also measured, with the clock of its process, which
stops while another process has the core.

Run as a program, this file is the two ranks: each line of stdin asks for some steps.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import mdmt
import mdmt.ranks as ranks
from ours import Running
from timing import Peer, milliseconds, race, ratio

STEPS = 2  # of a block
SHAPE = (3, 32, 32)


def running() -> Running:
    backbone = mdmt.backbones.reduced_resnet18()
    return Running(mdmt.MDMTR(reference_batch=64), backbone=backbone, shape=SHAPE, length=2000)


def timed(step: Running) -> list[float]:
    """Seconds of one step by the wall clock and by the clock of this process."""
    wall = time.perf_counter()
    own = time.process_time()
    for _ in range(STEPS):
        step()
    return [(time.perf_counter() - wall) / STEPS, (time.process_time() - own) / STEPS]


def rows() -> Iterator[dict[str, Any]]:
    peer = Peer(Path(sys.executable), Path(__file__))
    alone = running()
    own: dict[str, list[float]] = {"one": [], "two": []}

    def block(name: str, times: list[float]) -> float:
        own[name].append(times[1])
        return times[0]

    times = race(
        {
            "one": lambda: block("one", timed(alone)),
            "two": lambda: block("two", peer.ask(steps=STEPS)),
        },
        seconds=30,
    )
    peer.close()
    yield {
        "row": "mdmt-r, 10 + 64",
        "ms, one process": milliseconds(times["one"]),
        "ms, two ranks": milliseconds(times["two"]),
        "two over one": ratio(times["two"], times["one"]),
        "a rank's own time over one": ratio(own["two"], own["one"]),
    }


def serve() -> None:
    torch.set_num_threads(1)
    with ranks.group():
        step = running()
        while ranks.first(sys.stdin.readline):
            answer = timed(step)
            if ranks.rank() == 0:
                print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    if ranks.was_launched():
        serve()
    else:
        os.execv(  # noqa: S606 (a shell would add nothing)
            sys.executable,
            [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", __file__],
        )
