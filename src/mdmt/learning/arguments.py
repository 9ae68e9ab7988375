"""What a person gives a learner, as the parts it works with; what cannot be is one line, at
once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from mdmt.errors import Mistake
from mdmt.memory import POLICIES, Memory, Ring
from mdmt.methods import MDMTR, METHODS
from mdmt.methods.base import Method
from mdmt.network.model import Precision
from mdmt.tasks import HeadKind, Stream, Task


def backbone_of(given: Any) -> nn.Module:
    """A network; a class or a name is not one yet."""
    if isinstance(given, nn.Module):
        return given
    what = given.__name__ if isinstance(given, type) else repr(given)
    advice = (
        "make one of it first"
        if isinstance(given, type)
        else "mdmt.backbones.reduced_resnet18() is one"
    )
    raise Mistake(
        f"backbone={what}: must be a torch.nn.Module that maps inputs to feature vectors; {advice}"
    )


def method_of(given: Any) -> Method:
    """A method, or one with its usual settings by its class or its name; None is MDMT-R."""
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
    """A memory, or one of its usual size by its class; None is a ring. A number does not say what
    it counts.
    """
    if given is None:
        return Ring()
    if isinstance(given, type) and given in POLICIES.values():
        return given()  # type: ignore[no-any-return]
    if isinstance(given, Memory):
        return given
    if isinstance(given, int) and not isinstance(given, bool):
        raise Mistake(
            f"memory={given}: say of what: mdmt.memory.Reservoir({given}) keeps {given} examples in"
            f" all, mdmt.memory.Ring({given}) the last {given} of each class"
        )
    raise Mistake(f"memory={given!r}: must be a memory such as mdmt.memory.Ring(per_class=25)")


def device_of(given: Any) -> torch.device:
    """A device that is there; `auto` is an accelerator, or the processor where there is none."""
    try:
        device = _accelerator() if given == "auto" else torch.device(given)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise Mistake(
            f"device={given!r} cannot be used here: {reason}; device='cpu' always can"
        ) from None
    return device


def _accelerator() -> torch.device:
    if hasattr(torch, "accelerator"):
        found = (
            torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        )
        return found or torch.device("cpu")
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")  # torch before 2.6


def precision_of(given: Any, device: torch.device) -> Precision:
    """fp32, or bf16 where the device has it."""
    if given not in ("fp32", "bf16"):
        raise Mistake(f"precision={given!r}: must be fp32 or bf16")
    if given == "bf16":
        try:
            with torch.autocast(device.type, torch.bfloat16):
                torch.ones(2, 2, device=device) @ torch.ones(2, 2, device=device)
        except (RuntimeError, NotImplementedError) as error:
            reason = str(error).strip().splitlines()[0].rstrip(".")
            raise Mistake(
                f"precision='bf16' cannot be used on {device}: {reason}; fp32 always can"
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
    """A task, or the name, inputs and labels of one, with or without a pair to test on."""
    if isinstance(given, Task):
        return given
    if isinstance(given, (tuple, list)) and len(given) in (3, 4) and isinstance(given[0], str):
        name, x, y, *test = given
        return Task(name, x, y, test=test[0] if test else None)
    raise Mistake(
        f"a {type(given).__name__} is not a task: give mdmt.Task(name, x, y), or (name, x, y)"
    )


def stream_of(given: Any, heads: HeadKind | None) -> Stream:
    """A stream, or a list of tasks as one."""
    if isinstance(given, Stream):
        return given
    if isinstance(given, Sequence) and not isinstance(given, str):
        return Stream("stream", [task_of(task) for task in given], heads=heads or "per-task")
    raise Mistake(
        f"a {type(given).__name__} is not a stream: give mdmt.Stream(name, tasks), or a list of"
        " tasks"
    )
