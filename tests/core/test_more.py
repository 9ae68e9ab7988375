"""More data for a task learned before: same classes, same rows, same space in memory."""

import numpy as np
import pytest
import torch

import mdmt
from mdmt.methods import METHODS
from support.helpers import mistake, outcome, small_stream


def split(task, classes=None):
    """A task's first half, and its second half with the classes in another order."""
    halves = []
    for part, names in (
        (slice(0, None, 2), task.classes),
        (slice(1, None, 2), classes or task.classes[::-1]),
    ):
        index = torch.arange(len(task.train))[part]
        labels = [task.classes[i] for i in task.train.labels[index]]
        test = (task.test.inputs, [task.classes[i] for i in task.test.labels])
        halves.append(
            mdmt.Task(task.name, task.train.inputs[index], labels, test=test, classes=names)
        )
    return halves


def learner(method="mdmt-r", memory=None, **more):
    made = METHODS[method]()
    if "reference_batch" in made.arguments:
        made = METHODS[method](reference_batch=8)
    return mdmt.Learner(
        mdmt.backbones.mlp(784, 16),
        made,
        memory=mdmt.memory.Ring(4) if memory is None else memory,
        seed=1,
        **more,
    )


def test_more_data_teach_the_same_rows():
    stream = small_stream(tasks=2, train=80)
    (first, more), (other, _) = split(stream[0]), split(stream[1])
    known = learner("van", lr=0.1, epochs=3)
    known.learn(first)
    known.learn(other)
    rows = [task.rows.tolist() for task in known.tasks]
    accuracy = known.evaluate(first)[0]
    curve = [*known.record.curve[0]]
    known.learn(more, more=True)
    assert [task.rows.tolist() for task in known.tasks] == rows
    # Labels mean the same classes, in whatever order they came.
    assert known.evaluate(first)[0] > max(accuracy, 0.8)
    assert known.current == 1
    assert [task["train"] for task in known.record.tasks] == [80, 40]
    assert [len(row) for row in known.record.accuracy] == [1, 2]
    assert known.record.accuracy[-1][0] == known.evaluate(first)[0]
    assert known.record.curve[0] == curve
    assert known.record.steps == 36


@pytest.mark.parametrize("method", METHODS)
def test_every_method_takes_more_data_and_goes_on_after_a_crash(method, tmp_path):
    if method == "joint":
        pytest.skip("learns all tasks at once")
    stream = small_stream(tasks=3, train=40)
    first, more = split(stream[0])

    class Crash(Exception):
        pass

    def crash(learner):
        if learner.step_in_task == 1:
            learner.save(tmp_path / "model")
            raise Crash

    made = []
    for crashes in (False, True):
        known = learner(method)
        known.learn(first)
        known.learn(stream[1])
        if crashes:
            with pytest.raises(Crash):
                known.learn(more, more=True, on_step=crash)
            known = mdmt.Learner.load(tmp_path / "model")
            assert known.current == 0
            known.learn(more, earlier=[first, stream[1]])
        else:
            known.learn(more, more=True)
        known.learn(stream[2])
        made.append(known)
    assert outcome(made[1]) == outcome(made[0])
    assert len(made[0].record.accuracy) == 3


@pytest.mark.parametrize("policy", ["Ring", "TaskRing", "AtTaskEnd", "Reservoir", "ClassReservoir"])
def test_memory_does_not_grow_with_more_data(policy):
    stream = small_stream(tasks=3, train=40)
    first, more = split(stream[0])
    memory = mdmt.memory.make(
        {"policy": policy, "size" if policy.endswith("Reservoir") else "per_class": 4}
    )
    known = learner("er", memory)
    known.learn(first)
    known.learn(stream[1])
    size, used = len(memory), sum(memory.bytes.values())
    for _ in range(3):
        known.learn(more, more=True)
        assert len(memory) == size
        assert sum(memory.bytes.values()) == used
    if policy in ("Ring", "TaskRing"):  # the newest are kept
        held = memory.by_task(before=1)[0].inputs.flatten(1).unique(dim=0)
        new = more.train.inputs.flatten(1)
        assert all((new == row).all(1).any() for row in held)
    known.learn(stream[2])
    assert len(memory) == (4 if policy.endswith("Reservoir") else 24)
    counts = torch.bincount(memory.take(memory.available).tasks, minlength=3).tolist()
    assert policy.endswith("Reservoir") or counts == [8, 8, 8]


def test_gem_minds_the_later_tasks_too():
    stream = small_stream(tasks=2, train=40)
    first, more = split(stream[0])
    known = learner("gem")
    known.learn(first)
    known.learn(stream[1])
    asked = []
    by_task = known.memory.by_task

    def watch(**which):
        batches = by_task(**which)
        asked.append([int(batch.tasks[0]) for batch in batches])
        return batches

    known.memory.by_task = watch
    known.learn(more, more=True)
    assert asked[0] == [1]


def test_what_is_refused():
    stream = small_stream(tasks=2, train=20)
    known = learner()
    assert "'digits 7 2' was not learned" in mistake(known.learn, stream[0], more=True)
    known.learn(stream[0])
    x = np.zeros((2, 1, 28, 28), np.uint8)
    new = mdmt.Task(stream[0].name, x, ["owl", "kite"])
    assert "class 'kite' is not one of those learned" in mistake(known.learn, new, more=True)
    wide = mdmt.Task(stream[0].name, x[:, :, :5], stream[0].classes)
    assert "one input has shape (1, 5, 28)" in mistake(known.learn, wide, more=True)
    assert "learn(task, more=True)" in mistake(known.learn, stream[0])
    known.learn(stream[1])  # and it goes on as if nothing had been
