"""What a method costs: the time of a training step and of an inference, and the bytes that each holds."""

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

from mdmt.benchmarks.splits import draw
from mdmt.experiments.config import RunConfig
from mdmt.experiments.held import Made, Saved
from mdmt.experiments.resolve import resolve
from mdmt.experiments.run import learner_for
from mdmt.learner import Learner
from mdmt.published import table
from mdmt.tasks import Stream, Task

WARM_UP = 3  # steps and inferences that are not timed
STILL = 1e-9  # the learning rate while measuring: no setting can make numbers overflow, and a step costs the same

Row = dict[str, Any]


def measure(config: RunConfig, stream: Stream, steps: int = 10) -> Row:
    """Milliseconds and bytes of a method at the last task of a stream, with the memory as full as it is there.

    Milliseconds are medians over so many steps: of a whole step of Algorithm 1, and of `predict` for one mini-batch.
    Bytes are counted, not read off the process. Training: `parameters` (P); `buffers`, what the method and the optimiser
    remember from step to step; `memory` (M) and `representations` (F) at the end of the stream; `vectors`, gradients and
    whatever else a step makes that is as long as P or a multiple; `activations`, every storage that autograd keeps for the
    backward pass, inputs as the network sees them among them, parameters not. Inference: `parameters`, and as `activations`
    all that it makes. Vectors and activations are the most that is there at one time; `total` is the sum. What a kernel needs
    inside, and batch norm's statistics, are not counted.
    """
    torch.set_num_threads(config.threads)
    learner = learner_for(replace(config, lr=STILL))
    small = _small(stream, config, steps)
    _fill(learner, small)
    times: list[float] = []
    held: dict[str, int] = {}

    def after_step(learner: Learner) -> None:
        assert learner.task is not None
        times.append(learner.record.seconds)
        if learner.step_in_task == learner.steps_of(learner.task):
            held.update(_held_in_step(learner))

    learner.run(small, on_step=after_step)
    lasting = [after - before for before, after in pairwise(times)][-steps:]
    inference_ms, made = _inference(learner, small.tasks[-1], steps)
    training = {**_held_between_steps(learner), **held}
    inference = {"parameters": training["parameters"], "activations": made}
    return {
        "label": config.label,
        "method": config.method,
        "batch": learner.batch,
        "step_ms": 1e3 * statistics.median(lasting),
        "inference_ms": inference_ms,
        "training": {**training, "total": sum(training.values())},
        "inference": {**inference, "total": sum(inference.values())},
        "published": published_cost(config),
    }


def _small(stream: Stream, config: RunConfig, steps: int) -> Stream:
    """The stream with as many examples as fill the memory and, in the last task, as are timed; nothing to evaluate."""
    memory, tasks = config.memory, len(stream)
    made = []
    for number, task in enumerate(stream, 1):
        kept = memory["per_class"] * len(task.classes) if "per_class" in memory else -(-memory["size"] // tasks)
        count = max(kept, config.batch) if number < tasks else (WARM_UP + steps) * config.batch
        index = draw(task.train.labels, count, config.seed, number)
        if number == tasks:
            index = index[torch.arange(count) % len(index)]  # over again, where there are not as many
        part = copy.copy(task)
        part.train, part.test = task.train.subset(index), None
        made.append(part)
    return replace(stream, tasks=made)


def _fill(learner: Learner, stream: Stream) -> None:
    """Learn all tasks but the last by plain steps: the memory fills, and no time goes into rehearsal."""
    method = learner.method
    before = method.arrange(stream).tasks[:-1]
    if before:
        vars(method)["step"] = lambda batch: learner.apply(method.grad(batch)[1])
        learner.run(replace(stream, tasks=before))
        del vars(method)["step"]


def _held_in_step(learner: Learner) -> dict[str, int]:
    """Bytes of vectors and activations: one more step of the current task, watched."""
    method, flat = learner.method, learner.model.flat
    assert learner.task is not None
    batch = learner.read(learner.task, torch.arange(learner.batch))
    lasting = _remembered(learner)
    before = sum(t.nbytes for t in lasting)
    saved, made = Saved(flat), Made(flat, lambda t: t.numel() > 0 and t.numel() % flat.numel() == 0)
    for tensor in lasting:
        made.note(tensor)  # a step may replace it: then the two are never counted both, unless both are there
    del lasting
    with saved, made:
        method.step(batch)
        method.after_step(batch)
    return {"vectors": max(0, made.most - before), "activations": saved.most}


def _held_between_steps(learner: Learner) -> dict[str, int]:
    """Bytes that last from step to step."""
    memory = learner.memory.bytes
    return {
        "parameters": learner.model.flat.nbytes,
        "buffers": sum(t.nbytes for t in _remembered(learner)),
        "memory": sum(count for name, count in memory.items() if name != "features"),
        "representations": memory["features"],
    }


def _remembered(learner: Learner) -> list[Tensor]:
    """What the method and the optimiser remember."""
    return [*learner.method.state()[0].values(), *learner.optimiser.state()[0].values()]


def _inference(learner: Learner, task: Task, steps: int) -> tuple[float, int]:
    """Milliseconds of one inference, and the most bytes that it makes and holds at one time."""
    inputs = task.inputs("train", torch.arange(learner.batch))

    def once() -> None:
        learner.predict(inputs, task=task.name)

    seconds = statistics.median([_seconds(once) for _ in range(WARM_UP + steps)][WARM_UP:])
    with Made(learner.model.flat) as made:
        once()
    return 1e3 * seconds, made.most


def _seconds(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def published_cost(config: RunConfig) -> dict[str, Any] | None:
    """The paper's formulas and, for batches of its size on its network and images, its milliseconds; None: not listed."""
    row = table("cost")["rows"].get(config.method)
    if row is None:
        return None
    milliseconds = row["inference_ms"].get(config.benchmark)
    if milliseconds is not None:
        usual = resolve(config.benchmark, config.method)
        alike = all(getattr(config, key) == getattr(usual, key) for key in ("batch", "heads", "backbone", "image_size"))
        milliseconds = milliseconds if alike else None
    return {**{key: row[key] for key in ("memory_training", "memory_testing")}, "inference_ms": milliseconds}
