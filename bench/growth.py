"""Growth of step time and memory with tasks, stored examples and classes, as ratios."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

import mdmt
from mdmt.memory import Reservoir
from ours import Running
from timing import Block, block_of, milliseconds, race, ratio

Row = dict[str, Any]


def rows() -> Iterator[Row]:
    yield from tasks()
    yield from stored()
    yield from classes()


def compared(what: str, blocks: dict[int, Block], megabytes: dict[int, float]) -> list[Row]:
    times = race(blocks)
    first = next(iter(blocks))
    return [
        {
            "row": f"{what} {n:,}",
            "ms": milliseconds(times[n]),
            "over the first": ratio(times[n], times[first]),
            "memory, MB": megabytes[n],
        }
        for n in blocks
    ]


def megabytes(running: Running) -> float:
    return sum(running.learner.memory.bytes.values()) / 1e6


def tasks() -> list[Row]:
    """A fixed memory of 100 examples a task, 10 + 100."""
    found = []
    for method in (mdmt.MDMTR, mdmt.AGEM):
        runs = {
            n: Running(method(reference_batch=100), learned=n - 1, stored=100 * (n - 1))
            for n in (2, 10, 50)
        }
        sizes = {n: megabytes(run) for n, run in runs.items()}
        found += compared(
            f"{method.name}, step at task", {n: block_of(run) for n, run in runs.items()}, sizes
        )
    runs = {n: Running(mdmt.GEM(), learned=n - 1, stored=100 * (n - 1)) for n in (2, 10, 50)}
    sizes = {n: megabytes(run) for n, run in runs.items()}
    return [
        *found,
        *compared(
            "gem, 100 a task, step at task", {n: block_of(run) for n, run in runs.items()}, sizes
        ),
    ]


def stored() -> list[Row]:
    """Choosing 256 of many stored examples, reading them, and a step of ER with them."""
    memories = {count: full_memory(count) for count in (10**3, 10**4, 10**5, 10**6)}
    sizes = {count: sum(memory.bytes.values()) / 1e6 for count, memory in memories.items()}
    runs = {}
    for count, memory in memories.items():
        runs[count] = Running(mdmt.ER(reference_batch=256))
        runs[count].learner.memory = memory
    choices = {
        n: block_of(lambda memory=memory: memory.choose(256)) for n, memory in memories.items()
    }
    draws = {
        n: block_of(lambda memory=memory: memory.sample(256)) for n, memory in memories.items()
    }
    return [
        *compared("choose 256 of", choices, sizes),
        *compared("draw 256 of", draws, sizes),
        *compared("er, step with stored", {n: block_of(run) for n, run in runs.items()}, sizes),
    ]


def full_memory(count: int) -> Reservoir:
    """A reservoir in the middle of a long stream, when few new examples enter."""
    memory = Reservoir(count)
    memory.generator = np.random.default_rng(1)
    inputs = torch.randint(0, 256, (1000, 784), dtype=torch.uint8).repeat(count // 1000, 1)
    labels = torch.zeros(count, dtype=torch.int64)
    tensors = {
        "inputs": inputs,
        "labels": labels,
        "tasks": labels.clone(),
        "available": torch.arange(count),
    }
    memory.load_state(tensors, {"state": {**memory.state()[1]["state"], "count": 1000 * count}})
    return memory


def classes() -> list[Row]:
    """MDMT-R, 10 + 100, with many classes in one head."""
    runs = {
        n: Running(mdmt.MDMTR(reference_batch=100), learned=1, stored=max(n, 500), classes=n)
        for n in (10, 100, 1000, 10_000)
    }
    sizes = {n: megabytes(run) for n, run in runs.items()}
    return compared(
        "mdmt-r, step with classes", {n: block_of(run) for n, run in runs.items()}, sizes
    )
