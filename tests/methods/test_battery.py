"""One battery for all twelve methods. Each check is a bug that a well-known library shipped."""

import copy

import pytest
import torch

import mdmt
from mdmt import memory
from mdmt.methods import MDMTR, METHODS, VAN, Method
from support.helpers import outcome, small_stream

NAMES = list(METHODS)
REHEARSAL = [name for name, method in METHODS.items() if method.uses_memory]
ANCHORED = [name for name, method in METHODS.items() if method.kind == "regularisation"]
KINDS = ["resnet", "mlp"]  # per-task heads, masks, growth and batch norm; one shared head

SETTINGS = {
    "ewc": {"window": 3, "strength": 50.0}, "rwalk": {"window": 3}, "pi": {"strength": 0.1},
    "mer": {"replay": 1, "beta": 0.5, "gamma": 0.5}, "a-gem": {"reference_batch": 12}, "er": {"reference_batch": 12},
    "mega": {"reference_batch": 12}, "mdmt-r": {"reference_batch": 12},
}  # fmt: skip


def method_of(name, **more):
    return METHODS[name](**{**SETTINGS.get(name, {}), **more})


def stream_of(kind, tasks=3, train=24):
    name = "split-digits" if kind == "resnet" else "permuted-digits"
    return small_stream(name, tasks=tasks, train=train, test=20)


def learner_of(kind, method, kept=None, **more):
    backbone = backbone_of(kind)
    if kept is None:
        kept = memory.Reservoir(30) if method.policy == "Reservoir" else memory.Ring(3)
    heads = "per-task" if kind == "resnet" else "shared"
    settings = {"lr": 0.05, "seed": 3, "heads": heads} | more
    return mdmt.Learner(backbone, method, memory=kept, **settings)


def backbone_of(kind):
    if kind == "mlp":
        return mdmt.backbones.mlp(784, 12)
    backbone = mdmt.backbones.reduced_resnet18(1, 2)
    for module in backbone.modules():
        if isinstance(module, mdmt.backbones.BatchNorm):
            module.momentum = 0.9  # a few steps must do for statistics that start at 0
    return backbone


def ran(kind, method, stream=None, **more):
    learner = learner_of(kind, method, **more)
    learner.run(stream_of(kind) if stream is None else stream)
    return learner


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_bits(name, kind):
    first = ran(kind, method_of(name))
    torch.manual_seed(5)
    torch.rand(17)
    assert outcome(first) == outcome(ran(kind, method_of(name)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_weights_move_in_every_task_and_stay_finite(name, kind):
    seen = []
    learner = learner_of(kind, method_of(name))
    learner.run(stream_of(kind), on_step=lambda x: seen.append(x.model.sha256()))
    assert len(set(seen)) == len(seen)
    assert torch.isfinite(learner.model.flat).all()
    assert learner.record.metrics["A_T"] is not None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["a-gem", "gem", "er", "mega"])
def test_no_memory_is_plain_fine_tuning(name, kind):
    empty = memory.Reservoir(0) if METHODS[name].policy == "Reservoir" else memory.Ring(0)
    assert outcome(ran(kind, method_of(name), kept=empty)) == outcome(ran(kind, VAN()))
    assert outcome(ran(kind, method_of(name)))[-1] != outcome(ran(kind, VAN()))[-1]


@pytest.mark.parametrize("kind", KINDS)
def test_mer_without_memory_and_meta_steps_is_plain_fine_tuning_on_single_examples(kind):
    method = method_of("mer", beta=1.0, gamma=1.0)
    stream = stream_of(kind, train=10)
    plain = ran(kind, VAN(), stream, batch=1)
    assert outcome(ran(kind, method, stream, kept=memory.Reservoir(0), batch=1)) == outcome(plain)
    assert outcome(ran(kind, method_of("mer"), stream, batch=1))[-1] != outcome(plain)[-1]


@pytest.mark.parametrize("kind", KINDS)
def test_mdmt_r_without_memory_is_its_own_loss_without_rehearsal(kind):
    class Alone(MDMTR):
        def gradient(self, batch):
            return self.grad(batch)[1]

    settings = SETTINGS["mdmt-r"]
    assert outcome(ran(kind, MDMTR(**settings), kept=memory.Ring(0))) == outcome(ran(kind, Alone(**settings)))
    assert outcome(ran(kind, MDMTR(**settings)))[-1] != outcome(ran(kind, Alone(**settings)))[-1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ANCHORED)
def test_strength_zero_is_plain_fine_tuning_and_more_is_not(name, kind):
    plain = outcome(ran(kind, VAN()))
    assert outcome(ran(kind, method_of(name, strength=0.0))) == plain
    one_task, held = stream_of(kind, tasks=1), ran(kind, method_of(name))
    assert outcome(held)[-1] != plain[-1]
    assert outcome(ran(kind, method_of(name), one_task)) == outcome(ran(kind, VAN(), one_task))  # nothing to hold yet


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ANCHORED)
def test_a_stronger_pull_holds_the_weights_closer(name, kind):
    """Between the ends of tasks 1 and 2, weighted by the importances of task 1."""
    distances = []
    for pull in (0.0, 10.0):
        learner = learner_of(kind, method_of(name), lr=0.02)
        first, second = stream_of(kind, tasks=2, train=40 if kind == "resnet" else 400)
        learner.learn(first)
        start, importance = learner.model.flat.detach().clone(), learner.method.importance.clone()
        learner.method.strength = pull / float(importance.max())  # as strong as steps of .02 bear
        learner.learn(second)
        size = len(start)
        distances.append(float((importance * (learner.model.flat.detach()[:size] - start).square()).sum()))
    assert importance.max() > 0
    assert distances[1] < distances[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_every_training_pass_is_in_train_mode(name, kind):
    method = method_of(name)
    learner, inside, passes = learner_of(kind, method), [False], [0]
    step = method.step

    def watched(batch):
        inside[0] = True
        step(batch)
        inside[0] = False

    def forward(module, *_):
        if inside[0]:
            passes[0] += 1
            assert all(m.training for m in learner.backbone.modules())

    method.step = watched
    learner.backbone.register_forward_pre_hook(forward)
    learner.run(stream_of(kind))
    assert passes[0] >= learner.record.steps


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_the_end_of_a_task_leaves_the_network_alone(name, kind):
    """Weights, batch-norm statistics, gradients, modes and random state."""
    method = method_of(name, **({"reading": "paper"} if name == "ewc" else {}))
    learner, calls = learner_of(kind, method), [0]
    end = method.end_task

    def traces():
        gradient = [] if learner.model.flat.grad is None else learner.model.flat.grad.tolist()
        leaves = [leaf.grad for leaf in learner.model.leaves]
        modes = [m.training for m in learner.backbone.modules()]
        return learner.model.sha256(), gradient, leaves, modes, torch.get_rng_state().tolist()

    def watched():
        before = traces()
        end()
        assert traces() == before
        calls[0] += 1

    method.end_task = watched
    learner.run(stream_of(kind))
    assert calls[0] == (1 if name == "joint" else 3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_what_a_method_remembers_does_not_alias_the_live_weights(name, kind):
    learner = ran(kind, method_of(name))
    method = learner.method
    method.begin_task()
    before = {key: getattr(method, key).clone() for key in method.buffers()}
    with torch.no_grad():
        learner.model.flat.add_(1.0)
    for key, value in before.items():
        assert torch.equal(getattr(method, key), value), key


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", REHEARSAL)
def test_the_memory_fills_from_the_first_example_on(name, kind):
    learner, written = learner_of(kind, method_of(name)), []

    def after(x):
        held = x.memory.inputs
        written.append(int(held.flatten(1).any(1).sum()))
        if isinstance(x.memory, memory.Reservoir):
            assert len(x.memory) == min(30, x.record.steps * 10)
        else:
            assert len(x.memory) == sum(min(3, n) for task in finished for n in task)

    finished = []
    for task in stream_of(kind, train=20):
        learner.learn(task, on_step=after)
        finished.append(torch.bincount(task.train.labels).tolist())
    assert written[0] > 0
    if not isinstance(learner.memory, memory.Reservoir):
        assert len(learner.memory) == sum(min(3, n) for task in finished for n in task)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", REHEARSAL)
def test_more_tasks_than_memory_slots_or_drawn_samples(name, kind):
    kept = memory.Reservoir(2) if METHODS[name].policy == "Reservoir" else memory.Ring(1)
    settings = {"reference_batch": 1} if "reference_batch" in METHODS[name]().arguments else {}
    learner = ran(kind, method_of(name, **settings), stream_of(kind, tasks=4, train=10), kept=kept)
    assert torch.isfinite(learner.model.flat).all()


@pytest.mark.parametrize("name", NAMES)
def test_a_loss_of_exactly_zero(name):
    """Tasks of one class each, every task with its own head: nothing to tell apart, no gradient."""
    x = torch.rand(12, 6, generator=torch.Generator().manual_seed(1))
    tasks = [mdmt.Task(f"only {i}", x, [i] * 12, test=(x, [i] * 12)) for i in range(3)]
    method = method_of(name)
    kept = memory.Reservoir(4) if method.policy == "Reservoir" else memory.Ring(2)
    learner = mdmt.Learner(mdmt.backbones.mlp(6, 5), method, memory=kept, lr=0.1, outputs=0)
    learner.run(mdmt.Stream("ones", tasks))
    assert torch.isfinite(learner.model.flat).all()
    assert learner.record.accuracy[-1] == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_resuming_in_the_middle_of_a_task_changes_nothing(name, kind, tmp_path):
    class Stop(Exception):
        pass

    stream = stream_of(kind)
    straight = ran(kind, method_of(name))
    interrupted, stop_at = learner_of(kind, method_of(name)), straight.record.steps * 2 // 3

    def stop(learner):
        if learner.record.steps == stop_at:
            learner.save(tmp_path)
            raise Stop

    with pytest.raises(Stop):
        interrupted.run(stream, on_step=stop)
    resumed = mdmt.Learner.load(tmp_path, backbone=backbone_of(kind))
    resumed.run(stream)
    assert outcome(resumed) == outcome(straight)


@pytest.mark.parametrize("name", NAMES)
def test_growth_changes_nothing_for_the_rows_that_were_there(name):
    """A head that has room from the start, and one that grows: the same number of classes competes, so the same result."""
    if name == "mdmt-r":
        pytest.skip("the released loss counts the outputs declared for the stream: they differ here")
    stream = stream_of("resnet")
    learner = learner_of("resnet", method_of(name), outputs=2)
    for task in learner.method.arrange(stream):
        learner.learn(task)
    assert torch.isfinite(learner.model.flat).all()
    assert len(learner.model.head) >= 6
    for key, buffer in learner.method.buffers().items():
        if buffer.like:
            assert getattr(learner.method, key).shape == learner.model.flat.shape


def test_every_method_says_what_it_is():
    for name, method in METHODS.items():
        assert method.name == name
        assert method.kind in ("rehearsal", "regularisation", "bound")
        assert method.source
        assert issubclass(method, Method)
        made = method()
        assert type(made)(**made.arguments).arguments == made.arguments
        copy.deepcopy(made)


def test_the_twelve_rows_of_table_1():
    assert NAMES == ["joint", "van", "ewc", "mas", "rwalk", "pi", "mer", "gem", "a-gem", "er", "mega", "mdmt-r"]
