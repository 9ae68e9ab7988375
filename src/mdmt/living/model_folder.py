"""A model that goes on learning: one folder, versions, a memory of a fixed size.

    model = mdmt.LivingModel("birds/")          # opens it, or makes it on the first learn
    model.learn("january/", memory="50MB")      # a folder of class folders, arrays, a Dataset
    model.learn("february/", max_forgetting=0.02)
    model.predict(x)

The commands `mdmt learn`, `predict`, `evaluate`, `info`, `rollback`, `forget`, `verify` and `prune`
are the same thing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

import mdmt.living.forgetting as forgetting
from mdmt.errors import Mistake
from mdmt.inputs.saved import as_label
from mdmt.learner import Learner
from mdmt.learning.progress import image_bar
from mdmt.living.about import about
from mdmt.living.answers import Answer, Answers
from mdmt.living.deliveries import Delivery, read_delivery, with_known_labels
from mdmt.living.lessons import Lesson, Teacher
from mdmt.living.plan import Plan
from mdmt.living.saved import describe, read_held_back, read_learner
from mdmt.living.versions import Versions
from mdmt.system.files import JsonObject


@dataclass(frozen=True)
class Version:
    """A version in short."""

    number: int
    parent: int | None
    created: str
    change: str  # "learned january", "forgot owl"
    classes: int
    accuracy: float | None  # on held-back examples, without the task if classes share a head
    forgot: float | None  # the largest loss of accuracy of an earlier class
    current: bool


class LivingModel:
    """One model folder. Any number of processes may read it while one changes it.

    A network that is not one of mdmt's must be passed as `backbone`: a folder never has code run.
    Pass a function that makes it, since every version needs its own.
    """

    def __init__(
        self, folder: str | Path, *, backbone: Callable[[], nn.Module] | None = None
    ) -> None:
        self.versions_ = Versions(folder)
        self.backbone = backbone
        self._answers: Answers | None = None

    def __repr__(self) -> str:
        folder = self.versions_.name
        if not self.exists:
            return f"LivingModel({folder!r}): nothing learned yet"
        classes = len(self.classes)
        return f"LivingModel({folder!r}): version {self.version}, {classes} classes"

    @property
    def exists(self) -> bool:
        """Whether the folder has a model; the first `learn` makes it."""
        return self.versions_.exists

    @property
    def version(self) -> int:
        """The number of the current version."""
        return self.versions_.current

    @property
    def versions(self) -> list[Version]:
        """All versions, in order."""
        current = self.version
        found = []
        for number in self.versions_.numbers():
            about = describe(self.versions_.open(number))
            found.append(Version(current=number == current, number=number, **about))
        return found

    def info(self) -> JsonObject:
        """What the model is and keeps: versions, classes, deliveries, bytes, the threshold."""
        return about(self.versions_)

    @property
    def classes(self) -> list[Hashable]:
        """The classes of the current version, in the order in which they were learned."""
        return [label for _, label in self.answers().predictor.classes()]

    # Learning.

    def learn(
        self,
        data: Any,
        name: str | None = None,
        *,
        memory: str | int | None = None,
        holdout: float | None = None,
        max_forgetting: float | None = None,
        label: str | None = None,
        discard: bool = False,
        progress: bool = False,
        tell: Callable[[str], None] | None = None,
        **settings: Any,
    ) -> Lesson:
        """Learn a delivery: new classes, more of known ones, or both. It becomes a new version.

        `data`: a folder of class folders, an .npz file (x, y), a .csv file or a frame (`label` is
        its column of classes), a pair (x, y), a Task or a torch Dataset. `memory`: the bytes for
        all that is kept of examples, such as "50MB". `holdout`: the share of each class that is
        held back, to measure what is forgotten. `max_forgetting`: if an earlier class loses more,
        the new version does not become the current one. `settings` of the first delivery: `heads`,
        `method`, `backbone`, `weights`, `lr`, `batch`, `epochs`, `image_size`, `seed`; later only
        `epochs`. `tell` is called with a line that says what is used.

        After an interruption, also `kill -9`, the same call goes on where it stopped; `discard`
        gives up an interrupted delivery for another one.
        """
        plan = Plan.make(memory=memory, holdout=holdout, max_forgetting=max_forgetting, **settings)
        delivery = self._read(data, name, label, plan.size, progress)
        Teacher(self.versions_, delivery, plan, None).check()  # a mistake leaves no trace
        with self.versions_.writing(new=True):
            teacher = Teacher(self.versions_, delivery, plan, self._network())
            lesson = teacher.teach(discard=discard, progress=progress, tell=tell)
        self._answers = None
        return lesson

    def _read(
        self, data: Any, name: str | None, label: str | None, size: int | None, progress: bool
    ) -> Delivery:
        """Read a delivery as the model reads its inputs; `size` is that of a new model's images."""
        form: JsonObject = {"image_size": size}
        tasks: list[JsonObject] = []
        if self.exists:
            rest = self.versions_.read(lambda saved: saved.rest)
            shape, tasks = rest["input"][0], rest["tasks"]
            form["image_size"] = shape[1] if len(shape) == 3 else None
            form["channels"] = 1 if len(shape) == 3 and shape[0] == 1 else 3
            form["columns"] = rest["living"].get("columns")
        with image_bar(shown=progress) as show:
            delivery = read_delivery(data, name, label=label, progress=show, **form)
        return with_known_labels(delivery, (as_label(c) for task in tasks for c in task["classes"]))

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return self.versions_.read(lambda saved: tuple(saved.rest["input"][0]))

    @property
    def columns(self) -> list[str] | None:
        """The names of the columns of tables, in the model's order; None if it learned none."""
        living: JsonObject = self.versions_.read(lambda saved: saved.rest["living"])
        return living.get("columns")

    # Answers.

    def answers(self, version: int | None = None) -> Answers:
        """What answers: a snapshot of a version, by default the current one."""
        if version is None and self._answers and self._answers.version == self.version:
            return self._answers
        answers = self.versions_.read(lambda saved: Answers.load(saved, self._network()), version)
        if version is None:
            self._answers = answers
        return answers

    def predict(self, x: Any, task: str | None = None, *, reject: float = 0.0) -> list[Any]:
        """The class of each input; None if its probability is below `reject`."""
        return self.answers().labels(x, task, reject=reject)

    def predict_top(
        self, x: Any, task: str | None = None, *, top: int = 1, reject: float = 0.0
    ) -> list[Answer]:
        """The most probable classes of each input, with their probabilities."""
        return self.answers().answers(x, task, top=top, reject=reject)

    def predict_proba(self, x: Any, task: str | None = None) -> NDArray[np.float32]:
        """The calibrated probability of each class, a column for each of `classes`."""
        return self.answers().probabilities(x, task)

    def evaluate(
        self, data: Any = None, *, label: str | None = None, version: int | None = None
    ) -> forgetting.Evaluation:
        """Accuracy and calibration on the held-back examples, or on data of yours."""
        answers = self.answers(version)
        if data is None:
            held_back = self.versions_.read(read_held_back, version)
        else:
            delivery = self._read(data, "evaluation", label, None, progress=False)
            held_back = forgetting.as_held_back(answers, delivery)
        return forgetting.evaluate(answers, held_back)

    def learner(self, version: int | None = None) -> Learner:
        """The learner of a version, with its memory, to look at; changes to it are not saved."""
        return self.versions_.read(lambda saved: read_learner(saved, self._network()), version)

    def module(self) -> nn.Module:
        """The current version as a plain module: raw inputs to calibrated probabilities."""
        from mdmt.living.module import AnswerModule

        return AnswerModule(self.answers())

    def export_onnx(self, file: str | Path) -> Path:
        """Write the current version as an ONNX file; needs the extra `export`."""
        from mdmt.living.onnx import export_onnx

        return export_onnx(self.answers(), file)

    # Versions.

    def rollback(self, to: int | None = None) -> int:
        """Make another version the current one, by default the one that it was made from."""
        with self.versions_.writing():
            if to is None:
                about = describe(self.versions_.open(self.version))
                if about["parent"] is None:
                    raise Mistake(f"version {self.version} is the first one: there is none before")
                to = int(about["parent"])
            if (damage := self.versions_.damage(to)) is not None:
                raise Mistake(damage)
            self.versions_.use(to)
        self._answers = None
        return to

    def prune(self, keep: int) -> list[int]:
        """Remove all versions except the current one and the last `keep`; return those removed."""
        if keep < 1:
            raise Mistake(f"keep={keep}: must be 1 or more")
        with self.versions_.writing():
            numbers = self.versions_.numbers()
            gone = [n for n in numbers[:-keep] if n != self.version]
            self.versions_.remove(gone)
        return gone

    def verify(self) -> dict[int, str]:
        """Read every part of every version; the damage of each damaged version, by number."""
        damage = {}
        for number in sorted({self.version, *self.versions_.numbers()}):
            found = self.versions_.damage(number) or self._does_not_load(number)
            if found is not None:
                damage[number] = found
        return damage

    def _does_not_load(self, number: int) -> str | None:
        """Why a version whose files are whole does not load."""
        saved = self.versions_.open(number)
        if saved.rest["backbone"] is None and self.backbone is None:
            return None  # it needs the user's network
        try:
            read_learner(saved, self._network())
            read_held_back(saved)
            Answers.load(saved, self._network())
        except Mistake as error:
            return str(error)
        return None

    # Forgetting.

    def forget(
        self,
        *,
        classes: Iterable[Hashable] = (),
        deliveries: Iterable[str] = (),
        examples: Iterable[str] = (),
        rebuild: bool = False,
        progress: bool = False,
    ) -> forgetting.Removal:
        """Remove classes, deliveries, or examples by their checksums, from the whole folder.

        Their examples, representations and held-back examples go, and every version that holds
        them. A trained network may still hold something of what it learned; with `rebuild`, a
        network from first weights learns what is left in the memory.
        """
        wanted = forgetting.Wanted(set(classes), set(deliveries), set(examples))
        with self.versions_.writing():
            removal = forgetting.forget(
                self.versions_, wanted, self._network, rebuild=rebuild, progress=progress
            )
        self._answers = None
        return removal

    def _network(self) -> nn.Module | None:
        return None if self.backbone is None else self.backbone()
