"""How a learner takes up a task: its rows of the head, and with the first one the network itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from mdmt.errors import Mistake
from mdmt.model import Model
from mdmt.tasks import Task

if TYPE_CHECKING:
    from mdmt.learner import Learner


def open_task(learner: Learner, task: Task) -> None:
    """Give the task its rows of the head and its place in memory and record; nothing changes if it is refused."""
    for part in task.parts:
        if part.name in {t.name for t in learner.tasks}:
            raise Mistake(f"task {part.name!r} was learned already: give the new data another name")
        example = learner.shown(part, part.train, torch.arange(1))
        if learner.network is None:
            build(learner, example, len(part.classes))
        learner.check_inputs(f"task {part.name!r}", example)
    for part in task.parts:
        known, before = learner.shared_rows(), learner.model.flat.numel()
        new = [c for c in part.classes if c not in known]
        claimed = learner.model.claim(0 if learner.heads == "shared" else len(learner.tasks), len(new))
        if learner.model.flat.numel() > before:
            _grow(learner, before)
        known.update(zip(new, claimed.tolist(), strict=True))
        learner.add_task(part.name, part.classes, [known[c] for c in part.classes])
        tested = 0 if part.test is None else len(part.test)
        about = {"name": part.name, "classes": list(part.classes), "train": len(part.train), "test": tested}
        learner.record.tasks.append(about)
        learner.record.curve.append([])
    learner.open, learner.task, learner.done = task.name, task, 0
    learner.memory.open_task(learner.current, learner.tasks[-1].rows)
    learner.method.begin_task()


def build(learner: Learner, example: Tensor, classes: int, channels_last: bool | None = None) -> None:
    """Make the model for inputs like this one, with room for so many classes when the stream did not say."""
    learner.heads = learner.heads or "per-task"
    scale = (1 / 255 if example.dtype == torch.uint8 else 1.0) if learner.scale is None else learner.scale
    try:
        with torch.no_grad():
            learner.backbone.to(learner.device).eval()
            probe = learner.backbone(torch.zeros(2, *example.shape[1:], device=learner.device))
    except RuntimeError as error:
        raise Mistake(
            f"the backbone cannot read inputs of shape {tuple(example.shape[1:])}: {str(error).splitlines()[0]}"
        ) from None
    if not isinstance(probe, Tensor) or probe.ndim != 2 or len(probe) != 2:
        shape = tuple(probe.shape) if isinstance(probe, Tensor) else type(probe).__name__
        raise Mistake(f"the backbone must return one feature vector per input; for 2 inputs it gave {shape}")
    learner.network = Model(
        learner.backbone, probe.shape[1], learner.outputs or classes,
        cosine=learner.method.cosine, scale=scale, mean=learner.mean, seed=learner.seed, device=learner.device,
        channels_last=channels_last,
    )  # fmt: skip
    learner.input = (list(example.shape[1:]), str(example.dtype))
    if learner.optimiser_name != "SGD" or learner.optimiser_arguments:
        maker = getattr(torch.optim, learner.optimiser_name)
        learner.optimiser = maker([learner.network.flat], lr=learner.lr, **learner.optimiser_arguments)
    learner.method.bind(learner)


def _grow(learner: Learner, before: int) -> None:
    """The head has more rows: pad what runs along the parameters."""
    learner.method.grow()
    state = learner.optimiser_state()
    for key, value in state.items():
        if isinstance(value, Tensor) and value.shape == (before,):
            state[key] = torch.cat([value, value.new_zeros(learner.model.flat.numel() - before)])
