"""Accuracies along the steps: a measurement that changes nothing, and goes on after a stop."""

import json
import re

import pytest
import torch
from torch import nn

import mdmt
from mdmt.errors import Mistake
from mdmt.experiments.run import run
from mdmt.learning.checkpoints import Checkpoints
from mdmt.runs.anytime import MOST, checked
from mdmt.runs.config import RunConfig, folder_of
from mdmt.runs.folder import RunFolder
from mdmt.runs.request import RunRequest
from support.configs import config_for
from support.helpers import mistake, outcome, small_stream


class Stop(Exception):
    pass


class Noisy(nn.Module):
    """A network that draws random numbers in evaluation too."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(784, 8)

    def forward(self, x):
        return self.linear(x.flatten(1)).relu() * (1 + 0.1 * torch.rand(8))


def learner_for(method="er", network=None):
    return mdmt.Learner(
        network or mdmt.backbones.mlp(784, 16), method, memory=mdmt.memory.Ring(3), lr=0.05, seed=3
    )


def stream(tasks=3):
    return small_stream(tasks=tasks, train=40, heads="per-task")  # four steps each


def test_points_are_at_boundaries_and_every_so_many_steps():
    record = learner_for().run(stream(), evaluate_every=3)
    steps, rows = record.anytime["steps"], record.anytime["accuracy"]
    assert steps == [0, 3, 4, 4, 7, 8, 8, 11, 12]
    assert [len(row) for row in rows] == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    for task, place in enumerate((2, 5, 8)):  # after a task: its row of the matrix
        assert rows[place] == record.accuracy[task][: task + 1]
    assert rows[3][0] == rows[2][0]
    assert rows[0][0] == record.curve[0][0]
    assert rows[1][0] == record.curve[0][3]


@pytest.mark.parametrize("method", ["van", "mer", "mdmt-r", "gem"])
def test_measuring_changes_nothing_that_is_learned(method):
    ends = []
    for every in (0, 1):
        learner = learner_for(method)
        learner.run(stream(2), evaluate_every=every)
        assert (learner.record.anytime is None) == (every == 0)
        generators = [torch.get_rng_state().sum(), learner.memory.generator.random()]
        ends.append((outcome(learner), generators))
    assert ends[0] == ends[1]


def test_measuring_draws_no_random_number():
    ends = []
    for every in (0, 1):
        torch.manual_seed(1)
        learner = learner_for("van", Noisy())
        learner.run(stream(2), evaluate_every=every)
        ends.append(learner.record.weights_sha256)
    assert ends[0] == ends[1]


@pytest.mark.parametrize("at", [2, 3, 4, 6, 8])
def test_a_run_that_was_interrupted_has_the_same_points(at, tmp_path):
    whole = learner_for().run(stream(), evaluate_every=2)

    def stop(learner):
        if learner.record.steps == at:
            raise Stop

    learner = learner_for()
    with pytest.raises(Stop):
        learner.run(stream(), on_step=stop, checkpoint=Checkpoints(tmp_path, 1), evaluate_every=2)
    again = mdmt.Learner.load(tmp_path).run(stream(), evaluate_every=2)
    assert again.anytime == whole.anytime
    assert again.weights_sha256 == whole.weights_sha256


def test_a_saved_state_does_not_change_with_the_learner():
    learner = learner_for()
    learner.run(stream(1), evaluate_every=2)
    _, saved = learner.recorder.state()
    learner.run(stream(2), evaluate_every=2)
    assert saved["anytime"]["steps"] == [0, 2, 4]
    assert len(saved["anytime"]["accuracy"]) == 3


def test_a_point_that_is_measured_again_counts_once():
    class Fails(mdmt.ER):
        broken = True

        def gradient(self, batch):
            if self.broken and self.learner.step_in_task == 2:
                self.broken = False
                raise Stop
            return super().gradient(batch)

    learner = learner_for(Fails())
    with pytest.raises(Stop):
        learner.run(stream(1), evaluate_every=2)
    learner.is_halfway = False  # it failed before it changed anything
    record = learner.run(stream(1), evaluate_every=2)
    assert record.anytime["steps"] == [0, 2, 4]


def test_tasks_learned_together_have_no_boundary():
    record = learner_for("joint").run(stream(2), evaluate_every=4)
    assert record.anytime["steps"] == [0, 4, 8]
    assert {len(row) for row in record.anytime["accuracy"]} == {2}
    assert record.metrics["gap"] is None
    assert 0 < record.metrics["AAA"] <= 1


def test_too_many_points_and_wrong_intervals_are_refused_before_learning(monkeypatch):
    learner = learner_for()
    line = mistake(learner.run, stream(2), evaluate_every=-1)
    assert line == "evaluate_every=-1: must be a whole number of steps, or 0 for never"
    monkeypatch.setattr("mdmt.runs.anytime.MOST", 10)
    line = mistake(learner.run, stream(2), evaluate_every=1)
    assert line == ("evaluate_every=1: would measure 15 accuracies, of at most 10; take at least 3")
    learner.run(stream(2), evaluate_every=3)
    line = mistake(learner_for().run, stream(3), evaluate_every=10**6)
    assert line.endswith("of at most 10; learn fewer tasks")


@pytest.mark.parametrize(
    "wrong",
    [
        3,
        {"steps": [0]},
        {"steps": [0], "accuracy": []},
        {"steps": [0, 0], "accuracy": [[0.5], 3]},
        {"steps": [5, 0], "accuracy": [[0.5], [0.5]]},
        {"steps": [0, 5], "accuracy": [[0.5, 0.5], [0.5]]},
        {"steps": [0], "accuracy": [[]]},
        {"steps": [0], "accuracy": [[0.5] * 3]},
        {"steps": [0], "accuracy": [[1.5]]},
        {"steps": [-1], "accuracy": [[0.5]]},
        {"steps": list(range(MOST + 1)), "accuracy": [[0.5]] * (MOST + 1)},
    ],
)
def test_points_of_unknown_origin_are_checked(wrong):
    with pytest.raises(Mistake, match="anytime"):
        checked(wrong, tasks=2)
    assert checked({"steps": [0], "accuracy": [[None, 1]]}, tasks=2)["accuracy"] == [[None, 1]]


def test_the_interval_is_part_of_the_configuration_where_it_is_given():
    plain, measured = (
        config_for("split-digits", "van", tasks=2, evaluate_every=every) for every in (0, 10)
    )
    assert plain.hash == config_for("split-digits", "van", tasks=2).hash != measured.hash
    content = json.loads(json.dumps(plain.to_json()))
    del content["evaluate_every"]
    assert RunConfig.from_json(content) == plain
    assert RunRequest.of(measured).flags()[-2:] == ["--evaluate-every", "10"]


def test_a_run_folder_has_the_points_and_their_metrics(tmp_path):
    config = config_for("split-digits", "van", tasks=2, subset=40, evaluate_every=2)
    record = run(config, tmp_path)
    stored = RunFolder(folder_of(config, tmp_path)).record
    assert stored.anytime == record.anytime
    assert stored.anytime["steps"] == [0, 2, 4, 4, 6, 8]
    text = (folder_of(config, tmp_path) / "record.json").read_text()
    assert re.search(r'"metrics": ?\{[^}]*"AAA"', text)
    off = run(config_for("split-digits", "van", tasks=2, subset=40), tmp_path)
    assert off.weights_sha256 == record.weights_sha256
    assert not {"anytime", "AAA"} & {*off.to_json(), *off.metrics}
