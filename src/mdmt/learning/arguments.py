"""Validate and convert the Learner's arguments, and keep track of who owns what."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

import mdmt.runs.gate as gate
from mdmt.errors import Mistake, first_line
from mdmt.learning.gate import network
from mdmt.memory import POLICIES, Memory, Ring
from mdmt.memory import make as make_memory
from mdmt.methods import MDMTR, METHODS
from mdmt.methods.base import Method
from mdmt.network.model import Precision
from mdmt.tasks import HeadKind, Stream, Task
from mdmt.words import printable

_owners: Any = WeakIdKeyDictionary()  # a backbone, method or memory, and its learner


def own(learner: Any, **things: Any) -> None:
    """Give things to a learner; refuse those that another one has.

    Two learners with one network would both train it, and each would answer with the other's
    weights.
    """
    if any(_has_owner(thing) for thing in things.values()):
        gc.collect()  # a learner that was dropped is a cycle, which may not be collected yet
    for what, thing in things.items():
        if _has_owner(thing):
            raise Mistake(
                f"this {what} belongs to another learner, which goes on changing it: make a new"
                f" {what} for each learner"
            )
    for thing in things.values():
        _owners[thing] = weakref.ref(learner)


def _has_owner(thing: Any) -> bool:
    owner = _owners.get(thing)
    return owner is not None and owner() is not None


def backbone_of(given: Any) -> nn.Module:
    """A network; a class or a name is refused."""
    if isinstance(given, nn.Module):
        return given
    what = given.__name__ if isinstance(given, type) else repr(given)
    advice = "pass an instance" if isinstance(given, type) else "try mdmt.backbones.mlp(784)"
    raise Mistake(
        f"backbone={what}: must be a torch.nn.Module that maps inputs to feature vectors; {advice}"
    )


def method_of(given: Any) -> Method:
    """A method, or a class or name of one with its default settings; None is MDMT-R."""
    if given is None:
        return MDMTR()
    if isinstance(given, str):
        if given not in METHODS:
            raise Mistake(
                f"method={given!r}: must be one of {', '.join(METHODS)}, or a method such as"
                " mdmt.ER()"
            )
        return METHODS[given]()
    if isinstance(given, type) and issubclass(given, Method):
        return given()
    if not isinstance(given, Method):
        raise Mistake(
            f"method={given!r}: must be a method such as mdmt.ER(), its class or its name"
        )
    return given


def memory_of(given: Any) -> Memory:
    """A memory, or a class of one with its default size; None is a ring."""
    if given is None:
        return Ring()
    if isinstance(given, type) and given in POLICIES.values():
        return given()  # type: ignore[no-any-return]
    if isinstance(given, Memory):
        return given
    if isinstance(given, int) and not isinstance(given, bool):
        raise Mistake(
            f"memory={given} is ambiguous: mdmt.memory.Reservoir({given}) keeps {given} examples in"
            f" all, mdmt.memory.Ring({given}) the last {given} of each class"
        )
    raise Mistake(f"memory={given!r}: must be a memory such as mdmt.memory.Ring(per_class=25)")


def device_of(given: Any) -> torch.device:
    """A device of this machine; `auto` is an accelerator if there is one, else the CPU."""
    try:
        device = _accelerator() if given == "auto" else torch.device(given)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        reason = first_line(error).rstrip(".")
        raise Mistake(
            f"device={given!r} is not available: {reason}; device='cpu' always is"
        ) from None
    return device


def _accelerator() -> torch.device:
    if hasattr(torch, "accelerator"):
        available = torch.accelerator.is_available()
        found = torch.accelerator.current_accelerator() if available else None
        return found or torch.device("cpu")
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")  # torch before 2.6


def precision_of(given: Any, device: torch.device) -> Precision:
    """fp32, or bf16 if the device supports it."""
    if given not in ("fp32", "bf16"):
        raise Mistake(f"precision={given!r}: must be fp32 or bf16")
    if given == "bf16":
        try:
            with torch.autocast(device.type, torch.bfloat16):
                torch.ones(2, 2, device=device) @ torch.ones(2, 2, device=device)
        except (RuntimeError, NotImplementedError) as error:
            reason = first_line(error).rstrip(".")
            raise Mistake(
                f"precision='bf16' is not available on {device}: {reason}; fp32 always is"
            ) from None
    return given  # type: ignore[no-any-return]


def whole_number(name: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """A whole number from `least` to `most`."""
    too_large = most is not None and isinstance(value, int) and value > most
    if not isinstance(value, int) or isinstance(value, bool) or value < least or too_large:
        bounds = f"{least} or more" if most is None else f"{least} to {most}"
        raise Mistake(f"{name}={value!r}: must be a whole number, {bounds}")
    return value


def task_of(given: Any) -> Task:
    """A task, or a tuple of its name, inputs and labels, with or without a pair to test on."""
    if isinstance(given, Task):
        return given
    if isinstance(given, (tuple, list)) and len(given) in (3, 4) and isinstance(given[0], str):
        name, x, y, *test = given
        return Task(name, x, y, test=test[0] if test else None)
    raise Mistake(
        f"cannot learn a {type(given).__name__}: pass mdmt.Task(name, x, y), or (name, x, y)"
    )


def stream_of(given: Any, heads: HeadKind | None) -> Stream:
    """A stream, or a list of tasks as one."""
    if isinstance(given, Stream):
        return given
    if isinstance(given, Sequence) and not isinstance(given, str):
        return Stream("stream", [task_of(task) for task in given], heads=heads or "per-task")
    raise Mistake(
        f"cannot run a {type(given).__name__}: pass mdmt.Stream(name, tasks), or a list of tasks"
    )


def saved_backbone(
    folder: str | Path,
    about: Mapping[str, Any],
    weights: Mapping[str, Tensor],
    given: nn.Module | None,
) -> nn.Module:
    """The network of a saved learner: the given one, or one of ours that fits its weights."""
    if about["backbone"] is None:
        own: nn.Module = _given(folder, "backbone", about.get("backbone_class"), given)
        return own
    return network(about["backbone"], weights) if given is None else given


def saved_method(folder: str | Path, about: Mapping[str, Any], given: Method | None) -> Method:
    """The method of a saved learner: the given one, or one of ours with the saved settings."""
    name = about["name"]
    if name not in METHODS:
        own: Method = _given(folder, "method", name if ":" in name else None, given)
        return own
    if given is not None:
        return given
    try:
        return METHODS[name](**about["arguments"])
    except TypeError:
        known = ", ".join(METHODS[name]().arguments)
        raise gate.refusal("method.arguments", about["arguments"], f"settings of {known}") from None


def saved_memory(folder: str | Path, about: Mapping[str, Any], given: Memory | None) -> Memory:
    """The memory of a saved learner: the given one, or one of ours of the saved size."""
    spec = {key: value for key, value in about.items() if key != "state"}
    if spec["policy"] not in POLICIES:
        own: Memory = _given(folder, "memory", spec["policy"], given)
        return own
    return make_memory(spec) if given is None else given


def _given(folder: str | Path, what: str, saved: str | None, given: Any) -> Any:
    """A part that the caller has to pass, of the class that was saved."""
    shown = None if saved is None else printable(saved)
    if given is None:
        of_class = f" of the class {shown}" if shown else " of your own"
        raise Mistake(
            f"{folder} was saved with a {what}{of_class}: pass it, Learner.load({str(folder)!r},"
            f" {what}=...)"
        )
    name = type(given).__qualname__
    if saved is not None and saved.rpartition(":")[2] != name:
        raise Mistake(f"{folder} was saved with the {what} {shown}, but {what}= is a {name}")
    return given


def class_path(thing: object) -> str:
    """The class of a thing, as module:Class."""
    return f"{type(thing).__module__}:{type(thing).__qualname__}"
