"""The streams that runs are measured on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mdmt.benchmarks.digits import permuted_digits, split_digits
from mdmt.tasks import Stream


@dataclass(frozen=True)
class Benchmark:
    """A stream by name: how it is made from a seed, on which network, and how many tasks it has."""

    name: str
    summary: str
    make: Callable[..., Stream]
    backbone: dict[str, Any]
    tasks: int
    limit: int
    classes_per_task: int
    heads: tuple[str, ...]  # the kinds of heads it can have, the default first


BENCHMARKS = {
    b.name: b
    for b in (
        Benchmark(
            "permuted-digits", "5,000 real MNIST digits, pixels reordered anew for each task", permuted_digits,
            {"name": "mlp", "arguments": {"inputs": 784, "width": 256}},
            tasks=10, limit=1000, classes_per_task=10, heads=("shared", "per-task"),
        ),
        Benchmark(
            "split-digits", "the same digits as images, two classes a task", split_digits,
            {"name": "reduced_resnet18", "arguments": {"channels": 1, "width": 5}},
            tasks=5, limit=5, classes_per_task=2, heads=("per-task", "shared"),
        ),
    )
}  # fmt: skip


def make(name: str, seed: int = 1234, **arguments: Any) -> Stream:
    """The stream of a benchmark, by name.

    >>> [task.name for task in make("split-digits", tasks=2)]
    ['digits 7 2', 'digits 9 1']
    """
    return find(name).make(seed, **arguments)


def find(name: str) -> Benchmark:
    """A benchmark by name."""
    if name not in BENCHMARKS:
        raise ValueError(f"benchmark {name!r} is not one of {', '.join(BENCHMARKS)}")
    return BENCHMARKS[name]
