"""The part of a version that answers: network, head and temperature, without the rest.

It loads without memory, optimiser and method, so that predicting starts fast. It is a snapshot: it
does not change when the folder does.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mdmt.errors import Mistake
from mdmt.inputs.arrays import read_mean
from mdmt.inputs.saved import check_finite, saved_tensor
from mdmt.learning.checkpoints import decoded, naming
from mdmt.learning.gate import KINDS, check_sizes, network
from mdmt.living.held_back import HeldBack
from mdmt.living.tables import arranged, is_frame
from mdmt.network.heads import Heads
from mdmt.network.model import Model, count_features, normalisation_for
from mdmt.network.predictor import Predictor, columns
from mdmt.system.state import SavedState

ANSWERS = "answers"  # the part with the weights that answer, if they are not those being trained


@dataclass(frozen=True)
class ClassAccuracy:
    """The accuracy on the held-back examples of a class."""

    task: str | None  # None: all classes share one head
    label: Hashable
    examples: int
    accuracy: float


@dataclass(frozen=True)
class Answer:
    """A class with its probability; the label is None if the model does not know."""

    label: Hashable | None
    probability: float
    top: list[tuple[Hashable, float]]  # the most probable classes with their probabilities


class Answers:
    """Answers of one version, or of a learner that becomes one."""

    def __init__(
        self,
        model: Model,
        *,
        scale: float,
        temperature: float = 1.0,
        threshold: float | None = None,
        version: int = 0,
        columns: list[str] | None = None,
    ) -> None:
        self.model = model
        self.temperature = temperature
        self.threshold = threshold  # rejects 5 % of the held-back examples
        self.version = version
        self.columns = columns  # the names of a table's columns
        self.predictor = Predictor(model, scale=scale / temperature)
        self.shared = model.heads.shared

    @classmethod
    def load(cls, saved: SavedState, backbone: nn.Module | None = None) -> Answers:
        """The answers of a saved version."""
        about = saved.rest["living"]
        return cls(
            _model(saved, backbone),
            scale=about["scale"],
            temperature=about["temperature"],
            threshold=about["threshold"],
            version=saved.rest["version"],
            columns=about.get("columns"),
        )

    def answers(
        self, x: Any, task: str | None = None, *, top: int = 1, reject: float = 0.0
    ) -> list[Answer]:
        """The most probable classes of each input; below `reject` the answer is unknown."""
        with self.model.evaluating():
            scores = self.model.scores(self.predictor.features(self._arranged(x)))
        return self.from_scores(scores, task, top=top, reject=reject)

    def labels(self, x: Any, task: str | None = None, *, reject: float = 0.0) -> list[Any]:
        """The most probable class of each input; None if its probability is below `reject`."""
        shares = self.probabilities(x, task)
        known = [label for _, label in self.predictor.classes(task)]
        found = [known[place] for place in shares.argmax(1).tolist()]
        for place in (shares.max(1).astype(float) < reject).nonzero()[0].tolist():
            found[place] = None
        return found

    def probabilities(self, x: Any, task: str | None = None) -> NDArray[np.float32]:
        """The calibrated probability of each class for each input."""
        return self.predictor.predict_proba(self._arranged(x), task)

    def _arranged(self, x: Any) -> Any:
        """Inputs with the columns of a frame in the model's order."""
        return arranged("inputs", x, self.columns) if self.columns and is_frame(x) else x

    def from_scores(
        self, scores: Tensor, task: str | None = None, *, top: int = 1, reject: float = 0.0
    ) -> list[Answer]:
        """The same from the scores of all rows of the head."""
        chosen = columns(self.model.heads, task)
        rows = torch.tensor([column.row for column in chosen])
        shares = (self.predictor.scale * scores[:, rows]).softmax(1)
        best = shares.topk(min(top, len(chosen)), dim=1)
        found = []
        for values, places in zip(best.values.tolist(), best.indices.tolist(), strict=True):
            pairs = [(chosen[i].label, share) for i, share in zip(places, values, strict=True)]
            label, probability = pairs[0]
            found.append(Answer(label if probability >= reject else None, probability, pairs))
        return found

    def scores(self, held_back: HeldBack) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Scores at temperature 1, -inf for classes that do not compete, and the right column."""
        heads = self.model.heads
        rows = torch.tensor([column.row for column in columns(heads, None)])
        with self.model.evaluating():
            assert held_back.inputs is not None
            features = self.model.embed(held_back.inputs, to_answer=True)
            scores = self.model.scores(features)[:, rows].double()
        scores *= self.predictor.scale * self.temperature
        if not self.shared:
            owner = heads.owner[rows]
            scores[owner != held_back.tasks[:, None]] = -torch.inf
        place = {row: number for number, row in enumerate(rows.tolist())}
        labels = [place[row] for row in held_back.labels.tolist()]
        return scores.numpy(), np.array(labels, np.int64)

    def class_accuracies(self, held_back: HeldBack) -> dict[int, ClassAccuracy]:
        """The accuracy on held-back examples by row of the head, for the rows this version has."""
        known = torch.tensor([column.row for column in columns(self.model.heads, None)])
        chosen = held_back.at(torch.isin(held_back.labels, known).nonzero()[:, 0])
        if not len(chosen):
            return {}
        scores, labels = self.scores(chosen)
        right = torch.from_numpy(scores.argmax(1) == labels)
        found = {}
        for column in columns(self.model.heads, None):
            mine = right[chosen.labels == column.row]
            if len(mine):
                task = None if self.shared else column.task
                share = mine.double().mean().item()
                found[column.row] = ClassAccuracy(task, column.label, len(mine), share)
        return found


def check_network(saved: SavedState, backbone: nn.Module | None) -> None:
    """Refuse to load a version with a network of the user's that was not passed."""
    if backbone is None and saved.rest["backbone"] is None:
        network = saved.rest.get("backbone_class")
        raise Mistake(
            f"{saved.folder.name} was made with the network {network}: pass it, backbone=..."
            " (on the command line --backbone)"
        )


def _model(saved: SavedState, backbone: nn.Module | None) -> Model:
    """The network of a version with the weights that answer."""
    rest = saved.rest
    about, settings = rest["living"], rest["learner"]
    check_network(saved, backbone)
    weights = saved.read("weights", decoded)
    with naming(saved.name):
        check_sizes(rest, weights)
        state = {name.removeprefix("model."): value for name, value in weights.items()}
        if backbone is None:
            backbone = network(rest["backbone"], state)
        shape, kind = rest["input"]
        example = torch.empty(1, *shape, dtype=KINDS[kind])
        heads = Heads(settings["heads"], settings["outputs"])
        heads.outputs = 1
        mean = read_mean(weights.get("mean"))
        model = Model(
            backbone,
            count_features(backbone, example),
            heads,
            cosine=about["cosine"],
            normalisation=normalisation_for(settings["scale"], mean, example),
            seed=settings["seed"],
            precision=settings.get("precision", "fp32"),
            channels_last=rest.get("channels_last", True),
            example=example,
        )
        model.load_state(state, rest)
        heads.load_state({}, rest["tasks"])
        if ANSWERS in saved.files:
            answers = saved.read(ANSWERS, decoded)
            flat = saved_tensor(answers, "flat", model.flat.shape, whose="answers.")
            check_finite("answers.flat", flat)
            statistics = None
            if "statistics" in answers:
                shape = model.statistics_vector().shape
                statistics = saved_tensor(answers, "statistics", shape, whose="answers.")
            model.set_values(flat, statistics)
        model.mirror = rest["method"]["arguments"].get("mirror") is True
    return model
