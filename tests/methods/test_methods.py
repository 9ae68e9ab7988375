"""Each method against a slow, plain implementation."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import lsq_linear
from torch import nn

import mdmt
from mdmt import backbones, memory
from mdmt.methods import AGEM, ER, EWC, GEM, MAS, MDMTR, MEGA, MER, PI, VAN, Joint, RWalk
from mdmt.methods.gem import solve
from mdmt.methods.mega import best_angle, turned
from mdmt.tasks import Batch
from support.helpers import mistake, small_stream


def tiny(method, kept=None, **more):
    """A network of a few hundred weights, so that plain loops over them are fast."""
    settings = {"lr": 0.05, "heads": "shared", "seed": 2} | more
    return mdmt.Learner(
        mdmt.backbones.mlp(20, 6),
        method,
        memory=memory.Ring(3) if kept is None else kept,
        **settings,
    )


def tiny_tasks(count=3, examples=45):
    rng = np.random.default_rng(0)
    tasks = []
    for k in range(count):
        x = rng.normal(size=(examples, 20)).astype(np.float32)
        y = (x @ rng.normal(size=(20, 3))).argmax(1)
        tasks.append(mdmt.Task(f"t{k}", x, y, test=(x, y), classes=[0, 1, 2]))
    return tasks


class Path:
    """Records the gradient of the cross entropy and the weights before and after every step."""

    def __init__(self, learner):
        self.steps, self.learner = [], learner
        step = learner.method.step

        def followed(batch):
            before = learner.model.flat.detach().tolist()
            step(batch)
            g = learner.method.task_gradient.tolist()
            self.steps.append((g, before, learner.model.flat.detach().tolist()))

        learner.method.step = followed

    def take(self):
        steps, self.steps = self.steps, []
        return steps


def test_pi_importances():
    learner = tiny(PI(strength=0.02, damping=1e-3))
    path, expected = Path(learner), None
    for task in tiny_tasks():
        learner.learn(task)
        steps = path.take()
        n = len(steps[0][0])
        expected = expected or [0.0] * n
        for i in range(n):
            omega = sum(-g[i] * (after[i] - before[i]) for g, before, after in steps)
            moved = steps[-1][2][i] - steps[0][1][i]
            expected[i] += max(0.0, omega / (1e-3 + moved**2))
        assert learner.method.importance.tolist() == pytest.approx(expected, rel=2e-2, abs=1e-4)
    assert max(expected) > 0.1


# Tasks of six and of five steps: the window divides them, does not, is the whole task, or longer
# than it.
WINDOWS = [(60, 3), (60, 6), (45, 2), (45, 4), (45, 100)]


class OriginalProgram:
    """EWC and RWalk as in the programs behind the published numbers, in float64.

    A fold comes before the iteration's own gradient: the first window of a task has K - 1
    gradients, divided by K all the same, and the gradient of the task's last iteration enters
    nothing. Only a task without a fold differs on purpose.
    """

    def __init__(self, start, lr, strength, window, walks, reading="code"):
        self.theta, self.lr, self.strength, self.window = start.clone(), lr, strength, window
        self.walks, self.reading = walks, reading
        zero = torch.zeros_like(start)
        self.importance, self.anchor, self.fisher, self.score = zero, start.clone(), zero, zero

    def task(self, batches, first):
        zero = torch.zeros_like(self.theta)
        self.squares, self.gained, self.omega, self.snapshot, folds = (
            zero,
            zero,
            zero,
            self.theta.clone(),
            0,
        )
        for iteration, (x, y) in enumerate(batches):
            if (iteration + 1) % self.window == 0:
                self.fold(self.window)
                folds += 1
            g = self.slope(x, y)
            self.squares = self.squares + g**2
            before = self.theta.clone()
            self.theta = before - self.lr * (
                g + 2 * self.strength * self.importance * (before - self.anchor)
            )
            self.omega = self.omega - g * (self.theta - before)
        if not folds:
            self.fold(len(batches))
        fresh = 2 * self.gained if first else self.gained
        self.score = (self.score + fresh) / 2 + (self.score if self.reading == "code" else 0)
        self.importance = unit_range(self.fisher) + (unit_range(self.score) if self.walks else 0)
        self.anchor = self.theta.clone()

    def fold(self, steps):
        if self.walks:
            distance = self.fisher * (self.theta - self.snapshot) ** 2
            self.gained = self.gained + (self.omega / (1e-3 + distance)).clamp_min(0)
            self.snapshot, self.omega = self.theta.clone(), torch.zeros_like(self.theta)
        self.fisher = 0.1 * self.fisher + 0.9 * self.squares / steps
        if not self.walks:
            self.squares = torch.zeros_like(self.theta)

    def slope(self, x, y):
        """The gradient of the mean cross entropy of the network 20-6-6-3, written out."""
        theta = self.theta.clone().requires_grad_()
        w1, b1, w2, b2, head = theta.split([120, 6, 36, 6, 21])
        hidden = torch.relu(x @ w1.view(6, 20).T + b1)
        hidden = torch.relu(hidden @ w2.view(6, 6).T + b2)
        scores = hidden @ head.view(3, 7)[:, :6].T + head.view(3, 7)[:, 6]
        loss = (scores.logsumexp(1) - scores.gather(1, y[:, None])[:, 0]).mean()
        return torch.autograd.grad(loss, theta)[0]


def unit_range(values):
    return (values - values.min()) / (values.max() - values.min())


def check_against_the_original(method, program, examples):
    learner = tiny(method, lr=0.05)
    step, batches = method.step, []

    def watched(batch):
        batches.append((batch.inputs.double(), batch.labels))
        step(batch)

    method.step = watched
    original = None
    for number, task in enumerate(tiny_tasks(3, examples)):
        learner._open(task, ())
        if original is None:
            original = program(learner.model.flat.detach())
        learner.learn(task)
        original.task(batches, first=number == 0)
        batches.clear()
        assert learner.model.flat.dtype == torch.float64
        assert method.importance.max() > 0.5
        assert torch.allclose(method.importance, original.importance, rtol=1e-6, atol=1e-9)
        assert torch.allclose(learner.model.flat.detach(), original.theta, rtol=1e-6, atol=1e-9)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(("examples", "window"), WINDOWS)
def test_ewc_folds_when_the_original_does(examples, window):
    def program(start):
        return OriginalProgram(start, 0.05, 5.0, window, walks=False)

    check_against_the_original(EWC(strength=5.0, window=window), program, examples)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("reading", ["code", "paper"])
@pytest.mark.parametrize(("examples", "window"), WINDOWS)
def test_rwalk_folds_when_the_original_does(reading, examples, window):
    def program(start):
        return OriginalProgram(start, 0.05, 0.5, window, walks=True, reading=reading)

    check_against_the_original(
        RWalk(strength=0.5, window=window, reading=reading), program, examples
    )


def test_ewc_as_in_the_paper_has_one_penalty_per_task():
    learner = tiny(EWC(reading="paper", strength=0.7, samples=9))
    fishers, anchors = [], []
    for task in tiny_tasks():
        learner.learn(task)
        learner.task = task
        picked = learner.sample_of_task(9)
        learner.task = None
        squares = torch.zeros_like(learner.model.flat)
        for i in picked.tolist():
            squares += learner.method.grad(learner.read(task, torch.tensor([i])))[1].square() / 9
        fishers.append(squares)
        anchors.append(learner.model.flat.detach().clone())
    with torch.no_grad():
        learner.model.flat.add_(0.1)
    theta = learner.model.flat.detach()
    expected = sum(0.7 * f * (theta - a) for f, a in zip(fishers, anchors, strict=True))
    assert torch.allclose(learner.method.pull(), expected, atol=1e-5)


@pytest.mark.parametrize("heads", ["shared", "per-task"])
@pytest.mark.parametrize("reading", ["code", "paper"])
def test_mas_importances(reading, heads):
    """Only the outputs of a task's own head count."""
    outputs = {"shared": 3, "per-task": 9}[heads]
    learner = tiny(MAS(strength=0.01, reading=reading), heads=heads, outputs=outputs)
    total = None
    for task in tiny_tasks():
        learner.learn(task)
        model, size = learner.model, len(task.train)
        own = learner.tasks[-1].rows.tolist()
        importance = torch.zeros_like(model.flat)
        for start in range(0, size, 10 if reading == "code" else 1):
            batch = learner.read(
                task, torch.arange(start, min(size, start + (10 if reading == "code" else 1)))
            )
            squares = sum(
                model.scores(model.features(x[None]))[0, c] ** 2 for x in batch.inputs for c in own
            )
            importance += model.gradient(squares).abs()
        importance = importance.detach() / size
        total = importance if total is None or reading == "code" else total + importance
        assert torch.allclose(learner.method.importance, total, atol=1e-4 * float(total.max()))


@pytest.mark.parametrize("method", [PI(), EWC(), MAS(), RWalk()])
def test_the_pull_is_the_gradient_of_the_penalty(method):
    learner = tiny(method)
    learner.learn(tiny_tasks(1)[0])
    method.begin_task()
    method.importance = torch.rand(
        method.importance.shape, generator=torch.Generator().manual_seed(1)
    )
    with torch.no_grad():
        learner.model.flat.add_(0.3)
    theta = learner.model.flat.detach().clone().requires_grad_()
    penalty = method.strength * (method.importance * (theta - method.anchor).square()).sum()
    (expected,) = torch.autograd.grad(penalty, theta)
    assert torch.allclose(method.pull(), expected, atol=1e-6)


def spied(learner, updates):
    """Record the update and the memory's gradient of every step."""
    method = learner.method
    plain_grad, plain_grads, plain_gradient, drawn = method.grad, method.grads, method.gradient, []

    def grad(*batches):
        result = plain_grad(*batches)
        drawn.append(result)
        return result

    def grads(*batches):
        losses, rows = plain_grads(*batches)
        drawn.extend(zip(losses, rows.clone(), strict=True))
        return losses, rows

    def gradient(batch):
        drawn.clear()
        update = plain_gradient(batch)
        updates.append((update, list(drawn)))
        return update

    method.grad, method.grads, method.gradient = grad, grads, gradient


def test_a_gem_never_steps_against_the_memory():
    learner, updates = tiny(AGEM(reference_batch=6)), []
    spied(learner, updates)
    for task in tiny_tasks(4):
        learner.learn(task)
    projected = 0
    for update, seen in updates:
        if len(seen) == 1:
            assert torch.equal(update, seen[0][1])
            continue
        (_, r), (_, g) = seen
        assert update @ r >= -1e-5 * r.norm() * g.norm()
        if g @ r >= 0:
            assert torch.equal(update, g)
        else:
            projected += 1
            assert torch.allclose(update, g - (g @ r) / (r @ r) * r, atol=1e-6)
    assert projected > 0


def constraints(kind, rng):
    count, size = rng.integers(1, 6), 30
    rows = rng.normal(size=(count, size)) * rng.uniform(0.1, 10, size=(count, 1))
    if kind == "duplicated":
        rows = np.concatenate([rows, rows[:1], 2.0 * rows[-1:]])
    if kind == "degenerate":
        rows = np.concatenate([rows, rows.sum(0, keepdims=True), np.zeros((1, size)), -rows[:1]])
    return torch.from_numpy(rows), torch.from_numpy(rng.normal(size=size))


@pytest.mark.parametrize("kind", ["random", "duplicated", "degenerate"])
@pytest.mark.parametrize("margin", [0.0, 0.5])
@pytest.mark.parametrize("seed", range(10))
def test_gem_solves_its_quadratic_program(kind, margin, seed):
    """The Karush-Kuhn-Tucker conditions, relative to the size of the numbers."""
    rows, g = constraints(kind, np.random.default_rng(seed))
    gram, products = rows @ rows.T, rows @ g
    v = solve(gram, products, margin)
    slack = gram @ v + products  # of the dual's gradient
    size = float(gram.abs().max() + products.abs().max())
    assert (v >= margin - 1e-12).all()
    assert (slack >= -1e-6 * size).all()
    assert ((v - margin) * slack).abs().max() <= 1e-6 * size * float(v.abs().max() + 1)
    if margin == 0:
        assert (rows @ (g + rows.T @ v) >= -1e-6 * size).all()  # no past task's loss rises


@pytest.mark.parametrize("seed", range(20))
def test_gem_makes_no_long_step_of_short_gradients(seed):
    """The update is never longer than g + margin * (sum of rows), even if rows nearly cancel."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(6, 1)) * rng.normal(size=30) + 10 ** rng.uniform(-7, -5) * rng.normal(
        size=(6, 30)
    )
    rows = torch.from_numpy(rows * 10 ** rng.uniform(-3, 0, size=(6, 1)))
    g = -rows[0] + 1e-2 * torch.from_numpy(rng.normal(size=30))
    v = solve(rows @ rows.T, rows @ g, 0.5)
    assert (g + v @ rows).norm() <= (1 + 1e-3) * (g + 0.5 * rows.sum(0)).norm()


def test_gem_with_one_constraint_is_a_gem(generator):
    g, r = torch.randn(2, 50, generator=generator, dtype=torch.float64)
    r = r if g @ r < 0 else -r
    v = solve((r @ r)[None, None], (r @ g)[None], 0.0)
    assert torch.allclose(g + v[0] * r, g - (g @ r) / (r @ r) * r, atol=1e-10)


def test_gem_objects_for_every_past_task():
    learner, updates = tiny(GEM(margin=0.0)), []
    spied(learner, updates)
    for task in tiny_tasks(4):
        learner.learn(task)
    assert [len(seen) for _, seen in updates] == [1] * 5 + [2] * 5 + [3] * 5 + [4] * 5
    for update, seen in updates:
        for _, past in seen[:-1]:
            assert update @ past >= -1e-4 * past.norm() * update.norm()


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("margin", [0.0, 0.5])
def test_gem_projects_away_from_all_that_the_memory_holds(margin):
    """The update against gradients by autograd alone and another solver of the program."""
    learner = tiny(GEM(margin=margin))
    method, objections = learner.method, 0
    plain = method.gradient

    def mean_gradient(batch):
        model = learner.model
        scores = model.scores(model.features(batch.inputs))
        return model.gradient(nn.functional.cross_entropy(scores[:, :3], batch.labels))

    def checked(batch):
        nonlocal objections
        update = plain(batch)
        held = learner.memory.take(learner.memory.available) if len(learner.memory) else batch
        picks = [held.tasks == k for k in range(learner.current)]
        assert [int(pick.sum()) for pick in picks] == [
            9
        ] * learner.current  # three of each of three classes
        parts = [Batch(held.inputs[pick], held.labels[pick], held.tasks[pick]) for pick in picks]
        g, rows = mean_gradient(batch), [mean_gradient(part) for part in parts]
        expected = g
        if any(row @ g < 0 for row in rows):
            objections += 1
            matrix = torch.stack(rows)
            v = lsq_linear(matrix.T.numpy(), -g.numpy(), (margin, np.inf), tol=1e-14).x
            expected = g + matrix.T @ torch.from_numpy(v)
        assert torch.allclose(update, expected, atol=1e-6 * float(g.abs().max()))
        return update

    method.gradient = checked
    for task in tiny_tasks(3):
        learner.learn(task)
    assert objections > 0


def test_mega_gives_each_gradient_the_weight_of_its_own_loss():
    """No other angle between g and r has a higher loss cos(to g) + loss_ref cos(to r)."""
    learner, updates = tiny(MEGA(reference_batch=6)), []
    spied(learner, updates)
    for task in tiny_tasks(2):
        learner.learn(task)
    rehearsed = [(update, *seen) for update, seen in updates if len(seen) == 2]
    assert len(rehearsed) == 5
    for update, (loss_ref, r), (loss, g) in rehearsed:

        def score(u, g=g, r=r, loss=loss, loss_ref=loss_ref):
            to_g, to_r = (torch.cosine_similarity(u, x, dim=0) for x in (g, r))
            return float(loss * to_g + loss_ref * to_r)

        across = r - (r @ g) / (g @ g) * g
        angles = torch.linspace(0, math.pi / 2, 91)
        turns = [g / g.norm() * a.cos() + across / across.norm() * a.sin() for a in angles]
        assert score(update) >= max(map(score, turns)) - 1e-5


@pytest.mark.parametrize("seed", range(20))
def test_mega_turns_by_the_best_angle(seed):
    rng = np.random.default_rng(seed)
    phi, loss, loss_ref = (
        rng.uniform(0, math.pi),
        rng.exponential(),
        rng.exponential() * rng.integers(0, 2),
    )
    grid = np.linspace(0, math.pi / 2, 100_001)
    best = grid[np.argmax(loss * np.cos(grid) + loss_ref * np.cos(phi - grid))]
    found = best_angle(*(torch.tensor(v, dtype=torch.float64) for v in (phi, loss, loss_ref)))
    assert float(found) == pytest.approx(best, abs=2e-5)


@pytest.mark.parametrize("seed", range(20))
def test_mega_keeps_the_length_and_the_angles(seed):
    generator = torch.Generator().manual_seed(seed)
    g, r = torch.randn(2, 40, generator=generator, dtype=torch.float64)
    loss, loss_ref = torch.rand(2, generator=generator, dtype=torch.float64)
    update = turned(g, r, loss, loss_ref)
    phi = torch.acos(torch.cosine_similarity(g, r, dim=0))
    angle = best_angle(phi, loss, loss_ref)
    assert update.norm().item() == pytest.approx(g.norm().item())
    assert torch.acos(torch.cosine_similarity(update, g, dim=0)).item() == pytest.approx(
        angle.item(), abs=1e-6
    )
    assert torch.acos(torch.cosine_similarity(update, r, dim=0)).item() == pytest.approx(
        abs(phi - angle).item(), abs=1e-6
    )


def test_mega_where_the_gradients_are_parallel_or_vanish():
    g, losses = torch.tensor([1.0, 2.0]), (torch.tensor(0.5), torch.tensor(0.5))
    for r in (g, 3 * g, -g, torch.zeros(2)):
        assert torch.allclose(turned(g, r, *losses), g)
    assert torch.equal(turned(torch.zeros(2), g, *losses), torch.zeros(2))


def test_mega_one_and_its_threshold():
    for settings, expected in (
        ({"form": "I"}, lambda loss, g, loss_ref, r: g + loss_ref / loss * r),
        ({"reading": "paper", "threshold": 1e6}, lambda loss, g, loss_ref, r: r),
    ):
        learner, updates = tiny(MEGA(reference_batch=6, **settings)), []
        spied(learner, updates)
        for task in tiny_tasks(2):
            learner.learn(task)
        update, ((loss_ref, r), (loss, g)) = updates[-1]
        assert torch.allclose(update, expected(loss, g, loss_ref, r), atol=1e-6)


@pytest.mark.parametrize(("reading", "old"), [("code", 25), ("paper", 10)])
def test_er_is_one_mean_over_the_joint_batch(reading, old):
    learner, seen = (
        tiny(ER(reference_batch=25, reading=reading), memory.Reservoir(1000), batch=10),
        [],
    )
    plain = learner.method.grad

    def grad(batch):
        loss, g = plain(batch)
        scores = learner.model.scores(learner.model.features(batch.inputs))
        each = [
            -torch.log_softmax(s, 0)[y].item() for s, y in zip(scores, batch.labels, strict=True)
        ]
        seen.append((len(batch), loss.item(), sum(each) / len(each)))
        return loss, g

    learner.method.grad = grad
    learner.learn(tiny_tasks(1, examples=60)[0])
    assert [n for n, _, _ in seen][:4] == [10, 20, 10 + min(20, old), 10 + min(30, old)]
    for _, loss, mean in seen:
        assert loss == pytest.approx(mean, abs=1e-5)


def test_joint_sees_every_example_of_every_task_once():
    tasks = [
        mdmt.Task(t.name, t.train.inputs, [f"{t.name}{i}" for i in t.train.labels], test=None)
        for t in tiny_tasks()
    ]
    learner, seen = tiny(Joint(), heads="per-task"), []
    learner.method.after_step = seen.append
    learner.run(mdmt.Stream("s", tasks))
    everything = Batch.joined(seen)
    shown = sorted(
        zip(
            everything.inputs.sum(1).tolist(),
            everything.tasks.tolist(),
            everything.labels.tolist(),
            strict=True,
        )
    )
    rows = [t.rows for t in learner.tasks]
    expected = sorted(
        (x.sum().item(), k, rows[k][y].item())
        for k, t in enumerate(tasks)
        for x, y in zip(t.train.inputs, t.train.labels, strict=True)
    )
    assert [s[1:] for s in shown] == [e[1:] for e in expected]
    assert [s[0] for s in shown] == pytest.approx([e[0] for e in expected], abs=1e-5)
    assert len(set(seen[0].tasks.tolist())) == 3  # mixed, not task after task


def test_joint_lets_all_classes_compete_in_training():
    stream = small_stream("split-digits", tasks=2)
    learner = mdmt.Learner(mdmt.backbones.reduced_resnet18(1, 2), Joint(), lr=0.03)
    learner.run(stream)
    batch = learner.read(stream[0], torch.arange(8))
    learner.model.backbone.eval()
    features = learner.model.features(batch.inputs)
    expected = torch.nn.functional.cross_entropy(
        learner.model.scores(features), batch.labels, reduction="none"
    )
    assert torch.allclose(learner.method.loss(features, batch), expected)
    record = learner.record.to_json()
    assert (
        record["metrics"]["F_T"] is record["metrics"]["LTR"] is record["metrics"]["LCA_10"] is None
    )
    assert record["accuracy"][0] == [None, None]
    assert None not in record["accuracy"][1]


def test_the_record_counts_what_a_method_remembers():
    learners = {kind: tiny(kind()) for kind in (EWC, VAN)}
    for learner in learners.values():
        learner.learn(tiny_tasks(1)[0])
    ewc = learners[EWC]
    buffers = ewc.method.state()[0].values()
    assert len(buffers) > 1
    assert ewc.record.buffer_bytes == sum(
        buffer.numel() * buffer.element_size() for buffer in buffers
    )
    assert ewc.record.buffer_bytes > ewc.model.flat.nbytes
    assert learners[VAN].record.buffer_bytes == 0


def test_joint_learns_a_single_task():
    stream = small_stream("split-digits", tasks=1)
    record = mdmt.Learner(mdmt.backbones.reduced_resnet18(1, 2), Joint(), lr=0.03).run(stream)
    assert len(record.accuracy) == 1


def test_mer_is_algorithm_1_of_its_paper():
    """Two examples by hand: single steps, then the two interpolations."""
    beta, gamma, lr = 0.4, 0.7, 0.1
    learner = tiny(
        MER(beta=beta, gamma=gamma, replay=3, batches=2), memory.Reservoir(50), batch=1, lr=lr
    )
    task, drawn = tiny_tasks(1, examples=12)[0], []
    plain = learner.memory.sample
    learner.memory.sample = lambda count: drawn.append(plain(count)) or drawn[-1]
    trail, memory_sizes = [], []

    def after(x):
        trail.append(x.model.flat.detach().clone())
        memory_sizes.append(len(x.memory))

    learner._open(task, ())
    start = learner.model.flat.detach().clone()
    learner.learn(task, on_step=after)
    assert memory_sizes == list(range(1, 13))  # filled from the first example on
    order = np.random.default_rng([2, 1, 0, 0]).permutation(12)
    model = learner.model
    with torch.no_grad():
        model.flat.copy_(start)
    for step in range(12):
        example = learner.read(task, torch.tensor([order[step]]))
        first = model.flat.detach().clone()
        for _ in range(2):
            old, before = drawn.pop(0), model.flat.detach().clone()
            columns = (
                []
                if old is None
                else zip(old.inputs.split(1), old.labels.split(1), old.tasks.split(1), strict=True)
            )
            for single in [*(Batch(*c) for c in columns), example]:
                loss = torch.nn.functional.cross_entropy(
                    model.scores(model.features(single.inputs)), single.labels
                )
                g = model.gradient(loss)
                with torch.no_grad():
                    model.flat.sub_(lr * g)
            with torch.no_grad():
                model.flat.copy_(before + beta * (model.flat - before))
        with torch.no_grad():
            model.flat.copy_(first + gamma * (model.flat - first))
        assert torch.allclose(model.flat, trail[step], atol=1e-5)
    assert not drawn


def test_mer_interpolates_batch_norm_statistics_with_the_weights():
    """The original interpolates the whole state of the network: the first example by hand."""
    beta, gamma, lr = 0.4, 0.7, 0.05
    method = MER(beta=beta, gamma=gamma, batches=2)
    net = mdmt.backbones.reduced_resnet18(1, 2, norm_start="zero")
    learner = mdmt.Learner(net, method, memory=memory.Reservoir(5), lr=lr, batch=1)
    task = small_stream("split-digits", tasks=1, train=6)[0]
    learner._open(task, ())
    model = learner.model
    everything = {"weights": model.flat, **dict(model.backbone.named_buffers())}

    def copy():
        return {name: value.detach().clone() for name, value in everything.items()}

    def go(before, share):
        with torch.no_grad():
            for name, value in everything.items():
                value.copy_(before[name] + share * (value - before[name]))

    example = learner.read(task, torch.tensor([0]))
    start = copy()
    with model.training():
        learner.step(example)
        learned = copy()
        go(start, 0.0)
        for _ in range(2):
            before = copy()
            # The task's two rows come first.
            scores = model.scores(model.features(example.inputs))[:, :2]
            g = model.gradient(torch.nn.functional.cross_entropy(scores, example.labels))
            with torch.no_grad():
                model.flat.sub_(lr * g)
            go(before, beta)
        go(start, gamma)
    for name, value in everything.items():
        assert torch.allclose(value, learned[name], atol=1e-6), name
        assert not torch.equal(learned[name], start[name]), name


def test_mse_with_a_reservoir_and_batch_norm_is_one_line():
    """Features that a reservoir stores in the first steps are many times too long there."""

    def learn(net, distance, kept, **more):
        method = MDMTR(distance=distance, reference_batch=8, **more)
        mdmt.Learner(net, method, memory=kept, lr=0.01).run(small_stream(tasks=1, train=20))

    torch_norm = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.BatchNorm1d(784))
    for net in (backbones.reduced_resnet18(1, 2), torch_norm):
        line = mistake(learn, net, "mse", memory.Reservoir(20))
        assert line.startswith("mdmt-r: distance=mse does not go with a Reservoir on a network")
        assert line.endswith("use policy=Ring or AtTaskEnd, or distance=cosine or none")
    averaged = {"teacher": "average", "average": 0.9}  # its features are as long in those steps
    assert line == mistake(
        learn, backbones.reduced_resnet18(1, 2), "mse", memory.Reservoir(20), **averaged
    )
    learn(backbones.reduced_resnet18(1, 2), "mse", memory.Ring(2))
    learn(backbones.reduced_resnet18(1, 2), "l1", memory.Reservoir(20))
    learn(backbones.reduced_resnet18(1, 2), "cosine", memory.Reservoir(20))
    learn(backbones.mlp(784, 8), "mse", memory.Reservoir(20))
