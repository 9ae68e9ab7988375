"""Learning on a device other than the CPU: no mixed devices, no waiting, the same numbers."""

import gc
import math

import pytest
import torch

import mdmt
import mdmt.inputs.device as inputs_device
from mdmt.backbones import Backbone, BatchNorm, Conv
from mdmt.learning.checkpoints import Checkpoints
from mdmt.learning.checkpoints import read as read_states
from mdmt.learning.reader import Reader
from mdmt.methods import METHODS
from mdmt.network.heads import Heads
from mdmt.tasks import RowView
from support.elsewhere import DEVICE, Elsewhere, Mixed, Remote
from support.helpers import small_stream

# What a method may wait for in a step, and why.
# Its quadratic program is solved there: it has as many unknowns as tasks.
MAY_WAIT = {"gem": {"copy to the processor"}}


class Small(Backbone):
    """A convolution and a batch norm: the parts of a residual network, once each."""

    channels_last = True

    def __init__(self):
        super().__init__("small")
        self.conv = Conv(1, 4, 3, stride=4)
        self.norm = BatchNorm(4, start="fast")

    def forward(self, x):
        return self.norm(self.conv(x)).relu().flatten(1)


BACKBONES = {"permuted-digits": lambda: mdmt.backbones.mlp(784, 8), "split-digits": Small}


@pytest.fixture(autouse=True)
def room(monkeypatch):
    """Pretend that the second device has enough memory for all inputs."""
    monkeypatch.setattr(inputs_device, "free_bytes", lambda _: 2**40)


def make(method="er", benchmark="split-digits", memory=None, backbone=None, **more):
    made = METHODS[method]() if isinstance(method, str) else method
    if memory is None:
        memory = mdmt.memory.Reservoir(30) if made.policy else mdmt.memory.Ring(3)
    batch = 2 if made.one_by_one else 10
    return mdmt.Learner(
        backbone or BACKBONES[benchmark](), made, memory=memory, **{"batch": batch, **more}
    )


def stream_for(learner, benchmark="split-digits"):
    """Twenty steps, ten of each of two tasks."""
    return small_stream(benchmark, tasks=2, train=10 * learner.batch)


def watch_steps(learner, elsewhere):
    """Record where the steps of a learner wait for the device."""
    seen = []
    usual = learner.step

    def step(batch):
        before = len(elsewhere.waits)
        usual(batch)
        seen.extend(elsewhere.waits[before:])

    learner.step = step
    return seen


def compare(make_learner, benchmark="split-digits"):
    """Run on the CPU and on the device, compare the results, and return the waits of the device."""
    here = make_learner()
    here.run(stream_for(here, benchmark))
    with Elsewhere() as elsewhere:
        there = make_learner(device=str(DEVICE))
        waits = watch_steps(there, elsewhere)
        there.run(stream_for(there, benchmark))
        assert isinstance(there.model.flat, Remote)
        assert all(isinstance(weight, Remote) for weight in there.backbone.parameters())
        weights = there.model.flat.detach().cpu()
    assert here.record.steps == there.record.steps >= 20
    assert torch.equal(weights, here.model.flat.detach())
    assert there.record.accuracy == here.record.accuracy
    assert there.record.curve == here.record.curve
    assert there.record.drift == here.record.drift
    for one, other in zip(here.recorder.step_log, there.recorder.step_log, strict=True):
        assert one[:4] + one[5:] == other[:4] + other[5:]
    return set(waits)


@pytest.mark.parametrize("benchmark", BACKBONES)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_on_another_device_without_waiting_for_it(method, benchmark):
    waits = compare(lambda **more: make(method, benchmark, **more), benchmark)
    assert waits <= MAY_WAIT.get(method, set())


VARIANTS = {
    "ewc paper": lambda: {"method": mdmt.EWC(reading="paper", samples=3)},
    "ewc folds": lambda: {"method": mdmt.EWC(window=4)},
    "rwalk folds": lambda: {"method": mdmt.RWalk(window=4, reading="paper")},
    "mas paper": lambda: {"method": mdmt.MAS(reading="paper")},
    "mega paper": lambda: {"method": mdmt.MEGA(reading="paper", form="I", threshold=0.5)},
    "mdmt-r paper": lambda: {"method": mdmt.MDMTR(reading="paper", average=0.9, last_step=0.1)},
    "mdmt-r linear": lambda: {"method": mdmt.MDMTR(head="linear", distance="none")},
    "task ring": lambda: {"method": "a-gem", "memory": mdmt.memory.TaskRing(3)},
    "at task end": lambda: {"method": "mdmt-r", "memory": mdmt.memory.AtTaskEnd(3)},
    "crop and flip": lambda: {"method": "mdmt-r", "augment": "crop-flip"},
    "adam": lambda: {"optimiser": "Adam", "lr": 0.01},
    "a head that grows": lambda: {
        "outputs": 2,
        "optimiser": "SGD",
        "optimiser_arguments": {"momentum": 0.9},
    },
    "a residual network": lambda: {"backbone": mdmt.backbones.reduced_resnet18(1, 2)},
    "a mean of inputs": lambda: {"mean": torch.full((1, 28, 28), 0.1), "per_class": True},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_so_does_every_setting(variant):
    assert compare(lambda **more: make(**VARIANTS[variant](), **more)) == set()


@pytest.mark.parametrize("method", ["mdmt-r", "der++"])
def test_what_does_not_fit_is_gathered_from_the_processor(method, monkeypatch):
    monkeypatch.setattr(inputs_device, "free_bytes", lambda _: 0)
    waits = compare(lambda **more: make(method, "permuted-digits", **more), "permuted-digits")
    assert waits == {"copy to the processor"}  # what is kept of a batch is written there
    with Elsewhere():
        learner = make(method, device=str(DEVICE))
        learner.run(stream_for(learner))
        assert not isinstance(learner.memory.inputs, Remote)


def test_a_view_of_ones_own_is_applied_on_the_processor():
    order = torch.arange(783, -1, -1)
    plain = small_stream(tasks=1)[0]
    backwards = mdmt.Task(
        "backwards",
        plain.train.inputs.flatten(1),
        plain.train.labels.tolist(),
        view=lambda x: x[:, order],
    )
    with Elsewhere():
        learner = mdmt.Learner(mdmt.backbones.mlp(784, 8), device=str(DEVICE))
        learner.learn(backwards)
        seen = learner.read(backwards, torch.arange(5)).inputs.cpu()
    assert torch.equal(seen, backwards.train.inputs[:5].flip(1))


def test_more_data_and_answers():
    stream = small_stream(tasks=2)
    test = stream[0].test.inputs
    answers = []
    for device in ("cpu", str(DEVICE)):
        with Elsewhere():
            learner = make("mdmt-r", device=device)
            learner.run(stream)
            learner.learn(stream[0], more=True)
            answers.append(
                (
                    learner.predict(test),
                    learner.predict(test, task=stream[0].name),
                    learner.predict_with_task(test),
                    learner.predict_proba(test).tolist(),
                    learner.evaluate(stream[1]),
                    len(learner.memory),
                )
            )
    assert answers[0] == answers[1]


def test_data_that_are_on_the_device_already_stay_where_they_are():
    task = small_stream(tasks=1)[0]
    names = [task.classes[label] for label in task.train.labels]
    here = make()
    here.learn(mdmt.Task("digits", task.train.inputs, names))
    with Elsewhere():
        there = make(device=str(DEVICE))
        there.learn(mdmt.Task("digits", task.train.inputs.to(DEVICE), names))
        assert torch.equal(there.model.flat.detach().cpu(), here.model.flat.detach())
        assert len(there.reader._copies) == 0


# Checkpoints.


class Enough(Exception):
    pass


def stop_at(steps):
    def look(learner):
        if learner.record.steps == steps:
            raise Enough

    return look


@pytest.mark.parametrize(("first", "second"), [("cpu", "meta"), ("meta", "cpu")])
@pytest.mark.parametrize("method", ["mdmt-r", "rwalk", "der++"])
def test_a_checkpoint_of_one_device_goes_on_on_another(method, first, second, tmp_path):
    whole = make(method)
    stream = stream_for(whole)
    whole.run(stream)
    with Elsewhere():
        learner = make(method, device=first)
        with pytest.raises(Enough):
            learner.run(stream, on_step=stop_at(13), checkpoint=Checkpoints(tmp_path, every=13))
        loaded = mdmt.Learner.load(tmp_path, backbone=Small(), device=second)
        loaded.run(stream)
        assert loaded.model.flat.device.type == second
        weights = loaded.model.flat.detach().cpu()
    assert loaded.record.steps == whole.record.steps
    assert torch.equal(weights, whole.model.flat.detach())
    assert loaded.record.accuracy == whole.record.accuracy


def test_files_do_not_say_where_they_were_computed(tmp_path):
    names = []
    for device in ("cpu", str(DEVICE)):
        folder = tmp_path / device
        with Elsewhere():
            learner = make("rwalk", device=device, optimiser="Adam", lr=0.01)
            learner.run(stream_for(learner))
            learner.record.seconds = 0.0
            learner.save(folder)
        for tensors, _ in read_states(folder).values():
            assert all(value.device.type == "cpu" for value in tensors.values())
        # Named by their content.
        names.append(sorted(file.name for file in folder.glob("m*.safetensors")))
    assert names[0] == names[1]
    with Elsewhere():
        loaded = mdmt.Learner.load(folder, backbone=Small(), device=str(DEVICE))
        assert isinstance(loaded.method.importance, Remote)
        kept = loaded.optimiser.state()[0]
        assert isinstance(kept["exp_avg"], Remote)
        assert not isinstance(kept["step"], Remote)  # torch reads it at every step


# What is not finite.


class Spoilt(mdmt.VAN):
    """The eighth loss, that of step 7, is not finite."""

    def loss(self, features, batch):
        self.count = getattr(self, "count", 0) + 1
        return super().loss(features, batch) * (math.nan if self.count == 8 else 1.0)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_loss_that_is_not_finite_is_named_with_its_step_though_it_is_read_later(device):
    with Elsewhere() as elsewhere:
        learner = make(Spoilt(), device=device)
        waits = watch_steps(learner, elsewhere)
        with pytest.raises(FloatingPointError, match=r"step 7: the loss is not finite"):
            learner.run(stream_for(learner))
    assert learner.step_in_task == (7 if device == "cpu" else 10)  # there, at the task's end
    assert not waits


def test_it_is_read_before_a_checkpoint_and_every_so_many_steps(tmp_path, monkeypatch):
    with Elsewhere():
        learner = make(Spoilt(), device=str(DEVICE))
        with pytest.raises(
            FloatingPointError, match=r"step 7.*the last good state is that of task .*, step 6,"
        ):
            learner.run(stream_for(learner), checkpoint=Checkpoints(tmp_path, every=3))
        assert learner.step_in_task == 9
        monkeypatch.setattr("mdmt.learning.recorder.READ_EVERY", 3)
        learner = make(Spoilt(), device=str(DEVICE))
        with pytest.raises(FloatingPointError, match="step 7"):
            learner.run(stream_for(learner))
        assert learner.step_in_task < 10


# Where data lie.


def test_free_memory_is_measured(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(
        torch.cuda, "mem_get_info", lambda device: (1000 * (1 + device.index), 9999)
    )
    assert inputs_device.free_bytes(torch.device("cuda:2")) == 3000
    assert inputs_device.fits(1500, torch.device("cuda:2"))
    assert not inputs_device.fits(1501, torch.device("cuda:2"))
    assert inputs_device.fits(2**60, torch.device("cpu"))


def test_inputs_are_copied_once_for_all_tasks_that_share_them_and_given_back():
    pixels = torch.arange(12, dtype=torch.uint8).view(6, 2)
    even, odd = (RowView(pixels, torch.arange(start, 6, 2)) for start in (0, 1))
    tasks = [mdmt.Task("even", even, [0, 1, 0]), mdmt.Task("odd", odd, [0, 1, 0])]
    heads = Heads("per-task", device=DEVICE)
    reader = Reader(heads, DEVICE)
    with Elsewhere() as elsewhere:
        for task, rows in zip(tasks, ([[8, 9]], [[10, 11]]), strict=True):
            assert reader.inputs(task, "train", torch.tensor([2])).tolist() == rows
    assert elsewhere.waits.count("copy from the processor that blocks") == 1
    assert len(reader._copies) == 1
    del pixels, even, odd, tasks, task
    gc.collect()
    assert len(reader._copies) == 0


# The second device itself: a test that cannot fail would show nothing.


@pytest.mark.parametrize(
    "mix",
    [
        lambda x: x + torch.ones(3),
        lambda x: x[torch.tensor([0, 1])],
        lambda x: x.index_select(0, torch.tensor([0])),
        lambda x: torch.cat([x, torch.ones(3)]),
        lambda x: x.uniform_(generator=torch.Generator()),
        lambda x: torch.where(torch.ones(3, dtype=torch.bool), x, x),
    ],
)
def test_mixing_raises(mix):
    with Elsewhere() as elsewhere:
        with pytest.raises(Mixed):
            mix(torch.ones(3, device=DEVICE))
        assert elsewhere.waits == []


@pytest.mark.parametrize(
    "wait",
    [
        lambda x: x.sum().item(),
        lambda x: bool((x > 0).all()),
        lambda x: x.cpu(),
        lambda x: x.tolist(),
        lambda x: x.nonzero(),
        lambda x: x[x > 0],
        lambda x: x.masked_select(x > 0),
        lambda x: torch.ones(3).to(DEVICE),
        lambda x: torch.ones(3).to(DEVICE, non_blocking=True),
        lambda x: torch.tensor([1.0], device=DEVICE),
        lambda x: torch.empty(3).copy_(x),
    ],
)
def test_waiting_is_noticed(wait):
    with Elsewhere() as elsewhere:
        x = torch.ones(3, device=DEVICE)
        assert elsewhere.waits == []
        wait(x)
    assert len(elsewhere.waits) == 1
