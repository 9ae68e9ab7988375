"""Any sequence of calls on a model folder keeps its promises (a hypothesis state machine).

MDMT_MACHINE_STEPS sets how many steps are tried in all.
"""

import os
import shutil
import tempfile
from pathlib import Path

import hypothesis
import numpy as np
import onnxruntime
import torch
from hypothesis import strategies
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import mdmt
from mdmt.learner import Learner
from support.deliveries import content, delivery

STEPS = int(os.environ.get("MDMT_MACHINE_STEPS", "200"))
LENGTH = 20
CLASSES = ["owl", "kite", "robin", "wren", "crane"]
some_classes = strategies.lists(
    strategies.sampled_from(CLASSES), min_size=1, max_size=3, unique=True
)
PROBE = delivery(CLASSES, 3, seed=999)[0]
BUDGET = 9_000


class ModelFolder(RuleBasedStateMachine):
    """One folder with a live model; the machine knows what it must hold."""

    @initialize()
    def begin(self):
        self.folder = Path(tempfile.mkdtemp()) / "model"
        self.model = mdmt.LivingModel(self.folder)
        self.count = 0
        self.exported = False
        self.classes = {}  # of each version
        self.forgotten = {}  # the examples of forgotten classes, until these are learned again
        self.learned = {}  # all examples of each class
        self.teach(["owl", "kite"])

    def teach(self, classes):
        self.count += 1
        x, y = delivery(classes, 6, seed=self.count)
        lesson = self.model.learn((x, y), name=f"delivery {self.count}", memory=BUDGET, epochs=1)
        assert lesson.promoted
        assert lesson.stored_bytes <= BUDGET
        known = self.classes.get(self.before, set()) if self.classes else set()
        self.classes[lesson.version] = known | set(classes)
        for c in classes:
            rows = [row.tobytes() for row, label in zip(x, y, strict=True) if label == c]
            self.learned.setdefault(c, []).extend(rows)

    @property
    def before(self):
        return self.model.version if len(self.classes) and self.model.exists else None

    @rule(classes=some_classes)
    def learn(self, classes):
        version = self.model.version
        self.count += 1
        x, y = delivery(classes, 6, seed=self.count)
        lesson = self.model.learn((x, y), name=f"delivery {self.count}", epochs=1)
        assert lesson.stored_bytes <= BUDGET
        self.classes[lesson.version] = self.classes[version] | set(classes)
        for c in classes:
            rows = [row.tobytes() for row, label in zip(x, y, strict=True) if label == c]
            self.learned.setdefault(c, []).extend(rows)

    @rule(classes=some_classes, at=strategies.integers(1, 3))
    def learn_interrupted(self, classes, at):
        version = self.model.version
        self.count += 1
        data = delivery(classes, 6, seed=self.count)
        step, met = Learner.step, []

        def bomb(learner, batch):
            met.append(1)
            if len(met) == at:
                raise KeyboardInterrupt
            step(learner, batch)

        Learner.step = bomb
        try:
            self.model.learn(data, name=f"delivery {self.count}", epochs=2)
        except KeyboardInterrupt:
            assert mdmt.LivingModel(self.folder).version == version
        finally:
            Learner.step = step
        self.model = mdmt.LivingModel(self.folder)
        if self.model.version == version:
            lesson = self.model.learn(data, name=f"delivery {self.count}", epochs=2)
            assert lesson.promoted
        self.classes[self.model.version] = self.classes[version] | set(classes)
        for c in classes:
            rows = [r.tobytes() for r, label in zip(*data, strict=True) if label == c]
            self.learned.setdefault(c, []).extend(rows)

    @rule()
    def open_again(self):
        live = self.model.predict_proba(PROBE)
        self.model = mdmt.LivingModel(self.folder)
        assert self.model.predict_proba(PROBE).tobytes() == live.tobytes()

    @rule(data=strategies.data())
    def rollback(self, data):
        number = data.draw(strategies.sampled_from(sorted(self.classes)))
        self.model.rollback(to=number)
        assert self.model.version == number

    @rule(keep=strategies.integers(1, 3))
    def prune(self, keep):
        for number in self.model.prune(keep):
            del self.classes[number]

    @rule()
    def verify(self):
        assert self.model.verify() == {}

    @rule()
    def export_module(self):
        module = self.model.module()
        assert set(module.labels) == self.classes[self.model.version]
        shares = module(torch.from_numpy(PROBE)).numpy()
        np.testing.assert_allclose(shares, self.model.predict_proba(PROBE), atol=1e-5)

    @precondition(lambda self: not self.exported)  # once a sequence: it takes a second
    @rule()
    def export_onnx(self):
        file = self.model.export_onnx(self.folder.parent / "model.onnx")
        session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
        (shares,) = session.run(None, {"inputs": PROBE})
        np.testing.assert_allclose(shares, self.model.predict_proba(PROBE), atol=1e-5)
        self.exported = True

    @precondition(lambda self: len(self.classes[self.model.version]) > 1)
    @rule(data=strategies.data(), rebuild=strategies.booleans())
    def forget(self, data, rebuild):
        known = self.classes[self.model.version]
        gone = data.draw(strategies.sampled_from(sorted(known)))
        removal = self.model.forget(classes=[gone], rebuild=rebuild)
        kept = known - {gone} - set(removal.lost)
        self.classes = {
            number: classes
            for number, classes in self.classes.items()
            if number not in removal.versions
        }
        assert not any(gone in classes for classes in self.classes.values())
        self.classes[removal.version] = kept
        everything = content(self.folder)
        assert not [row for row in self.learned.pop(gone) if row in everything]

    @invariant()
    def every_version_loads_with_its_classes(self):
        assert [v.number for v in self.model.versions] == sorted(self.classes)
        assert set(self.model.classes) == self.classes[self.model.version]
        number = max(self.classes)
        answers = self.model.answers(number)
        assert {label for _, label in answers.predictor.classes()} == self.classes[number]
        assert np.isfinite(self.model.predict_proba(PROBE)).all()

    def teardown(self):
        assert self.model.verify() == {}
        shutil.rmtree(self.folder.parent)


def test_any_sequence_of_calls_keeps_the_promises():
    settings = hypothesis.settings(
        max_examples=max(1, STEPS // LENGTH),
        stateful_step_count=LENGTH,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    run_state_machine_as_test(ModelFolder, settings=settings)
