"""What several test files use."""

import dataclasses

import torch

import mdmt
from mdmt import benchmarks


def small_stream(name="split-digits", tasks=3, train=40, test=20, **more):
    """A benchmark's stream with a few examples of each task."""
    whole = benchmarks.make(name, 1234, tasks=tasks, **more)
    made = []
    for task in whole:
        pick = torch.arange(0, len(task.train), len(task.train) // train)[:train]
        look = torch.arange(0, len(task.test), len(task.test) // test)[:test]
        names = [[task.classes[i] for i in e.labels[p]] for e, p in ((task.train, pick), (task.test, look))]
        made.append(
            mdmt.Task(
                task.name, task.train.inputs[pick], names[0], test=(task.test.inputs[look], names[1]),
                classes=task.classes, view=task.view,
            )
        )  # fmt: skip
    return dataclasses.replace(whole, tasks=made)
