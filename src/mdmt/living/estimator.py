"""A classifier with scikit-learn's interface that goes on learning, also new classes."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn

import mdmt.backbones as backbones
import mdmt.learning.checkpoints as checkpoints
import mdmt.living.defaults as defaults
from mdmt.errors import Mistake
from mdmt.learner import Learner
from mdmt.living.plan import parse_bytes
from mdmt.memory import Balanced
from mdmt.tasks import Task
from mdmt.words import bytes_text

SEEDS = 2**31  # random seeds are below it
KINDS = (np.float32, np.uint8)  # of inputs; others become the first one


class LifelongClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A network that learns new classes, or more of known ones, without the earlier examples.

    method
        "er", "mdmt-r", "er-ace" or another method; None: the default of `mdmt learn`
    memory
        the size of the memory of earlier examples, such as "50MB"
    epochs, lr, batch
        passes over the examples of each call, learning rate (None: that of `mdmt learn` for the
        method), examples in a mini-batch
    backbone
        a network of yours, which is copied; None: one for the shape of X
    random_state
        an int gives the same network every time

    `fit` starts anew; `partial_fit(X, y)` goes on, and needs no list of classes. X has one example
    in each row: features, or images (channels, height, width). Pixels of the type uint8 are divided
    by 255; scale features yourself, as with StandardScaler in a Pipeline.
    """

    learner_: Learner
    classes_: NDArray[Any]

    def __init__(
        self,
        method: str | None = None,
        *,
        memory: str | int = "50MB",
        epochs: int = defaults.SETTINGS["epochs"],
        lr: float | None = None,
        batch: int = defaults.SETTINGS["batch"],
        backbone: nn.Module | None = None,
        random_state: Any = None,
    ) -> None:
        self.method = method
        self.memory = memory
        self.epochs = epochs
        self.lr = lr
        self.batch = batch
        self.backbone = backbone
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> LifelongClassifier:
        """Learn from the beginning."""
        return self._learn(X, y, first=True)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> LifelongClassifier:
        """Learn new classes, more of known ones, or both.

        `classes` is not needed. If it is given, as other classifiers want it, all of y must be in
        it. Of the settings only `epochs` may change between two calls. A call that fails, or is
        interrupted, changes nothing.
        """
        return self._learn(X, y, first=not hasattr(self, "learner_"), allowed=classes)

    def predict(self, X: Any) -> NDArray[Any]:
        """The class of each row."""
        shares = self.predict_proba(X)
        labels: NDArray[Any] = self.classes_[shares.argmax(1)]
        return labels

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """The probability of each class, a column for each of `classes_`."""
        check_is_fitted(self)
        inputs = validate_data(self, X, dtype=KINDS, allow_nd=True, reset=False)
        shares = self.learner_.predict_proba(inputs)
        learned = np.array([label for _, label in self.learner_.classes()])
        ordered: NDArray[np.float32] = shares[:, np.argsort(learned)]
        return ordered

    def _learn(self, X: Any, y: Any, *, first: bool, allowed: Any = None) -> LifelongClassifier:
        inputs, labels = validate_data(self, X, y, dtype=KINDS, allow_nd=True, reset=first)
        check_classification_targets(labels)
        found = np.unique(labels)
        if allowed is not None and not np.isin(found, allowed).all():
            raise Mistake(f"classes={list(allowed)} does not have all classes of y, {list(found)}")
        known = found if first else _joined(self.classes_, found)
        # Learning on a copy: an error or Ctrl-C leaves this classifier as it was.
        learner = self._new_learner(inputs) if first else copy.deepcopy(self.learner_)
        self._check_memory(learner, inputs, len(known))
        learner.epochs = self.epochs
        # The last task has all classes so far: they have one head, and compete.
        earlier = learner.tasks[-1].classes if learner.tasks else ()
        new = [label for label in found.tolist() if label not in earlier]
        if new:
            name = f"call {len(learner.tasks) + 1}"
            learner.learn(Task(name, inputs, labels.tolist(), classes=[*earlier, *new]))
        else:
            learner.learn(Task(learner.tasks[-1].name, inputs, labels.tolist()), more=True)
        self.learner_, self.classes_ = learner, known
        return self

    def _new_learner(self, inputs: NDArray[Any]) -> Learner:
        network = copy.deepcopy(self.backbone)
        if network is None:
            network = backbones.make(defaults.network_for(inputs.shape[1:]))
        method = defaults.method_for(self.method)
        own = defaults.learning_for(self.method, pixels=inputs.dtype == np.uint8)["lr"]
        return Learner(
            network,
            method,
            memory=defaults.memory_for(method, parse_bytes(self.memory)),
            lr=own if self.lr is None else self.lr,
            batch=self.batch,
            epochs=self.epochs,
            heads="shared",
            balance=True,
            seed=int(check_random_state(self.random_state).randint(SEEDS)),
        )

    def _check_memory(self, learner: Learner, inputs: NDArray[Any], classes: int) -> None:
        needed = classes * (inputs[0].nbytes + Balanced.OVERHEAD)
        if learner.method.uses_memory and learner.memory.size < needed:
            raise Mistake(
                f"memory={self.memory!r} cannot hold an example of each of {classes} classes: give"
                f" {bytes_text(needed + 999)} or more"
            )

    # Pickling: the learner as its saved state, since it has locks and shares its weights.

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        if "learner_" not in state:
            return state
        learner: Learner = state["learner_"]
        files, rest = checkpoints.pack(learner)
        network = None
        if backbones.spec_of(learner.backbone) is None:
            network = copy.deepcopy(learner.backbone)
        return {**state, "learner_": (dict(checkpoints.encoded(files)), rest, network)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "learner_" in state:
            parts, rest, network = state["learner_"]
            files = {name: checkpoints.decoded(content) for name, content in parts.items()}
            states = checkpoints.unpack(files, rest)
            learner = Learner.from_states("the pickle", states, backbone=network)
            state = {**state, "learner_": learner}
        super().__setstate__(state)


def _joined(known: NDArray[Any], found: NDArray[Any]) -> NDArray[Any]:
    """All classes in order; names and numbers cannot be mixed."""
    if (known.dtype.kind in "OU") != (found.dtype.kind in "OU"):
        raise Mistake(f"classes are {list(known)}, those of y are {list(found)}: names or numbers")
    joined: NDArray[Any] = np.unique(np.concatenate([known, found]))
    return joined
