"""The guide's code runs as printed; DER++ and ER-ACE compute the losses of their papers."""

import copy
import json
import math
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import mdmt
from mdmt import memory
from mdmt.cli.app import main
from mdmt.inputs.augment import augment
from mdmt.methods import DERPP, ERACE, VAN
from support.configs import config_for
from support.helpers import small_stream

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "add-a-method.md").read_text()
MODULE, TEST = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)


@pytest.fixture
def guide(tmp_path, monkeypatch):
    """A folder with the guide's module in it, as a user has it."""
    (tmp_path / "mymodule.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    monkeypatch.setitem(sys.modules, "mymodule", None)  # so that it is gone again afterwards
    del sys.modules["mymodule"]
    return tmp_path


@pytest.mark.parametrize("command", re.findall(r"^mdmt (run .*)$", GUIDE, re.MULTILINE))
def test_the_guides_commands_run(command, guide, capsys):
    assert main([*shlex.split(command), "--tasks", "2", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["metrics"]["A_T"]["mean"] > 0.8
    assert list(guide.glob("runs/permuted-digits/mymodule.MyMethod/*/1234/record.json"))


@pytest.mark.long
def test_the_accuracies_in_the_guide_are_what_its_commands_give(guide, capsys):
    shown = re.search(r"A_T ([\d.]+) % \(seed 1234\);.*`--method van`, has ([\d.]+) %", GUIDE)
    for method, accuracy in zip(("mymodule:MyMethod", "van"), shown.groups(), strict=True):
        assert main(["run", "permuted-digits", "--method", method, "--json"]) == 0
        ours = json.loads(capsys.readouterr().out)["metrics"]["A_T"]["mean"]
        assert 100 * ours == pytest.approx(float(accuracy), abs=2)  # processors round differently


def test_a_method_that_was_edited_is_another_run(guide, monkeypatch):
    before = config_for("permuted-digits", "mymodule:MyMethod")
    assert config_for("permuted-digits", "mymodule:MyMethod").hash == before.hash
    monkeypatch.delitem(sys.modules, "mymodule")
    (guide / "mymodule.py").write_text(MODULE + "# edited\n")
    assert config_for("permuted-digits", "mymodule:MyMethod").hash != before.hash
    monkeypatch.delitem(sys.modules, "mymodule")
    (guide / "mymodule.py").write_text("def (")
    with pytest.raises(ValueError, match="method 'mymodule:MyMethod' cannot be loaded"):
        config_for("permuted-digits", "mymodule:MyMethod")


def test_the_guides_module_is_as_short_as_it_says(guide):
    code = [line for line in MODULE.splitlines() if line.strip()]
    assert 15 <= len(code) <= 20


def test_the_guides_tests_pass(guide):
    names = {}
    exec(compile(TEST, "the guide's tests", "exec"), names)
    names["test_strength_0_is_plain_rehearsal"]()
    names["test_the_battery"]()


def learner_of(method, seed=3, kind="mlp", **more):
    net = mdmt.backbones.mlp(784, 32) if kind == "mlp" else mdmt.backbones.reduced_resnet18(1, 2)
    return mdmt.Learner(net, method, **{"memory": memory.Reservoir(100), "seed": seed} | more)


@pytest.mark.parametrize("seed", [3, 4])
def test_less_is_forgotten_than_without_memory(seed):
    """One head, two digits at a time: without memory and task only the last two are known."""
    stream = small_stream(tasks=5, train=200, test=60, heads="shared")
    free = {}
    for method in (VAN(), DERPP(reference_batch=32), ERACE(reference_batch=32)):
        record = learner_of(method, seed, epochs=2).run(stream)
        free[type(method)] = sum(record.accuracy_task_free[-1]) / 5
    assert free[VAN] < 0.25
    assert free[DERPP] > 0.5
    assert free[ERACE] > 0.5


# The head grows task by task (0), or has all its rows from the start.
@pytest.mark.parametrize("outputs", [0, 10])
@pytest.mark.parametrize("policy", [memory.Reservoir(20), memory.Ring(3), memory.AtTaskEnd(3)])
@pytest.mark.parametrize("make", [DERPP, ERACE])
def test_same_bits_with_and_without_saving(make, policy, outputs, tmp_path):
    # Two steps do not fill batch norm's running statistics.
    kind = "resnet" if policy.observes else "mlp"
    fresh = lambda: learner_of(  # noqa: E731
        make(reference_batch=8),
        memory=memory.make(policy.spec),
        outputs=outputs,
        kind=kind,
        lr=0.03,
    )
    straight, saved = fresh(), fresh()
    stream = small_stream(tasks=3, train=20)
    for number, task in enumerate(stream):
        straight.learn(task)
        saved.learn(task, earlier=stream.tasks[:number])
        saved.save(tmp_path)
        saved = mdmt.Learner.load(tmp_path, method=make(reference_batch=8))
    assert saved.model.sha256() == straight.model.sha256()


def plain_cross_entropy(scores, label, rows):
    return math.log(sum(math.exp(scores[r]) for r in rows)) - scores[label]


@pytest.mark.parametrize("kind", ["mlp", "resnet"])
@pytest.mark.parametrize("heads", ["shared", "per-task"])
@pytest.mark.parametrize("policy", [memory.Reservoir(30), memory.Ring(5)])
def test_der_follows_the_gradient_of_its_loss(policy, heads, kind):
    """Cross entropy + alpha MSE + beta cross entropy, sample by sample on the same batches."""
    method = DERPP(alpha=0.7, beta=0.4, reference_batch=12)
    learner = learner_of(method, kind=kind, heads=heads, memory=memory.make(policy.spec), lr=0.03)
    tasks = small_stream(tasks=3, heads=heads).tasks
    for task in tasks:
        learner.learn(task)
    model = learner.model
    assert len(model.head_of_class) == 8  # grown from 2 by 4, two rows free
    model.backbone.train()
    dark, plain, new = (
        learner.memory.sample(12),
        learner.memory.sample(12),
        learner.read(tasks[2], torch.arange(0, 40, 4)),
    )
    assert set(dark.tasks.tolist()) == {0, 1, 2}
    draws = iter([dark, plain])
    learner.memory.sample = lambda count: next(draws)

    def cross_entropy(batch):
        total = 0.0
        for scores, label, head in zip(
            model.scores(model.features(batch.inputs)),
            batch.labels,
            method.heads(batch),
            strict=True,
        ):
            rows = (model.head_of_class == head).nonzero()[:, 0]
            total = total + scores[rows].exp().sum().log() - scores[label]
        return total / len(batch)

    def to_stored(batch):
        total = 0.0
        for scores, stored, task in zip(
            model.scores(model.features(batch.inputs)), batch.features, batch.tasks, strict=True
        ):
            then = [row for known in learner.tasks[: task + 1] for row in known.rows.tolist()]
            total = total + sum((scores[row] - stored[row]) ** 2 for row in then) / len(then)
        return total / len(batch)

    expected = model.gradient(
        0.7 * to_stored(dark) + 0.4 * cross_entropy(plain) + cross_entropy(new)
    )
    found = method.gradient(new)
    assert expected.isfinite().all()
    # Single precision through batch norm.
    assert torch.allclose(found, expected, atol=5e-5 * expected.abs().max())


def test_der_stores_the_logits_of_the_pass_that_taught_an_example():
    learner, logits = learner_of(DERPP(reference_batch=8), lr=0.03), {}
    step = learner.method.step

    def follow(batch):
        with torch.no_grad():
            for image, scores in zip(
                batch.inputs,
                learner.model.scores(learner.model.features(batch.inputs)),
                strict=True,
            ):
                logits[image.numpy().tobytes()] = scores
        step(batch)

    learner.method.step = follow
    learner.run(small_stream(tasks=2))
    held = learner.memory.sample(100)
    assert len(held) == 80
    for image, task, stored in zip(held.inputs, held.tasks, held.features, strict=True):
        in_use = 2 * (int(task) + 1)
        assert torch.allclose(stored[:in_use], logits[image.numpy().tobytes()][:in_use], atol=1e-6)
        assert stored[in_use:].isnan().all()


@pytest.mark.parametrize("heads", ["shared", "per-task"])
def test_er_ace_new_examples_compete_among_the_classes_present(heads):
    learner = learner_of(ERACE(reference_batch=8), heads=heads)
    tasks = small_stream(tasks=3, heads=heads).tasks
    for task in tasks:
        learner.learn(task)
    method, model = learner.method, learner.model
    labels = tasks[2].train.labels
    both, one = torch.arange(0, 40, 4), (labels == 1).nonzero()[:5, 0]
    assert len(labels[both].unique()) == 2
    old = learner.memory.sample(8)
    seen = [row for known in learner.tasks for row in known.rows.tolist()]
    assert len(seen) == 6 < len(model.head_of_class)
    for index in (both, one):
        new = learner.read(tasks[2], index)
        learner.memory.sample = lambda count: old
        means = []
        for batch, rows in ((new, set(new.labels.tolist())), (old, seen)):
            with torch.no_grad():
                features = model.features(batch.inputs)
                scores = model.scores(features).double().tolist()
            method.incoming = new
            expected = [
                plain_cross_entropy(s, y, rows)
                for s, y in zip(scores, batch.labels.tolist(), strict=True)
            ]
            assert method.loss(features, batch).tolist() == pytest.approx(expected, abs=1e-5)
            means.append(model.gradient(method.loss(model.features(batch.inputs), batch).mean()))
        method.incoming = None
        assert torch.allclose(method.gradient(new), means[0] + means[1], atol=1e-6)


class Tiny(torch.nn.Module):
    """A small convolutional network with batch norm."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4)

    def forward(self, x):
        return self.norm(self.conv(x)).relu().mean((2, 3))


class Plain:
    """DER++ and ER-ACE with augmentation written out, for tasks of two classes each.

    It has the learner's first weights, and draws from numpy's generators what the learner draws.
    """

    def __init__(self, network, head, *, seed, lr, batch, size, reference):
        self.network, self.head = network.train(), head.requires_grad_()
        self.seed, self.lr, self.batch, self.size, self.reference = seed, lr, batch, size, reference
        self.draws = np.random.default_rng([seed, 2])
        self.kept = []  # image, row of the head, task, logits of the pass
        self.count = 0

    def scores(self, images):
        features = self.network(images.double())
        return features @ self.head[:, :-1].T + self.head[:, -1]

    def drawn(self):
        slots = range(len(self.kept))
        if self.reference < len(self.kept):
            slots = self.draws.choice(len(slots), self.reference, replace=False, shuffle=False)
        images, *rest = zip(*(self.kept[slot] for slot in slots), strict=True)
        return augment("crop-flip", torch.stack(images), self.draws), *rest

    def cross_entropy(self, scores, rows, rivals):
        """The mean over samples, each among its own rivals."""
        losses = [
            s[among].logsumexp(0) - s[row]
            for s, row, among in zip(scores, rows, rivals, strict=True)
        ]
        return sum(losses) / len(losses)

    def gradient(self, loss):
        return torch.autograd.grad(loss, [*self.network.parameters(), self.head])

    def rehearse(self, method, in_use):
        """The gradients of the old examples, each with its weight."""
        images, rows, _, logits = self.drawn()
        if method.name == "er-ace":
            every = [list(range(in_use))] * len(rows)
            loss = self.cross_entropy(self.scores(images), rows, every)
            return [(1.0, self.gradient(loss))]
        other, other_rows, other_tasks, _ = self.drawn()
        gaps = [
            (s[: len(then)] - then).square().mean()
            for s, then in zip(self.scores(images), logits, strict=True)
        ]
        dark = self.gradient(sum(gaps) / len(gaps))
        own = [[2 * task, 2 * task + 1] for task in other_tasks]
        plain = self.gradient(self.cross_entropy(self.scores(other), other_rows, own))
        return [(method.alpha, dark), (method.beta, plain)]

    def step(self, method, images, rows, task, augmentation):
        in_use = 2 * task + 2
        old = self.rehearse(method, in_use) if self.kept else []
        scores = self.scores(augment("crop-flip", images, augmentation))
        own = sorted(set(rows)) if method.name == "er-ace" else [2 * task, 2 * task + 1]
        new = self.gradient(self.cross_entropy(scores, rows, [own] * len(rows)))
        with torch.no_grad():
            for weight, parts in [(1.0, new), *old]:
                for value, part in zip([*self.network.parameters(), self.head], parts, strict=True):
                    value -= self.lr * weight * part
        numbers = np.arange(self.count, self.count + len(rows))
        others = self.draws.integers(0, numbers + 1)
        for i, (number, other) in enumerate(zip(numbers, others, strict=True)):
            example = (images[i], rows[i], task, scores[i, :in_use].detach())
            if number < self.size:
                self.kept.append(example)
            elif other < self.size:
                self.kept[other] = example
        self.count += len(rows)

    def learn(self, method, tasks, epochs):
        for number, task in enumerate(tasks):
            steps = len(task.train) // self.batch
            for step in range(epochs * steps):
                order = np.random.default_rng([self.seed, 1, number, step // steps])
                chosen = order.permutation(len(task.train))
                chosen = chosen[step % steps * self.batch :][: self.batch]
                rows = [2 * number + label for label in task.train.labels[chosen].tolist()]
                augmentation = np.random.default_rng([self.seed, 5, number, step])
                self.step(method, task.train.inputs[chosen], rows, number, augmentation)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("make", [DERPP, ERACE])
def test_with_augmentation_they_are_what_is_written_out_here(make):
    """The logits of DER++ are those of the pass that learned the augmented image."""
    first = []

    class Watched(make):
        name = make.name

        def begin_task(self):
            first.append((copy.deepcopy(self.model.backbone), self.model.head.detach().clone()))

    images = torch.rand(3, 20, 1, 8, 8, generator=torch.Generator().manual_seed(3))
    tasks = [mdmt.Task(name, x, [0, 1] * 10) for name, x in zip("abc", images, strict=True)]
    method = Watched(reference_batch=6)
    settings = {"seed": 8, "lr": 0.05, "batch": 5}
    with torch.random.fork_rng():
        torch.manual_seed(4)
        network = Tiny()
    learner = mdmt.Learner(
        network, method, memory=memory.Reservoir(15), outputs=6, epochs=2, augment="crop-flip",
        **settings,
    )  # fmt: skip
    for task in tasks:
        learner.learn(task)
    plain = Plain(*first[0], size=15, reference=6, **settings)
    plain.learn(method, tasks, epochs=2)
    moved = (first[1][1] - first[0][1]).abs().max()
    assert moved > 0.01
    for ours, theirs in zip(
        [*learner.model.backbone.parameters(), learner.model.head],
        [*plain.network.parameters(), plain.head],
        strict=True,
    ):
        assert (ours - theirs).abs().max() < 2e-15
    held = learner.memory.take(learner.memory.available)
    assert torch.equal(held.inputs, torch.stack([image for image, *_ in plain.kept]))
    for ours, (*_, theirs) in zip(held.features if make is DERPP else (), plain.kept, strict=False):
        assert (ours[: len(theirs)] - theirs).abs().max() < 2e-15
        assert ours[len(theirs) :].isnan().all()
