"""Dead features and the effective rank of features, at the end of each task."""

import json
import math

import pytest
import torch

import mdmt
from mdmt.errors import Mistake
from mdmt.learning.evaluation import RANK_SAMPLE, dead_share, effective_rank
from mdmt.system.state import StateFolder
from support.helpers import small_stream


def learner_for(method="van", **more):
    return mdmt.Learner(mdmt.backbones.mlp(784, 16), method, **{"lr": 0.05, **more})


def test_a_feature_is_dead_if_no_example_of_any_task_changes_it():
    first = torch.tensor([[0.0, 1.0, 0.5, 0.0], [0.0, 2.0, 0.5, 0.0]])
    second = torch.tensor([[0.0, 1.0, 0.5, 0.0], [0.0, 1.0, 0.5, 0.5]])
    assert dead_share([first]) == 0.75
    assert dead_share([first, second]) == 0.5  # one is zero, one is .5 for every example
    assert dead_share([]) is None
    assert dead_share([first, torch.full((1, 4), math.inf)]) is None


def test_the_effective_rank_by_hand():
    corners = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    assert effective_rank([corners]) == pytest.approx(2)
    assert effective_rank([corners[:2] + 7, corners[2:] + 7]) == pytest.approx(2)  # centred
    assert effective_rank([corners * torch.tensor([3.0, 0.0])]) == pytest.approx(1)
    # singular values 6 and 2: shares 3/4 and 1/4
    by_hand = math.exp(-0.75 * math.log(0.75) - 0.25 * math.log(0.25))
    assert effective_rank([corners * torch.tensor([3.0, 1.0])]) == pytest.approx(by_hand)
    wide = torch.cat([corners * torch.tensor([3.0, 1.0]), torch.zeros(4, 6)], 1)
    assert effective_rank([wide]) == pytest.approx(by_hand)  # more features than examples
    assert effective_rank([torch.full((5, 3), 0.1)]) == 0
    assert effective_rank([]) is effective_rank([torch.tensor([[1.0], [math.nan]])]) is None


def test_the_rank_of_many_examples_is_that_of_some():
    draws = torch.randn(3 * RANK_SAMPLE, 4, generator=torch.Generator().manual_seed(1))
    assert effective_rank([draws]) == effective_rank([draws[::3]])


def test_a_collapsed_network_shows():
    stream = small_stream(tasks=2, train=40, heads="per-task")
    ends = {}
    for lr in (0.05, 30.0):
        record = learner_for(lr=lr).run(stream)
        assert len(record.dead_features) == len(record.feature_rank) == 2
        ends[lr] = (record.dead_features[-1], record.feature_rank[-1])
    assert ends[0.05][0] < 0.3
    assert ends[0.05][1] > 3
    assert ends[30.0][0] > 0.5
    assert ends[30.0][1] < 3


def test_tasks_learned_together_have_one_number():
    record = learner_for("joint").run(small_stream(tasks=3))
    for numbers in (record.dead_features, record.feature_rank):
        assert numbers[:2] == [None, None]
        assert numbers[2] is not None


def test_more_data_replace_the_number():
    first, second = small_stream(tasks=2)
    learner = learner_for()
    learner.learn(first)
    learner.learn(second)
    before = list(learner.record.feature_rank)
    learner.learn(first, more=True)
    assert len(learner.record.dead_features) == len(learner.record.feature_rank) == 2
    assert learner.record.feature_rank[0] == before[0]
    assert learner.record.feature_rank[1] != before[1]


def without_features(folder):
    """Make a saved learner one of a version that did not look at features."""
    state = StateFolder(folder)
    saved = state.open()
    record = {
        key: value
        for key, value in saved.rest["record"].items()
        if key not in ("dead_features", "feature_rank")
    }
    parts = {name: saved.part(name) for name in saved.files}
    state.write(parts.items(), {**saved.rest, "record": record})


def test_a_learner_of_an_earlier_version_learns_on(tmp_path):
    first, second = small_stream(tasks=2)
    learner = learner_for()
    learner.learn(first)
    learner.save(tmp_path)
    without_features(tmp_path)
    again = mdmt.Learner.load(tmp_path)
    assert again.record.dead_features == again.record.feature_rank == [None]
    again.learn(second, earlier=[first])
    assert again.record.dead_features[0] is None
    assert 0 <= again.record.dead_features[1] < 1
    assert len(json.loads(json.dumps(again.record.to_json()))["feature_rank"]) == 2


def test_a_saved_learner_with_wrong_numbers_is_refused(tmp_path):
    learner = learner_for()
    learner.learn(small_stream(tasks=1)[0])
    learner.record.dead_features.append(0.5)
    learner.save(tmp_path)
    with pytest.raises(Mistake, match="record: dead_features does not have 1 numbers"):
        mdmt.Learner.load(tmp_path)
