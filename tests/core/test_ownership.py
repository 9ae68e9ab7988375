"""A method, memory or backbone belongs to one learner; a saved one names its exact class."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import mdmt
from mdmt.memory import AtTaskEnd, ClassReservoir, Memory, Reservoir, Ring, TaskRing
from support.helpers import mistake, outcome


def task(name="a", seed=0, labels=(0, 1, 2), **more):
    random = np.random.default_rng(seed)
    x = random.integers(0, 256, (30, 12), dtype=np.uint8)
    y = [labels[i % len(labels)] for i in range(30)]
    return mdmt.Task(name, x[:20], y[:20], test=(x[20:], y[20:]), **more)


def learner(**more):
    settings = {"backbone": mdmt.backbones.mlp(12, 8), "method": mdmt.ER(reference_batch=5)}
    return mdmt.Learner(**{**settings, "memory": Ring(3), "lr": 0.05, **more})


@pytest.mark.parametrize("part", ["backbone", "method", "memory"])
def test_a_second_owner_is_refused(part):
    first = learner()
    given = getattr(first, part)
    assert f"this {part} belongs to another learner" in mistake(learner, **{part: given})
    first.learn(task())  # and the first one learns as if nothing had been asked
    assert first.record.steps == 2


def test_a_refused_learner_takes_nothing():
    backbone = mdmt.backbones.mlp(12, 8)
    assert "lr=-1" in mistake(learner, backbone=backbone, lr=-1)
    assert learner(backbone=backbone).backbone is backbone


def test_what_a_learner_left_behind_can_be_taken():
    backbone = mdmt.backbones.mlp(12, 8)
    learner(backbone=backbone)  # not kept: nobody trains it any more
    assert learner(backbone=backbone).backbone is backbone


class OwnER(mdmt.ER):
    """A subclass that inherits the name "er"."""


class OwnMLP(mdmt.backbones.MLP):
    """A subclass that inherits the spec of "mlp"."""

    def __init__(self):
        super().__init__(12, 8)


class OwnRing(Ring):
    """A memory of the user's."""


class Halves(Memory):
    """A memory of the user's with a size of its own."""

    def __init__(self, size=10):
        super().__init__(size, "size")

    def observe(self, batch, complete=None):
        if len(self) < self.size:
            slots = {len(self) + i: i for i in range(min(len(batch), self.size - len(self)))}
            self._write(slots, batch, self.size, complete)
            self.available = torch.arange(len(self) + len(slots))


@pytest.mark.parametrize(
    ("part", "make"),
    [("method", OwnER), ("backbone", OwnMLP), ("memory", OwnRing), ("memory", Halves)],
)
def test_a_class_of_ones_own_is_saved_by_its_name_and_asked_for(part, make, tmp_path):
    whole = learner(**{part: make()})
    whole.learn(task())
    whole.save(tmp_path)
    line = mistake(mdmt.Learner.load, tmp_path)
    assert f"was saved with a {part} of the class" in line
    assert f"{make.__qualname__}: pass it, Learner.load({str(tmp_path)!r}, {part}=...)" in line
    other = {"method": mdmt.ER(), "backbone": mdmt.backbones.mlp(12, 8), "memory": Ring(3)}[part]
    assert f"but {part}= is a " in mistake(mdmt.Learner.load, tmp_path, **{part: other})
    loaded = mdmt.Learner.load(tmp_path, **{part: make()})
    for one in (whole, loaded):
        one.learn(task("b", seed=1, labels=(3, 4)), earlier=[task()])
    assert type(getattr(loaded, part)) is make
    assert whole.model.sha256() == loaded.model.sha256()


def test_a_learner_can_be_copied():
    first = learner(optimiser="Adam", lr=0.01)
    first.learn(task())
    twin = copy.deepcopy(first)
    assert outcome(twin) == outcome(first)
    assert twin.evaluate() == first.evaluate()
    before = first.model.sha256()
    twin.learn(task("b", seed=1, labels=(3, 4)))
    assert first.model.sha256() == before
    first.learn(task("b", seed=1, labels=(3, 4)))
    assert outcome(twin) == outcome(first)


def test_a_learner_that_learned_nothing_can_be_copied():
    first = learner()
    twin = copy.deepcopy(first)
    for one in (first, twin):
        one.learn(task())
    assert outcome(twin) == outcome(first)


# Inputs and answers.


def test_test_inputs_of_another_type_than_the_training_inputs_are_refused():
    x = np.random.default_rng(0).integers(0, 256, (12, 5), dtype=np.uint8)
    line = mistake(mdmt.Task, "a", x, [0, 1] * 6, test=(x / 255, [0, 1] * 6))
    assert "type torch.uint8, test inputs (5,) and torch.float32; they must agree" in line


@pytest.mark.parametrize(("given", "measured"), [(None, False), (True, True), (False, False)])
def test_accuracy_per_class_is_what_the_learner_was_told(given, measured):
    one = learner(per_class=given)
    one.run(mdmt.Stream("s", [task()]))
    assert one.recorder.per_class is measured
    follows = learner(per_class=given)
    follows.run(mdmt.Stream("s", [task()], per_class=True))
    assert follows.recorder.per_class is (given is not False)


@pytest.mark.parametrize("nothing", [[], np.empty((0, 12), np.uint8), torch.empty(0, 12)])
def test_no_inputs_have_no_answers(nothing):
    one = learner()
    one.learn(task())
    assert one.predict(nothing) == []
    assert one.predict(nothing, task="a") == []
    assert one.predict_with_task(nothing) == []
    assert one.predict_proba(nothing).shape == (0, 3)
    assert one.features(nothing).shape == (0, 8)


def test_evaluate_takes_a_task_a_name_or_all_known_tasks():
    one = learner()
    tasks = [task(), task("b", seed=1, labels=(3, 4))]
    for each in tasks:
        one.learn(each)
    both = {each.name: one.evaluate(each) for each in tasks}
    assert one.evaluate() == both
    assert one.evaluate("b") == both["b"]
    assert one.record.accuracy[-1] == [both["a"][0], both["b"][0]]
    assert "'c' was not learned; learned tasks: 'a', 'b'" in mistake(one.evaluate, "c")
    wide = mdmt.Task(
        "w", np.zeros((4, 9), np.uint8), [0] * 4, test=(np.zeros((2, 9), np.uint8), [0] * 2)
    )
    assert "one input has shape (9,)" in mistake(one.evaluate, wide)


def test_evaluate_by_name_needs_the_test_examples(tmp_path):
    one = learner()
    one.learn(task())
    one.save(tmp_path)
    loaded = mdmt.Learner.load(tmp_path)
    assert loaded.evaluate() == {}
    assert "the test examples of task 'a' are not known" in mistake(loaded.evaluate, "a")


def test_labels_that_are_tuples_stay_tuples(tmp_path):
    labels = (("owl", 1), ("owl", 2), ("kite", (3, 4)))
    one = learner(heads="shared")
    one.learn(task(labels=labels))
    one.save(tmp_path)
    loaded = mdmt.Learner.load(tmp_path)
    x = task().test.inputs
    assert loaded.predict(x) == one.predict(x)
    assert set(loaded.tasks[0].classes) == set(labels)
    loaded.learn(task("b", seed=1, labels=labels), earlier=[task(labels=labels)])
    assert len(loaded.classes()) == 3


def test_a_memory_says_what_it_is():
    ring = Ring(per_class=7)
    assert repr(ring) == "Ring(per_class=7): 0 examples"
    one = learner(memory=Reservoir(9))
    one.learn(task())
    assert repr(one.memory) == "Reservoir(size=9): 9 examples"


class Pooled(mdmt.ER):
    """Learns all tasks at once, and keeps examples of them."""

    def arrange(self, stream):
        return mdmt.tasks.Stream(stream.name, [mdmt.tasks.Pool(stream.tasks)], heads=stream.heads)


@pytest.mark.parametrize("memory", [Ring, Reservoir, ClassReservoir, AtTaskEnd, TaskRing])
@pytest.mark.parametrize("heads", ["shared", "per-task"])
def test_a_method_with_a_memory_may_pool_its_stream(memory, heads):
    tasks = [task(), task("b", seed=1, labels=(2, 3))]
    one = learner(method=Pooled(reference_batch=5), memory=memory(4), heads=heads)
    one.run(mdmt.Stream("s", tasks, heads=heads))
    assert len(one.memory) > 0
    stored = set(one.memory.labels[one.memory.available].tolist())
    every = set(range(4 if heads == "shared" else 5))
    assert stored <= every if issubclass(memory, Reservoir) else stored == every
    assert repr(mdmt.tasks.Pool(tasks)).startswith("Pool([Task('a'")


# DER++ with augmentation.


class Watched(nn.Module):
    """A small convolutional network whose batch norm tells training from evaluation."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)

    def forward(self, x):
        return self.norm(self.conv(x)).relu().mean((2, 3))


@pytest.mark.parametrize("augment", ["none", "crop-flip"])
def test_der_stores_the_logits_of_the_pass_that_learned_them(augment):
    images = torch.rand(20, 1, 8, 8, generator=torch.Generator().manual_seed(3))
    with torch.random.fork_rng():
        torch.manual_seed(4)
        network = Watched()
    method = mdmt.DERPP(reference_batch=4)
    one = mdmt.Learner(network, method, memory=Reservoir(20), augment=augment, lr=0.01)
    passed = []
    loss = type(method).loss

    def watched(features, batch):
        if batch.features is None and one.step_in_task == 0:
            passed.append(one.model.scores(features).detach())
        return loss(method, features, batch)

    vars(method)["loss"] = watched
    one.learn(mdmt.Task("a", images, [0, 1] * 10))
    assert torch.equal(one.memory.features[:10], passed[0])
