"""Algorithm 1 end to end: its update, determinism, saving, growing, and the inputs it refuses."""

import dataclasses
import hashlib
import json
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import mdmt
from mdmt import memory
from mdmt.learning.checkpoints import Checkpoints
from mdmt.methods import MDMTR, PI, VAN
from mdmt.system.state import StateFolder
from support.helpers import outcome, small_stream

FIXTURES = Path(__file__).parents[1] / "fixtures"


def resnet_learner(method=None, **more):
    settings = {"memory": memory.Ring(5), "lr": 0.03, "seed": 3} | more
    return mdmt.Learner(
        mdmt.backbones.reduced_resnet18(1, 2), method or MDMTR(reference_batch=16), **settings
    )


MARGINS = {"task_margin": 0.3, "class_margin": 0.05, "scale": 17.0}
VARIANTS = [
    {},
    {"reading": "paper"},
    {"head": "linear", "competitors": "seen", "distance": "mse"},
    {"competitors": "own"},
]


def loss_of_one(method, model, shared, current, f, y, k):
    """The loss of one example of task k, with angles and sums written out (Eq. 4-8)."""
    owner, k, s = model.head_of_class.tolist(), 0 if shared else k, 17.0
    m_t, m_c = 0.0 if shared else 0.3, 0.05
    seen = [j for j, head in enumerate(owner) if head >= 0]
    own = [j for j in seen if owner[j] == k]
    weight, bias = model.head[:, :-1], model.head[:, -1]
    if method.head == "linear":
        logits = {j: weight[j] @ f + bias[j] for j in seen}
        return torch.stack(list(logits.values())).logsumexp(0) - logits[y]
    angle = {j: torch.acos(weight[j] @ f / (weight[j].norm() * f.norm())) for j in seen}
    if method.competitors == "released":
        selected = own if k == current else [j for j in seen if owner[j] <= k]
        logits = {j: s * torch.cos(angle[j] + m_t) for j in selected}
        logits[y] = logits[y] + s * (torch.cos(angle[y] + m_c) - torch.cos(angle[y]))
        constants = [torch.tensor(0.0)] * (10 - len(selected))  # the stream has ten outputs
        return torch.stack([*logits.values(), *constants]).logsumexp(0) - logits[y]
    logits = {j: s * torch.cos(angle[j] + (m_t if j in own else 0.0)) for j in seen}
    logits[y] = s * torch.cos(angle[y] + m_c + m_t)
    rivals = own if method.competitors == "own" else seen
    return torch.stack([logits[j] for j in rivals]).logsumexp(0) - logits[y]


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", ["resnet", "mlp", "new classes in one head"])
def test_the_update_is_the_sum_of_three_gradients(variant, kind):
    """g~ = g + g_ref + g_ED, each by autograd alone, with the losses written out by hand."""
    method = MDMTR(reference_batch=16, **MARGINS, **variant)
    if kind == "resnet":
        learner, stream = resnet_learner(method, outputs=10), small_stream()
    else:
        learner = mdmt.Learner(
            mdmt.backbones.mlp(784, 16), method, lr=0.03, heads="shared", outputs=10
        )
        stream = small_stream(
            "permuted-digits" if kind == "mlp" else "split-digits", heads="shared"
        )
    learner.learn(stream[0])
    learner.learn(stream[1])
    learner._open(stream[2], ())
    model, shared = learner.model, kind != "resnet"
    model.backbone.train()
    reference, batch = learner.memory.sample(16), learner.read(stream[2], torch.arange(10))
    assert set(reference.tasks.tolist()) == {0, 1}
    learner.memory.sample = lambda count: reference

    def gradient(examples, of):
        features = model.features(examples.inputs)
        return model.gradient(torch.stack([of(i, f) for i, f in enumerate(features)]).mean())

    def margin_loss(examples):
        y, k = examples.labels.tolist(), examples.tasks.tolist()
        return lambda i, f: loss_of_one(method, model, shared, 2, f, y[i], k[i])

    def moved(i, f):
        gap = f - reference.features[i]
        return sum(gap**2) / len(gap) if method.distance == "mse" else sum(abs(gap)) / len(gap)

    g = gradient(batch, margin_loss(batch))
    g_ref = gradient(reference, margin_loss(reference))
    g_ed = gradient(reference, moved)
    assert min(x.abs().max() for x in (g, g_ref, g_ed)) > 0
    together = method.gradient(batch)
    assert torch.allclose(together, g + g_ref + g_ed, atol=1e-9 * together.abs().max())
    before = model.flat.detach().clone()
    learner.apply(together)
    assert torch.allclose(model.flat, before - 0.03 * together, atol=1e-12)


def test_a_model_that_0_1_0_saved_loads_as_it_was(tmp_path):
    """Its batch norm starts at 0, although its file does not say so, also in further learning."""
    (folder,) = FIXTURES.glob("runs-0.1.0/split-digits/er/*/1235/checkpoint")
    learner = mdmt.Learner.load(folder)
    norms = [
        module
        for module in learner.backbone.modules()
        if isinstance(module, mdmt.backbones.BatchNorm)
    ]
    assert {norm.start for norm in norms} == {"zero"}
    assert min(norm.running_var.max() for norm in norms) > 0
    learner.save(tmp_path)
    again = mdmt.Learner.load(tmp_path)
    assert again.backbone.spec == {
        "name": "reduced_resnet18",
        "arguments": {"channels": 1, "width": 2},
    }
    assert again.model.sha256() == learner.model.sha256()


def test_the_first_task_is_learned_without_rehearsal():
    """The memory is still empty, so MDMT-R follows the gradient of its own loss alone."""
    stream = small_stream(tasks=1)
    learners = [
        resnet_learner(MDMTR(reference_batch=16)),
        resnet_learner(MDMTR(reference_batch=16), memory=memory.Ring(0)),
    ]
    for learner in learners:
        learner.run(stream)
    assert outcome(learners[0]) == outcome(learners[1])


def test_memory_holds_features_of_the_moment_of_writing():
    stream, learner = small_stream(tasks=1), resnet_learner()
    expected = {}

    def follow(learner):
        # the batch just learned is the one before `done`, in the order that seed, task and epoch
        # give
        order = np.random.default_rng([3, 1, 0, 0]).permutation(40)[
            (learner.step_in_task - 1) * 10 : learner.step_in_task * 10
        ]
        with learner.model.evaluating():
            inputs = stream[0].train.inputs[order]
            for image, feature in zip(inputs, learner.model.features(inputs), strict=True):
                expected[image.numpy().tobytes()] = feature

    learner.learn(stream[0], on_step=follow)
    held = learner.memory.sample(100)
    assert len(held) == 10
    for image, feature in zip(held.inputs, held.features, strict=True):
        assert torch.allclose(feature, expected[image.numpy().tobytes()], atol=1e-6)


@pytest.mark.parametrize("method", [VAN, MDMTR])
def test_same_seed_same_bits_whatever_ran_before(method):
    stream = small_stream()
    first = resnet_learner(method())
    first.run(stream)
    torch.manual_seed(99)
    np.random.seed(99)  # noqa: NPY002
    torch.rand(1000)
    resnet_learner(VAN(), seed=77).run(small_stream(tasks=1))
    second = resnet_learner(method())
    second.run(stream)
    assert outcome(first) == outcome(second)
    other = resnet_learner(method(), seed=4)
    other.run(stream)
    assert other.model.sha256() != first.model.sha256()


# The head grows task by task (0), or has all its rows from the start.
@pytest.mark.parametrize("outputs", [0, 10])
@pytest.mark.parametrize("optimiser", ["SGD", "Adam"])
@pytest.mark.parametrize("method", [VAN, MDMTR])
def test_saving_changes_nothing(tmp_path, method, optimiser, outputs):
    stream = small_stream()
    make = lambda: resnet_learner(method(), optimiser=optimiser, outputs=outputs, lr=0.01)  # noqa: E731
    straight, saved = make(), make()
    for task in stream:
        straight.learn(task)
    for number, task in enumerate(stream):
        saved.learn(task, earlier=stream.tasks[:number])  # the test examples are not saved
        saved.save(tmp_path / "model")
        saved = mdmt.Learner.load(tmp_path / "model")
    assert outcome(straight) == outcome(saved)


def test_saving_in_the_middle_of_a_task_changes_nothing(tmp_path):
    stream, straight = small_stream(), resnet_learner(outputs=0)
    for task in stream:
        straight.learn(task)

    class Stop(Exception):
        pass

    def stop(learner):
        if learner.record.steps == 6:
            learner.save(tmp_path)
            raise Stop

    interrupted = resnet_learner(outputs=0)
    interrupted.learn(stream[0])
    with pytest.raises(Stop):
        interrupted.learn(stream[1], on_step=stop)
    with pytest.raises(ValueError, match="interrupted at step 2"):
        interrupted.learn(stream[2])
    resumed = mdmt.Learner.load(tmp_path)
    for task in stream[1:]:
        resumed.learn(task, earlier=stream.tasks[:1])
    for task in stream[1:]:
        interrupted.learn(task)
    assert outcome(straight) == outcome(resumed) == outcome(interrupted)


def test_dropout_is_seeded_and_leaves_the_callers_random_state_alone(tmp_path):
    def make():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Flatten(), nn.Linear(784, 16), nn.ReLU(), nn.Dropout(0.5))
        return mdmt.Learner(net, VAN(), seed=5)

    stream = small_stream()
    first, second = make(), make()
    for task in stream:
        first.learn(task)
    torch.manual_seed(123)
    expected = torch.rand(3)
    torch.manual_seed(123)
    for number, task in enumerate(stream):
        second.learn(task, earlier=stream.tasks[:number])
        second.save(tmp_path)
        net = nn.Sequential(nn.Flatten(), nn.Linear(784, 16), nn.ReLU(), nn.Dropout(0.5))
        state = torch.get_rng_state()
        second = mdmt.Learner.load(tmp_path, backbone=net)
        assert torch.equal(state, torch.get_rng_state())
        torch.manual_seed(123)
    assert torch.equal(torch.rand(3), expected)
    assert first.model.sha256() == second.model.sha256()


def test_a_backbone_of_ones_own():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(12, 32)

        def forward(self, x):
            return self.layer(x.flatten(1)).relu()

    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3, 4))
    y = np.where(x[:, 0, 0] > 0, "right", "left")
    torch.manual_seed(0)
    learner = mdmt.Learner(Net(), lr=0.1, epochs=20)
    learner.learn(mdmt.Task("sides", x, y, test=(x, y)))
    assert learner.record.accuracy[0][0] > 0.9
    predictions = learner.predict(x, task="sides")
    assert np.mean(np.array(predictions) == y) == learner.record.accuracy[0][0]
    assert learner.features(x).shape == (60, 32)


def test_prediction_with_and_without_the_task():
    stream = small_stream(train=200, test=50)
    learner = resnet_learner(lr=0.1, memory=memory.Ring(13))
    learner.run(stream)
    for j, task in enumerate(stream):
        truth = [task.classes[i] for i in task.test.labels]
        given = learner.predict(task.test.inputs, task=task.name)
        free = learner.predict(task.test.inputs)
        assert set(given) <= set(task.classes)
        assert np.mean([a == b for a, b in zip(given, truth, strict=True)]) == pytest.approx(
            learner.record.accuracy[-1][j]
        )
        right = np.mean([a == b for a, b in zip(free, truth, strict=True)])
        assert right == pytest.approx(learner.record.accuracy_task_free[-1][j])
    assert learner.record.metrics["A_T"] > 0.6


def test_shared_head_learns_new_classes_into_the_same_head():
    stream = small_stream(heads="shared")
    learner = resnet_learner(VAN())
    learner.run(stream)
    assert learner.model.head_of_class.tolist() == [0] * 6
    assert learner.model.heads.outputs == 6


def test_the_record_has_the_shapes_of_the_run_folder():
    stream = small_stream(tasks=3, train=120)
    learner = resnet_learner(VAN())
    record = learner.run(stream).to_json()
    assert [len(row) for row in record["accuracy"]] == [3, 3, 3]
    assert record["accuracy"][0][1:] == [None, None]
    assert all(0 <= a <= 1 for i, row in enumerate(record["accuracy"]) for a in row[: i + 1])
    assert [len(row) for row in record["curve"]] == [11, 11, 11]
    assert None not in record["curve"][0]
    assert [record["drift"][i][i] for i in range(3)] == pytest.approx([0, 0, 0], abs=1e-6)
    assert record["drift"][2][0] > 1e-4
    assert record["steps"] == 36
    assert record["tasks"][0] == {"name": "digits 7 2", "classes": [7, 2], "train": 120, "test": 20}
    assert set(record["metrics"]) == {"A_T", "F_T", "LCA_10", "LTR", "A_free"}


def test_drift_counts_from_the_features_right_after_learning():
    stream = small_stream(tasks=3)
    learner = resnet_learner(VAN())
    features = []
    for task in stream:
        learner.learn(task)
        features.append(learner.features(stream[0].test.inputs))
    after, later, now = features
    moved = [float((1 - torch.cosine_similarity(now, then)).mean()) for then in (after, later)]
    assert abs(moved[0] - moved[1]) > 1e-3
    assert learner.record.drift[2][0] == pytest.approx(moved[0], abs=1e-5)


def test_what_is_not_measured_takes_no_room_in_the_record():
    """A row of nothing for every task would grow with the square of the tasks."""
    x = torch.rand(20, 4)
    learner = mdmt.Learner(mdmt.backbones.mlp(4, 4), VAN())
    for name in ("a", "b"):
        learner.learn((name, x, [0, 1] * 10))
    assert learner.record.accuracy == learner.record.drift == [[], []]
    assert learner.record.to_json()["accuracy"] == [[None, None], [None, None]]


def test_a_saved_record_does_not_change_while_the_learner_learns_on():
    x = torch.rand(20, 4)
    learner = mdmt.Learner(mdmt.backbones.mlp(4, 4), VAN())
    learner.learn(("a", x, [0, 1] * 10, (x, [0, 1] * 10)))
    _, before = learner.recorder.state()
    text = json.dumps(before)
    learner.learn(("b", x, [0, 1] * 10, (x, [0, 1] * 10)))
    assert json.dumps(before) == text


def test_a_short_tasks_curve_ends_early():
    learner = resnet_learner(VAN())
    record = learner.run(small_stream(tasks=1, train=40)).to_json()
    assert [z is None for z in record["curve"][0]] == [False] * 5 + [True] * 6  # 4 steps: Z_0..Z_4
    assert record["metrics"]["LCA_10"] is None


def test_the_curve_is_the_accuracy_before_each_of_the_first_updates():
    stream = small_stream(tasks=1, train=120)
    learner, seen = resnet_learner(VAN()), []
    learner.learn(stream[0], on_step=lambda x: seen.append(x.evaluate(stream[0])[0]))
    assert learner.record.curve[0][1:] == seen[:10]


@pytest.mark.parametrize(("batch", "steps"), [(1, 10), (2, 5), (5, 2), (10, 1), (4, 1), (20, 1)])
def test_the_curve_counts_examples_where_batches_add_up_to_ten(batch, steps):
    """Z_b is measured after 10 b examples, also for MER, which learns one at a time."""
    task = small_stream("permuted-digits", tasks=1, train=200, test=200)[0]
    learner, seen = mdmt.Learner(mdmt.backbones.mlp(784, 32), VAN(), batch=batch, lr=0.1), []
    learner._open(task, ())
    before = learner.evaluate(task)[0]
    learner.learn(task, on_step=lambda x: seen.append(x.evaluate(task)[0]))
    expected = [before, *seen[steps - 1 :: steps]][:11]
    assert learner.record.curve == [expected]
    assert len(set(expected)) > 3


def test_an_interrupted_curve_goes_on_with_its_next_point(tmp_path):
    task = small_stream("permuted-digits", tasks=1, train=60)[0]
    straight = mdmt.Learner(mdmt.backbones.mlp(784, 8), VAN(), batch=1, lr=0.05)
    straight.learn(task)
    for stop in (19, 20, 21):
        learner = mdmt.Learner(mdmt.backbones.mlp(784, 8), VAN(), batch=1, lr=0.05)

        def interrupt(x, stop=stop):
            if x.step_in_task == stop:
                x.save(tmp_path)
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            learner.learn(task, on_step=interrupt)
        resumed = mdmt.Learner.load(tmp_path)
        resumed.learn(task)
        assert resumed.record.curve == straight.record.curve
        assert len(straight.record.curve[0]) == 7


def test_all_tasks_are_evaluated_with_one_head():
    stream = small_stream("permuted-digits", tasks=3)
    learner = mdmt.Learner(mdmt.backbones.mlp(784, 16), VAN())
    record = learner.run(stream).to_json()
    assert None not in record["accuracy"][0]


def test_evaluation_leaves_no_trace():
    """Evaluation changes neither weights, batch-norm statistics, modes nor random state."""
    stream, learner = small_stream(tasks=2), resnet_learner()
    learner.learn(stream[0])
    learner.model.backbone.train()
    before, random = learner.model.sha256(), torch.get_rng_state()
    learner.evaluate(stream[0])
    learner.predict(stream[0].test.inputs)
    learner.features(stream[0].test.inputs)
    learner.with_features(learner.read(stream[0], torch.arange(3)))
    assert learner.model.sha256() == before
    assert torch.equal(torch.get_rng_state(), random)
    assert all(m.training for m in learner.model.backbone.modules())


def test_per_class_accuracy():
    from mdmt.learning.evaluation import fraction as _accuracy

    right, labels = torch.tensor([True, True, True, False]), torch.tensor([0, 0, 0, 2])
    assert _accuracy(right, labels, per_class=False) == 0.75
    assert _accuracy(right, labels, per_class=True) == 0.5


def test_epochs_see_every_example_in_a_new_order():
    stream = small_stream(tasks=1)
    learner, seen = resnet_learner(VAN(), epochs=2), []
    learner.method.after_step = lambda batch: seen.append(batch.inputs.sum((1, 2, 3)).tolist())
    learner.learn(stream[0])
    first, second = ([x for batch in half for x in batch] for half in (seen[:4], seen[4:]))
    assert sorted(first) == sorted(second)
    assert first != second
    assert learner.record.steps == 8


def test_what_a_learner_refuses(tmp_path):
    stream, learner = small_stream(), resnet_learner()
    with pytest.raises(ValueError, match="not learned anything yet"):
        learner.predict(np.zeros((1, 1, 28, 28), np.uint8))
    learner.learn(stream[0])
    steps = learner.record.steps
    with pytest.raises(ValueError, match="learned already"):
        learner.learn(stream[0])
    wide = mdmt.Task("wide", np.zeros((2, 1, 30, 30), np.uint8), [0, 1])
    with pytest.raises(ValueError, match=r"'wide': one input has shape \(1, 30, 30\)"):
        learner.learn(wide)
    with pytest.raises(ValueError, match=r"type torch\.float32"):
        learner.predict(np.zeros((1, 1, 28, 28)))
    with pytest.raises(ValueError, match="'birds' was not learned"):
        learner.predict(np.zeros((1, 1, 28, 28), np.uint8), task="birds")
    assert learner.record.steps == steps
    learner.learn(stream[1])  # and it goes on as if nothing had been
    with pytest.raises(ValueError, match=r"cannot read inputs of shape \(1, 28, 28\)"):
        mdmt.Learner(mdmt.backbones.mlp(10), VAN()).learn(stream[0])
    with pytest.raises(ValueError, match="one feature vector per input"):
        mdmt.Learner(nn.Identity(), VAN()).learn(stream[0])
    with pytest.raises(ValueError, match="no saved state here"):
        mdmt.Learner.load(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lr": 0}, "lr=0"),
        ({"lr": float("nan")}, "lr=nan"),
        ({"batch": 0}, "batch=0"),
        ({"epochs": 1.5}, "epochs=1.5"),
        ({"optimiser": "NoSuch"}, "optimiser='NoSuch'"),
        ({"heads": "none"}, "heads='none'"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        mdmt.Learner(mdmt.backbones.mlp(4, 4), **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scale": -1}, "scale=-1: must be more than 0"),
        ({"scale": "big"}, "scale='big': must be a finite number"),
        ({"task_margin": float("inf")}, "task_margin=inf"),
        ({"reference_batch": 2.5}, "reference_batch=2.5: must be a whole number"),
        ({"competitors": "all"}, "competitors='all': must be one of 'released', 'seen', 'own'"),
        ({"reading": "mine"}, "reading='mine'"),
        ({"head": "linear", "competitors": "released"}, "defined on cosines"),
    ],
)
def test_bad_settings_of_a_method(arguments, message):
    with pytest.raises(ValueError) as raised:
        MDMTR(**arguments)
    assert message in str(raised.value)


def test_readings_name_bundles():
    code, paper, linear = MDMTR(), MDMTR(reading="paper"), MDMTR(head="linear")
    assert (code.competitors, code.distance) == ("released", "l1")
    assert (paper.competitors, paper.distance) == ("seen", "mse")
    assert linear.competitors == "own"
    assert MDMTR(reading="paper", distance="none").distance == "none"
    assert MDMTR(**code.arguments).arguments == code.arguments


def test_a_loss_that_is_not_finite_stops_learning():
    stream = small_stream("permuted-digits", tasks=1)
    learner = mdmt.Learner(mdmt.backbones.mlp(784, 16), VAN(), lr=1e20)
    with pytest.raises(
        FloatingPointError,
        match=r"task 'permutation 1', step \d+: the (loss|gradient) is not finite",
    ):
        learner.run(stream)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_statistics_of_batch_norm_that_are_not_finite_stop_learning(checkpoint, tmp_path):
    """Loss, gradient and weights are finite: in training mode batch norm divides by the batch."""
    x = np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32)
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(16, affine=False)
    network = nn.Sequential(nn.Linear(8, 16, bias=False), norm, nn.ReLU())
    learner = mdmt.Learner(network, VAN(), lr=1e20)
    with pytest.raises(
        FloatingPointError, match=r"step \d+: the running variance of batch norm is not finite"
    ):
        learner.learn(("a", x, [0, 1] * 30), checkpoint=tmp_path / "state" if checkpoint else None)
    assert not norm.running_var.isfinite().all()
    assert not (tmp_path / "state").exists()


def test_a_buffer_of_ones_own_may_be_infinite():
    """Such as the mask of an attention."""
    (task,) = small_stream("permuted-digits", tasks=1)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 16))
    network.register_buffer("mask", torch.tensor([-math.inf]))
    learner = mdmt.Learner(network, VAN())
    learner.learn(task)
    assert learner.task_name is None


def test_a_gradient_too_long_for_its_numbers_stops_learning():
    """The loss and the sum of the gradient are finite, but the length of the gradient is not."""

    class Away(VAN):
        def gradient(self, batch):
            gradient = super().gradient(batch).clone()
            gradient[:2] = torch.tensor([1e25, -1e25])
            return gradient

    learner = mdmt.Learner(mdmt.backbones.mlp(784, 16), Away())
    with pytest.raises(
        FloatingPointError, match="step 0: the length of the gradient is not finite"
    ):
        learner.run(small_stream("permuted-digits", tasks=1))


def test_where_a_penalty_is_too_strong_the_message_names_its_strength():
    learner = mdmt.Learner(mdmt.backbones.mlp(784, 16), PI(strength=1e9), lr=0.1)
    with pytest.raises(
        FloatingPointError,
        match=r"learning rate or strength may help \(lr=0\.1, strength=1000000000\.0\)$",
    ):
        learner.run(small_stream("permuted-digits", tasks=2))


def test_damaged_files_are_named(tmp_path):
    learner = resnet_learner()
    learner.learn(small_stream(tasks=1)[0])
    learner.save(tmp_path)
    manifest = tmp_path / "state.json"
    whole = manifest.read_text()
    manifest.write_text(whole.replace('"lr": 0.03', '"lr": 0.04'))
    with pytest.raises(ValueError, match=r"state\.json is damaged: its checksum"):
        mdmt.Learner.load(tmp_path)
    manifest.write_text(whole[:-40])
    with pytest.raises(ValueError, match=r"state\.json is damaged: not JSON"):
        mdmt.Learner.load(tmp_path)
    manifest.write_text(whole)
    weights = next(tmp_path.glob("model-*.safetensors"))
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    with pytest.raises(ValueError, match=r"model-.*is damaged"):
        mdmt.Learner.load(tmp_path)


def test_an_interrupted_save_keeps_the_earlier_one(tmp_path, monkeypatch):
    stream, learner = small_stream(), resnet_learner()
    learner.learn(stream[0])
    learner.save(tmp_path)
    before = learner.model.sha256()
    learner.learn(stream[1])

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(StateFolder, "_write_manifest", full)
    with pytest.raises(OSError, match="No space"):
        learner.save(tmp_path)
    monkeypatch.undo()
    assert mdmt.Learner.load(tmp_path).model.sha256() == before
    learner.save(tmp_path)
    assert len(list(tmp_path.iterdir())) == 3  # nothing left over


def test_predictions_from_several_threads_are_right_while_another_learns():
    """No thread changes the mode during another's pass: results equal those of one thread."""
    stream, learner, alone = small_stream(tasks=2, train=60), resnet_learner(), resnet_learner()
    for one in (learner, alone):
        one.learn(stream[0])
    inputs = stream[0].test.inputs
    expected = learner.predict(inputs, task=stream[0].name)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: learner.predict(inputs, task=stream[0].name), range(40)))
    assert all(answer == expected for answer in answers)
    assert learner.model.sha256() == alone.model.sha256()
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(learner.predict, inputs) for _ in range(20)]
        learner.learn(stream[1])
        assert all(len(future.result()) == len(inputs) for future in asked)
    alone.learn(stream[1])
    assert learner.model.sha256() == alone.model.sha256()


def test_a_second_stream_counts_on_and_leaves_no_snapshots_of_the_first():
    whole = small_stream("permuted-digits", tasks=5, heads="per-task")
    learner = mdmt.Learner(mdmt.backbones.mlp(784, 12), VAN(), seed=3)
    lengths = []
    for tasks in (whole.tasks[:3], whole.tasks[3:]):
        learner.run(
            dataclasses.replace(whole, tasks=tasks),
            on_step=lambda one: lengths.append((one.current + 1, one.recorder.stream_length)),
        )
    assert sorted(set(lengths)) == [(1, 3), (2, 3), (3, 3), (4, 5), (5, 5)]
    names = set(learner.recorder.snapshots)
    assert {n for n in names if n.startswith("features")} == {
        *(f"features.0.{i}" for i in range(5)), "features.2.2", "features.2.4", "features.4.4",
    }  # fmt: skip
    assert torch.equal(learner.recorder.snapshots["head"], learner.model.head.detach())
    assert {n for n in names if n.startswith("labels")} == {"labels.0", "labels.2", "labels.4"}


def test_after_loading_the_earlier_test_sets_can_be_handed_back(tmp_path):
    stream = small_stream("permuted-digits", tasks=3)
    learner = mdmt.Learner(mdmt.backbones.mlp(784, 12), VAN(), heads="shared")
    for task in stream.tasks[:2]:
        learner.learn(task)
    learner.save(tmp_path)
    without = mdmt.Learner.load(tmp_path)
    with pytest.warns(
        UserWarning, match="'permutation 1', 'permutation 2' are not known.*earlier="
    ):
        without.learn(stream[2])
    assert without.record.metrics["A_T"] is None
    loaded = mdmt.Learner.load(tmp_path)
    with pytest.raises(ValueError, match="'unheard of' was not learned; learned tasks:"):
        loaded.learn(stream[2], earlier=[stream[0].with_view("unheard of", None)])
    loaded.learn(stream[2], earlier=stream.tasks[:2])
    learner.learn(stream[2])
    assert loaded.record.metrics == learner.record.metrics
    assert None not in [loaded.record.metrics[name] for name in ("A_T", "F_T", "LTR")]


def test_a_buffer_asked_of_the_class_is_its_declaration():
    assert mdmt.EWC.fisher.like == "params"


def test_saved_after_an_interruption_dropout_goes_on_as_it_would_have(tmp_path):
    """The saved random state is the learner's, not that of the caller's generator."""
    stream = small_stream("permuted-digits", tasks=1)

    def make():
        net = nn.Sequential(nn.Flatten(), nn.Linear(784, 12), nn.Dropout(0.5))
        for p in net.parameters():
            nn.init.constant_(p, 0.01)
        return net

    def stop(learner):
        if learner.step_in_task == 2:
            raise KeyError

    straight = mdmt.Learner(make(), VAN())
    straight.learn(stream[0])
    interrupted = mdmt.Learner(make(), VAN())
    with pytest.raises(KeyError):
        interrupted.learn(stream[0], on_step=stop)
    torch.rand(10)
    interrupted.save(tmp_path)
    resumed = mdmt.Learner.load(tmp_path, backbone=make())
    resumed.learn(stream[0])
    assert resumed.model.sha256() == straight.model.sha256()


def test_a_network_of_ones_own_saved_by_the_first_release_keeps_its_layout(tmp_path):
    """0.1.0 stored all kernels channels-last without saying so; buffers have that order too."""
    stream = small_stream("split-digits", tasks=1)

    def make(asks):
        net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        net.channels_last = asks
        return net

    learner = mdmt.Learner(make(True), mdmt.EWC())
    learner.learn(stream[0])
    learner.save(tmp_path)
    manifest = tmp_path / "state.json"
    body = json.loads(manifest.read_text())
    del body["state"]["channels_last"], body["sha256"]
    body["sha256"] = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    manifest.write_text(json.dumps(body))
    plain = make(None)
    del plain.channels_last
    loaded = mdmt.Learner.load(tmp_path, backbone=plain, method=mdmt.EWC())
    assert torch.equal(loaded.model.flat, learner.model.flat)
    assert torch.equal(loaded.method.importance, learner.method.importance)


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_snapshots_never_cost_a_run(tmp_path):
    """Learning goes on if a part that only figures need is damaged in both checkpoints."""
    stream = small_stream("permuted-digits", tasks=3)
    stop = lambda learner: (_ for _ in ()).throw(KeyError) if learner.record.steps == 11 else None  # noqa: E731
    learner = mdmt.Learner(mdmt.backbones.mlp(784, 12), VAN())
    with pytest.raises(KeyError):
        learner.run(stream, on_step=stop, checkpoint=Checkpoints(tmp_path, 1))
    for path in tmp_path.glob("snapshots*"):
        flip(path)
    last = tmp_path / StateFolder(tmp_path).open().files["snapshots"]["file"]
    lines = []
    resumed = mdmt.Learner.load(tmp_path, warn=lines.append)
    assert lines == [f"{last} is damaged: its checksum is wrong; going on without it"]
    resumed.run(stream)
    straight = mdmt.Learner(mdmt.backbones.mlp(784, 12), VAN())
    straight.run(stream)
    assert outcome(resumed) == outcome(straight)
    (weights,) = [
        path
        for path in tmp_path.glob("model-*")
        if path.name in (tmp_path / "state.json").read_text()
    ]
    flip(weights)
    # The state before the last.
    assert mdmt.Learner.load(tmp_path, warn=lines.append).record.steps == 10
    assert lines[1:] == [
        f"{weights} is damaged: its checksum is wrong; going on from the checkpoint before it"
    ]
    for path in tmp_path.glob("model-*"):
        path.unlink()
    with pytest.raises(ValueError, match="model-"):
        mdmt.Learner.load(tmp_path)
