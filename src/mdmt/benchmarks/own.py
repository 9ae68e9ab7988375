"""A user's own stream, named module:name.

The name is a Stream, a list of tasks, or a function that returns one of them; a function with a
parameter gets the seed.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import inspect
import math
from collections.abc import Sequence
from functools import cache

import mdmt.system.own_code as own_code
from mdmt.benchmarks.splits import NetworkSpec, draw_rows, reductions
from mdmt.errors import Mistake
from mdmt.tasks import HeadKind, Stream, Task

SEED = 1234  # of the stream that describes the benchmark before any run
SMALLEST = 8  # pixels of an image that a ResNet can read


@cache
def read_stream(name: str, seed: int = SEED) -> Stream:
    """Load the stream; it is made once per seed."""
    given = own_code.load("stream", name)
    if callable(given):
        given = given(seed) if inspect.signature(given).parameters else given()
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


@cache
def stream_fingerprint(name: str) -> str:
    """A hash of the names, classes, labels and inputs of all tasks."""
    digest = hashlib.sha256()
    for task in read_stream(name):
        digest.update(repr((task.name, task.classes)).encode())
        for examples in (task.train, task.test):
            if examples is None:
                continue
            digest.update(examples.labels.numpy().tobytes())
            for start in range(0, len(examples), 1000):
                digest.update(
                    examples.inputs[start : start + 1000].cpu().contiguous().numpy().tobytes()
                )
    return digest.hexdigest()
