"""The gate of saved learners: the JSON of a manifest is checked before anything is made of it.

Whoever signs a folder can write anything into it. Here every key that a learner reads has its type
and its range, and nothing is allocated that the saved weights do not justify. The parts check their
own tensors when they load them (`inputs/saved.py`). A Mistake names what is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

import mdmt.runs.gate as gate
from mdmt.backbones import MAKERS, Backbone, make
from mdmt.errors import Mistake
from mdmt.inputs.saved import as_label, check_range, is_label, is_text, saved_tensor
from mdmt.memory import POLICIES
from mdmt.methods.base import Method
from mdmt.methods.settings import class_name
from mdmt.network.heads import FREE
from mdmt.runs.config import MAX_SEED
from mdmt.runs.record import Record
from mdmt.system.files import JsonObject

Tensors = Mapping[str, Tensor]
PartState = tuple[Tensors, Any]
LARGEST = 2**63 - 1
LARGEST_INPUT = 2**26  # numbers in one input
KINDS = {
    str(kind): kind
    for kind in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool)
}
KINDS |= {str(kind): kind for kind in (torch.float16, torch.bfloat16, torch.float32, torch.float64)}
_size = gate.whole(0, LARGEST)


def real(key: str, value: Any) -> float:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > gate.HUGE:
        raise gate.refusal(key, value, "a finite number")
    if not math.isfinite(value):
        raise gate.refusal(key, value, "a finite number")
    return value


def name(key: str, value: Any) -> str:
    """A text as it was saved."""
    if not is_text(value):
        raise gate.refusal(key, value, "a text")
    return str(value)


def mapping(key: str, value: Any) -> JsonObject:
    """An object of anything."""
    if not isinstance(value, dict):
        raise gate.refusal(key, value, "an object")
    return value


_count = gate.whole(1, LARGEST)
REQUIRED: dict[str, gate.Check] = {
    "lr": real,
    "batch": _count,
    "epochs": _count,
    "optimiser": gate.name,
    "optimiser_arguments": gate.settings,
    "heads": gate.matching("shared|per-task", "shared or per-task"),
    "outputs": _size,
    "scale": gate.or_null(real),
    "per_class": gate.flag,
    "seed": gate.whole(0, MAX_SEED),
}
LATER: dict[str, gate.Check] = {  # settings that mdmt 0.1.0 did not write
    "augment": gate.matching("none|crop-flip", "none or crop-flip"),
    "balance": gate.flag,
    "precision": gate.matching("fp32|bf16", "fp32 or bf16"),
    "compile": lambda _, value: value,
}
POSITION: dict[str, gate.Check] = {
    "more": gate.flag,
    "closed": gate.flag,
    "halfway": gate.flag,
    "channels_last": gate.flag,
}


def check_manifest(rest: JsonObject) -> None:
    """Check the JSON of a saved learner."""
    _check_settings(mapping("learner", gate.value_of(rest, "learner")))
    _size("outputs", gate.value_of(rest, "outputs"))
    _check_input(gate.value_of(rest, "input"))
    names = check_tasks(gate.value_of(rest, "tasks"))
    for key, check in POSITION.items():
        check(key, rest.get(key, False))
    opened = gate.or_null(name)("open", gate.value_of(rest, "open"))
    _size("done", gate.value_of(rest, "done"))
    if opened is not None and rest.get("more") and opened not in names:
        raise Mistake(f"open is {opened!r}, which is not one of its tasks")
    check_backbone(rest)
    method = mapping("method", gate.value_of(rest, "method"))
    name("method.name", gate.value_of(method, "name", "method."))
    mapping("method.arguments", gate.value_of(method, "arguments", "method."))
    _check_memory(rest)
    record = _record(mapping("record", gate.value_of(rest, "record")))
    learned = [(task["name"], task["classes"]) for task in rest["tasks"]]
    if [(task["name"], task["classes"]) for task in record.tasks] != learned:
        raise Mistake("record.tasks are not its tasks")


def _record(content: JsonObject) -> Record:
    try:
        return Record.from_state(content)
    except Mistake as error:
        raise Mistake(f"record: {error}") from None


def check_sizes(rest: JsonObject, weights: Tensors) -> None:
    """Check that the sizes in a manifest are those of its weights: they will be allocated."""
    rows = len(saved_tensor(weights, "model.head", (None, None)))
    gate.whole(0, rows)("outputs", rest["outputs"])
    gate.whole(0, rows)("learner.outputs", rest["learner"]["outputs"])
    owner = saved_tensor(weights, "model.head_of_class", (rows,), torch.int64)
    owned = torch.full_like(owner, FREE)
    for number, task in enumerate(rest["tasks"]):
        for row in task["rows"]:
            gate.whole(0, rows - 1)(f"tasks.{number}.rows", row)
        owned[task["rows"]] = 0 if rest["learner"]["heads"] == "shared" else number
    if not torch.equal(owned, owner):
        raise Mistake("model.head_of_class does not give each class's row to its task")


def _check_settings(settings: JsonObject) -> None:
    for key, check in REQUIRED.items():
        check(f"learner.{key}", gate.value_of(settings, key, "learner."))
    for key, value in settings.items():
        if key not in REQUIRED and key not in LATER:
            raise Mistake(f"learner has the unknown setting {gate.text('learner', key)}")
        if key in LATER:
            LATER[key](f"learner.{key}", value)


def _check_input(value: Any) -> None:
    """The shape and type of one input."""
    if not isinstance(value, list | tuple) or len(value) != 2 or str(value[1]) not in KINDS:
        raise gate.refusal("input", value, "a shape and a type")
    shape = [gate.whole(1, LARGEST)("input", size) for size in gate.array("input", value[0])]
    if math.prod(shape) > LARGEST_INPUT:
        raise gate.refusal("input", shape, f"a shape of at most {LARGEST_INPUT:,} numbers")


def check_tasks(value: Any) -> list[str]:
    """The names of the learned tasks, whose classes have rows of the head."""
    names = []
    for number, task in enumerate(gate.array("tasks", value)):
        key = f"tasks.{number}"
        content = mapping(key, task)
        names.append(name(f"{key}.name", gate.value_of(content, "name", f"{key}.")))
        classes = [as_label(c) for c in gate.array(f"{key}.classes", content.get("classes"))]
        taken = gate.array(f"{key}.rows", content.get("rows"))
        for row in taken:
            _size(f"{key}.rows", row)
        wrong = next((c for c in classes if not is_label(c)), None)
        if wrong is not None or None in classes:
            raise gate.refusal(f"{key}.classes", wrong, "a list of numbers and names")
        if not len(set(classes)) == len(classes) == len(set(taken)) == len(taken):
            raise Mistake(f"{key} does not have one row of the head for each of its classes")
    if len(set(names)) < len(names):
        raise Mistake("two of its tasks have the same name")
    return names


def check_backbone(rest: JsonObject) -> None:
    """A network of ours with its arguments, or null and the class of the user's network."""
    spec = gate.value_of(rest, "backbone")
    if spec is None:
        gate.or_null(gate.path)("backbone_class", rest.get("backbone_class"))
        return
    content = mapping("backbone", spec)
    kind = name("backbone.name", gate.value_of(content, "name", "backbone."))
    if kind not in MAKERS:
        raise gate.refusal("backbone.name", kind, f"one of {', '.join(MAKERS)}")
    arguments = mapping("backbone.arguments", gate.value_of(content, "arguments", "backbone."))
    for key, value in arguments.items():
        if key == "norm_start":
            gate.matching("fast|zero", "fast or zero")("backbone.norm_start", value)
        elif key in ("inputs", "width", "channels"):
            gate.whole(1, 2**31)(f"backbone.{key}", value)
        else:
            raise Mistake(f"backbone has the unknown argument {gate.text('backbone', key)}")


def network(spec: JsonObject, weights: Tensors) -> Backbone:
    """A network of ours, which is made only if the saved weights are those of such a network."""
    try:
        with torch.device("meta"):  # nothing is allocated
            expected = make(spec).state_dict()
    except (TypeError, RuntimeError):  # a missing argument, or more weights than there can be
        raise gate.refusal("backbone", spec, "the name and the arguments of a network") from None
    for key, value in expected.items():
        saved_tensor(weights, f"backbone.{key}", value.shape, value.dtype, whose="model.")
    return make(spec)


def _check_memory(rest: JsonObject) -> None:
    memory = mapping("memory", gate.value_of(rest, "memory"))
    policy = name("memory.policy", gate.value_of(memory, "policy", "memory."))
    state = mapping("memory.state", gate.value_of(memory, "state", "memory."))
    if policy not in POLICIES:
        return  # the user's own, which reads its state itself
    sizes = {key: size for key, size in memory.items() if key not in ("policy", "state")}
    wanted = set(POLICIES[policy]().spec) - {"policy"}
    if set(sizes) != wanted:
        raise gate.refusal("memory", sizes, f"a {policy} with {', '.join(wanted)}")
    for key, size in sizes.items():
        _size(f"memory.{key}", size)
    if "count" in state or policy.endswith("Reservoir"):
        _size("memory.state.count", gate.value_of(state, "count", "memory.state."))
    if "classes" in state or policy == "ClassReservoir":
        _check_classes(gate.value_of(state, "classes", "memory.state."))
    if "seen" in state or policy.endswith("Ring"):
        _size("memory.state.base", gate.value_of(state, "base", "memory.state."))
        _check_seen(
            gate.array("memory.state.seen", gate.value_of(state, "seen", "memory.state.")), rest
        )


def _check_classes(classes: Any) -> None:
    """What a reservoir knows of classes: row, examples so far, and whether it was the largest."""
    for one in gate.array("memory.state.classes", classes):
        for number in gate.array("memory.state.classes", one):
            _size("memory.state.classes", number)
        if len(one) != 3:
            raise gate.refusal("memory.state.classes", one, "a list of three numbers")


def _check_seen(seen: Any, rest: JsonObject) -> None:
    """How many examples of each row the current task had; an open task has just its own rows."""
    for pair in gate.array("memory.state.seen", seen):
        for number in gate.array("memory.state.seen", pair):
            _size("memory.state.seen", number)
        if len(pair) != 2:
            raise gate.refusal("memory.state.seen", pair, "a list of pairs")
    opened = [task["rows"] for task in rest["tasks"] if task["name"] == rest["open"]]
    if opened and not rest.get("closed", False) and {row for row, _ in seen} != set(opened[0]):
        raise Mistake("memory.state.seen does not have the rows of the open task")


def check_examples(states: Mapping[str, PartState], method: Method) -> None:
    """Check that the stored examples are such as the model learns, of rows that tasks have."""
    weights, about = states["model"]
    memory, spec = states["memory"]
    stored = memory.get("inputs")
    if method.uses_memory and "base" in spec["state"]:
        reserved = 0 if stored is None else len(stored)
        gate.whole(0, reserved)("memory.state.base", spec["state"]["base"])
    if stored is None:
        return
    shape, kind = about["input"]
    saved_tensor(memory, "inputs", (None, *shape), KINDS[kind], whose="memory.")
    labels = saved_tensor(memory, "labels", (len(stored),), torch.int64, whose="memory.")
    tasks = saved_tensor(memory, "tasks", (len(stored),), torch.int64, whose="memory.")
    slots = saved_tensor(memory, "available", (None,), torch.int64, whose="memory.")
    check_range("memory.available", slots, 0, len(stored) - 1)
    check_rows("memory", labels[slots], tasks[slots], about)
    rows, width = weights["head"].shape
    features = memory.get("features")
    if features is not None and method.stores_features and ":" not in class_name(method):
        plain = type(method).represent is Method.represent
        # Others are logits, of as many rows as the head had when they were stored.
        wanted = width - 1 if plain else min([rows, *features.shape[1:2]])
        saved_tensor(memory, "features", (len(stored), wanted), whose="memory.")


def check_rows(whose: str, labels: Tensor, tasks: Tensor, rest: JsonObject) -> None:
    """Check that the labels of examples are rows of the head that their tasks have."""
    learned = [set(task["rows"]) for task in rest["tasks"]]
    check_range(f"{whose}.tasks", tasks, 0, len(learned) - 1)
    pairs = set(zip(labels.tolist(), tasks.tolist(), strict=True))
    if not all(row in learned[task] for row, task in pairs):
        raise Mistake(f"{whose}.labels are not rows of their tasks")
