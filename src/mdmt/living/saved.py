"""What a version holds, as parts and a manifest, and back.

Parts: `weights` (network and head), `answers` (other weights to answer with, if the method has
them), `training` (method, optimiser, random state), `memory`, `held_back`. The manifest has the
learner's state as JSON, and under `living` what the folder adds to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

import mdmt.learning.checkpoints as checkpoints
from mdmt.learner import Learner
from mdmt.learning.checkpoints import Tensors, decoded, naming
from mdmt.living.answers import ANSWERS, check_network
from mdmt.living.held_back import HeldBack
from mdmt.system.files import JsonObject
from mdmt.system.state import SavedState

WEIGHTS = "weights"
TRAINING = "training"
MEMORY = "memory"
HELD_BACK = "held_back"


def pack(
    learner: Learner, held_back: HeldBack, living: JsonObject
) -> tuple[Iterator[tuple[str, bytes]], JsonObject]:
    """The parts of a version, one at a time, and the rest of its manifest."""
    files, rest = checkpoints.pack(learner)
    parts: dict[str, Tensors] = {WEIGHTS: {}, TRAINING: {}}
    for name, value in files["model"].items():
        goes_to = WEIGHTS if name.startswith("model.") or name == "mean" else TRAINING
        parts[goes_to][name] = value
    parts[MEMORY] = files.get("memory", {})
    parts[HELD_BACK] = held_back.state()
    answers = learner.method.answer_weights()
    if answers is not None:
        parts[ANSWERS] = {"flat": answers}
        statistics = learner.method.answer_statistics()
        if statistics is not None and len(statistics):
            parts[ANSWERS]["statistics"] = statistics
    scale = learner.predictor.scale
    about = {**living, "cosine": learner.model.cosine, "scale": scale}
    kept = {name: tensors for name, tensors in parts.items() if tensors}
    return checkpoints.encoded(kept), {**rest, "living": about}


def read_learner(saved: SavedState, backbone: nn.Module | None = None) -> Learner:
    """The learner of a version, ready to learn on."""
    check_network(saved, backbone)
    weights, training = saved.read(WEIGHTS, decoded), saved.read(TRAINING, decoded)
    files: dict[str, Tensors] = {"model": {**weights, **training}}
    if MEMORY in saved.files:
        files["memory"] = saved.read(MEMORY, decoded)
    with naming(saved.name):
        states = checkpoints.unpack(files, saved.rest)
    return Learner.from_states(saved.name, states, backbone=backbone)


def read_held_back(saved: SavedState) -> HeldBack:
    """The held-back examples of a version."""
    if HELD_BACK not in saved.files:
        return HeldBack()
    with naming(saved.name):
        return HeldBack.from_state(saved.read(HELD_BACK, decoded), saved.rest)


def describe(saved: SavedState) -> dict[str, Any]:
    """What a list of versions shows of a version."""
    living = saved.rest["living"]
    names = ("parent", "created", "change", "accuracy", "forgot")
    classes = {tuple(pair) for task in saved.rest["tasks"] for pair in enumerate(task["rows"])}
    rows = {row for _, row in classes}
    return {**{name: living[name] for name in names}, "classes": len(rows)}
