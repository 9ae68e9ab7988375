"""The cost of a method: time and memory of a training step and of an inference.

Milliseconds are medians over several steps: of a whole step of Algorithm 1, and of `predict` for
one mini-batch. Bytes are counted, not read off the process.

Training: `parameters` (P); `buffers`, the state of the method and the optimiser; `memory` (M) and
`representations` (F) at the end of the stream; `vectors`, gradients and other tensors of a step
whose length is that of P or a multiple; `activations`, every storage that autograd keeps for the
backward pass, including the network's inputs but not the parameters. Inference: `parameters`, and
as `activations` every tensor that it makes. Vectors and activations are peaks; `total` is the sum.
The work space of kernels and the statistics of batch norm are not counted.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mdmt.benchmarks.splits import draw_rows
from mdmt.experiments.resolve import find_method, resolve
from mdmt.experiments.run import learner_for
from mdmt.learner import Learner
from mdmt.methods.base import Method
from mdmt.network.gradients import Gradients
from mdmt.published import table
from mdmt.runs.config import RunConfig
from mdmt.runs.request import RunRequest
from mdmt.tasks import Batch, Stream, Task

WARM_UP = 3  # steps and inferences that are not timed
# The learning rate while measuring: numbers cannot overflow, and a step costs the same.
STILL = 1e-9

CostRow = dict[str, Any]  # as --json prints it


def measure(
    config: RunConfig, stream: Stream, steps: int = 10, *, is_reduced: bool = False
) -> CostRow:
    """Milliseconds and bytes of a method at the last task of a stream, with the memory full."""
    torch.set_num_threads(config.threads)
    last = len(stream) - 1
    method = quick_before(last, find_method(config.method))(**config.arguments)
    learner = learner_for(replace(config, lr=STILL), method)
    small = _small(stream, config, steps)
    times, step_bytes = _watched_run(learner, small)
    durations = [after - before for before, after in pairwise(times)][-steps:]
    inference_ms, activations = _inference(learner, small.tasks[-1], steps)
    training = {**_lasting_bytes(learner), **step_bytes}
    inference = {"parameters": training["parameters"], "activations": activations}
    return {
        "label": config.label,
        "method": config.method,
        "batch": learner.batch,
        "step_ms": 1e3 * statistics.median(durations),
        "inference_ms": inference_ms,
        "training": {**training, "total": sum(training.values())},
        "inference": {**inference, "total": sum(inference.values())},
        "published": published_cost(config, is_reduced),
    }


def _watched_run(learner: Learner, stream: Stream) -> tuple[list[float], dict[str, int]]:
    """Learn a stream; returns the time after each step, and the bytes of one more step."""
    times: list[float] = []
    step_bytes: dict[str, int] = {}

    def after_step(learner: Learner) -> None:
        assert learner.task is not None
        times.append(learner.record.seconds)
        is_last_task = learner.current == len(stream) - 1
        if is_last_task and learner.step_in_task == learner.steps_of(learner.task):
            step_bytes.update(_bytes_of_step(learner))

    learner.run(stream, on_step=after_step)
    return times, step_bytes


def _small(stream: Stream, config: RunConfig, steps: int) -> Stream:
    """The stream with just enough examples to fill the memory, and to time in the last task."""
    memory, tasks = config.memory, len(stream)
    small = []
    for number, task in enumerate(stream, 1):
        kept = (
            memory["per_class"] * len(task.classes)
            if "per_class" in memory
            else -(-memory["size"] // tasks)
        )
        count = max(kept, config.batch) if number < tasks else (WARM_UP + steps) * config.batch
        index = draw_rows(task.train.labels, count, config.seed, number)
        if number == tasks:
            # Repeat the examples if the task has too few.
            index = index[torch.arange(count) % len(index)]
        part = copy.copy(task)
        part.train, part.test = task.train.subset(index), None
        small.append(part)
    return replace(stream, tasks=small)


def quick_before(last: int, method: type[Method]) -> type[Method]:
    """The method with plain steps until the last task: they fill the memory without rehearsal."""

    class Quick(method):  # type: ignore[valid-type,misc]
        def step(self, batch: Batch) -> None:
            if self.learner.current < last:
                self.learner.apply(self.grad(batch)[1])
            else:
                super().step(batch)
            # Wait for the accelerator: its work is part of the step's time.
            self.learner.recorder.read_pending()

    return Quick


def _bytes_of_step(learner: Learner) -> dict[str, int]:
    """Peak bytes of vectors and activations in one more step of the current task."""
    flat = learner.model.flat
    assert learner.task is not None
    batch = learner.read(learner.task, torch.arange(learner.batch))
    remembered = _remembered(learner)
    before = sum(tensor.nbytes for tensor in remembered)
    activations = AutogradPeak(flat)
    vectors = AllocationPeak(
        flat, lambda tensor: tensor.numel() > 0 and tensor.numel() % flat.numel() == 0
    )
    for tensor in remembered:
        vectors.track(tensor)  # a step may replace it: both count while both exist
    del remembered
    # By autograd, which can be watched; gradients by hand take the same bytes.
    usual = learner.gradients
    learner.gradients = Gradients(learner.model, learner.method)
    with activations, vectors:
        learner.step(batch)
    learner.gradients = usual
    return {"vectors": max(0, vectors.peak - before), "activations": activations.peak}


def _lasting_bytes(learner: Learner) -> dict[str, int]:
    """Bytes that are held from step to step."""
    memory = learner.memory.bytes
    return {
        "parameters": learner.model.flat.nbytes,
        "buffers": sum(tensor.nbytes for tensor in _remembered(learner)),
        "memory": sum(count for name, count in memory.items() if name != "features"),
        "representations": memory["features"],
    }


def _remembered(learner: Learner) -> list[Tensor]:
    """The tensors in the state of the method and the optimiser."""
    return [*learner.method.state()[0].values(), *learner.optimiser.state()[0].values()]


def _inference(learner: Learner, task: Task, steps: int) -> tuple[float, int]:
    """Milliseconds and peak bytes of one inference."""
    inputs = task.inputs("train", torch.arange(learner.batch))

    def predict() -> None:
        learner.predict(inputs, task=task.name)

    seconds = statistics.median([_seconds(predict) for _ in range(WARM_UP + steps)][WARM_UP:])
    with AllocationPeak(learner.model.flat) as activations:
        predict()
    return 1e3 * seconds, activations.peak


def _seconds(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def published_cost(config: RunConfig, is_reduced: bool = False) -> CostRow | None:
    """The paper's formulas and milliseconds for a method, or None if it is not listed there.

    Milliseconds are left out unless batch, network and images are those of the paper.
    """
    row = table("cost")["rows"].get(config.method)
    if row is None:
        return None
    milliseconds = row["inference_ms"].get(config.benchmark)
    if milliseconds is not None:
        usual = resolve(RunRequest(config.benchmark, config.method), like=config)
        alike = all(
            getattr(config, key) == getattr(usual, key)
            for key in ("batch", "heads", "backbone", "image_size")
        )
        milliseconds = milliseconds if alike and not is_reduced else None
    return {
        **{key: row[key] for key in ("memory_training", "memory_testing")},
        "inference_ms": milliseconds,
    }


class PeakBytes:
    """Peak bytes of the tracked tensors; a storage counts once, that of `exclude` never."""

    def __init__(self, exclude: Tensor) -> None:
        self.excluded = exclude.untyped_storage().data_ptr()
        self.sizes: dict[StorageWeakRef, int] = {}
        self.peak = 0

    def track(self, tensor: Tensor) -> None:
        """Count a tensor's storage from now until nothing uses it any more."""
        storage = tensor.untyped_storage()
        if storage.data_ptr() == self.excluded:
            return
        self.sizes = {ref: size for ref, size in self.sizes.items() if not ref.expired()}
        self.sizes[StorageWeakRef(storage)] = storage.nbytes()
        self.peak = max(self.peak, sum(self.sizes.values()))


class AutogradPeak(PeakBytes, saved_tensors_hooks):
    """Peak bytes of the tensors that autograd saves for the backward pass."""

    def __init__(self, exclude: Tensor) -> None:
        PeakBytes.__init__(self, exclude)
        saved_tensors_hooks.__init__(self, self.pack, lambda tensor: tensor)

    def pack(self, tensor: Tensor) -> Tensor:
        """Track a saved tensor; detached, since one with a history would never be freed."""
        self.track(tensor)
        return tensor.detach()


class AllocationPeak(PeakBytes, TorchDispatchMode):
    """Peak bytes of those results of operations that `counts` accepts."""

    def __init__(
        self, exclude: Tensor, counts: Callable[[Tensor], bool] = lambda tensor: True
    ) -> None:
        PeakBytes.__init__(self, exclude)
        TorchDispatchMode.__init__(self)
        self.counts = counts

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do the operation and track its results."""
        results = func(*args, **(kwargs or {}))
        for result in tree_leaves(results):
            if isinstance(result, Tensor) and self.counts(result):
                self.track(result)
        return results
