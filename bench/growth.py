"""Does a step cost the same at task 10 as at task 2? One row per method but GEM and Joint, whose mathematics forbids it.

Two learners, one in its second task and one in its tenth, take steps in turns; the medians are compared.
"""

from __future__ import annotations

import statistics
import time

import torch

import mdmt
from mdmt.benchmarks import make
from mdmt.experiments.resolve import resolve
from mdmt.experiments.run import learner_for
from mdmt.methods import METHODS

ROUNDS, STEPS = 20, 10


def stepper(name: str, learned: int):
    """Steps of a method's preset in the task after so many learned ones of 300 digits each."""
    config = resolve("permuted-digits", name, tasks=10)
    learner, tasks = learner_for(config), []
    for task in make("permuted-digits", 1234, tasks=10):
        chosen = slice(None, None, 13)
        labels = [task.classes[i] for i in task.train.labels[chosen]]
        tasks.append(mdmt.Task(task.name, task.train.inputs[chosen], labels, classes=task.classes, view=task.view))
    learner.heads.kind = "shared"
    for task in tasks[:learned]:
        learner.learn(task)
    learner._open(tasks[learned], ())
    learner.model.backbone.train()
    batches = [learner.read(tasks[learned], torch.arange(i, i + learner.batch)) for i in range(0, 200, learner.batch)]

    def steps() -> float:
        start = time.perf_counter()
        for batch in batches[:STEPS]:
            learner.step(batch)
        return (time.perf_counter() - start) / STEPS * 1e3

    return steps


def main() -> None:
    torch.set_num_threads(1)
    print(f"{'method':8} {'task 2 ms':>10} {'task 10 ms':>10} {'ratio':>6}")
    for name in METHODS:
        if name not in ("gem", "joint"):
            early, late = stepper(name, 1), stepper(name, 9)
            pairs = [(early(), late()) for _ in range(ROUNDS)]
            a, b = (statistics.median(column) for column in zip(*pairs, strict=True))
            print(f"{name:8} {a:10.2f} {b:10.2f} {b / a:6.2f}", flush=True)


if __name__ == "__main__":
    main()
