"""Timing in turns: contestants alternate in short blocks, so a busy machine slows all of them.

A ratio is the median, over all rounds, of the quotient of two blocks that were timed side by side.
Steps are timed with the clock of the process, which stops while another process has the core: with
one thread that never waits, this is the time on an idle machine.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Step = Callable[[], Any]
Block = Callable[[], float]  # does some steps and returns the seconds of one

BLOCK_SECONDS = 0.02
ROUNDS = 25
SECONDS = 4.0  # the limit for all rounds of a race


def block_of(step: Step) -> Block:
    """A block with as many steps as fit; the first steps warm up and are not timed."""
    step()
    start = time.perf_counter()
    step()
    count = max(1, round(BLOCK_SECONDS / (time.perf_counter() - start)))

    def block() -> float:
        begin = time.process_time()
        for _ in range(count):
            step()
        return (time.process_time() - begin) / count

    return block


class Peer:
    """Another library in its own process: each line of input asks for a block of steps."""

    def __init__(self, python: Path, script: Path) -> None:
        self.process = subprocess.Popen(
            [python, script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ask(self, **question: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process of the other library ended at {question}")
        return json.loads(line)

    def close(self) -> None:
        self.process.communicate()


def race(
    blocks: dict[str, Block], rounds: int = ROUNDS, seconds: float = SECONDS
) -> dict[str, list[float]]:
    """Seconds of a step of each contestant, by round; slow steps get fewer rounds, at least 5."""
    for block in blocks.values():
        block()
    times: dict[str, list[float]] = {name: [] for name in blocks}
    start = time.perf_counter()
    for done in range(rounds):
        if done >= 5 and time.perf_counter() - start > seconds:
            break
        for name, block in blocks.items():
            times[name].append(block())
    return times


def milliseconds(times: list[float]) -> float:
    return statistics.median(times) * 1e3


def ratio(over: list[float], under: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(over, under, strict=True))
