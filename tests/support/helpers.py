"""What several tests share."""

import dataclasses

import pytest
import torch

import mdmt
from mdmt import benchmarks
from mdmt.errors import Mistake
from mdmt.experiments.presets import preset
from mdmt.methods import METHODS
from mdmt.runs.rows import Row, mean_std


def small_stream(name="split-digits", tasks=3, train=40, test=20, seed=1234, **more):
    """A benchmark's stream with a few examples of each task, evenly from its classes."""
    whole = benchmarks.make(name, seed, tasks=tasks, **more)
    made = []
    for task in whole:
        pick = torch.arange(0, len(task.train), len(task.train) // train)[:train]
        look = torch.arange(0, len(task.test), len(task.test) // test)[:test]
        names = [
            [task.classes[i] for i in e.labels[p]]
            for e, p in ((task.train, pick), (task.test, look))
        ]
        made.append(
            mdmt.Task(
                task.name,
                task.train.inputs[pick],
                names[0],
                test=(task.test.inputs[look], names[1]),
                classes=task.classes,
                view=task.view,
            )
        )
    return dataclasses.replace(whole, tasks=made)


def preset_learner(name, benchmark, seed, backbone, tasks, **settings):
    """A learner with the preset of a method on a benchmark."""
    values = preset(benchmark, name) | settings
    made = METHODS[name]
    arguments = {k: v for k, v in values.items() if k in made().arguments}
    reservoir = mdmt.memory.Reservoir(values["memory"] * 10 * tasks)
    kept = reservoir if values["policy"] == "Reservoir" else mdmt.memory.Ring(values["memory"])
    return mdmt.Learner(
        backbone, made(**arguments), memory=kept, lr=values["lr"], batch=values["batch"], seed=seed
    )


def outcome(learner):
    """Everything of a run that must not depend on interruptions."""
    r = learner.record
    return (
        r.accuracy,
        r.accuracy_task_free,
        r.curve,
        r.drift,
        r.dead_features,
        r.feature_rank,
        r.steps,
        r.weights_sha256,
        learner.model.sha256(),
    )


def some_row(**parts):
    """A row of two seeds of Split CIFAR."""
    common = {
        "benchmark": "split-cifar",
        "method": "van",
        "label": "van",
        "reading": None,
        "seeds": [1, 2],
        "reduced": None,
        "metrics": {
            name: mean_std([0.5, 0.7]) for name in ("A_T", "F_T", "LCA_10", "LTR", "A_free")
        },
        "published": None,
        "runs": ["a", "b"],
        "seconds": mean_std([1.0, 3.0]),
        "memory_bytes": 0,
    }
    return Row(**{**common, **parts})


def mistake(call, *args, **more):
    """The one line of the mistake that a call must raise."""
    with pytest.raises(Mistake) as raised:
        call(*args, **more)
    assert "\n" not in str(raised.value)
    return str(raised.value)
