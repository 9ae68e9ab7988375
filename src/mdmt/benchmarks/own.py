"""A user's own stream, named module:name, or one in the memory of this process.

The name is a Stream, a list of tasks, or a function that returns one of them; a function with a
parameter gets the seed.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import inspect
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Literal

import torch

import mdmt.system.own_code as own_code
from mdmt.benchmarks.splits import NetworkSpec, draw_rows, reductions
from mdmt.errors import Mistake
from mdmt.tasks import HeadKind, Stream, Task

SEED = 1234  # of the stream that describes the benchmark before any run
SMALLEST = 8  # pixels of an image that a ResNet can read
SPLITS: tuple[Literal["train", "test"], ...] = ("train", "test")
USUAL = ("seen", False, None)  # evaluate, per_class and scale of a stream


_in_memory: dict[str, Stream] = {}


@contextmanager
def named(stream: Stream) -> Iterator[str]:
    """A name for a stream in memory, under which this process finds it."""
    plain = re.sub(r"[^\w.-]+", "-", stream.name)[:100]
    name = f"{own_code.IN_MEMORY}:{plain}"
    _in_memory[name] = stream
    try:
        yield name
    finally:
        del _in_memory[name]


def read_stream(name: str, seed: int = SEED) -> Stream:
    """Find or load the stream; a loaded one is made once per seed."""
    if not own_code.is_in_memory(name):
        return _loaded_stream(name, seed, own_code.version("stream", name))
    if name not in _in_memory:
        raise Mistake(
            f"{name} was a stream in the memory of a program: run that program again, or write the"
            " stream as module:name"
        )
    return _in_memory[name]


@cache
def _loaded_stream(name: str, seed: int, version: str | None) -> Stream:
    given = own_code.load("stream", name)
    if callable(given):
        try:
            given = given(seed) if inspect.signature(given).parameters else given()
        except Exception as error:
            raise own_code.refusal("stream", name, "made", error) from error
    if isinstance(given, Stream):
        return given
    if isinstance(given, Sequence) and given and all(isinstance(task, Task) for task in given):
        return Stream(name, given)
    raise Mistake(
        f"stream {name!r} is a {type(given).__name__}: it must be an mdmt.Stream or a list of"
        " mdmt.Task"
    )


def make_stream(
    name: str, seed: int, tasks: int | None, heads: HeadKind, subset: int | None
) -> Stream:
    """Make the stream, or its first tasks, with at most `subset` training examples of each."""
    stream = read_stream(name, seed)
    if tasks is not None and tasks > len(stream):
        raise Mistake(f"tasks={tasks}: {name} has {len(stream)}")
    chosen = [copy.copy(task) for task in stream.tasks[:tasks]]
    if subset is not None:
        for number, task in enumerate(chosen):
            task.train = task.train.subset(draw_rows(task.train.labels, subset, seed, number))
    shorter = None if len(chosen) == len(stream) else len(chosen)
    less = reductions(tasks=shorter, subset=subset)
    return dataclasses.replace(stream, tasks=chosen, heads=heads, reduced=less)


def network_for(stream: Stream) -> NetworkSpec:
    """The spec of a network for its inputs: a reduced ResNet-18 for images, else an MLP."""
    shape = tuple(stream[0].train.inputs.shape[1:])
    if len(shape) == 3 and shape[0] in (1, 3) and min(shape[1:]) >= SMALLEST:
        return {
            "name": "reduced_resnet18",
            "arguments": {"channels": shape[0], "width": 20, "norm_start": "fast"},
        }
    return {"name": "mlp", "arguments": {"inputs": math.prod(shape), "width": 256}}


def stream_fingerprint(name: str) -> str:
    """A hash of all that the stream teaches."""
    if own_code.is_in_memory(name):
        return _fingerprint(read_stream(name))
    return _loaded_fingerprint(name, own_code.version("stream", name))


@cache
def _loaded_fingerprint(name: str, version: str | None) -> str:
    return _fingerprint(read_stream(name))


def _fingerprint(stream: Stream) -> str:
    """A hash of names, classes, labels and inputs as they are learned, and of unusual settings."""
    digest = hashlib.sha256()
    for number, task in enumerate(stream):
        digest.update(repr((task.name, task.classes)).encode())
        if stream.order is not None:
            digest.update(stream.order(number, len(task.train)).numpy().tobytes())
        for split in SPLITS:
            examples = task.train if split == "train" else task.test
            if examples is None:
                continue
            digest.update(examples.labels.numpy().tobytes())
            for rows in torch.arange(len(examples)).split(1000):
                inputs = task.inputs(split, rows)
                digest.update(inputs.cpu().contiguous().numpy().tobytes())
    settings = (stream.evaluate, stream.per_class, stream.scale)
    if settings != USUAL:
        digest.update(repr(settings).encode())
    if stream.mean is not None:
        digest.update(stream.mean.numpy().tobytes())
    return digest.hexdigest()
