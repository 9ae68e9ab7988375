"""Each memory, after every step, against a slow model of its policy."""

import random
from collections import Counter

import numpy as np
import pytest
import torch

from mdmt import memory
from mdmt.tasks import Batch


def batches(task, rows, count, draw, start=0):
    """Mini-batches of distinguishable examples: the input is the example's number."""
    number = start
    for _ in range(count):
        size = draw.randint(1, 6)
        labels = torch.tensor([draw.choice(rows) for _ in range(size)])
        inputs = torch.arange(number, number + size).float()[:, None]
        number += size
        yield Batch(inputs, labels, torch.full((size,), task), inputs * 10)


def contents(batch):
    rows = zip(
        batch.inputs[:, 0].tolist(),
        batch.labels.tolist(),
        batch.tasks.tolist(),
        batch.features[:, 0].tolist(),
        strict=True,
    )
    return sorted(rows)


def everything(kept):
    batch = kept.sample(10**6)
    return [] if batch is None else contents(batch)


@pytest.mark.parametrize("per_class", [1, 3])
@pytest.mark.parametrize("shared", [True, False])
def test_ring_holds_the_last_of_each_class_of_each_finished_task(per_class, shared):
    draw, ring, finished = random.Random(per_class), memory.Ring(per_class), []
    for task in range(4):
        rows = [3, 1] if shared else [2 * task, 2 * task + 1]
        ring.open_task(task, torch.tensor(rows))
        seen = {row: [] for row in rows}
        for batch in batches(task, rows, 12, draw, start=1000 * task + 1):
            ring.observe(batch)
            for x, y in zip(batch.inputs[:, 0].tolist(), batch.labels.tolist(), strict=True):
                seen[y].append((x, y, task, 10 * x))
            assert everything(ring) == sorted(finished)  # the current task is not drawn from
            current = {
                slot for slot in range(len(ring.inputs)) if slot not in ring.available.tolist()
            }
            held = contents(ring.take(torch.tensor(sorted(current))))
            expected = sorted(e for of_class in seen.values() for e in of_class[-per_class:])
            assert [h for h in held if h[0]] == expected  # an input of 0: nothing written there yet
        ring.close_task(torch.empty(0), lambda _: None)
        finished += [e for of_class in seen.values() for e in of_class[-per_class:]]
        assert everything(ring) == sorted(finished)


@pytest.mark.parametrize("per_class", [1, 3])
@pytest.mark.parametrize("shared", [True, False])
def test_task_ring_holds_the_last_of_each_finished_task(per_class, shared):
    """The last examples whatever their classes, as in the program of GEM's authors."""
    draw, ring, finished = random.Random(per_class), memory.TaskRing(per_class), []
    for task in range(4):
        rows = [3, 1] if shared else [2 * task, 2 * task + 1]
        ring.open_task(task, torch.tensor(rows))
        seen = []
        for batch in batches(task, rows, 1 if task == 2 else 12, draw, start=1000 * task + 1):
            ring.observe(batch)
            seen += contents(batch)
            assert everything(ring) == sorted(finished)
        ring.close_task(torch.empty(0), lambda _: None)
        finished += seen[-2 * per_class :]
        assert everything(ring) == sorted(finished)


def test_ring_with_a_class_that_never_came():
    ring = memory.Ring(2)
    ring.open_task(0, torch.tensor([0, 1]))
    ring.observe(Batch(torch.ones(1, 1), torch.tensor([1]), torch.tensor([0]), torch.ones(1, 1)))
    ring.close_task(torch.empty(0), lambda _: None)
    assert everything(ring) == [(1.0, 1, 0, 1.0)]


def test_ring_with_more_of_a_class_in_one_batch_than_slots():
    ring = memory.Ring(2)
    ring.open_task(0, torch.tensor([0]))
    x = torch.arange(5.0)[:, None]
    ring.observe(Batch(x, torch.zeros(5, dtype=torch.int64), torch.zeros(5, dtype=torch.int64), x))
    ring.close_task(torch.empty(0), lambda _: None)
    assert [e[0] for e in everything(ring)] == [3.0, 4.0]


@pytest.mark.parametrize("size", [1, 7])
def test_reservoir_after_every_step(size):
    draw, kept, slow, count = random.Random(1), memory.Reservoir(size), [], 0
    kept.generator = np.random.default_rng([3, 2])
    twin = memory.Reservoir(size)
    twin.generator = np.random.default_rng([3, 2])
    for batch in batches(0, [0, 1], 40, draw):
        numbers = range(count, count + len(batch))
        drawn = twin.generator.integers(0, [n + 1 for n in numbers])
        kept.observe(batch)
        for n, slot, example in zip(numbers, drawn.tolist(), unsorted(batch), strict=True):
            if n < size:
                slow.append(example)
            elif slot < size:
                slow[slot] = example
        count += len(batch)
        assert everything(kept) == sorted(slow)
        assert len(kept) == min(count, size)


def unsorted(batch):
    return list(
        zip(
            batch.inputs[:, 0].tolist(),
            batch.labels.tolist(),
            batch.tasks.tolist(),
            batch.features[:, 0].tolist(),
            strict=True,
        )
    )


def test_reservoir_keeps_every_example_with_the_same_probability():
    """Of 2,000 reservoirs of 5 over 40 examples each example is in 250; chi-square test at 1e-4."""
    from scipy.stats import chi2

    counts = Counter()
    for trial in range(2000):
        kept = memory.Reservoir(5)
        kept.generator = np.random.default_rng([trial, 2])
        for start in range(0, 40, 10):
            x = torch.arange(start, start + 10.0)[:, None]
            kept.observe(
                Batch(x, torch.zeros(10, dtype=torch.int64), torch.zeros(10, dtype=torch.int64))
            )
        counts.update(kept.sample(5).inputs[:, 0].tolist())
    statistic = sum((counts[i] - 250) ** 2 / (250 * 35 / 40) for i in range(40)) * 39 / 40
    assert statistic < chi2.ppf(1 - 1e-4, 39)


def test_at_task_end_draws_per_class_with_the_features_of_then():
    kept = memory.AtTaskEnd(3)
    kept.generator = np.random.default_rng([1, 2])
    held = []
    for task in range(3):
        labels = torch.tensor([2 * task] * 10 + [2 * task + 1] * 2)
        x = torch.arange(100.0 * task, 100.0 * task + 12)[:, None]
        kept.close_task(
            labels,
            lambda i, x=x, y=labels, t=task: Batch(x[i], y[i], torch.full((len(i),), t), x[i] * 10),
        )
        now = everything(kept)
        assert [e for e in now if e[2] < task] == held  # earlier tasks untouched
        assert Counter(e[1] for e in now if e[2] == task) == {2 * task: 3, 2 * task + 1: 2}
        assert all(e[3] == 10 * e[0] for e in now)
        held = now


def full_ring(classes=40, per_class=5):
    ring = memory.Ring(per_class)
    ring.generator = np.random.default_rng([11, 2])
    ring.open_task(0, torch.arange(classes))
    labels = torch.arange(classes).repeat(per_class)
    x = torch.arange(len(labels)).float()[:, None]
    ring.observe(Batch(x, labels, torch.zeros_like(labels), x))
    ring.close_task(torch.empty(0), lambda _: None)
    return ring


def test_samples_are_without_replacement_and_uniform():
    ring, counts = full_ring(), Counter()
    for _ in range(400):
        drawn = ring.sample(64).inputs[:, 0].tolist()
        assert len(set(drawn)) == 64
        counts.update(drawn)
    expected = 400 * 64 / 200
    assert set(counts) == set(range(200))
    assert max(abs(c - expected) for c in counts.values()) < 6 * (expected * (1 - 64 / 200)) ** 0.5


@pytest.mark.parametrize(
    "kept", [memory.Ring(0), memory.Reservoir(0), memory.AtTaskEnd(0), memory.TaskRing(0)]
)
def test_size_zero_is_always_empty(kept):
    kept.open_task(0, torch.tensor([0]))
    x = torch.ones(1, 1)
    batch = Batch(x, torch.tensor([0]), torch.tensor([0]), x)
    kept.observe(batch)
    kept.close_task(batch.labels, lambda i: batch)
    assert kept.sample(4) is None


@pytest.mark.parametrize("policy", ["Ring", "Reservoir", "TaskRing"])
def test_a_restored_memory_goes_on_as_the_saved_one(policy):
    draw = random.Random(4)
    spec = {"policy": policy, ("size" if policy == "Reservoir" else "per_class"): 6}
    first = memory.make(spec)
    first.generator = np.random.default_rng([8, 2])
    first.open_task(0, torch.tensor([0, 1]))
    stream = list(batches(0, [0, 1], 30, draw))
    for batch in stream[:15]:
        first.observe(batch)
    first.sample(2)
    second = memory.make(spec)
    tensors, rest = first.state()
    second.load_state({k: v.clone() for k, v in tensors.items()}, rest)
    for batch in stream[15:]:
        first.observe(batch)
        second.observe(batch)
    for kept in (first, second):
        kept.close_task(torch.empty(0), lambda _: None)
    assert everything(first) == everything(second)
    a, b = first.sample(3), second.sample(3)
    assert torch.equal(a.inputs, b.inputs)


def test_bytes_are_counted():
    ring = full_ring(classes=4, per_class=5)
    assert ring.bytes == {"inputs": 20 * 4, "labels": 20 * 8, "tasks": 20 * 8, "features": 20 * 4}


def test_stored_examples_do_not_alias_the_batch():
    ring = memory.Ring(1)
    ring.open_task(0, torch.tensor([0]))
    x = torch.ones(1, 1)
    ring.observe(Batch(x, torch.tensor([0]), torch.tensor([0]), x))
    ring.close_task(torch.empty(0), lambda _: None)
    x.zero_()
    assert everything(ring) == [(1.0, 0, 0, 1.0)]


@pytest.mark.parametrize("size", [-1, 2.5, True, "3"])
def test_bad_sizes(size):
    with pytest.raises(ValueError, match="per_class"):
        memory.Ring(size)
