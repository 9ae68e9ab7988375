"""The streams that runs are measured on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mdmt.benchmarks import digits, folder, permuted_mnist, split_awa, split_cifar, split_cub
from mdmt.errors import Mistake
from mdmt.tasks import Stream


@dataclass(frozen=True)
class Benchmark:
    """A stream by name: how it is made from a seed, on which network, and how many tasks it has."""

    name: str
    summary: str
    make: Callable[..., Stream]
    backbone: dict[str, Any]
    tasks: int | None  # None: as many as there are
    limit: int
    classes_per_task: int
    heads: tuple[str, ...] = ("per-task", "shared")  # the kinds of heads it can have, the default first
    data: str = ""  # the data set it is made of, when it does not come with the package
    held_out: int = 0  # further tasks, for choosing settings; the others have no part in that
    image_size: int | None = None  # the size images are brought to, where that can be chosen


def _net(name: str, **arguments: int) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


BENCHMARKS = {
    b.name: b
    for b in (
        Benchmark(
            "permuted-digits", "5,000 real MNIST digits, pixels reordered anew for each task", digits.permuted_digits,
            _net("mlp", inputs=784, width=256), 10, 1000, 10, ("shared", "per-task"), held_out=3,
        ),
        Benchmark(
            "split-digits", "the same digits as images, two classes a task", digits.split_digits,
            _net("reduced_resnet18", channels=1, width=5), 5, 5, 2,
        ),
        Benchmark(
            "permuted-mnist", "MNIST, pixels reordered anew for each task", permuted_mnist.permuted_mnist,
            _net("mlp", inputs=784, width=256), 17, 1000, 10, ("shared", "per-task"), "mnist", held_out=3,
        ),
        Benchmark(
            "split-cifar", "CIFAR-100, five classes a task", split_cifar.split_cifar,
            _net("reduced_resnet18", channels=3, width=20), 17, 17, 5, data="cifar100", held_out=3,
        ),
        Benchmark(
            "split-cub", "CUB-200-2011, ten birds a task", split_cub.split_cub,
            _net("resnet18", channels=3, width=64), 17, 17, 10, data="cub", held_out=3, image_size=224,
        ),
        Benchmark(
            "split-awa", "Animals with Attributes 2, five animals a task, which come back", split_awa.split_awa,
            _net("resnet18", channels=3, width=64), 17, 17, 5, data="awa2", held_out=3, image_size=224,
        ),
        Benchmark(
            "folder", "your own images: DIR/task/class/*.jpg, with --data DIR", folder.folder,
            _net("reduced_resnet18", channels=3, width=20), None, 10_000, 10, data="DIR", image_size=64,
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
        raise Mistake(f"benchmark {name!r} is not one of {', '.join(BENCHMARKS)}")
    return BENCHMARKS[name]
