"""Forgetting on purpose: classes, deliveries or examples leave the folder; and its measurements."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import mdmt.living.calibration as calibration
import mdmt.living.defaults as defaults
from mdmt.errors import Mistake
from mdmt.inputs.saved import as_label
from mdmt.learner import Learner
from mdmt.learning.checkpoints import decoded
from mdmt.living.answers import Answers, ClassAccuracy
from mdmt.living.deliveries import Delivery, example_digests
from mdmt.living.held_back import HeldBack
from mdmt.living.lessons import add_version, clear, measure
from mdmt.living.saved import read_held_back, read_learner
from mdmt.living.versions import Versions
from mdmt.memory import make as make_memory
from mdmt.system.files import JsonObject
from mdmt.system.state import SavedState
from mdmt.tasks import Pool, Task
from mdmt.words import count

Network = Callable[[], nn.Module | None]


@dataclass(frozen=True)
class Evaluation:
    """Accuracy, and the calibration error with and without the temperature."""

    accuracy: float | None
    calibration: float | None
    uncalibrated: float | None
    classes: list[ClassAccuracy]


@dataclass(frozen=True)
class Wanted:
    """What to forget."""

    classes: set[Hashable]
    deliveries: set[str]
    examples: set[str]  # checksums

    @property
    def text(self) -> str:
        """In words, for the list of versions: numbers only, as names may be what has to go."""
        parts = []
        for noun, things in (("class", self.classes), ("delivery", self.deliveries)):
            if things:
                plural = {"class": "classes", "delivery": "deliveries"}[noun]
                parts.append(count(noun, len(things), plural))
        if self.examples:
            parts.append(count("example", len(self.examples)))
        return "forgot " + ", ".join(parts)


@dataclass(frozen=True)
class Removal:
    """What was removed."""

    version: int  # the new current version
    classes: list[Hashable]
    examples: int  # from memory and held-back examples of the current version
    versions: list[int]
    rebuilt: bool
    before: float | None  # accuracy on the held-back examples that are left
    after: float | None
    lost: list[Hashable]  # classes that a rebuilt network could not learn: no example was left


def evaluate(answers: Answers, held_back: HeldBack) -> Evaluation:
    """Measure answers on examples."""
    if not len(held_back):
        return Evaluation(None, None, None, [])
    scores, labels = answers.scores(held_back)
    shares = calibration.softmax(scores / answers.temperature)
    return Evaluation(
        float((scores.argmax(1) == labels).mean()),
        calibration.calibration_error(shares, labels),
        calibration.calibration_error(calibration.softmax(scores), labels),
        list(answers.class_accuracies(held_back).values()),
    )


def as_held_back(answers: Answers, delivery: Delivery) -> HeldBack:
    """A user's data to evaluate on, as rows of the head; refuse classes that are not known."""
    heads = answers.model.heads
    task = delivery.task
    answers.model.check_inputs("the data", task.train.inputs)
    place: dict[Hashable, tuple[int, int]] = {}
    for number, learned in enumerate(heads.tasks):
        for c, row in zip(learned.classes, learned.rows.tolist(), strict=True):
            place.setdefault(c, (row, number))
    unknown = next((c for c in task.classes if c not in place), None)
    if unknown is not None:
        raise Mistake(f"class {unknown!r} was not learned; classes: {', '.join(map(str, place))}")
    rows = torch.tensor([place[c][0] for c in task.classes])[task.train.labels]
    tasks = torch.tensor([place[c][1] for c in task.classes])[task.train.labels]
    return HeldBack(task.train.inputs[torch.arange(len(rows))], rows, tasks)


def forget(
    versions: Versions, wanted: Wanted, network: Network, *, rebuild: bool, progress: bool
) -> Removal:
    """Write a version without what is wanted gone, and remove every version that holds it."""
    if not (wanted.classes or wanted.deliveries or wanted.examples):
        raise Mistake("say what to forget: classes, deliveries or examples")
    base = versions.open(versions.current)
    learner = versions.read(lambda saved: read_learner(saved, network()), versions.current)
    held_back = versions.read(read_held_back, versions.current)
    stored = len(learner.memory) + len(held_back)
    released, held_back = _remove(learner, held_back, wanted)
    before = measure(Answers(learner.model, scale=learner.predictor.scale), held_back)["accuracy"]
    lost: list[Hashable] = []
    removed = stored - len(learner.memory) - len(held_back)
    if rebuild:
        learner, held_back, lost = _rebuilt(learner, held_back, network(), progress)
    gone = [n for n in versions.numbers() if rebuild or _holds(versions.open(n), wanted)]
    if not removed and not released and not gone:
        raise Mistake("nothing to forget: the model keeps none of these examples")
    about = _about(base, wanted, learner, gone) | measure(
        Answers(learner.model, scale=learner.predictor.scale), held_back
    )
    clear(versions)
    number = add_version(versions, learner, held_back, about, instead_of=gone)
    return Removal(number, released, removed, gone, rebuild, before, about["accuracy"], lost)


def _remove(
    learner: Learner, held_back: HeldBack, wanted: Wanted
) -> tuple[list[Hashable], HeldBack]:
    """Remove what is wanted from a learner; return the released classes and what is held back."""
    heads = learner.heads
    numbers = torch.tensor([heads.number(name) for name in sorted(wanted.deliveries)]).long()
    released = list(wanted.classes) + _only_in(learner, wanted)
    rows = torch.tensor(
        [
            row
            for task in heads.tasks
            for c, row in zip(task.classes, task.rows.tolist(), strict=True)
            if c in released
        ]
    ).long()
    memory = learner.memory
    if released:
        learner.forget(released)
    memory.remove(_matching(memory.inputs, memory.labels, memory.tasks, numbers, rows, wanted))
    gone = _matching(held_back.inputs, held_back.labels, held_back.tasks, numbers, rows, wanted)
    keep = torch.ones(len(held_back), dtype=torch.bool)
    keep[gone] = False
    return released, held_back.at(keep.nonzero()[:, 0])


def _only_in(learner: Learner, wanted: Wanted) -> list[Hashable]:
    """Classes that only the unwanted deliveries taught."""
    for name in wanted.deliveries:
        learner.heads.number(name)
    staying = {
        c
        for task in learner.heads.tasks
        if task.name not in wanted.deliveries
        for c in task.classes
    }
    going = [
        c for task in learner.heads.tasks if task.name in wanted.deliveries for c in task.classes
    ]
    return [c for c in dict.fromkeys(going) if c not in staying and c not in wanted.classes]


def _matching(
    inputs: Tensor | None,
    labels: Tensor | None,
    tasks: Tensor | None,
    numbers: Tensor,
    rows: Tensor,
    wanted: Wanted,
) -> Tensor:
    """The positions of stored examples that have to go."""
    if inputs is None or labels is None or tasks is None:
        return torch.empty(0, dtype=torch.int64)
    gone = torch.isin(tasks, numbers) | torch.isin(labels, rows)
    if wanted.examples:
        digests = example_digests(inputs)
        gone |= torch.tensor([digest in wanted.examples for digest in digests])
    return gone.nonzero()[:, 0]


def _holds(saved: SavedState, wanted: Wanted) -> bool:
    """Whether a version holds what is wanted gone."""
    for task in saved.rest["tasks"]:
        if task["name"] in wanted.deliveries or wanted.classes & set(
            map(as_label, task["classes"])
        ):
            return True
    if not wanted.examples:
        return False
    for part in ("memory", "held_back"):
        if part in saved.files:
            inputs = saved.read(part, decoded).get("inputs")
            if inputs is not None and wanted.examples & set(example_digests(inputs)):
                return True
    return False


def _about(base: SavedState, wanted: Wanted, learner: Learner, gone: list[int]) -> JsonObject:
    """The manifest of the new version: nothing in it names what was forgotten."""
    living = base.rest["living"]
    known = {c for task in learner.heads.tasks for c in task.classes}
    deliveries = []
    for entry in living["deliveries"]:
        classes = [[c, n] for c, n in entry["classes"] if as_label(c) in known]
        if classes and entry["task"] not in wanted.deliveries:
            deliveries.append({**entry, "classes": classes})
    current = base.rest["version"]
    return {
        **living,
        "parent": None if current in gone else current,
        "change": wanted.text,
        "forgot": None,
        "changes": [],
        "deliveries": deliveries,
    }


def _rebuilt(
    learner: Learner, held_back: HeldBack, network: nn.Module | None, progress: bool
) -> tuple[Learner, HeldBack, list[Hashable]]:
    """A learner from first weights that has learned what is left in the memory."""
    memory = learner.memory
    tasks = []
    for number, learned in enumerate(learner.heads.tasks):
        if memory.inputs is None or memory.labels is None or memory.tasks is None:
            break
        mine = (memory.tasks == number).nonzero()[:, 0]
        if len(mine):
            labels = learner.heads.classes(memory.labels[mine])
            tasks.append(Task(learned.name, memory.inputs[mine], labels))
    if not tasks:
        raise Mistake("nothing is left in the memory to rebuild the network from")
    fresh = learner.fresh(network, memory=make_memory(memory.spec))
    fresh.epochs = learner.epochs * defaults.REBUILD_EPOCHS
    fresh.learn(Pool(tasks), progress=progress)
    fresh.epochs = learner.epochs
    return fresh, *_moved(learner, fresh, held_back)


def _moved(old: Learner, new: Learner, held_back: HeldBack) -> tuple[HeldBack, list[Hashable]]:
    """Held-back examples with the rows of the rebuilt head; and classes that it has not."""
    place: dict[Hashable, tuple[int, int]] = {}
    for number, task in enumerate(new.heads.tasks):
        for c, row in zip(task.classes, task.rows.tolist(), strict=True):
            place.setdefault(c, (row, number))
    names = old.heads.classes(held_back.labels)
    kept = [i for i, name in enumerate(names) if name in place]
    left = held_back.at(torch.tensor(kept, dtype=torch.int64))
    known = dict.fromkeys(c for task in old.heads.tasks for c in task.classes)
    lost = [c for c in known if c not in place]
    if left.inputs is None:
        return left, lost
    pairs = [place[names[i]] for i in kept]
    rows = torch.tensor([row for row, _ in pairs], dtype=torch.int64)
    tasks = torch.tensor([number for _, number in pairs], dtype=torch.int64)
    return HeldBack(left.inputs, rows, tasks), lost
