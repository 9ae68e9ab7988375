"""A learner as tensors and JSON, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from mdmt import backbones, memory
from mdmt.errors import Mistake
from mdmt.methods import METHODS
from mdmt.methods.base import Method
from mdmt.opening import build
from mdmt.record import Record
from mdmt.state import Parts, read_state

if TYPE_CHECKING:
    from mdmt.learner import Learner


def learner_state(learner: Learner) -> tuple[Parts, dict[str, Any]]:
    """Everything a learner knows: weights, statistics, method, memory, record and position."""
    kept, kept_rest = learner.memory.state()
    model, method = learner.model, learner.method
    numbers = {
        **{f"model.{k}": v for k, v in model.state().items()},
        **{f"method.{k}": getattr(method, k) for k in method.buffers()},
        **{f"optimiser.{k}": v for k, v in learner.optimiser_state().items() if isinstance(v, Tensor)},
        **{f"right_after.{k}": v for k, v in learner.right_after.items()},
        "random": learner.random_state(),
    }
    if learner.mean is not None:
        numbers["mean"] = learner.mean
    rest = {
        "backbone": getattr(learner.backbone, "spec", None),
        "method": {"name": method.name, "arguments": method.arguments},
        "memory": {**learner.memory.spec, "state": kept_rest},
        "learner": {
            "lr": learner.lr, "batch": learner.batch, "epochs": learner.epochs, "optimiser": learner.optimiser_name,
            "optimiser_arguments": learner.optimiser_arguments, "heads": learner.heads, "outputs": learner.outputs,
            "scale": learner.scale, "per_class": learner.per_class, "seed": learner.seed,
        },
        "tasks": [{"name": t.name, "classes": list(t.classes), "rows": t.rows.tolist()} for t in learner.tasks],
        "input": learner.input, "open": learner.open, "done": learner.done, "outputs": model.outputs,
        "channels_last": model.channels_last,
        "record": dataclasses.asdict(learner.record),
    }  # fmt: skip
    parts = {"model": numbers, "memory": kept, "snapshots": learner.snapshots}
    if learner.steps_kept:
        parts["steps"] = {"rows": torch.tensor(learner.steps_kept, dtype=torch.float64)}
    return {name: tensors for name, tensors in parts.items() if tensors}, rest


def load_learner(
    make: type[Learner],
    folder: str | Path,
    backbone: nn.Module | None,
    method: Method | None,
    device: str,
    tell: Callable[[str], None] | None,
) -> Learner:
    """A learner from what `learner_state` gave and `write_state` wrote."""
    parts, rest = read_state(folder, tell)
    for what, given in (("backbone", backbone), ("method", method)):
        own = rest["backbone"] is None if what == "backbone" else rest["method"]["name"] not in METHODS
        if own and given is None:
            raise Mistake(f"{folder} was saved with a {what} of your own: Learner.load({str(folder)!r}, {what}=...)")
    learner = make(
        backbones.make(rest["backbone"]) if backbone is None else backbone,
        METHODS[rest["method"]["name"]](**rest["method"]["arguments"]) if method is None else method,
        memory=memory.make({k: v for k, v in rest["memory"].items() if k != "state"}),
        mean=parts["model"].get("mean"),
        device=device,
        **rest["learner"],
    )
    restore(learner, parts, rest)
    learner.saved = place(learner, folder)
    return learner


def place(learner: Learner, folder: str | Path) -> str:
    """Which state of a learner lies in a folder, in words."""
    return f"that of task {learner.tasks[-1].name!r}, step {learner.done}, in {folder}"


def restore(learner: Learner, parts: Parts, rest: dict[str, Any]) -> None:
    """Put a fresh learner where the saved one was."""

    def under(prefix: str) -> dict[str, Tensor]:
        return {k.removeprefix(prefix): v.to(learner.device) for k, v in parts["model"].items() if k.startswith(prefix)}

    shape, kind = rest["input"]
    example = torch.empty(1, *shape, dtype=getattr(torch, kind.removeprefix("torch.")))
    build(learner, example, 1, channels_last=rest.get("channels_last", True))  # mdmt 0.1.0 laid out every kernel so
    learner.model.load_state(under("model."))
    learner.model.outputs = rest["outputs"]
    for name, value in under("method.").items():
        setattr(learner.method, name, value)
    if optimised := under("optimiser."):
        learner.optimiser_state().update(optimised)
    learner.right_after = under("right_after.")
    learner.snapshots = parts.get("snapshots", {})
    learner.steps_kept = parts["steps"]["rows"].tolist() if "steps" in parts else []
    learner.load_random_state(parts["model"]["random"])
    for task in rest["tasks"]:
        learner.add_task(task["name"], tuple(task["classes"]), task["rows"])
    learner.open, learner.done, learner.record = rest["open"], rest["done"], Record(**rest["record"])
    learner.memory.load_state(parts.get("memory", {}), rest["memory"]["state"])
