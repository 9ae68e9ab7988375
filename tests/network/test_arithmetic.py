"""The formulas of docs/scale.md, each against what is counted in a step and held in the buffers.

N samples pass in a step; F operations take one forward through the backbone, `first` of them its
first layer; d features, C rows of the head, P parameters in all.
"""

import dataclasses

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import mdmt
from mdmt import ranks
from mdmt.methods import METHODS
from support.helpers import small_stream

NEW, OLD, CLASSES = 10, 20, 30
PIXELS, WIDTH = 784, 16
MLP_FORWARD = 2 * (PIXELS * WIDTH + WIDTH * WIDTH)
MLP_FIRST = 2 * PIXELS * WIDTH


def step_operations(samples, forward, first, features, classes, ranks=1):
    """Forward, gradient of weights, and gradient of inputs except in the first layer.

    Ranks share the samples, but each computes the whole head.
    """
    return samples // ranks * (3 * forward - first) + 6 * samples * features * classes


def memory_bytes(examples, input_bytes, represented=0):
    """An input, its label and its task, and 4 bytes for each number of its representation."""
    return examples * (input_bytes + 8 + 8 + 4 * represented)


def counted(learner, batches=12):
    """The measured operations of every step."""
    operations = []
    usual = learner.step

    def step(batch):
        with FlopCounterMode(display=False) as counter:
            usual(batch)
        operations.append(counter.get_total_flops())

    learner.step = step
    stream = small_stream(tasks=2, train=NEW * batches // 2)
    learner.run(dataclasses.replace(stream, outputs=CLASSES))
    return operations


def make(method, backbone=None, memory=None):
    memory = mdmt.memory.Reservoir(OLD) if memory is None else memory
    return mdmt.Learner(
        backbone or mdmt.backbones.mlp(PIXELS, WIDTH), method, memory=memory, batch=NEW
    )


@pytest.mark.parametrize(
    ("method", "samples"),
    [
        (mdmt.VAN(), NEW), (mdmt.EWC(), NEW), (mdmt.ER(reference_batch=OLD), NEW + OLD),
        (mdmt.AGEM(reference_batch=OLD), NEW + OLD), (mdmt.MDMTR(reference_batch=OLD, distance="none"), NEW + OLD),
    ],
    ids=lambda value: getattr(value, "name", ""),
)  # fmt: skip
def test_operations_of_a_step(method, samples):
    last = counted(make(method))[-1]
    assert last == step_operations(samples, MLP_FORWARD, MLP_FIRST, WIDTH, CLASSES)


def test_representations_take_one_more_forward_of_what_is_kept():
    last = counted(make(mdmt.MDMTR(reference_batch=OLD), memory=mdmt.memory.Ring(NEW)))[-1]
    usual = step_operations(NEW + OLD, MLP_FORWARD, MLP_FIRST, WIDTH, CLASSES)
    assert last == usual + NEW * MLP_FORWARD


def test_operations_of_a_residual_network():
    learner = make(mdmt.ER(reference_batch=OLD), mdmt.backbones.reduced_resnet18(1, 2))
    last = counted(learner)[-1]
    with FlopCounterMode(display=False) as counter:
        learner.model.embed(torch.zeros(1, 1, 28, 28, dtype=torch.uint8))
    first = 2 * 28 * 28 * 3 * 3 * 2
    assert last == step_operations(NEW + OLD, counter.get_total_flops(), first, 8 * 2, CLASSES)


def test_gem_passes_all_that_it_holds():
    learner = make(mdmt.GEM(), memory=mdmt.memory.Ring(NEW))
    last = counted(learner)[-1]
    usual = step_operations(2 * NEW + NEW, MLP_FORWARD, MLP_FIRST, WIDTH, CLASSES)
    # each has a gradient; they are multiplied with each other, and those of the past are added up
    tasks = 2
    assert last == usual + 2 * (tasks**2 + tasks - 1) * learner.model.flat.numel()


@pytest.mark.parametrize("method", ["er", "mdmt-r", "der++"])
def test_bytes_of_a_memory(method):
    learner = make(METHODS[method](reference_batch=OLD), memory=mdmt.memory.Reservoir(50))
    counted(learner)
    represented = {"er": 0, "mdmt-r": WIDTH, "der++": CLASSES}[method]
    assert sum(learner.memory.bytes.values()) == memory_bytes(50, PIXELS, represented)


@pytest.mark.parametrize(
    ("method", "vectors"),
    [("er", 0), ("mas", 3), ("pi", 5), ("ewc", 6), ("rwalk", 10), ("mdmt-r", 0)],
)
def test_bytes_of_parameters_and_of_what_a_method_remembers_of_them(method, vectors):
    learner = make(METHODS[method]())
    counted(learner)
    parameters = PIXELS * WIDTH + WIDTH + WIDTH * WIDTH + WIDTH + CLASSES * (WIDTH + 1)
    assert learner.model.flat.nbytes == 4 * parameters
    counters = 4 if method in ("ewc", "rwalk") else 0
    assert learner.method.buffer_bytes == 4 * parameters * vectors + counters


def test_operations_and_bytes_of_one_of_two_ranks(monkeypatch):
    sent = []
    monkeypatch.setattr(ranks, "sum_", lambda x: sent.append(x.nbytes) or x)
    monkeypatch.setattr(ranks, "size", lambda: 2)
    monkeypatch.setattr(ranks, "check_equal", lambda *_: None)
    learner = make(mdmt.ER(reference_batch=OLD))
    usual = learner.step

    def step(batch):
        sent.clear()
        usual(batch)

    learner.step = step
    operations = counted(learner)
    assert operations[-1] == step_operations(
        NEW + OLD, MLP_FORWARD, MLP_FIRST, WIDTH, CLASSES, ranks=2
    )
    in_step = sent[:2]  # behind them, what is evaluated at the end of a task
    assert sorted(in_step) == sorted([4 * learner.model.flat.numel(), 4 * (NEW + OLD) * WIDTH])
