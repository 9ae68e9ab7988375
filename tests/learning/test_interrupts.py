"""Ctrl-C at any line of `Learner.learn`, then `learn` again: the same bits as without.

MDMT_INTERRUPTS sets how many interrupted series each method gets in the long version.
"""

import os
import random
import signal
import sys
from pathlib import Path

import pytest
import torch

import mdmt
from mdmt.methods import METHODS
from support.helpers import mistake, small_stream

SERIES = int(os.environ.get("MDMT_INTERRUPTS", "60"))
SOURCE = str(Path(mdmt.__file__).parent)
SETTINGS = {
    "ewc": {"window": 2},
    "rwalk": {"window": 2},
    "pi": {"strength": 0.1},
    "mas": {"strength": 1e-12},
    "mer": {"replay": 1, "batches": 2},
}
TINY = (torch.zeros(2, 784, dtype=torch.uint8), [0, 1])
STREAM = small_stream("permuted-digits", tasks=2, train=30, test=10)


@pytest.fixture(autouse=True)
def heeds_interrupts():
    """Python's own handler: what a script starts in the background inherits an ignored SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Interrupter:
    """Counts the lines of mdmt that are done, and presses Ctrl-C at some of them.

    After a Ctrl-C it waits for the interrupt before it presses again.
    """

    def __init__(self, lines=()):
        self.lines = set(lines)
        self.count = 0

    def __enter__(self):
        self.pressed = False
        self.before = sys.gettrace()
        sys.settrace(self.call)
        return self

    def __exit__(self, *_):
        sys.settrace(self.before)

    def call(self, frame, event, argument):
        return self.line if frame.f_code.co_filename.startswith(SOURCE) else None

    def line(self, frame, event, argument):
        if event == "line":
            self.count += 1
            if self.count in self.lines and not self.pressed:
                self.pressed = True
                signal.raise_signal(signal.SIGINT)
        return self.line


def learner_for(name):
    method = METHODS[name](**SETTINGS.get(name, {}))
    memory = mdmt.memory.Reservoir(12) if method.policy == "Reservoir" else mdmt.memory.Ring(2)
    return mdmt.Learner(
        torch.nn.Sequential(mdmt.backbones.mlp(784, width=12), torch.nn.Dropout(0.2)),
        method,
        memory=memory,
        lr=0.02,
        seed=3,
    )


def first_weights():
    torch.manual_seed(5)


def bits(learner):
    """Everything that a learner knows, without the time it took."""
    states = {name: part.state() for name, part in learner.parts().items()}
    states["learner"] = learner.state()
    states["recorder"][1].pop("seconds")
    return {
        name: ({key: tensor.numpy().tobytes() for key, tensor in tensors.items()}, rest)
        for name, (tensors, rest) in states.items()
    }


def learn_through(learner, stream, lines=()):
    """Learn a stream, calling `learn` again after every Ctrl-C; the numbers of lines and Ctrl-C."""
    interrupts = 0
    interrupter = Interrupter(lines)
    for task in learner.method.arrange(stream):
        while task.parts[0].name not in learner.heads.names or learner.task_name is not None:
            try:
                with interrupter:
                    learner.learn(task)
            except KeyboardInterrupt:
                interrupts += 1
    return interrupter.count, interrupts


def check_series(name, count, per_series):
    """Interrupt a method in `count` series, each at a few random lines."""
    chance = random.Random(name)
    first_weights()
    straight = learner_for(name)
    lines, _ = learn_through(straight, STREAM)
    expected = bits(straight)
    different = []
    for _ in range(count):
        at = [chance.randint(1, lines) for _ in range(per_series)]
        first_weights()
        learner = learner_for(name)
        _, interrupts = learn_through(learner, STREAM, at)
        assert interrupts > 0
        if bits(learner) != expected:
            different.append(sorted(at))
    assert different == []


@pytest.mark.parametrize("name", METHODS)
def test_ctrl_c_and_learn_again_give_the_same_bits(name):
    check_series(name, 5, 2)


@pytest.mark.long
@pytest.mark.parametrize("name", METHODS)
def test_ctrl_c_at_many_more_lines_gives_the_same_bits(name):
    check_series(name, SERIES, 3)


def interrupted_in_evaluation(learner, task, monkeypatch, **more):
    """Press Ctrl-C when the row of accuracies at the end of a task is being measured."""
    before = type(learner.recorder).after_task

    def pressed(*arguments):
        signal.raise_signal(signal.SIGINT)
        before(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(type(learner.recorder), "after_task", pressed)
        with pytest.raises(KeyboardInterrupt):
            learner.learn(task, **more)


def two_learners(name="er"):
    """Two equal learners that have learned the first task."""
    learners = []
    for _ in range(2):
        first_weights()
        learners.append(learner_for(name))
        learners[-1].learn(STREAM[0])
    return learners


def test_an_interrupted_evaluation_is_made_good(monkeypatch):
    straight, learner = two_learners()
    straight.learn(STREAM[1])
    interrupted_in_evaluation(learner, STREAM[1], monkeypatch)
    assert len(learner.record.accuracy) == 1
    assert "was interrupted at step 3" in mistake(learner.learn, ("other", *TINY))
    learner.learn(STREAM[1])
    assert bits(learner) == bits(straight)


def test_an_interrupted_evaluation_is_made_good_after_loading(monkeypatch, tmp_path):
    straight, learner = two_learners("mdmt-r")
    straight.learn(STREAM[1])
    interrupted_in_evaluation(learner, STREAM[1], monkeypatch)
    learner.save(tmp_path)
    loaded = mdmt.Learner.load(tmp_path, backbone=learner_for("van").backbone)
    loaded.learn(STREAM[1], earlier=[STREAM[0]])
    assert bits(loaded) == bits(straight)


def test_an_interrupted_evaluation_of_more_data_keeps_the_test_examples(monkeypatch):
    """The second call need not say `more` again."""
    learners = two_learners()
    for learner in learners:
        learner.learn(STREAM[1])
    extra = mdmt.Task(
        STREAM[0].name,
        STREAM[0].train.inputs[:20],
        [STREAM[0].classes[i] for i in STREAM[0].train.labels[:20]],
        test=(STREAM[0].test.inputs[:1], [STREAM[0].classes[STREAM[0].test.labels[0]]]),
        view=STREAM[0].view,
    )
    straight, learner = learners
    straight.learn(extra, more=True)
    interrupted_in_evaluation(learner, extra, monkeypatch, more=True)
    learner.learn(extra)
    assert bits(learner) == bits(straight)


@pytest.mark.parametrize("error", [OSError("No space left on device"), KeyboardInterrupt()])
def test_a_last_checkpoint_that_failed_is_written_by_the_next_call(error, monkeypatch, tmp_path):
    straight, learner = two_learners()
    straight.learn(STREAM[1])

    def fail(*_, **__):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("mdmt.learning.checkpoints.save", fail)
        with pytest.raises(type(error)):
            learner.learn(STREAM[1], checkpoint=tmp_path)
    learner.learn(STREAM[1], checkpoint=tmp_path)
    assert bits(learner) == bits(straight)
    loaded = mdmt.Learner.load(tmp_path, backbone=learner_for("van").backbone)
    assert bits(loaded) == bits(straight)


def hang(learner, presses, monkeypatch):
    """Press Ctrl-C several times within the second step of a task, after its update was made."""
    apply = learner.apply

    def pressed(gradient):
        apply(gradient)
        if learner.step_in_task == 1:
            for _ in range(presses):
                signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(learner, "apply", pressed)
        with pytest.raises(KeyboardInterrupt):
            learner.learn(STREAM[1])


def test_a_second_ctrl_c_ends_a_step_that_hangs_and_learning_on_warns(monkeypatch, tmp_path):
    learner = two_learners()[0]
    hang(learner, 2, monkeypatch)
    assert learner.step_in_task == 1
    learner.save(tmp_path)
    loaded = mdmt.Learner.load(tmp_path, backbone=learner_for("van").backbone)
    for broken in (learner, loaded):
        with pytest.warns(
            UserWarning, match=r"stopped task 'permutation 2', step 1 halfway"
        ) as told:
            broken.learn(STREAM[1], earlier=[STREAM[0]])
        assert [warning.filename for warning in told] == [__file__]


def test_one_ctrl_c_in_a_step_waits_for_its_end(monkeypatch):
    straight, learner = two_learners()
    straight.learn(STREAM[1])
    hang(learner, 1, monkeypatch)
    assert learner.step_in_task == 2
    learner.learn(STREAM[1])
    assert bits(learner) == bits(straight)


def test_the_callers_handlers_of_ctrl_c_are_respected():
    """Python's own is back after learning; another one is not replaced while learning."""
    handlers = []

    def on_step(_):
        handlers.append(signal.getsignal(signal.SIGINT))

    def own(*_):
        raise AssertionError

    learner = learner_for("van")
    before = signal.getsignal(signal.SIGINT)
    learner.learn(STREAM[0])
    assert signal.getsignal(signal.SIGINT) is before
    signal.signal(signal.SIGINT, own)
    try:
        learner.learn(STREAM[1], on_step=on_step)
    finally:
        signal.signal(signal.SIGINT, before)
    assert set(handlers) == {own}


def test_a_ctrl_c_is_not_lost_if_learning_fails_with_an_error():
    def on_step(_):
        signal.raise_signal(signal.SIGINT)
        raise ValueError

    with pytest.raises(KeyboardInterrupt):
        learner_for("van").learn(STREAM[0], on_step=on_step)


def test_an_interrupted_task_goes_on_with_its_own_data_only(monkeypatch):
    learner = two_learners()[0]
    hang(learner, 1, monkeypatch)
    other = mdmt.Task(STREAM[1].name, *TINY, classes=STREAM[1].classes)
    assert "with 30 training examples, and now has 2: go on with the same" in mistake(
        learner.learn, other
    )
    learner.learn(STREAM[1])
