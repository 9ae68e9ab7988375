"""Checks for any method, ours or yours: each looks for a bug that a well-known library shipped.

    mdmt.checks.check_method(MyMethod)

runs all of them within seconds on small generated images. The first check that fails raises an
AssertionError that says what is wrong. If the method needs settings, pass a function that makes it:
`check_method(lambda: MyMethod(replay=3))`.
"""

from __future__ import annotations

import dataclasses
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from mdmt.backbones import mlp, reduced_resnet18
from mdmt.errors import Mistake
from mdmt.learner import Learner
from mdmt.memory import Memory, Reservoir, Ring
from mdmt.methods.base import Method
from mdmt.tasks import Permutation, Stream, Task

Kind = Literal["resnet", "mlp"]
# The ResNet has batch norm and one head per task, so its head grows; the MLP has one shared head.
KINDS: tuple[Kind, ...] = ("resnet", "mlp")
RING = 3  # examples per class
RESERVOIR = 30  # examples
SIDE = 8  # pixels


class Interrupted(Exception):
    """Raised on purpose in the middle of a task."""


@dataclass(frozen=True)
class Trial:
    """A method, one kind of network, and the small stream that they learn."""

    make: Callable[[], Method]
    kind: Kind

    def stream(self, tasks: int = 3, train: int = 24) -> Stream:
        """Generated images: two new classes per task, or four classes with permuted pixels."""
        if self.kind == "resnet":
            splits = [_images(2, train, seed) for seed in range(tasks)]
            pairs = [
                Task(f"pair {i}", x, y + 2 * i, test=(t, u + 2 * i))
                for i, (x, y, t, u) in enumerate(splits)
            ]
            return Stream("checks", pairs)
        x, y, t, u = _images(4, train, 0)
        generator = torch.Generator().manual_seed(1)
        views = [
            Permutation(torch.randperm(SIDE * SIDE, generator=generator)) for _ in range(tasks)
        ]
        orders = [Task(f"order {i}", x, y, test=(t, u), view=view) for i, view in enumerate(views)]
        return Stream("checks", orders, heads="shared", evaluate="all")

    def backbone(self) -> nn.Module:
        """A narrow network of this kind."""
        return mlp(SIDE * SIDE, 12) if self.kind == "mlp" else reduced_resnet18(1, 2)

    def learner(
        self, method: Method | None = None, memory: Memory | None = None, **settings: Any
    ) -> Learner:
        """A new learner with `method`, by default the one to check."""
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
    """Record and weights: the results that the seed alone must decide."""
    record = dataclasses.replace(learner.record, seconds=0.0, memory_bytes=0, buffer_bytes=0)
    return dataclasses.astuple(record), learner.model.sha256()


def same_seed_same_bits(trial: Trial) -> None:
    """The learner's seed decides every draw: torch's global generator has no influence."""
    first = outcome(trial.run())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        second = outcome(trial.run())
    assert first == second, (
        "two runs with one seed differ: draw from self.memory or from a generator that you seed"
    )


def weights_move_in_every_step_and_stay_finite(trial: Trial) -> None:
    """Every step changes the weights, or every end of a task if the method learns there."""
    method = trial.make()
    learner = trial.learner(method)
    last_hook = "end_task" if method.learns_at_task_end else "after_step"
    hook = getattr(method, last_hook)
    hashes: list[str] = []

    def watched(*batch: Any) -> None:
        hook(*batch)
        hashes.append(learner.model.sha256())

    vars(method)[last_hook] = watched
    learner.run(trial.stream())
    what = "the end of a task" if method.learns_at_task_end else "a step"
    assert len(set(hashes)) == len(hashes) > 0, f"{what} did not change the weights"
    assert bool(torch.isfinite(learner.model.flat).all()), "a weight is not finite"
    assert learner.record.metrics["A_T"] is not None, "the tasks were not evaluated"


def every_training_pass_is_in_train_mode(trial: Trial) -> None:
    """No pass with gradients is in evaluation mode, and every step passes in training mode.

    Passes in evaluation mode without gradients, such as those of a teacher, are allowed.
    """
    method = trial.make()
    learner = trial.learner(method)
    hook = "end_task" if method.learns_at_task_end else "step"
    learn = getattr(method, hook)
    training_passes = [0]

    def before_pass(*_: Any) -> None:
        # Training mode counts even without gradients: an MLP's are computed by hand.
        if all(module.training for module in learner.backbone.modules()):
            training_passes[0] += 1
        else:
            assert not torch.is_grad_enabled(), "a training pass was made in evaluation mode"

    def watched(*batch: Any) -> None:
        training_passes[0] = 0
        handle = learner.backbone.register_forward_pre_hook(before_pass)
        learn(*batch)
        handle.remove()
        assert training_passes[0], f"`{hook}` made no pass through the network in training mode"

    vars(method)[hook] = watched
    learner.run(trial.stream())


def the_end_of_a_task_leaves_the_network_alone(trial: Trial) -> None:
    """`end_task` keeps weights, batch-norm statistics, gradients, modes and random state.

    Use `self.model.frozen()` for a pass. If the method learns at the end of a task, its weights and
    statistics may change.
    """
    method = trial.make()
    learner = trial.learner(method)
    end = method.end_task
    calls = [0]

    def traces() -> tuple[Any, ...]:
        model = learner.model
        weights = "" if method.learns_at_task_end else model.sha256()
        gradients = [leaf.grad for leaf in (*model.leaves, model.flat)]
        modes = [module.training for module in learner.backbone.modules()]
        return weights, gradients, modes, torch.get_rng_state().tolist()

    def watched() -> None:
        before = traces()
        end()
        assert traces() == before, (
            "end_task changed weights, statistics, gradients, modes or random state; declare"
            " learns_at_task_end = True if it trains the network"
        )
        calls[0] += 1

    vars(method)["end_task"] = watched
    stream = trial.stream()
    learner.run(stream)
    assert calls[0] == len(method.arrange(stream)), "end_task was not called once a task"


def what_a_method_remembers_does_not_alias_the_live_weights(trial: Trial) -> None:
    """A buffer must not be a view of the weights: such an anchor would follow them.

    Store `self.model.flat.detach().clone()`.
    """
    learner = trial.run()
    method = learner.method
    method.begin_task()
    before = {name: value.clone() for name, value in method.state()[0].items()}
    with torch.no_grad():
        learner.model.flat.add_(1.0)
    for name, value in method.state()[0].items():
        assert _equal(value, before[name]), (
            f"the buffer {name!r} changed with the weights: it is a view of them; store a clone"
        )


def the_memory_fills_from_the_first_example_on(trial: Trial) -> None:
    """After every step the memory holds as many examples as its policy says."""
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
    """A tiny memory, from which one example is drawn at a time, is enough to learn."""
    method = trial.make()
    if not method.uses_memory:
        return
    if "reference_batch" in method.arguments:
        method = type(method)(**{**method.arguments, "reference_batch": 1})
    tiny: Memory = Reservoir(2) if method.policy == "Reservoir" else Ring(1)
    learner = trial.run(method, trial.stream(tasks=4, train=10), memory=tiny)
    assert bool(torch.isfinite(learner.model.flat).all()), "a weight is not finite"


def a_loss_of_exactly_zero(trial: Trial) -> None:
    """Tasks with one class each have loss and gradient 0: nothing may be divided by them."""
    x = torch.rand(12, 6, generator=torch.Generator().manual_seed(1))
    tasks = [Task(f"only {i}", x, [i] * 12, test=(x, [i] * 12)) for i in range(3)]
    method = trial.make()
    memory: Memory = Reservoir(4) if method.policy == "Reservoir" else Ring(2)
    learner = Learner(mlp(6, 5), method, memory=memory, lr=0.1)
    learner.run(Stream("ones", tasks))
    assert bool(torch.isfinite(learner.model.flat).all()), "a weight is not finite"
    assert learner.record.accuracy[-1] == [1.0, 1.0, 1.0], (
        "tasks with a single class must have accuracy 1"
    )


def resuming_in_the_middle_of_a_task_changes_nothing(trial: Trial) -> None:
    """A run that is saved, loaded and resumed has the same bits as one that was not.

    A method must declare what it remembers as a Buffer, so that it is saved.
    """
    straight = trial.run()
    stop_at = straight.record.steps // 2 + 1  # in the middle of a task
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
        "a resumed run differs from an uninterrupted one: declare what the method remembers as a"
        " Buffer"
    )


def growth_of_the_head_changes_nothing(trial: Trial) -> None:
    """A head that grows learns the same as a roomy one whose tasks start from the same rows.

    Tensors that run along the parameters must be padded when the head grows.
    """
    with _double_precision():  # rounding must not be mistaken for a difference
        grown = trial.learner(outputs=2)
        roomy = trial.learner(outputs=8)
        _start_alike(grown, roomy)
        for learner in (grown, roomy):
            for task in learner.method.arrange(trial.stream()):
                learner.learn(task)
    for name, buffer in grown.method.used_buffers().items():
        if buffer.like == "params":
            shape = grown.method.state()[0][name].shape
            assert shape == grown.model.flat.shape, (
                f"the buffer {name!r} did not grow with the parameters"
            )
    free = int((grown.model.head_of_class < 0).sum())  # free rows come last
    size = len(grown.model.flat) - free * grown.model.head.shape[1]
    gap = (grown.model.flat[:size] - roomy.model.flat[:size]).abs().max()
    assert bool(gap < 1e-6), (
        "a head that grew learned something else than one that had room from the start"
    )


def _start_alike(grown: Learner, roomy: Learner) -> None:
    """Copy the rows that the growing head draws for each task into the roomy head."""
    begin_grown, begin_roomy = grown.method.begin_task, roomy.method.begin_task
    heads: list[Tensor] = []  # the growing head when each task began
    outputs: list[int] = []  # the number of outputs that a loss counted then
    claimed = [0]  # rows of the roomy head that earlier tasks own

    def keep_rows() -> None:
        heads.append(grown.model.head.detach().clone())
        outputs.append(grown.heads.outputs)
        begin_grown()

    def take_rows() -> None:
        new = slice(claimed[0], int((roomy.model.head_of_class >= 0).sum()))
        roomy.model.head.data[new] = heads.pop(0)[new]
        roomy.heads.outputs = outputs.pop(0)
        claimed[0] = new.stop
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
    """Run every check on both kinds of network; `make` is a method class, or makes a method."""
    if sys.flags.optimize:
        raise Mistake("python -O leaves out assertions, and so every check: leave -O out")
    for kind in KINDS:
        for check in CHECKS:
            try:
                check(Trial(make, kind))
            except AssertionError as error:
                name = check.__name__.replace("_", " ")
                raise AssertionError(f"{name} ({kind}): {error}") from error


def _images(classes: int, count: int, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training and test images with their labels: a pattern per class, under noise."""
    generator = torch.Generator().manual_seed(100 + seed)
    patterns = torch.rand(classes, 1, SIDE, SIDE, generator=generator)
    labels = torch.arange(count + 20) % classes
    noise = torch.rand(len(labels), 1, SIDE, SIDE, generator=generator)
    images = (255 * (0.7 * patterns[labels] + 0.3 * noise)).to(torch.uint8)
    return images[:count], labels[:count], images[count:], labels[count:]


def _equal(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool(torch.equal(a.nan_to_num(), b.nan_to_num()))
