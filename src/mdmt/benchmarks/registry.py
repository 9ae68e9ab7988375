"""The benchmarks by name, with everything that the rest of the package needs to know of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import mdmt.benchmarks.digits as digits
import mdmt.benchmarks.folder as folder
import mdmt.benchmarks.own as own
import mdmt.benchmarks.permuted_mnist as permuted_mnist
import mdmt.benchmarks.split_awa as split_awa
import mdmt.benchmarks.split_cifar as split_cifar
import mdmt.benchmarks.split_cub as split_cub
from mdmt.benchmarks.splits import HELD_OUT, TASKS, NetworkSpec
from mdmt.errors import Mistake
from mdmt.system.own_code import canonical, is_own, is_own_data
from mdmt.tasks import HeadKind, Stream


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A benchmark: its stream, its network, and the options that it takes."""

    name: str
    summary: str
    make: Callable[..., Stream]
    backbone: NetworkSpec
    tasks: int | None  # None: all that the data have
    limit: int  # the largest number of tasks
    classes_per_task: int
    heads: tuple[str, ...] = ("per-task", "shared")  # the possible kinds, the default first
    data: str = ""  # its data set; empty if the package has it, DIR for the user's own images
    # The fingerprint of the images in a folder, None for the published ones.
    fingerprint: Callable[[Any], str | None] | None = None
    held_out: int = 0  # further tasks, for choosing settings only
    most_held_out: int | None = None  # the largest number of them; None: `held_out`
    # The test examples of held-out tasks, if their classes are those of the other tasks.
    validation: str | None = None
    image_size: int | None = None  # the default; None if the size is fixed
    published_weights: bool = False  # whether the published runs started from ImageNet weights

    @property
    def has_images(self) -> bool:
        """Whether its inputs are images, which other convolutional networks can read."""
        return "channels" in self.backbone["arguments"]

    @property
    def is_own(self) -> bool:
        """Whether the data are the user's own, with no published results."""
        return is_own_data(self.name)

    def classes(self, data: str | None, tasks: int | None) -> int:
        """Count the classes of the first tasks, or of all; a class in two tasks counts twice."""
        if self.is_own:
            assert data is not None  # see check_options
            return folder.count_classes(data, tasks)
        assert tasks is not None  # only the user's own data have no default number
        return self.classes_per_task * tasks

    def check_options(
        self,
        *,
        data: str | None = None,
        image_size: int | None = None,
        weights: str | None = None,
        skip_broken: bool = False,
    ) -> None:
        """Refuse options that this benchmark does not have."""
        if self.is_own and data is None:
            layout = "DIR/task/class/*.jpg or *.png"
            raise Mistake(f"{self.name} needs --data DIR, the folder of your images: {layout}")
        if not self.data and data is not None:
            raise Mistake(f"{self.name} comes with the package: it takes no --data")
        if image_size is not None and self.image_size is None:
            raise Mistake(f"image_size={image_size}: {self.name} has images of a fixed size")
        if image_size is not None and image_size < 8:
            raise Mistake(f"image_size={image_size}: {self.name} needs 8 or more")
        if weights is not None and not self.has_images:
            others = ", ".join(b.name for b in BENCHMARKS.values() if b.has_images)
            raise Mistake(
                f"--weights is for the ResNet-18 of {others}; {self.name} has another network"
            )
        if skip_broken and self.data != "DIR":
            raise Mistake(
                f"--skip-broken is for your own images (folder); {self.name} must be complete"
            )

    def stream(
        self,
        seed: int,
        *,
        tasks: int | None,
        heads: str,
        data: str | None = None,
        subset: int | None = None,
        image_size: int | None = None,
        cross_validation: bool = False,
        skip_broken: bool = False,
        **more: Any,
    ) -> Stream:
        """Make the stream; options that this benchmark does not have are ignored."""
        if self.data:
            more["data"] = data
        if self.data == "DIR":
            more["skip_broken"] = skip_broken
        if self.image_size:
            more["image_size"] = image_size
        if self.held_out:
            more["cross_validation"] = cross_validation
        return self.make(seed, tasks=tasks, heads=heads, subset=subset, **more)


class OwnStream(Benchmark):
    """A user's own stream, named module:name."""

    def classes(self, data: str | None, tasks: int | None) -> int:
        """Count the classes of the first tasks, or of all; a class in two tasks counts twice."""
        return sum(len(task.classes) for task in own.read_stream(self.name).tasks[:tasks])

    def check_options(self, **options: Any) -> None:
        """Refuse all options except --weights, which a stream of images takes."""
        for name, value in options.items():
            if value and (name != "weights" or not self.has_images):
                raise Mistake(
                    f"--{name.replace('_', '-')} does not apply to your own stream {self.name}:"
                    " change the stream itself"
                )


def _net(name: str, **arguments: int | str) -> NetworkSpec:
    return {"name": name, "arguments": arguments}


HELD_OUT_IMAGES = "held-out images"
BENCHMARKS = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark(
            name="permuted-digits",
            summary="5,000 real MNIST digits, pixels reordered anew for each task",
            make=digits.permuted_digits,
            backbone=_net("mlp", inputs=784, width=256),
            tasks=digits.PERMUTATIONS,
            limit=permuted_mnist.LIMIT,
            classes_per_task=10,
            heads=("shared", "per-task"),
            held_out=HELD_OUT,
            most_held_out=permuted_mnist.LIMIT - digits.PERMUTATIONS,
            validation=HELD_OUT_IMAGES,
        ),
        Benchmark(
            name="split-digits",
            summary="the same digits as images, two classes a task",
            make=digits.split_digits,
            backbone=_net("reduced_resnet18", channels=1, width=5, norm_start="fast"),
            tasks=digits.PAIRS,
            limit=digits.PAIRS,
            classes_per_task=2,
            held_out=digits.PAIRS,
            validation=HELD_OUT_IMAGES,
        ),
        Benchmark(
            name="permuted-mnist",
            summary="MNIST, pixels reordered anew for each task",
            make=permuted_mnist.permuted_mnist,
            backbone=_net("mlp", inputs=784, width=256),
            tasks=TASKS,
            limit=permuted_mnist.LIMIT,
            classes_per_task=10,
            heads=("shared", "per-task"),
            data="mnist",
            held_out=HELD_OUT,
            most_held_out=permuted_mnist.LIMIT - TASKS,
            validation=HELD_OUT_IMAGES,
        ),
        Benchmark(
            name="split-cifar",
            summary="CIFAR-100, five classes a task",
            make=split_cifar.split_cifar,
            backbone=_net("reduced_resnet18", channels=3, width=20),
            tasks=TASKS,
            limit=TASKS,
            classes_per_task=5,
            data="cifar100",
            held_out=HELD_OUT,
        ),
        Benchmark(
            name="split-cub",
            summary="CUB-200-2011, ten birds a task",
            make=split_cub.split_cub,
            backbone=_net("resnet18", channels=3, width=64),
            tasks=TASKS,
            limit=TASKS,
            classes_per_task=10,
            data="cub",
            held_out=HELD_OUT,
            fingerprint=split_cub.cub_fingerprint,
            image_size=split_cub.IMAGE_SIZE,
            published_weights=True,
        ),
        Benchmark(
            name="split-awa",
            summary="Animals with Attributes 2, five animals a task, which come back",
            make=split_awa.split_awa,
            backbone=_net("resnet18", channels=3, width=64),
            tasks=TASKS,
            limit=TASKS,
            classes_per_task=5,
            data="awa2",
            held_out=HELD_OUT,
            fingerprint=split_awa.awa_fingerprint,
            image_size=split_awa.IMAGE_SIZE,
        ),
        Benchmark(
            name="folder",
            summary="your own images: DIR/task/class/*.jpg, with --data DIR",
            make=folder.folder,
            backbone=_net("reduced_resnet18", channels=3, width=20, norm_start="fast"),
            tasks=None,
            limit=10_000,
            classes_per_task=10,
            data="DIR",
            fingerprint=folder.folder_fingerprint,
            image_size=folder.IMAGE_SIZE,
        ),
    )
}


def make(name: str, seed: int = 1234, **arguments: Any) -> Stream:
    """Make the stream of a benchmark.

    >>> [task.name for task in make("split-digits", tasks=2)]
    ['digits 7 2', 'digits 9 1']
    """
    return find(name).make(seed, **arguments)


def find(name: str) -> Benchmark:
    """Look a benchmark up by name; module:name or file.py:name is a user's own stream."""
    if is_own(name):
        return own_stream(canonical(name))
    if name not in BENCHMARKS:
        known = ", ".join(BENCHMARKS)
        raise Mistake(
            f"benchmark {name!r} is not one of {known}; write your own stream as module:name"
        )
    return BENCHMARKS[name]


def own_stream(name: str) -> OwnStream:
    """Describe a user's own stream as a benchmark."""
    stream = own.read_stream(name)
    other: HeadKind = "shared" if stream.heads == "per-task" else "per-task"
    return OwnStream(
        name=name,
        summary="your own",
        make=partial(own.make_stream, name),
        backbone=own.network_for(stream),
        tasks=None,
        limit=len(stream),
        classes_per_task=0,
        heads=(stream.heads, other),
        fingerprint=lambda _: own.stream_fingerprint(name),
    )
