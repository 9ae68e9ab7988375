"""The battery for anybody's method: each check is a bug that a well-known library shipped.

    mdmt.checks.check_method(MyMethod)

runs them all, in some seconds, on small images that it makes up; the first that fails is an
AssertionError that says what is wrong. A method with settings that it needs is given as a function
that makes it: `check_method(lambda: MyMethod(replay=3))`.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from mdmt.backbones import mlp, reduced_resnet18
from mdmt.learner import Learner
from mdmt.memory import Memory, Reservoir, Ring
from mdmt.methods.base import Method
from mdmt.tasks import Permutation, Stream, Task

Kind = Literal["resnet", "mlp"]
# Batch norm and a head per task that grows; one shared head.
KINDS: tuple[Kind, ...] = (
    "resnet",
    "mlp",
)
RING, RESERVOIR, SIDE = 3, 30, 8


class Interrupted(Exception):
    """Raised in the middle of a task, on purpose."""


@dataclass(frozen=True)
class Trial:
    """A method to try on one kind of network, and the small stream that it learns."""

    make: Callable[[], Method]
    kind: Kind

    def stream(self, tasks: int = 3, train: int = 24) -> Stream:
        """Made-up images: two classes a task with heads of their own, or the same four
        reordered.
        """
        if self.kind == "resnet":
            streams = [_images(2, train, seed) for seed in range(tasks)]
            made = [
                Task(f"pair {i}", x, y + 2 * i, test=(t, u + 2 * i))
                for i, (x, y, t, u) in enumerate(streams)
            ]
            return Stream("checks", made)
        x, y, t, u = _images(4, train, 0)
        generator = torch.Generator().manual_seed(1)
        views = [
            Permutation(torch.randperm(SIDE * SIDE, generator=generator)) for _ in range(tasks)
        ]
        made = [Task(f"order {i}", x, y, test=(t, u), view=view) for i, view in enumerate(views)]
        return Stream("checks", made, heads="shared", evaluate="all")

    def backbone(self) -> nn.Module:
        """A narrow network."""
        return mlp(SIDE * SIDE, 12) if self.kind == "mlp" else reduced_resnet18(1, 2)

    def learner(
        self, method: Method | None = None, memory: Memory | None = None, **settings: Any
    ) -> Learner:
        """A fresh learner with the method, or with another one beside it."""
        method = self.make() if method is None else method
        if memory is None:
            memory = Reservoir(RESERVOIR) if method.policy == "Reservoir" else Ring(RING)
        heads = "per-task" if self.kind == "resnet" else "shared"
        return Learner(
            self.backbone(),
            method,
            memory=memory,
            **{"lr": 0.02, "seed": 3, "heads": heads, **settings},
        )

    def run(
        self, method: Method | None = None, stream: Stream | None = None, **settings: Any
    ) -> Learner:
        """A learner that has learned the stream."""
        learner = self.learner(method, **settings)
        learner.run(self.stream() if stream is None else stream)
        return learner


def outcome(learner: Learner) -> tuple[Any, ...]:
    """Everything of a run that must not depend on chance or interruptions."""
    record = dataclasses.replace(learner.record, seconds=0.0, memory_bytes=0, buffer_bytes=0)
    return dataclasses.astuple(record), learner.model.sha256()


def same_seed_same_bits(trial: Trial) -> None:
    """All chance comes from the learner's seed: torch's global generator must not matter."""
    first = outcome(trial.run())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        second = outcome(trial.run())
    assert first == second, (
        "two runs with one seed differ: draw from self.memory or a generator of your own"
    )


def weights_move_in_every_step_and_stay_finite(trial: Trial) -> None:
    """Every mini-batch teaches something, and nothing overflows."""
    seen: list[str] = []
    learner = trial.learner()
    learner.run(trial.stream(), on_step=lambda x: seen.append(x.model.sha256()))
    assert len(set(seen)) == len(seen), "a step left all weights as they were"
    assert bool(torch.isfinite(learner.model.flat).all()), "a weight is not finite"
    assert learner.record.metrics["A_T"] is not None, "the tasks were not evaluated"


def every_training_pass_is_in_train_mode(trial: Trial) -> None:
    """An end-of-task pass that calls eval() must not leave the training in evaluation mode."""
    method = trial.make()
    learner = trial.learner(method)
    step = method.step
    inside = [False]
    modes: list[bool] = []

    def watched(batch: Any) -> None:
        inside[0] = True
        step(batch)
        inside[0] = False

    def forward(*_: Any) -> None:
        if inside[0]:
            modes.append(all(module.training for module in learner.backbone.modules()))

    vars(method)["step"] = watched
    learner.backbone.register_forward_pre_hook(forward)
    learner.run(trial.stream())
    assert len(modes) >= learner.record.steps, "a step did not pass through the network"
    assert all(modes), "a training pass was made in evaluation mode"


def the_end_of_a_task_leaves_the_network_alone(trial: Trial) -> None:
    """Weights, batch-norm statistics, gradients, modes and random state; use `self.model.frozen()`
    for a pass.
    """
    method = trial.make()
    learner = trial.learner(method)
    end = method.end_task
    calls = [0]

    def traces() -> tuple[Any, ...]:
        model = learner.model
        gradients = [leaf.grad for leaf in (*model.leaves, model.flat)]
        modes = [module.training for module in learner.backbone.modules()]
        return model.sha256(), gradients, modes, torch.get_rng_state().tolist()

    def watched() -> None:
        before = traces()
        end()
        assert traces() == before, (
            "end_task changed weights, statistics, gradients, modes or random state"
        )
        calls[0] += 1

    vars(method)["end_task"] = watched
    stream = trial.stream()
    learner.run(stream)
    assert calls[0] == len(method.arrange(stream)), "end_task was not called once a task"


def what_a_method_remembers_does_not_alias_the_live_weights(trial: Trial) -> None:
    """An anchor that is a view of the weights never pulls: keep
    `self.model.flat.detach().clone()`.
    """
    learner = trial.run()
    method = learner.method
    method.begin_task()
    before = {name: value.clone() for name, value in method.state()[0].items()}
    with torch.no_grad():
        learner.model.flat.add_(1.0)
    for name, value in method.state()[0].items():
        assert _equal(value, before[name]), (
            f"the buffer {name!r} changed with the weights: it is a view of them"
        )


def the_memory_fills_from_the_first_example_on(trial: Trial) -> None:
    """For methods that use one: after every step it holds what its policy says."""
    learner = trial.learner()
    if not learner.method.uses_memory:
        return
    finished = [0]

    def after(x: Learner) -> None:
        wanted = finished[0]
        if isinstance(x.memory, Reservoir):
            wanted = min(RESERVOIR, x.record.steps * x.batch)
        assert x.memory.inputs is not None, "nothing was written to the memory in the first step"
        assert len(x.memory) == wanted, f"the memory offers {len(x.memory)} examples, not {wanted}"

    for task in trial.stream(train=20):
        learner.learn(task, on_step=after)
        finished[0] += sum(min(RING, n) for n in torch.bincount(task.train.labels).tolist())
    if not isinstance(learner.memory, Reservoir):
        assert len(learner.memory) == finished[0], "the memory lost examples of an earlier task"


def more_tasks_than_memory_slots_or_drawn_samples(trial: Trial) -> None:
    """A memory of one example a class, and one example drawn."""
    method = trial.make()
    if not method.uses_memory:
        return
    if "reference_batch" in method.arguments:
        method = type(method)(**{**method.arguments, "reference_batch": 1})
    kept = Reservoir(2) if method.policy == "Reservoir" else Ring(1)
    learner = trial.run(method, trial.stream(tasks=4, train=10), memory=kept)
    assert bool(torch.isfinite(learner.model.flat).all()), "a weight is not finite"


def a_loss_of_exactly_zero(trial: Trial) -> None:
    """Tasks of one class each with heads of their own: nothing to tell apart, no gradient, nothing
    to divide by.
    """
    x = torch.rand(12, 6, generator=torch.Generator().manual_seed(1))
    tasks = [Task(f"only {i}", x, [i] * 12, test=(x, [i] * 12)) for i in range(3)]
    method = trial.make()
    kept = Reservoir(4) if method.policy == "Reservoir" else Ring(2)
    learner = Learner(mlp(6, 5), method, memory=kept, lr=0.1)
    learner.run(Stream("ones", tasks))
    assert bool(torch.isfinite(learner.model.flat).all()), "a weight is not finite"
    assert learner.record.accuracy[-1] == [1.0, 1.0, 1.0], (
        "one class cannot be mistaken for another"
    )


def resuming_in_the_middle_of_a_task_changes_nothing(trial: Trial) -> None:
    """What a method remembers is declared as a Buffer, so that it is saved: the resumed run has the
    same bits.
    """
    straight = trial.run()
    stop_at = straight.record.steps // 2 + 1  # not the end of a task
    with tempfile.TemporaryDirectory() as folder:

        def stop(learner: Learner) -> None:
            if learner.record.steps == stop_at:
                learner.save(folder)
                raise Interrupted

        stopped = trial.learner()
        with suppress(Interrupted):
            stopped.run(trial.stream(), on_step=stop)
        resumed = Learner.load(folder, backbone=trial.backbone(), method=trial.make())
    resumed.run(trial.stream())
    assert outcome(resumed) == outcome(straight), (
        "a run that was interrupted and resumed differs from one that was not"
    )


def growth_of_the_head_changes_nothing(trial: Trial) -> None:
    """A head with room for the first task alone learns what a roomy one does that starts from the
    same rows.

    Whatever runs along the parameters has to be padded with them.
    """
    with _double_precision():  # rounding must not be mistaken for a difference
        grown = trial.learner(outputs=2)
        roomy = trial.learner(outputs=8)
        _start_alike(grown, roomy)
        for learner in (grown, roomy):
            for task in learner.method.arrange(trial.stream()):
                learner.learn(task)
    for name, buffer in grown.method.used_buffers().items():
        if buffer.like:
            shape = grown.method.state()[0][name].shape
            assert shape == grown.model.flat.shape, (
                f"the buffer {name!r} did not grow with the parameters"
            )
    free = int((grown.model.head_of_class < 0).sum())  # rows, which come last
    size = len(grown.model.flat) - free * grown.model.head.shape[1]
    gap = (grown.model.flat[:size] - roomy.model.flat[:size]).abs().max()
    assert bool(gap < 1e-6), (
        "a head that grew learned something else than one that had room from the start"
    )


def _start_alike(grown: Learner, roomy: Learner) -> None:
    """Have each task of a roomy head start from the rows of one that grows, which draws them
    anew.
    """
    begin_grown, begin_roomy = grown.method.begin_task, roomy.method.begin_task
    heads: list[Tensor] = []  # the growing head when each task began
    outputs: list[int] = []  # how many a loss counted then
    known = [0]  # rows of the roomy head that earlier tasks claimed

    def keep_rows() -> None:
        heads.append(grown.model.head.detach().clone())
        outputs.append(grown.heads.outputs)
        begin_grown()

    def take_rows() -> None:
        new = slice(known[0], int((roomy.model.head_of_class >= 0).sum()))
        roomy.model.head.data[new] = heads.pop(0)[new]
        roomy.heads.outputs = outputs.pop(0)
        known[0] = new.stop
        begin_roomy()

    vars(grown.method)["begin_task"] = keep_rows
    vars(roomy.method)["begin_task"] = take_rows


@contextmanager
def _double_precision() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


CHECKS: tuple[Callable[[Trial], None], ...] = (
    same_seed_same_bits,
    weights_move_in_every_step_and_stay_finite,
    every_training_pass_is_in_train_mode,
    the_end_of_a_task_leaves_the_network_alone,
    what_a_method_remembers_does_not_alias_the_live_weights,
    the_memory_fills_from_the_first_example_on,
    more_tasks_than_memory_slots_or_drawn_samples,
    a_loss_of_exactly_zero,
    resuming_in_the_middle_of_a_task_changes_nothing,
    growth_of_the_head_changes_nothing,
)


def check_method(make: Callable[[], Method]) -> None:
    """Put a method, or a function that makes one, through every check on both kinds of network."""
    for kind in KINDS:
        for check in CHECKS:
            try:
                check(Trial(make, kind))
            except AssertionError as error:
                name = check.__name__.replace("_", " ")
                raise AssertionError(f"{name} ({kind}): {error}") from error


def _images(classes: int, count: int, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training and test images with their labels: each class has a pattern of its own, under
    noise.
    """
    generator = torch.Generator().manual_seed(100 + seed)
    patterns = torch.rand(classes, 1, SIDE, SIDE, generator=generator)
    labels = torch.arange(count + 20) % classes
    noise = torch.rand(len(labels), 1, SIDE, SIDE, generator=generator)
    images = (255 * (0.7 * patterns[labels] + 0.3 * noise)).to(torch.uint8)
    return images[:count], labels[:count], images[count:], labels[count:]


def _equal(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool(torch.equal(a.nan_to_num(), b.nan_to_num()))
