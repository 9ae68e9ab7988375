import os

import pytest

import mdmt
import mdmt.experiments.run
from faults.disk import files_of
from faults.work import DELIVERIES
from mdmt.experiments.run import run
from support.short_runs import config_of, done, essence, small


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Nothing waits for the real disk."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(scope="module")
def learners():
    """A learner after one task, after two, and after three."""
    made = []
    for tasks in (1, 2, 3):
        learner = mdmt.Learner(mdmt.backbones.mlp(12, 4), mdmt.ER(reference_batch=4), seed=1)
        for (x, y), name in DELIVERIES[:tasks]:
            learner.learn((name, x, y))
        made.append(learner)
    return made


@pytest.fixture
def short_streams(monkeypatch):
    monkeypatch.setattr(mdmt.experiments.run, "stream_for", small)


@pytest.fixture
def halted(tmp_path, short_streams):
    """An unfinished run with two checkpoints: its configuration, its files, and its result."""
    config = config_of("er", "mlp")
    straight = essence(done(config, tmp_path / "straight"))

    class Halt(Exception):
        pass

    def halt(learner):
        if learner.record.steps == 5:
            raise Halt

    with pytest.raises(Halt):
        run(config, tmp_path / "out", every=1, on_step=halt)
    return config, files_of(tmp_path / "out"), straight
