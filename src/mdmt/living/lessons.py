"""A lesson: a delivery becomes a new version of the model."""

from __future__ import annotations

import copy
import re
import shutil
import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import mdmt.backbones as backbones
import mdmt.living.calibration as calibration
import mdmt.living.defaults as defaults
from mdmt.errors import Mistake
from mdmt.inputs.saved import as_label
from mdmt.learner import Learner
from mdmt.learning.checkpoints import Checkpoints
from mdmt.living.answers import Answers
from mdmt.living.deliveries import Delivery, split
from mdmt.living.held_back import HeldBack, choose
from mdmt.living.plan import Plan
from mdmt.living.saved import pack, read_held_back, read_learner
from mdmt.living.versions import CHANGE, Versions
from mdmt.living.versions import MANIFEST as VERSION
from mdmt.memory import Balanced
from mdmt.network.first_weights import load_first_weights
from mdmt.system.files import (
    JsonObject,
    make_folder,
    read_json,
    remove_file,
    sync_folder,
    write_json,
)
from mdmt.system.state import PART, SavedState, StateFolder
from mdmt.tasks import Task
from mdmt.words import bytes_text, count, printable, twins

LEARNING = "learning"  # the folder of a delivery that is being learned
NOTES = "delivery.json"  # there: which delivery it is
STATE = "state"  # there: the learner's checkpoint
HELD_BACK_SHARE = 0.2  # of the budget, at most, is for held-back examples
RESERVE = 4096  # bytes of the budget for the headers of files
HELD_BACK_DRAWS = 11  # the purpose of random numbers
SEED = 1234  # the learner's default


@dataclass(frozen=True)
class Change:
    """The accuracy of a class before and after a lesson; before is None for a new class."""

    task: str | None  # None: all classes share one head
    label: Hashable
    examples: int  # held back
    before: float | None
    after: float


@dataclass(frozen=True)
class Lesson:
    """What a lesson did."""

    version: int
    delivery: str
    promoted: bool  # whether the new version is the current one
    changes: list[Change]
    accuracy: float | None  # on all held-back examples
    forgot: float | None  # the largest loss of accuracy of an earlier class
    seconds: float
    stored_bytes: int  # of memory and held-back examples


class Teacher:
    """Teaches one delivery to the model in a folder; the caller holds the writer's lock."""

    def __init__(
        self, versions: Versions, delivery: Delivery, plan: Plan, network: nn.Module | None
    ) -> None:
        self.versions = versions
        self.delivery = delivery
        self.network = network
        self.asked = plan
        self.base = versions.open(versions.current) if versions.exists else None
        self.living: JsonObject = {} if self.base is None else self.base.rest["living"]
        self.plan = plan.after(self.living)
        self.folder = versions.path / LEARNING
        self.number = len(self.living.get("deliveries", ()))
        self.task = self._task()

    def teach(
        self,
        *,
        discard: bool = False,
        progress: bool = False,
        tell: Callable[[str], None] | None = None,
    ) -> Lesson:
        """Learn the delivery, from where an interrupted call left it, and write the version."""
        start = time.monotonic()
        self.check()
        held_back = self._chosen()
        learner, steps = self._begin(discard)
        if tell is not None:
            tell(self.summary)
        try:
            self._learn(learner, steps, split(self.task, held_back), progress)
        except (Mistake, OSError):
            if not self._has_checkpoint:  # there is nothing to go on from
                with suppress(OSError):  # a disk that fails must not hide the first error
                    clear(self.versions)
            raise
        kept, is_earlier = self._held_back(learner, held_back)
        lesson = self._write(learner, kept, is_earlier, time.monotonic() - start)
        with suppress(OSError):  # the version is complete; the next delivery clears the rest
            clear(self.versions)
        return lesson

    # Before learning.

    def _task(self) -> Task:
        """The delivery as a task with a name of its own, or more data of a task with a head."""
        task = self.delivery.task
        learned = [] if self.base is None else [one["name"] for one in self.base.rest["tasks"]]
        if task.name not in learned or self._heads == "per-task":
            return task
        number = 2
        while f"{task.name} ({number})" in learned:
            number += 1
        return _renamed(task, f"{task.name} ({number})")

    @property
    def _heads(self) -> Any:
        if self.base is not None:
            return self.base.rest["learner"]["heads"]
        return self.plan.heads or "shared"

    @property
    def summary(self) -> str:
        """What the delivery is learned with, and which of it nobody chose."""
        new = self.base is None
        assert self.plan.memory is not None
        if self.base is None:
            spec = _named_network(self.plan, tuple(self.task.train.inputs.shape[1:]))
            own = type(self.network).__name__
            network = spec["name"] if self.network is None else own
            method = self.plan.method or defaults.METHOD
        else:
            network, method = network_name(self.base), self.base.rest["method"]["name"]
        memory = f"memory {bytes_text(self.plan.memory)}"
        parts = [
            memory + (" (default)" if new and self.asked.memory is None else ""),
            f"method {method}" + (" (default)" if new and self.asked.method is None else ""),
            f"network {network}"
            + (" (default)" if new and not self.network and self.asked.backbone is None else ""),
        ]
        examples = count("example", len(self.task.train.labels))
        return f"learning {self.delivery.name} ({examples}): {', '.join(parts)}"

    def check(self) -> None:
        """Refuse deliveries that were learned already or do not fit the model."""
        if self.base is None:
            self._check_folder()
        for earlier in self.living.get("deliveries", ()):
            if earlier["sha256"] == self.delivery.sha256:
                raise Mistake(
                    f"delivery {self.delivery.name!r} was learned already, as {earlier['name']!r},"
                    f" on {earlier['date'][:10]}: nothing to do"
                )
        known = _classes(self.base)
        names = dict.fromkeys(c for c in (*known, *self.task.classes) if isinstance(c, str))
        if (difference := twins(names)) is not None:
            raise Mistake(f"the classes {difference}: rename one of them")
        inputs = self.task.train.inputs
        if self.base is not None:
            shape, kind = self.base.rest["input"]
            if (list(inputs.shape[1:]), str(inputs.dtype)) != (shape, kind):
                raise Mistake(
                    f"delivery {self.delivery.name!r}: one input has shape"
                    f" {tuple(inputs.shape[1:])} and type {inputs.dtype}; those of the model have"
                    f" shape {tuple(shape)} and type {kind}"
                )
        self._check_budget(len({*known, *self.task.classes}))

    def _check_folder(self) -> None:
        """Refuse to make a model among files of somebody else, such as the images themselves."""
        ours = re.compile(rf"{LEARNING}|{CHANGE}|{PART}|{VERSION.pattern}")
        inside = sorted(self.versions.path.iterdir()) if self.versions.path.is_dir() else []
        for path in inside:
            if not path.name.startswith(".") and not ours.fullmatch(path.name):
                raise Mistake(
                    f"{self.versions.name} is not a model, and holds {printable(path.name)}: name a"
                    " new folder for the model"
                )

    def _check_budget(self, classes: int) -> None:
        """Refuse a budget that cannot hold one example of each class, and one held back."""
        example = self.task.train.inputs[torch.arange(1)]
        one = 2 * (example.nbytes + Balanced.OVERHEAD)
        assert self.plan.memory is not None
        if self.plan.memory < RESERVE + classes * one:
            least = bytes_text(RESERVE + classes * one + 999)
            raise Mistake(
                f"memory={bytes_text(self.plan.memory)} cannot hold an example of each of"
                f" {classes} classes: give {least} or more"
            )

    def _chosen(self) -> Tensor:
        """Which examples are held back; it depends on the seed and the delivery's number alone."""
        seed = self.plan.seed if self.base is None else self.base.rest["learner"]["seed"]
        seed = SEED if seed is None else seed
        draws = np.random.default_rng([seed, HELD_BACK_DRAWS, self.number])
        return choose(self.task.train.labels, self.plan.holdout or 0.0, draws)

    def _begin(self, discard: bool) -> tuple[Learner, int]:
        """The learner to go on with, and the steps it had before this delivery."""
        notes = {
            "sha256": self.delivery.sha256,
            "parent": None if self.base is None else self.versions.current,
            "plan": asdict(self.plan),
        }
        if discard:
            clear(self.versions)
        if (self.folder / NOTES).is_file() and not self._is_over:
            earlier = read_json(self.folder / NOTES)
            steps = earlier.pop("steps", None)
            name = earlier.pop("name", None)
            if earlier != notes or not isinstance(steps, int):
                raise Mistake(
                    f"delivery {name!r} was interrupted: repeat that command to learn it to its"
                    " end, or give it up with --discard (in Python discard=True)"
                )
            if self._has_checkpoint:
                learner = Learner.load(self.folder / STATE, backbone=self.network)
                return learner, steps
        clear(self.versions)  # a state of another delivery must not be taken for one of this
        learner = self._learner()
        make_folder(self.folder)
        steps = learner.record.steps
        write_json(self.folder / NOTES, {**notes, "name": self.delivery.name, "steps": steps})
        return learner, steps

    @property
    def _has_checkpoint(self) -> bool:
        return bool(StateFolder(self.folder / STATE).manifests)

    @property
    def _is_over(self) -> bool:
        """Whether the delivery in the folder became a version before the folder was cleared."""
        digest = read_json(self.folder / NOTES).get("sha256")
        return any(one["sha256"] == digest for one in self.living.get("deliveries", ()))

    def _learner(self) -> Learner:
        """The learner of the current version, or a new one."""
        plan = self.plan
        if self.base is not None:
            current = self.versions.current
            learner = self.versions.read(lambda saved: read_learner(saved, self.network), current)
            learner.memory.size = learner.memory.spec["bytes"] = self._memory_bytes()
            learner.epochs = plan.epochs or learner.epochs
            return learner
        given = {"lr": plan.lr, "batch": plan.batch, "epochs": plan.epochs, "seed": plan.seed}
        chosen = {key: value for key, value in given.items() if value is not None}
        pixels = self.task.train.inputs.dtype == torch.uint8
        settings = {**defaults.learning_for(plan.method, pixels=pixels), **chosen}
        method = defaults.method_for(plan.method)
        return Learner(
            self.network or self._new_network(settings.get("seed", SEED)),
            method,
            memory=defaults.memory_for(method, self._memory_bytes()),
            heads=self._heads,
            balance=True,
            **settings,
        )

    def _new_network(self, seed: int) -> nn.Module:
        spec = _named_network(self.plan, tuple(self.task.train.inputs.shape[1:]))
        network = backbones.make(spec)
        if self.plan.weights is not None:
            load_first_weights(network, self.plan.weights, seed)
        return network

    def _memory_bytes(self) -> int:
        assert self.plan.memory is not None
        share = HELD_BACK_SHARE if self.plan.holdout else 0.0
        return int((1 - share) * (self.plan.memory - RESERVE))

    def _held_back_bytes(self) -> int:
        assert self.plan.memory is not None
        return self.plan.memory - RESERVE - self._memory_bytes()

    # Learning.

    def _learn(self, learner: Learner, steps: int, task: Task, progress: bool) -> None:
        if learner.task_name is None and learner.record.steps > steps:
            return  # it was learned to its end before the interruption
        more = learner.task_name is None and task.name in learner.heads.names
        checkpoint = Checkpoints(self.folder / STATE)
        learner.learn(task, more=more, checkpoint=checkpoint, progress=progress)

    def _held_back(self, learner: Learner, chosen: Tensor) -> tuple[HeldBack, Tensor]:
        """The held-back examples inside their budget, and which are of earlier deliveries."""
        before = HeldBack() if self.base is None else read_held_back(self.base)
        learned = learner.heads.tasks[learner.heads.number(self.task.name)]
        rows = dict(zip(learned.classes, learned.rows.tolist(), strict=True))
        of_class = torch.tensor([rows[c] for c in self.task.classes])
        index = chosen.nonzero()[:, 0]
        labels = of_class[self.task.train.labels[index]]
        inputs = self.task.train.inputs[index]
        number = learner.heads.number(self.task.name)
        joined = before.joined(inputs, labels, number) if len(index) else before
        draws = np.random.default_rng([learner.seed, HELD_BACK_DRAWS, self.number, 1])
        kept = joined.within(self._held_back_bytes(), draws)
        return joined.at(kept), kept < len(before)

    # After learning.

    def _write(
        self, learner: Learner, held_back: HeldBack, is_earlier: Tensor, seconds: float
    ) -> Lesson:
        old = None if self.base is None else Answers.load(self.base, self._network_again())
        new = Answers(learner.model, scale=learner.predictor.scale)
        changes = compare(old, new, held_back, is_earlier)
        lost = [c.before - c.after for c in changes if c.before is not None]
        forgot = max(lost, default=None)
        gate = self.plan.max_forgetting
        promoted = self.base is None or gate is None or forgot is None or forgot <= gate
        stored = sum(learner.memory.bytes.values()) + held_back.bytes
        if self.base is not None:  # other epochs are for this delivery alone
            learner.epochs = self.base.rest["learner"]["epochs"]
        about = {
            **measure(new, held_back),
            "parent": None if self.base is None else self.versions.current,
            "change": f"learned {self.delivery.name}",
            "forgot": forgot,
            "changes": [asdict(change) for change in changes],
            "budget": self.plan.memory,
            "holdout": self.plan.holdout,
            "columns": self.living.get("columns") or self.delivery.columns,
            "deliveries": [*self.living.get("deliveries", ()), self._entry(held_back)],
        }
        version = add_version(self.versions, learner, held_back, about, use=promoted)
        return Lesson(
            version,
            self.delivery.name,
            promoted,
            changes,
            about["accuracy"],
            forgot,
            seconds,
            stored,
        )

    def _network_again(self) -> nn.Module | None:
        """Another instance of a user's own network, for the version before."""
        return None if self.network is None else copy.deepcopy(self.network)

    def _entry(self, held_back: HeldBack) -> JsonObject:
        counts = self.delivery.counts()
        return {
            "name": self.delivery.name,
            "task": self.task.name,
            "sha256": self.delivery.sha256,
            "date": now(),
            "classes": [[c, n] for c, n in counts.items()],
        }


def add_version(
    versions: Versions, learner: Learner, held_back: HeldBack, about: JsonObject, **how: Any
) -> int:
    """Write a learner as a new version."""
    parts, rest = pack(learner, held_back, {**about, "created": now()})
    return versions.add(parts, rest, **how)


def measure(answers: Answers, held_back: HeldBack) -> JsonObject:
    """Accuracy, temperature, calibration error and threshold on held-back examples."""
    if not len(held_back):
        unknown = dict.fromkeys(("accuracy", "threshold", "calibration", "uncalibrated"))
        return {**unknown, "temperature": 1.0}
    scores, labels = answers.scores(held_back)
    temperature = calibration.fit_temperature(scores, labels)
    shares = calibration.softmax(scores / temperature)
    return {
        "accuracy": float((scores.argmax(1) == labels).mean()),
        "temperature": temperature,
        "threshold": calibration.rejection_threshold(shares),
        "calibration": calibration.calibration_error(shares, labels),
        "uncalibrated": calibration.calibration_error(calibration.softmax(scores), labels),
    }


def compare(
    old: Answers | None, new: Answers, held_back: HeldBack, is_earlier: Tensor
) -> list[Change]:
    """Each class before and after, on the same held-back examples.

    They are those of earlier deliveries, if the class has any: what a class forgets of these must
    not be made up for by what it learns of the new ones, whose labels may be wrong.
    """
    known = held_back.labels[is_earlier]
    held_back = held_back.at((is_earlier | ~torch.isin(held_back.labels, known)).nonzero()[:, 0])
    before = {} if old is None else old.class_accuracies(held_back)
    return [
        Change(
            one.task,
            one.label,
            one.examples,
            before[row].accuracy if row in before else None,
            one.accuracy,
        )
        for row, one in new.class_accuracies(held_back).items()
    ]


def clear(versions: Versions) -> None:
    """Give up the delivery that is being learned; its folder may hold examples."""
    folder = versions.path / LEARNING
    if not folder.exists():
        return
    remove_file(folder / NOTES)  # first: without them the rest is not gone on from
    sync_folder(folder)
    shutil.rmtree(folder)
    sync_folder(versions.path)


def now() -> str:
    """The time, for people."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _classes(base: SavedState | None) -> Sequence[Hashable]:
    tasks = [] if base is None else base.rest["tasks"]
    return [as_label(c) for task in tasks for c in task["classes"]]


def _renamed(task: Task, name: str) -> Task:
    other = copy.copy(task)
    other.name = name
    return other


def network_name(base: SavedState) -> str:
    """The name of a version's network."""
    spec = base.rest["backbone"]
    return str(base.rest.get("backbone_class") if spec is None else spec["name"])


def _named_network(plan: Plan, shape: tuple[int, ...]) -> dict[str, Any]:
    """The network that a plan names; first weights for colour images are those of a ResNet-18."""
    spec = defaults.network_for(shape)
    name = plan.backbone
    if name is None and plan.weights is not None and spec["arguments"].get("channels") == 3:
        name = "resnet18"
    if name is None or name == spec["name"]:
        return spec
    if name not in backbones.MAKERS:
        known = ", ".join(backbones.MAKERS)
        raise Mistake(f"backbone={name!r}: must be one of {known}, or a network of yours")
    if "channels" not in spec["arguments"] or name == "mlp":
        raise Mistake(f"backbone={name!r} does not fit inputs of shape {shape}")
    width = {"resnet18": 64}.get(name, 20)
    return {"name": name, "arguments": {**spec["arguments"], "width": width}}
