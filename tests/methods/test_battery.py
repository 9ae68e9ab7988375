"""The checks of `mdmt.checks` for all methods, and methods with bugs that the checks must catch."""

import copy
import subprocess
import sys

import pytest
import torch

from mdmt import memory
from mdmt.checks import (
    CHECKS,
    KINDS,
    Trial,
    check_method,
    every_training_pass_is_in_train_mode,
    outcome,
    the_end_of_a_task_leaves_the_network_alone,
)
from mdmt.methods import ER, EWC, MDMTR, METHODS, VAN, Buffer, Method
from mdmt.runs.request import split_methods
from mdmt.tasks import Batch

NAMES = list(METHODS)
REHEARSAL = [name for name, method in METHODS.items() if method.uses_memory]
ANCHORED = [name for name, method in METHODS.items() if method.kind == "regularisation"]

SETTINGS = {
    "ewc": {"window": 3, "strength": 50.0},
    "mas": {"strength": 0.1},
    "rwalk": {"window": 3},
    "pi": {"strength": 0.1},
    "mer": {"replay": 1, "beta": 0.5, "gamma": 0.5},
    "a-gem": {"reference_batch": 12},
    "er": {"reference_batch": 12},
    "mega": {"reference_batch": 12},
    "mdmt-r": {"reference_batch": 12},
    "der++": {"reference_batch": 12},
    "er-ace": {"reference_batch": 12},
}


def method_of(name, **more):
    return METHODS[name](**{**SETTINGS.get(name, {}), **more})


def trial_of(name, kind, **more):
    return Trial(lambda: method_of(name, **more), kind)


def plain(kind, stream=None, **more):
    return Trial(VAN, kind).run(stream=stream, **more)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_check(name, kind, check):
    check(trial_of(name, kind))


@pytest.mark.parametrize("kind", KINDS)
def test_the_end_of_a_task_leaves_the_network_alone_in_the_papers_form_of_ewc(kind):
    the_end_of_a_task_leaves_the_network_alone(trial_of("ewc", kind, reading="paper", strength=0.0))


def weights(learner):
    return outcome(learner)[-1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["a-gem", "gem", "er", "mega"])
def test_no_memory_is_plain_fine_tuning(name, kind):
    empty = memory.Reservoir(0) if METHODS[name].policy == "Reservoir" else memory.Ring(0)
    assert outcome(trial_of(name, kind).run(memory=empty)) == outcome(plain(kind))
    assert weights(trial_of(name, kind).run()) != weights(plain(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_mer_without_memory_and_meta_steps_is_plain_fine_tuning_on_single_examples(kind):
    trial = trial_of("mer", kind, beta=1.0, gamma=1.0)
    stream = trial.stream(train=10)
    van = plain(kind, stream, batch=1)
    assert outcome(trial.run(stream=stream, memory=memory.Reservoir(0), batch=1)) == outcome(van)
    assert weights(trial_of("mer", kind).run(stream=stream, batch=1)) != weights(van)


@pytest.mark.parametrize("kind", KINDS)
def test_mdmt_r_without_memory_is_its_own_loss_without_rehearsal(kind):
    class Alone(MDMTR):
        def gradient(self, batch):
            return self.grad(batch)[1]

    trial = trial_of("mdmt-r", kind)
    alone = Trial(lambda: Alone(**SETTINGS["mdmt-r"]), kind)
    assert outcome(trial.run(memory=memory.Ring(0))) == outcome(alone.run())
    assert weights(trial.run()) != weights(alone.run())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ANCHORED)
def test_strength_zero_is_plain_fine_tuning_and_more_is_not(name, kind):
    trial = trial_of(name, kind)
    one_task = trial.stream(tasks=1)
    assert outcome(trial_of(name, kind, strength=0.0).run()) == outcome(plain(kind))
    assert weights(trial.run()) != weights(plain(kind))
    # Nothing to hold yet.
    assert outcome(trial.run(stream=one_task)) == outcome(plain(kind, one_task))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ANCHORED)
def test_a_stronger_pull_holds_the_weights_closer(name, kind):
    """The distance between the ends of tasks 1 and 2, weighted by the importances of task 1."""
    trial = trial_of(name, kind)
    distances = []
    for pull in (0.0, 10.0):
        learner = trial.learner(lr=0.02)
        first, second = trial.stream(tasks=2, train=40 if kind == "resnet" else 400)
        learner.learn(first)
        start = learner.model.flat.detach().clone()
        importance = learner.method.importance.clone()
        learner.method.strength = pull / float(importance.max())  # as strong as steps of .02 bear
        learner.learn(second)
        size = len(start)
        distances.append(
            float((importance * (learner.model.flat.detach()[:size] - start).square()).sum())
        )
    assert importance.max() > 0
    assert distances[1] < distances[0]


# The checks themselves can fail: each of these methods has a bug that was shipped somewhere.


class Forgetful(VAN):
    """It remembers a count without a Buffer, so a resumed run has lost it."""

    def begin_task(self):
        self.count = 0

    def gradient(self, batch):
        self.count = getattr(self, "count", 0) + 1
        return self.grad(batch)[1] / self.count


class Evaluating(VAN):
    def end_task(self):
        self.model.backbone.eval()


class Careless(VAN):
    """Its end-of-task pass changes the batch-norm statistics."""

    def end_task(self):
        self.grad(self.learner.read(self.task, torch.arange(4)))


class Chancy(VAN):
    def gradient(self, batch):
        return self.grad(batch)[1] * (1 + torch.rand(1, generator=CHANCE))


CHANCE = torch.Generator()


class Alias(VAN):
    anchor = Buffer(like="params")

    def begin_task(self):
        self.anchor = self.model.flat.data


class Shifted(EWC):
    """Its importances belong to other weights after the head has grown."""

    def grow(self):
        super().grow()
        self.importance = self.importance.roll(7)


class Idle(VAN):
    def gradient(self, batch):
        return torch.zeros_like(self.grad(batch)[1])


class Divides(VAN):
    def gradient(self, batch):
        g = self.grad(batch)[1]
        return g / g.norm()


class Greedy(ER):
    """It divides by 0 while the memory is empty."""

    def gradient(self, batch):
        old = self.memory.sample(self.reference_batch)
        return (
            self.grad(batch if old is None else Batch.joined([old, batch]))[1]
            * len(old or [1])
            / (len(old or [2]) - 1)
        )


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (Forgetful, "resuming in the middle of a task changes nothing"),
        (Evaluating, "leaves the network alone|train mode"),
        (Careless, "the end of a task leaves the network alone"),
        (Chancy, "same seed same bits"),
        (Alias, "does not alias the live weights.*: the buffer 'anchor' changed with the weights"),
        (Shifted, "growth of the head changes nothing.*: a head that grew learned something else"),
        (Idle, "weights move in every step"),
    ],
)
def test_a_method_with_a_bug_is_caught(method, message):
    with pytest.raises(AssertionError, match=message):
        check_method(method)


class Teacher(VAN):
    """Distils from the weights of the task's start, in evaluation mode and without gradients."""

    start = Buffer(like="params")

    def begin_task(self):
        self.start = self.model.flat.detach().clone()

    def loss(self, features, batch):
        with self.model.at(self.start), self.model.evaluating():
            old = self.model.features(batch.inputs)
        return super().loss(features, batch) + (features - old).square().mean(1)


class GDumb(Method):
    """Fills the memory while a task passes, and learns from the memory at the task's end."""

    kind = "rehearsal"
    uses_memory = True
    learns_at_task_end = True
    policy = "Reservoir"

    def step(self, batch):
        pass

    def end_task(self):
        for _ in range(3):
            self.learner.apply(self.grad(self.memory.sample(16))[1])


def test_a_teacher_may_pass_in_evaluation_mode():
    check_method(Teacher)


def test_a_method_may_learn_at_the_end_of_a_task():
    check_method(GDumb)


class FrozenStep(VAN):
    def gradient(self, batch):
        with self.model.frozen():
            return self.grad(batch)[1]


class HalfFrozen(VAN):
    """Passes in training mode too, but takes its gradient from a pass in evaluation mode."""

    def gradient(self, batch):
        with torch.no_grad():
            self.model.features(batch.inputs)
        with self.model.frozen(), torch.enable_grad():
            return self.model.gradient(self.loss(self.model.features(batch.inputs), batch).mean())


class EvaluatingAfterAStep(VAN):
    def after_step(self, batch):
        self.model.backbone.eval()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", [FrozenStep, HalfFrozen, EvaluatingAfterAStep])
def test_a_step_in_evaluation_mode_is_caught(method, kind):
    with pytest.raises(AssertionError, match=r"evaluation mode|training mode"):
        every_training_pass_is_in_train_mode(Trial(method, kind))


class IdleGDumb(GDumb):
    def end_task(self):
        self.model.features(self.memory.sample(16).inputs)


class EvaluatingGDumb(GDumb):
    def end_task(self):
        super().end_task()
        self.model.backbone.eval()


class FrozenGDumb(GDumb):
    def end_task(self):
        with self.model.frozen():
            super().end_task()


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (IdleGDumb, "weights move"),
        (EvaluatingGDumb, "the end of a task leaves the network alone"),
    ],
)
def test_a_bug_of_a_method_that_learns_at_the_end_of_a_task_is_caught(method, message):
    with pytest.raises(AssertionError, match=message):
        check_method(method)


@pytest.mark.parametrize("kind", KINDS)
def test_learning_at_the_end_of_a_task_in_evaluation_mode_is_caught(kind):
    with pytest.raises(AssertionError, match=r"evaluation mode|training mode"):
        every_training_pass_is_in_train_mode(Trial(FrozenGDumb, kind))


@pytest.mark.parametrize("method", [Divides, lambda: Greedy(reference_batch=7)])
def test_a_number_that_is_not_finite_names_its_step(method):
    with pytest.raises(FloatingPointError, match="step"):
        check_method(method)


def test_without_assertions_there_are_no_checks():
    """`python -O` leaves assertions out, and every method would pass."""
    code = "import mdmt.checks, mdmt.methods; mdmt.checks.check_method(mdmt.methods.VAN)"
    done = subprocess.run(
        [sys.executable, "-O", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "Mistake: python -O leaves out assertions" in done.stderr


def test_every_method_says_what_it_is():
    for name, method in METHODS.items():
        assert method.name == name
        assert method.kind in ("rehearsal", "regularisation", "bound")
        assert method.source
        assert issubclass(method, Method)
        made = method()
        assert type(made)(**made.arguments).arguments == made.arguments
        copy.deepcopy(made)


def test_the_twelve_rows_of_table_1_and_two_newer_ones():
    table_1 = [
        "joint",
        "van",
        "ewc",
        "mas",
        "rwalk",
        "pi",
        "mer",
        "gem",
        "a-gem",
        "er",
        "mega",
        "mdmt-r",
    ]
    assert [*table_1, "der++", "er-ace"] == NAMES
    assert split_methods("paper") == table_1
    assert split_methods("all") == NAMES
