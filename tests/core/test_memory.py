"""Each memory, after every step, against a slow model of its policy."""

import random
from collections import Counter

import numpy as np
import pytest
import torch

import mdmt
from mdmt import memory
from mdmt.tasks import Batch
from support.helpers import small_stream


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


def test_class_reservoir_after_every_step():
    """All places are used, no class has more than one place more than it must, and every place
    holds an example that came."""
    draw, kept, came = random.Random(1), memory.ClassReservoir(7), []
    kept.generator = np.random.default_rng([3, 2])
    for task, rows in enumerate(([0, 1], [2], [3, 4], [0])):
        for batch in batches(task, rows, 12, draw, start=1000 * task + 1):
            kept.observe(batch)
            came += unsorted(batch)
            stored = everything(kept)
            assert len(stored) == len(kept) == min(7, len(came))
            assert set(stored) <= set(came)
            numbers = Counter(example[1] for example in stored)
            seen = Counter(example[1] for example in came)
            assert all(numbers[row] for row in seen)  # no class is lost
    shares = Counter(example[1] for example in everything(kept))
    assert sorted(shares.values()) == [1, 1, 1, 2, 2]


def test_class_reservoir_keeps_a_uniform_sample_of_each_class():
    """Two classes, the second of which comes after the first: of each, every example is as likely
    to be among the stored ones. Chi-square test at 1e-4."""
    from scipy.stats import chi2

    counts = Counter()
    for trial in range(3000):
        kept = memory.ClassReservoir(8)
        kept.generator = np.random.default_rng([trial, 2])
        for row in (0, 1):
            for start in range(0, 20, 10):
                numbers = torch.arange(start, start + 10)
                labels = torch.full((10,), row)
                x = numbers[:, None].float()
                kept.observe(Batch(x, labels, labels, x))
        for example in everything(kept):
            counts[example[0], example[1]] += 1
    for row in (0, 1):
        of_class = [counts[float(n), row] for n in range(20)]
        assert sum(of_class) == 4 * 3000
        expected = sum(of_class) / 20
        statistic = sum((n - expected) ** 2 / expected for n in of_class)
        assert statistic < chi2.ppf(1 - 1e-4, 19)


def test_class_reservoir_forgets_what_it_knows_of_a_class():
    kept = memory.ClassReservoir(5)
    for task in range(3):
        for batch in batches(task, [task], 8, random.Random(2), start=100 * task):
            kept.observe(batch)
    kept.remove(kept.slots_of(torch.tensor([1])))
    assert sorted(kept.seen) == [0, 2]
    assert kept.full <= {0, 2}
    kept.observe(next(batches(3, [3], 1, random.Random(2), start=300)))
    assert {example[1] for example in everything(kept)} == {0, 2, 3}


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


@pytest.mark.parametrize("kept", [policy(0) for policy in memory.POLICIES.values()])
def test_size_zero_is_always_empty(kept):
    kept.open_task(0, torch.tensor([0]))
    x = torch.ones(1, 1)
    batch = Batch(x, torch.tensor([0]), torch.tensor([0]), x)
    kept.observe(batch)
    kept.close_task(batch.labels, lambda i: batch)
    assert kept.sample(4) is None


@pytest.mark.parametrize("policy", ["Ring", "Reservoir", "ClassReservoir", "TaskRing"])
def test_a_restored_memory_goes_on_as_the_saved_one(policy):
    draw = random.Random(4)
    spec = {"policy": policy, ("size" if policy.endswith("Reservoir") else "per_class"): 6}
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


def test_a_memory_that_chooses_first_has_new_classes_evenly_while_they_are_learned(tmp_path):
    """At every step, also after a checkpoint, and within its bytes."""
    stored, checkpoints = [], tmp_path / "state"

    def observe(learner):
        kept = learner.memory
        assert sum(kept.bytes.values()) + kept.available.nbytes <= kept.size
        counts = torch.bincount(kept.labels[kept.available], minlength=6)
        stored.append((counts.tolist(), kept.inputs.clone()))
        if learner.step_in_task == 2 and len(learner.tasks) == 3:
            learner.save(checkpoints)

    stream = small_stream("split-digits", tasks=3, train=40)
    example = stream[0].train.inputs[:1].nbytes + memory.Balanced.OVERHEAD
    learner = mdmt.Learner(
        mdmt.backbones.reduced_resnet18(1, 2),
        "er-ace",
        memory=memory.BalancedFirst(18 * example),
        heads="shared",
    )
    for task in stream:
        learner.learn(task, on_step=observe)
    numbers = [counts for counts, _ in stored]
    steps = len(numbers) // 3
    assert (
        numbers == [[9, 9, 0, 0, 0, 0]] * steps + [[4, 4, 5, 5, 0, 0]] * steps + [[3] * 6] * steps
    )
    twin = mdmt.Learner.load(checkpoints)
    before = stored[-1][1]
    twin.learn(stream[2], earlier=[stream[0], stream[1]])
    assert torch.equal(twin.memory.inputs, before)
    assert twin.model.sha256() == learner.model.sha256()


def balanced_with(counts):
    """A memory with room for all, with so many examples of the classes 0, 1, ..."""
    labels = torch.tensor([row for row, count in enumerate(counts) for _ in range(count)])
    inputs = torch.arange(len(labels), dtype=torch.float32)[:, None]
    kept = memory.Balanced(100_000)
    kept.close_task(labels, lambda i: Batch(inputs[i], labels[i], torch.zeros_like(labels[i])))
    return kept


@pytest.mark.parametrize(
    ("counts", "drawn"),
    [([400, 5], [11, 5]), ([60, 9, 60], [18, 9, 18]), ([40, 40, 3], [0, 0, 1])],
)
def test_classes_of_which_few_examples_are_stored_are_drawn_as_often(counts, drawn):
    kept = balanced_with(counts)
    many = [np.bincount(kept.sample(sum(drawn)).labels, minlength=len(counts)) for _ in range(300)]
    if sum(drawn) == 1:  # any class may be the one
        assert np.mean(many, 0) == pytest.approx([1 / 3] * 3, abs=0.1)
    else:
        assert (np.array(many) == drawn).all()
    slots = [kept.choose(sum(drawn)).tolist() for _ in range(300)]
    assert all(len(set(one)) == sum(drawn) for one in slots)  # no example twice
    assert len(kept.choose(10_000)) == sum(counts)


def test_classes_of_one_size_are_drawn_at_random():
    kept, plain = balanced_with([20, 20, 19]), balanced_with([20, 20, 19])
    drawn = [kept.choose(7) for _ in range(20)]
    plain_draws = [super(memory.Balanced, plain).choose(7) for _ in range(20)]
    assert all(map(torch.equal, drawn, plain_draws))


def test_draws_follow_what_is_stored():
    kept = balanced_with([30, 4])
    kept.choose(8)
    kept.remove(kept.slots_of(torch.tensor([0])))
    assert set(kept.sample(3).labels.tolist()) == {1}


def test_even_slots_have_equally_many_of_each_class():
    kept = memory.Reservoir(12)
    assert not len(kept.even_slots(6, np.random.default_rng(0)))
    labels = torch.tensor([4] * 7 + [9] * 3 + [2])
    kept.observe(Batch(torch.arange(11.0)[:, None], labels, torch.zeros_like(labels)))
    for count, share in ((1, 1), (6, 2), (100, 7)):
        slots = kept.even_slots(count, np.random.default_rng(0))
        assert Counter(labels[slots].tolist()) == dict.fromkeys((4, 9, 2), share)
    assert set(slots.tolist()) == set(range(11))  # and of a class as different ones as there are
    assert slots.tolist() != sorted(slots.tolist())
    again = kept.even_slots(100, np.random.default_rng(1))
    assert again.tolist() != slots.tolist()
